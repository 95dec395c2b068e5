// Ring attention: each rank has the keys of one rank at a time, and passes them on while it attends to them.
//
// Before: %k.copy = allgather(%k) ...   %v.copy likewise, keys along one axis
//         %y = attention(%q, %k.copy, %v.copy) {result=values}
// After:  %k.1 = collective_permute(%k), from each rank to the next, %v.1 likewise, and so on from those
//         %y.0, %l.0 = attention(%q, %k, %v), and of %k.1 and %v.1, ..., causal by where those keys begin
//         %y = (%y.0 exp(%l.0) + %y.1 exp(%l.1) + ...) / (exp(%l.0) + exp(%l.1) + ...), pair by pair
//
// A rank holds three parts of the keys at a time, whatever their number is: its own, one that it reads, and the next
// one. Gradients of queries are the sum of those of the parts, of weights which the lse of all keys makes; gradients of
// keys are sent to the rank that has the keys, where they are added in the order of the steps. Parts have the type of
// the whole, sums of them are carried.
#include "multidevice/plan/ring_attention.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/fusion/passes/stream_axes.h"
#include "csrc/ir/builder.h"
#include "multidevice/plan/emit_steps.h"

namespace hir::plan {
namespace {

using base::Cat;
using fusion::FusionOp;
using ir::Op;
using ir::Value;

std::vector<const ir::Expr*> ExtentExprsOf(const Value& value) {
  std::vector<const ir::Expr*> extents;
  for (const ir::Axis& axis : ir::ValueAxes(*value.type)) extents.push_back(axis.extent);
  return extents;
}

// The axis of keys, as of an operand k or v and of their gradients.
size_t KeyAxis(const Value& value) { return ir::ValueAxes(*value.type).size() - 2; }

bool Is(const Value& value, FusionOp code) { return value.def != nullptr && fusion::CodeOf(*value.def) == code; }

// A tensor whose parts along its axis of keys the ranks of a team have.
struct Split {
  const ir::Mesh* mesh = nullptr;
  mesh::ParallelType dim = mesh::ParallelType::kSerial;
  std::vector<Op*> ops = {};  // That gather it, or add up the ranks' and scatter it, in program order.
  Value* part = nullptr;
  // A gradient's sum along axes on each rank, heads that share keys say, before those of the ranks are added.
  const Op* sum = nullptr;

  int64_t ways() const { return mesh->mesh.Size(dim); }
  bool IsAlongSame(const Split& other) const { return mesh == other.mesh && dim == other.dim; }
};

// Steps whose results one kernel puts together. All steps' would be read once, but would all be in memory.
constexpr int64_t kTogether = 4;

// One call, as several results are, and the ways in which what it reads and makes is split.
struct Call {
  std::vector<Op*> ops = {};
  Split keys, values;
  std::vector<std::optional<Split>> scattered = {};  // One an op: of gradients of keys and values.
  int64_t ways() const { return keys.ways(); }
};

class Rings {
 public:
  Rings(LocalProgram& program, const OverlapLimits& limits)
      : program_(program), graph_(*program.graph), limits_(limits), readers_(ir::UsesOf(graph_)) {
    for (const ir::Output& output : graph_.outputs) outputs_.insert(output.value);
  }

  void Run() {
    FindCalls();
    DropThoseReadElsewhere();
    for (const Call& call : calls_) {
      Tell(*call.ops[0],
           Cat("keys and values of ", KiBOf(call.keys, call.values), " a rank go round ", call.ways(), " ranks"));
    }
    if (calls_.empty()) return;
    const std::vector<ir::Guard> guards = graph_.guards;  // No size is new.
    fusion::Replacements replaced;
    for (const Call& call : calls_) {
      for (Op* const op : call.ops) replaced.Apply(*op);
      Emit(call, replaced);
    }
    ir::ForEachOp(graph_.body, [&](Op* op) { replaced.Apply(*op); });
    replaced.ApplyToOutputs(graph_);
    EraseReplaced();
    graph_.guards = guards;
    SortRecords();
  }

 private:
  // --- which ---

  Op* OnlyReader(const Value& value) const {
    const std::vector<Op*>& readers = readers_[static_cast<size_t>(value.id)];
    return readers.size() == 1 && !outputs_.contains(&value) ? readers[0] : nullptr;
  }

  // Whether `permute` brings axis 0 to `axis`, and leaves the order of the others.
  static bool BringsBack(const Op& permute, size_t axis) {
    const std::span<const int64_t> dims = permute.Ints("dims");
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto wanted = static_cast<int64_t>(i < axis ? i + 1 : i == axis ? 0 : i);
      if (dims[i] != wanted) return false;
    }
    return true;
  }
  // The other way.
  static bool BringsToFront(const Op& permute, size_t axis) {
    const std::span<const int64_t> dims = permute.Ints("dims");
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto wanted = static_cast<int64_t>(i == 0 ? axis : i <= axis ? i - 1 : i);
      if (dims[i] != wanted) return false;
    }
    return true;
  }

  // Whether its chunks lie one behind the other.
  static bool IsOuter(const Value& value, size_t axis) {
    const std::vector<const ir::Expr*> extents = ExtentExprsOf(value);
    return std::all_of(extents.begin(), extents.begin() + static_cast<ptrdiff_t>(axis),
                       [](const ir::Expr* extent) { return extent->IsConst(1); });
  }

  static bool IsPartOf(const Value& part, const Value& whole, size_t axis) {
    std::vector<const ir::Expr*> a = ExtentExprsOf(part), b = ExtentExprsOf(whole);
    if (a.size() != b.size()) return false;
    a[axis] = b[axis] = nullptr;
    return a == b;
  }

  static Split AlongTeamOf(const Op& communication) {
    return {.mesh = communication.MeshOf("mesh"), .dim = *mesh::ParseParallelType(communication.Name("dim"))};
  }

  // An operand k or v that is gathered (emit_steps.h says how).
  std::optional<Split> Gathered(const Value& whole) const {
    if (!Is(whole, FusionOp::kReshape)) return std::nullopt;
    const size_t axis = KeyAxis(whole);
    std::vector<Op*> ops = {whole.def};
    Value* const moved = whole.def->operands[0];
    if (!IsOuter(whole, axis)) {
      if (!Is(*moved, FusionOp::kPermute) || !BringsBack(*moved->def, axis)) return std::nullopt;
      ops.push_back(moved->def);
    } else if (Is(*moved, FusionOp::kReshape)) {
      ops.push_back(moved->def);
    }
    Value* const stacked = ops.back()->operands[0];
    if (!Is(*stacked, FusionOp::kAllgather)) return std::nullopt;
    ops.push_back(stacked->def);
    for (size_t i = 1; i < ops.size(); ++i) {
      if (OnlyReader(*ops[i]->results[0]) == nullptr) return std::nullopt;
    }
    std::ranges::reverse(ops);
    Split split = AlongTeamOf(*stacked->def);
    split.part = stacked->def->operands[0];
    if (!IsPartOf(*split.part, whole, axis)) return std::nullopt;
    split.ops = std::move(ops);
    return split;
  }

  // Partial gradients of k or v that are added up and scattered.
  std::optional<Split> Scattered(const Value& partial) const {
    const size_t axis = KeyAxis(partial);
    Op* op = OnlyReader(partial);
    if (op == nullptr || fusion::CodeOf(*op) != FusionOp::kReshape) return std::nullopt;
    std::vector<Op*> ops = {op};
    if (!IsOuter(partial, axis)) {
      op = OnlyReader(*op->results[0]);
      if (op == nullptr || fusion::CodeOf(*op) != FusionOp::kPermute || !BringsToFront(*op, axis)) return std::nullopt;
      ops.push_back(op);
    } else if (Op* const moved = OnlyReader(*op->results[0]);
               moved != nullptr && fusion::CodeOf(*moved) == FusionOp::kReshape) {
      ops.push_back(op = moved);
    }
    std::vector<const ir::Expr*> chunk = ExtentExprsOf(*op->results[0]), whole = ExtentExprsOf(partial);
    chunk.erase(chunk.begin());
    whole[axis] = chunk[axis];
    if (chunk != whole) return std::nullopt;
    op = OnlyReader(*op->results[0]);
    const Op* sum = nullptr;
    if (op != nullptr && fusion::CodeOf(*op) == FusionOp::kSum && std::ranges::count(op->Ints("axes"), 0) == 0) {
      ops.push_back(op);
      sum = op;
      op = OnlyReader(*op->results[0]);
    }
    if (op == nullptr || fusion::CodeOf(*op) != FusionOp::kReduceScatter || op->Name("reduce") != "sum")
      return std::nullopt;
    ops.push_back(op);
    Split split = AlongTeamOf(*op);
    split.part = op->results[0];
    split.sum = sum;
    split.ops = std::move(ops);
    return split;
  }

  static std::optional<int64_t> BytesOf(const Value& value) {
    std::optional<int64_t> bytes = DTypeBytes(value.type->dtype);
    for (const ir::Expr* extent : ExtentExprsOf(value)) {
      if (!extent->IsConst()) return std::nullopt;
      if (bytes) bytes = base::CheckedMul(*bytes, extent->value);
    }
    return bytes.value_or(INT64_MAX);
  }

  // Nothing: a size is a symbol.
  static std::optional<int64_t> BytesOf(const Split& keys, const Split& values) {
    const std::optional<int64_t> bytes = BytesOf(*keys.part), more = BytesOf(*values.part);
    if (!bytes || !more) return std::nullopt;
    return base::CheckedAdd(*bytes, *more).value_or(INT64_MAX);
  }
  static std::string KiBOf(const Split& keys, const Split& values) {
    const std::optional<int64_t> bytes = BytesOf(keys, values);
    return bytes ? Cat(*bytes / 1024, " KiB") : "any size";
  }

  // For people: a sentence about the call that makes the result of `op`, one a call.
  void Tell(const Op& op, std::string_view text) {
    if (std::ranges::any_of(told_, [&](const Op* other) { return fusion::ShareCall(*other, op); })) return;
    told_.push_back(&op);
    program_.notes.push_back(Cat(UserName(op.results[0]->name), ": ", text));
  }

  // Why keys are gathered all the same; empty: they can go round.
  std::string WhyWhole(const Op& op, const Split& keys, const Split& values) const {
    const std::optional<OverlapLimits::Least>& least = limits_.Of(keys.mesh->mesh, keys.dim).attended;
    if (!least) return std::string(limits_.WhyNone(keys.mesh->mesh, keys.dim));
    if (fusion::HasMask(op)) return "it has a mask";
    // Ranks with the same queries would put their parts together in orders of their own: copies that differ.
    if (!AreQueriesSplit(op, keys)) return "its queries are not split along with the keys";
    if (fusion::OperandOfGradient(op) && op.results[0]->type->dtype == DType::kFloat16)
      return "a part of a gradient may be beyond f16";
    if (!fusion::StreamAxesOf(*op.results[0])->empty()) return "it is in a stream loop";
    const std::optional<int64_t> bytes = BytesOf(keys, values);
    if (least->bytes == 0 || (bytes && *bytes >= least->bytes)) return "";
    if (!bytes) return "their sizes are no constants";
    return Cat(KiBOf(keys, values), " a rank (from ", least->bytes / 1024, " on)");
  }

  bool AreQueriesSplit(const Op& op, const Split& keys) const {
    std::vector<std::string_view> symbols;
    ir::CollectSymbols(fusion::QueriesBegin(graph_.exprs(), op), symbols);
    return std::ranges::count(symbols, CoordinateOf(*keys.mesh, keys.dim)) > 0;
  }

  void FindCalls() {
    for (Op* op = graph_.body.first; op != nullptr; op = op->next) {
      if (!fusion::IsAttention(fusion::CodeOf(*op))) continue;
      std::optional<Split> keys = Gathered(*op->operands[1]), values = Gathered(*op->operands[2]);
      if (!keys || !values || !keys->IsAlongSame(*values) || keys->ways() < 2) continue;
      if (op->results[0]->layout->mesh != keys->mesh) continue;
      std::string why = WhyWhole(*op, *keys, *values);
      std::optional<Split> scattered;
      if (fusion::OperandOfGradient(*op).value_or(0) > 0) {
        scattered = Scattered(*op->results[0]);
        if (why.empty() && (!scattered || !scattered->IsAlongSame(*keys)))
          why = "its result is not scattered as they are";
      }
      if (!why.empty()) {
        Tell(*op, Cat("keys and values are gathered: ", why));
        continue;
      }
      auto call = std::ranges::find_if(calls_, [&](const Call& c) { return fusion::ShareCall(*c.ops[0], *op); });
      if (call == calls_.end()) call = calls_.insert(call, {.keys = *std::move(keys), .values = *std::move(values)});
      call->ops.push_back(op);
      call->scattered.push_back(std::move(scattered));
    }
  }

  // The reader that needs keys or values whole all the same; empty: there is none.
  std::string WhoReadsWhole(const Call& call) const {
    for (const Split* split : {&call.keys, &call.values}) {
      const Value* const whole = split->ops.back()->results[0];
      if (outputs_.contains(whole)) return "all ranks want them";
      for (const Op* reader : readers_[static_cast<size_t>(whole->id)]) {
        const auto has = [&](const Call& c) { return std::ranges::find(c.ops, reader) != c.ops.end(); };
        bool is_ours = std::ranges::any_of(calls_, has);
        for (size_t i = 0; i < reader->operands.size(); ++i)
          is_ours &= reader->operands[i] != whole || i == 1 || i == 2;
        if (!is_ours) return Cat(UserName(reader->results[0]->name), " reads them whole");
      }
    }
    return "";
  }

  // A call that is dropped reads keys whole that others may share.
  void DropThoseReadElsewhere() {
    for (bool again = true; again;) {
      std::vector<Call> kept;
      for (const Call& call : calls_) {
        const std::string who = WhoReadsWhole(call);
        if (who.empty()) kept.push_back(call);
        if (!who.empty()) Tell(*call.ops[0], Cat("keys and values are gathered: ", who));
      }
      again = kept.size() < calls_.size();
      calls_ = std::move(kept);
    }
  }

  // --- what in its place ---

  // All ops of one call, in front of its first one.
  class Maker {
   public:
    Maker(ir::Graph& graph, const Call& call)
        : graph_(graph),
          op_(*call.ops[0]),
          builder_(graph, graph.body, call.ops[0]),
          mesh_(call.keys.mesh),
          dtype_(op_.operands[0]->type->dtype),
          carried_(ComputeDType(dtype_)) {}

    Value* Make(std::string_view name, std::initializer_list<Value*> operands,
                std::initializer_list<ir::Attr> attrs = {}, std::string_view result = {}) {
      return Placed(builder_.Make(name, operands, attrs, result.empty() ? op_.results[0]->name : result));
    }
    // `op` of keys and values of one rank, which begin at `begin`.
    Value* Part(const Op& op, Value* keys, Value* values, const ir::Expr* begin, std::string_view result = {}) {
      std::vector<Value*> operands(op.operands.begin(), op.operands.end());
      operands[1] = keys;
      operands[2] = values;
      std::vector<ir::Attr> attrs(op.attrs.begin(), op.attrs.end());
      std::vector<const ir::Expr*> offset = fusion::OffsetOfKeysFrom(graph_.exprs(), op, begin);
      for (ir::Attr& attr : attrs) {
        if (!result.empty() && attr.name == "result") attr.value = result;
        if (attr.name != "offset") continue;
        // The size of values is the only axis that the lse of a query lacks, and the last one.
        if (result == "lse" && op.Name("result") == "values") offset.pop_back();
        attr.value = std::span<const ir::Expr* const>(offset);
      }
      const std::string name = Cat(op.results[0]->name, ".partial");
      const std::string_view names[] = {name};
      const Result<Op*> made = builder_.Add({.info = op.info,
                                             .operands = operands,
                                             .attrs = attrs,
                                             .result_names = names,
                                             .location = op.location,
                                             .line = op.line});
      HIR_CHECK(made.ok());
      return Placed((*made)->results[0]);
    }
    // As `sum` does of chunks, which have one more axis in front.
    Value* Sum(Value* part, const Op& sum) {
      std::vector<int64_t> axes(sum.Ints("axes").begin(), sum.Ints("axes").end());
      for (int64_t& axis : axes) --axis;
      return Make("sum", {part},
                  {{"axes", std::span<const int64_t>(axes)},
                   {"keepdim", sum.Bool("keepdim")},
                   {"dtype", DTypeName(part->type->dtype)}},
                  part->name);
    }
    Value* Cast(Value* x, DType dtype) {
      return x->type->dtype == dtype ? x : Make("cast", {x}, {{"dtype", DTypeName(dtype)}}, x->name);
    }
    // Made then, not where it is read.
    Value* Stored(Value* x) { return x == nullptr ? x : Make("segment_set", {x}, {}, x->name); }
    Value* Carried(Value* x) { return Cast(x, carried_); }
    Value* Rounded(Value* x) { return Cast(x, dtype_); }
    Value* Number(double value) {
      return builder_.Make("constant", {}, {{"value", value}, {"dtype", DTypeName(carried_)}});
    }
    // A number of each query, beside its values.
    Value* Column(Value* x) {
      std::vector<int64_t> flags(ir::ValueAxes(*x->type).size() + 1, 0);
      flags.back() = 1;
      return Make("broadcast", {x}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}}, x->name);
    }
    // `x` of each rank, at the one `ahead` of it.
    Value* Sent(Value* x, mesh::ParallelType dim, int64_t ahead, std::string_view name) {
      const ir::Mesh* const to = graph_.AddMesh(mesh_->mesh.Shifted(dim, ahead));
      return Make("collective_permute", {x}, {{"from", mesh_}, {"to", to}}, name);
    }

   private:
    Value* Placed(Value* value) {
      PlaceOn(graph_, *value, mesh_);
      return value;
    }

    ir::Graph& graph_;
    const Op& op_;
    ir::Builder builder_;
    const ir::Mesh* mesh_;
    const DType dtype_, carried_;
  };

  // Results of attention to some of the keys. Values are of the carried type.
  struct Attended {
    Value* values = nullptr;  // Null: nobody asked.
    Value* lse = nullptr;
  };

  static Attended Together(Maker& maker, const Attended& a, const Attended& b) {
    const auto one = [&](std::string_view name, Value* x) { return maker.Make(name, {x}, {}, a.lse->name); };
    const auto two = [&](std::string_view name, Value* x, Value* y) {
      return maker.Make(name, {x, y}, {}, a.lse->name);
    };
    Value* const most = two("maximum", a.lse, b.lse);
    // A query may have keys in neither.
    Value* const nothing = two("eq", most, maker.Number(-std::numeric_limits<double>::infinity()));
    const auto unless_nothing = [&](double otherwise, Value* x) {
      return maker.Make("where", {nothing, maker.Number(otherwise), x}, {}, a.lse->name);
    };
    Value* const least = unless_nothing(0, most);
    Value* const of_a = one("exp", two("sub", a.lse, least));
    Value* const of_b = one("exp", two("sub", b.lse, least));
    Value* const total = two("add", of_a, of_b);
    Attended both = {.lse = two("add", least, one("log", total))};
    if (a.values == nullptr) return both;
    Value* const divisor = unless_nothing(1, total);
    const auto weighed = [&](Value* values, Value* weight) {
      Value* const column = maker.Column(two("truediv", weight, divisor));
      return maker.Make("mul", {values, column}, {}, values->name);
    };
    both.values = maker.Make("add", {weighed(a.values, of_a), weighed(b.values, of_b)}, {}, a.values->name);
    return both;
  }

  // The keys of the rank that is `steps` behind.
  const ir::Expr* Begin(const Call& call, int64_t steps) {
    ir::ExprPool& pool = graph_.exprs();
    const ir::Expr* place = pool.Symbol(CoordinateOf(*call.keys.mesh, call.keys.dim));
    if (steps > 0) place = pool.Mod(pool.Add(place, pool.Const(call.ways() - steps)), pool.Const(call.ways()));
    return pool.Mul(place, ExtentExprsOf(*call.keys.part)[KeyAxis(*call.keys.part)]);
  }

  void Emit(const Call& call, fusion::Replacements& replaced) {
    Maker maker(graph_, call);
    const bool is_gradient = fusion::CodeOf(*call.ops[0]) == FusionOp::kAttentionGrad;
    Attended attended;
    std::vector<Value*> sums(call.ops.size());  // One an op: of its gradients so far.
    std::vector<Value*> arriving(call.ops.size());
    Value* keys = call.keys.part;
    Value* values = call.values.part;
    const auto add = [&](Value*& sum, Value* more) {
      sum = sum == nullptr ? maker.Carried(more) : maker.Make("add", {sum, maker.Carried(more)}, {}, more->name);
    };
    const auto pass_on = [&](const Split& split, Value* part) {
      Value* const next = maker.Sent(part, split.dim, 1, split.ops.back()->results[0]->name);
      Record(call, *next, *split.part, "from rank to rank");
      return next;
    };
    for (int64_t step = 0; step < call.ways(); ++step) {
      Value* next_keys = nullptr;
      Value* next_values = nullptr;
      if (step + 1 < call.ways()) {
        next_keys = pass_on(call.keys, keys);
        next_values = call.values.part == call.keys.part ? next_keys : pass_on(call.values, values);
      }
      const ir::Expr* const begin = Begin(call, step);
      if (is_gradient) {
        for (size_t i = 0; i < call.ops.size(); ++i) {
          const std::optional<Split>& home = call.scattered[i];
          Value* part = maker.Part(*call.ops[i], keys, values, begin);
          if (home && home->sum != nullptr) part = maker.Sum(part, *home->sum);
          if (!home || step == 0) {
            add(sums[i], part);
            continue;
          }
          // One that is under way is added when the next one has been made.
          Value* const sent = maker.Sent(part, home->dim, call.ways() - step, home->part->name);
          Record(call, *sent, *home->part, "to the rank that has the keys");
          if (arriving[i] != nullptr) add(sums[i], arriving[i]);
          arriving[i] = sent;
        }
      } else {
        const auto wanted = std::ranges::find(call.ops, "values", [](const Op* op) { return op->Name("result"); });
        Attended more;
        if (wanted != call.ops.end()) more.values = maker.Carried(maker.Part(**wanted, keys, values, begin));
        more.lse = maker.Part(*call.ops[0], keys, values, begin, "lse");
        attended = step == 0 ? more : Together(maker, attended, more);
      }
      if ((step + 1) % kTogether == 0 && step + 1 < call.ways()) {
        attended = {.values = maker.Stored(attended.values), .lse = maker.Stored(attended.lse)};
        for (Value*& sum : sums) sum = maker.Stored(sum);
      }
      keys = next_keys;
      values = next_values;
    }
    for (size_t i = 0; i < call.ops.size(); ++i) {
      if (arriving[i] != nullptr) add(sums[i], arriving[i]);
      Value* const old = call.scattered[i] ? call.scattered[i]->part : call.ops[i]->results[0];
      Value* const made = is_gradient                               ? maker.Rounded(sums[i])
                          : call.ops[i]->Name("result") == "values" ? maker.Rounded(attended.values)
                                                                    : attended.lse;
      graph_.TakeName(*made, *old);
      replaced.Replace(old, made);
      for (Boundary& output : program_.outputs) output.local = output.local == old ? made : output.local;
    }
  }

  void Record(const Call& call, const Value& sent, const Value& part, std::string_view reason) {
    Communication record = {.type = "CollectivePermute",
                            .teams = {},
                            .bytes = StoredBytes(graph_.exprs(), sent),
                            .tensor = std::string(UserName(part.name)),
                            .reason = Cat(reason, ", in ", call.ways(), " steps"),
                            .op = sent.def};
    const std::span<const int64_t> from = sent.def->MeshOf("from")->mesh.devices();
    const std::span<const int64_t> to = sent.def->MeshOf("to")->mesh.devices();
    for (size_t i = 0; i < from.size(); ++i) record.teams.push_back({from[i], to[i]});
    program_.communications.push_back(std::move(record));
  }

  void EraseReplaced() {
    std::unordered_set<const Op*> gone;  // Lookups only.
    const auto erase = [&](Op* op) {
      if (gone.insert(op).second) graph_.body.Erase(op);
    };
    for (const Call& call : calls_) {
      for (const std::optional<Split>& split : call.scattered) {
        if (split) std::ranges::for_each(split->ops, erase);
      }
      std::ranges::for_each(call.ops, erase);
      std::ranges::for_each(call.keys.ops, erase);
      std::ranges::for_each(call.values.ops, erase);
    }
    std::erase_if(program_.communications, [&](const Communication& each) { return gone.contains(each.op); });
  }

  void SortRecords() {
    std::unordered_map<const Op*, size_t> places;  // Lookups only.
    ir::ForEachOp(graph_.body, [&](const Op* op) { places.emplace(op, places.size()); });
    std::ranges::stable_sort(program_.communications, {},
                             [&](const Communication& each) { return places.at(each.op); });
  }

  LocalProgram& program_;
  ir::Graph& graph_;
  const OverlapLimits& limits_;
  const std::vector<std::vector<Op*>> readers_;  // By value.
  std::unordered_set<const Value*> outputs_;     // Lookups only.
  std::vector<Call> calls_;
  std::vector<const Op*> told_;
};

}  // namespace

void PassKeysRound(LocalProgram& program, const OverlapLimits& limits) { Rings(program, limits).Run(); }

}  // namespace hir::plan
