#include "host_ir/unroll.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "csrc/base/text.h"
#include "host_ir/shapes.h"

namespace hir::host {
namespace {

using base::Cat;
using ir::Expr;
using ir::ExprKind;

bool Mentions(const Expr* expr, std::string_view symbol) {
  if (expr->kind == ExprKind::kSymbol) return expr->symbol == symbol;
  return std::ranges::any_of(expr->args, [symbol](const Expr* arg) { return Mentions(arg, symbol); });
}

// Whether the first iterations may have one value, and later ones another.
bool ChangesLate(const Expr* expr, std::string_view index) {
  const bool steps = expr->kind == ExprKind::kFloorDiv || expr->kind == ExprKind::kCeilDiv ||
                     expr->kind == ExprKind::kMin || expr->kind == ExprKind::kMax;
  if (steps && Mentions(expr, index)) return true;
  return std::ranges::any_of(expr->args, [index](const Expr* arg) { return ChangesLate(arg, index); });
}
bool ChangesLate(const ir::Value* view, std::string_view index) {
  for (; view->def != nullptr && MakesView(*view->def); view = view->def->operands[0]) {
    for (const ir::Attr& attr : view->def->attrs) {
      const auto* expr = std::get_if<const Expr*>(&attr.value);
      if (expr != nullptr && ChangesLate(*expr, index)) return true;
    }
  }
  return false;
}

class Unroller {
 public:
  Unroller(const ir::Graph& graph, const RankClass& ranks, ir::ExprPool& pool) : ranks_(ranks), pool_(pool) {
    for (const auto& [symbol, value] : ranks.symbols) symbols_[symbol] = pool.Const(value);
    always_ = symbols_;
    shared_symbols_ = std::make_shared<const Symbols>(symbols_);
    for (const ir::Value* param : graph.params) {
      if (param->type->kind == ir::TypeKind::kTensor) regions_.emplace(param, WholeOf(pool, *param));
    }
    for (const ir::Output& output : graph.outputs) {  // Perhaps it lies there.
      if (output.alias != nullptr) regions_.insert_or_assign(output.value, regions_.at(output.alias));
    }
  }

  Status Run(const ir::Block& block) {
    for (ir::Op* op = block.first; op != nullptr; op = op->next) HIR_TRY(RunOp(*op));
    return {};
  }
  std::vector<Step> TakeSteps() { return std::move(steps_); }

 private:
  Status RunOp(ir::Op& op) {
    if (++visits_ > kStepsMax) {  // Empty loops take no steps, but time.
      return ResourceExhausted(Cat("the host program unrolls to more than ", kStepsMax, " steps"));
    }
    const HostOp code = CodeOf(op);
    if (code == HostOp::kIf) return RunIf(op);
    if (code == HostOp::kFor) return RunFor(op);
    if (code == HostOp::kGroup) return RunGroup(op);
    if (MakesView(op)) {
      HIR_TRY(ResolveView(op));
    } else if (code == HostOp::kAlloc) {
      regions_.insert_or_assign(op.results[0], WholeOf(pool_, *op.results[0]));
    }
    return AddStep(op);
  }

  Status RunIf(ir::Op& op) {
    HIR_ASSIGN(const Expr* cond, ValueOf(op, op.ExprOf("cond")));
    if (!cond->IsConst()) {
      return Refuse(op, 15,
                    Cat("cond is ", ToString(op.ExprOf("cond")),
                        ", which is not known from the rank and the indices of loops of constant bounds"));
    }
    return cond->value == 0 ? Status() : Run(*op.blocks[0]);
  }

  Status RunGroup(ir::Op& op) {
    const int outer = group_;
    group_ = num_groups_++;
    const Status status = Run(*op.blocks[0]);
    group_ = outer;
    return status;
  }

  Status RunFor(ir::Op& op) {
    HIR_ASSIGN(const Expr* begin, ValueOf(op, op.ExprOf("begin")));
    HIR_ASSIGN(const Expr* end, ValueOf(op, op.ExprOf("end")));
    for (const Expr* bound : {op.ExprOf("begin"), op.ExprOf("end")}) HIR_TRY(CheckBound(op, bound));
    const int64_t step = op.ExprOf("step")->value;
    const Expr* const distance = pool_.Sub(end, begin);
    const bool known = distance->IsConst();
    int64_t iterations = !known || distance->value <= 0 ? 0 : (distance->value - 1) / step + 1;
    const bool cut = !known || iterations > kIterationsMax;
    if (cut) {
      HIR_ASSIGN(const int64_t period, PeriodOf(op));
      iterations = 2 * period + iterations % period;
    }
    const std::string_view symbol = pool_.Symbol(Cat("%", op.blocks[0]->args[0]->name))->symbol;  // Steps keep it.
    const bool outer_cut = std::exchange(cut_, cut_ || cut);
    const int outer_iteration = iteration_;
    const std::shared_ptr<const Symbols> outer_symbols = shared_symbols_;
    if (!known) steps_.push_back({.op = &op, .turn = Turn::kBegins});
    const size_t first = steps_.size();
    Status status;
    for (int64_t i = 0; i < iterations && status.ok(); ++i) {
      symbols_[symbol] = pool_.Add(begin, pool_.Mul(pool_.Const(i), pool_.Const(step)));
      if (!cut) always_[symbol] = symbols_[symbol];
      shared_symbols_ = std::make_shared<const Symbols>(symbols_);
      if (!known) iteration_ = ++num_iterations_;
      status = Run(*op.blocks[0]);
      if (!known) steps_.push_back({.op = &op, .turn = i + 1 < iterations ? Turn::kMayEnd : Turn::kEnds});
    }
    if (cut) AddHulls(first, symbol);
    symbols_.erase(symbol);
    always_.erase(symbol);
    shared_symbols_ = outer_symbols;
    iteration_ = outer_iteration;
    cut_ = outer_cut;
    return status;
  }

  static bool Names(const Expr& expr, std::string_view symbol) {
    if (expr.kind == ExprKind::kSymbol) return expr.symbol == symbol;
    return std::ranges::any_of(expr.args, [&](const Expr* arg) { return Names(*arg, symbol); });
  }

  static Status CheckBound(const ir::Op& op, const Expr* bound) {
    std::vector<std::string_view> symbols;
    ir::CollectSymbols(bound, symbols);
    for (std::string_view symbol : symbols) {
      if (symbol == "rank" || symbol.starts_with('@')) {
        return Refuse(op, 15, Cat("a bound is ", ToString(bound), "; loops run alike on all ranks"));
      }
    }
    return {};
  }

  // The steps from `first` on are a run of a loop of which there are more iterations.
  void AddHulls(size_t first, std::string_view index) {
    std::map<std::pair<const ir::Op*, int>, std::shared_ptr<Region>> hulls;  // For lookup alone.
    for (size_t i = first; i < steps_.size(); ++i) {
      for (AccessedRegion& access : steps_[i].accesses) {
        std::shared_ptr<Region>& hull = hulls[{steps_[i].op, access.operand}];
        if (hull == nullptr) {
          hull = std::make_shared<Region>(access.region);
          if (ChangesLate(steps_[i].op->operands[static_cast<size_t>(access.operand)], index)) {
            *hull = WholeOf(pool_, *access.region.base);
            hull->exact = false;
          }
        } else {
          *hull = Hull(pool_, *hull, access.region);
        }
        access.hulls.push_back(hull);
      }
      steps_[i].runs.push_back(num_runs_);
    }
    ++num_runs_;
  }

  // The least common multiple of what the body takes the loop's index modulo, at most kPeriodMax. A longer one is
  // refused where streams or events go by it, as some would not be met.
  static Result<int64_t> PeriodOf(const ir::Op& loop) {
    const std::string index = Cat("%", loop.blocks[0]->args[0]->name);
    int64_t all = 1, met = 1;
    const auto look = [&index](const auto& self, const Expr* e, int64_t& period) -> void {
      const bool repeats = e->kind == ExprKind::kMod && e->args[1]->IsConst() && e->args[1]->value > 0;
      if (repeats && Names(*e->args[0], index)) {
        period = std::min(std::lcm(period, std::min(e->args[1]->value, kPeriodMax + 1)), kPeriodMax + 1);
      }
      for (const Expr* arg : e->args) self(self, arg, period);
    };
    const ir::Op* last = nullptr;
    ir::ForEachOp(*loop.blocks[0], [&](ir::Op* op) {
      for (const ir::Attr& attr : op->attrs) {
        const auto* e = std::get_if<const Expr*>(&attr.value);
        if (e == nullptr) continue;
        look(look, *e, all);
        if (attr.name != "stream" && (attr.name != "index" || MakesView(*op))) continue;
        const int64_t before = met;
        look(look, *e, met);
        if (ChangesLate(*e, index)) met = kPeriodMax + 1;
        if (met != before) last = op;
      }
    });
    if (met <= kPeriodMax) return std::min(all, kPeriodMax);
    const std::string where = last->line > 0 ? Cat("line ", last->line, ": ") : std::string();
    return Unimplemented(Cat(where, last->info->name, ": its streams and events do not repeat within ", kPeriodMax,
                             " iterations of a loop that is not of a constant number of iterations, at most ",
                             kIterationsMax, "; use fewer"));
  }

  // `expr` in pool_, with the symbols known here replaced.
  Result<const Expr*> ValueOf(const ir::Op& op, const Expr* expr) {
    if (!DivisorsAreSound(expr)) return Refuse(op, 16, Cat(ToString(expr), " divides by zero"));
    const Expr* value = pool_.Substitute(expr, symbols_);
    if (pool_.overflowed()) return Refuse(op, 16, Cat(ToString(expr), " overflows 64 bits"));
    return value;
  }
  bool DivisorsAreSound(const Expr* expr) {
    for (const Expr* arg : expr->args) {
      if (!DivisorsAreSound(arg)) return false;
    }
    const bool divides =
        expr->kind == ExprKind::kFloorDiv || expr->kind == ExprKind::kMod || expr->kind == ExprKind::kCeilDiv;
    return !divides || !pool_.Substitute(expr->args[1], symbols_)->IsConst(0);
  }

  Status ResolveView(ir::Op& op) {
    const Region& region = regions_.at(op.operands[0]);
    const HostOp code = CodeOf(op);
    Region view;
    if (code == HostOp::kViewSlice) {
      HIR_ASSIGN(const Expr* from, ValueOf(op, op.ExprOf("from")));
      HIR_ASSIGN(const Expr* to, ValueOf(op, op.ExprOf("to")));
      HIR_TRY(CheckInside(op, region, from, to));
      view = Slice(pool_, region, op.Int("axis"), from, to);
    } else if (code == HostOp::kViewSelect) {
      HIR_ASSIGN(const Expr* index, ValueOf(op, op.ExprOf("index")));
      HIR_TRY(CheckInside(op, region, index, pool_.Add(index, pool_.Const(1))));
      view = Select(pool_, region, op.Int("axis"), index);
    } else if (code == HostOp::kViewPermute) {
      view = Permute(region, op.Ints("dims"));
    } else {
      std::vector<const Expr*> extents;
      for (const Expr* extent : StoredExtents(pool_, *op.results[0]->type)) {
        HIR_ASSIGN(extents.emplace_back(), ValueOf(op, extent));
      }
      std::optional<Region> reshaped = Reshape(pool_, region, *op.results[0]->type, extents);
      if (!reshaped) {
        return Refuse(
            op, 10, Cat("%", op.operands[0]->name, " is not contiguous, and the result does more than split its axes"));
      }
      view = *std::move(reshaped);
    }
    regions_.insert_or_assign(op.results[0], std::move(view));
    return {};
  }

  // What is provably outside is refused here; what depends on sizes is checked when they bind.
  Status CheckInside(const ir::Op& op, const Region& region, const Expr* from, const Expr* to) {
    const ViewAxis& axis = region.axes[static_cast<size_t>(op.Int("axis"))];
    if (axis.root_axis == kStoredOnce) return {};
    const Expr* above = pool_.Sub(to, axis.extent);
    const bool outside = (from->IsConst() && from->value < 0) || (above->IsConst() && above->value > 0);
    if (!outside) return {};
    return Refuse(op, 16,
                  Cat("[", ToString(from), ", ", ToString(to), ") of axis ", op.Int("axis"), " of %",
                      op.operands[0]->name, " is not inside [0, ", ToString(axis.extent), ")"));
  }

  Status AddStep(ir::Op& op) {
    Step step = {.op = &op, .group = group_, .cut = cut_, .iteration = iteration_, .symbols = shared_symbols_};
    for (const ir::Attr& attr : op.attrs) {
      if (attr.name == "stream") {
        HIR_ASSIGN(step.stream, ValueOf(op, op.ExprOf("stream")));
        step.any_stream = pool_.Substitute(op.ExprOf("stream"), always_);
      }
      if (attr.name == "index" && CodeOf(op) != HostOp::kViewSelect) {
        HIR_ASSIGN(step.index, ValueOf(op, op.ExprOf("index")));
      }
    }
    const bool communicates = CodeOf(op) == HostOp::kCommunication;
    const Part part = communicates ? PartOf(op, ranks_.rank) : Part{true, true};
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Access access = AccessOf(op, static_cast<int>(i));
      if (access == Access::kNone) continue;
      if (communicates && !(i == 0 ? part.sends : part.receives)) continue;
      step.accesses.push_back({static_cast<int>(i), access, regions_.at(op.operands[i])});
    }
    steps_.push_back(std::move(step));
    return {};
  }

  const RankClass& ranks_;
  ir::ExprPool& pool_;
  Symbols symbols_;
  Symbols always_;  // Those whose values here are all that there are.
  std::shared_ptr<const Symbols> shared_symbols_;
  std::unordered_map<const ir::Value*, Region> regions_;
  std::vector<Step> steps_;
  int group_ = -1;
  int num_groups_ = 0;
  int iteration_ = 0;
  int num_iterations_ = 0;
  int num_runs_ = 0;
  int64_t visits_ = 0;
  bool cut_ = false;
};

}  // namespace

Result<std::vector<Step>> Unroll(const ir::Graph& graph, const RankClass& ranks, ir::ExprPool& pool) {
  Unroller unroller(graph, ranks, pool);
  HIR_TRY(unroller.Run(graph.body));
  return unroller.TakeSteps();
}

const Region& SeenFrom(const std::vector<int>& other, const std::vector<int>& runs, const AccessedRegion& access) {
  size_t own = runs.size(), rest = other.size();
  while (own > 0 && rest > 0 && runs[own - 1] == other[rest - 1]) --own, --rest;
  return own == 0 ? access.region : *access.hulls[own - 1];
}

bool Replaces(const AccessedRegion& later, const AccessedRegion& earlier) {
  const auto varies = [](const std::shared_ptr<const Region>& hull) { return !hull->exact; };
  return Identical(later.region, earlier.region) && std::ranges::none_of(earlier.hulls, varies);
}

std::optional<int64_t> StreamsEnd(const ir::Expr* stream) {
  const std::span<const Expr* const> terms =
      stream->kind == ExprKind::kAdd ? stream->args : std::span<const Expr* const>(&stream, 1);
  int64_t last = stream->kind == ExprKind::kAdd ? stream->value : 0;
  if (last < 0) return std::nullopt;
  for (const Expr* term : terms) {
    const Expr* const value = term->kind == ExprKind::kMod ? term->args[1] : term;
    const int64_t least = term->kind == ExprKind::kMod ? 1 : 0;
    if (!value->IsConst() || value->value < least || last > kStreamsMax) return std::nullopt;
    last += std::min(value->value - least, kStreamsMax);
  }
  return last < kStreamsMax ? std::optional(last + 1) : std::nullopt;
}

Result<int> CountStreams(const ir::Graph& graph) {
  int64_t streams = 1;
  for (const RankClass& ranks : RankClasses(graph)) {
    ir::ExprPool pool;
    HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph, ranks, pool));
    for (const Step& step : steps) {
      if (step.stream == nullptr) continue;
      const std::optional<int64_t> end = StreamsEnd(step.any_stream);
      if (!end) return Refuse(*step.op, 1, Cat("stream is ", ToString(step.any_stream), ", which has no bound"));
      streams = std::max(streams, *end);
    }
  }
  return static_cast<int>(streams);
}

}  // namespace hir::host
