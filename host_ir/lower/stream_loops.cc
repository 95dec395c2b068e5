// Before: %t: f32[8, 64] {mesh=@m, parallelize(0, stream)} = exp(%x)
//         %y: f32[8, 64] {mesh=@m, parallelize(0, stream)} = mul(%t, %w)       // %w: f32[64]
// After:  %y: f32[8, 64] {mesh=@m} = stream_loop(%x, %w) {loop=0}
//         loop0: %x [%i0, %i0 + 1) of axis 0, %w whole -> [%i0, %i0 + 1) of axis 0 of %y
//           %t: f32[1, 64] = exp(%x)   %y: f32[1, 64] = mul(%t, %w)
#include "host_ir/lower/stream_loops.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/decompose_reshardings.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/parse.h"
#include "host_ir/lower/products.h"

namespace hir::host {
namespace {

using base::Cat;
using fusion::FusionOp;
using fusion::StreamAxis;
using fusion::StreamMap;
using ir::Op;
using ir::Value;

// The loop that an op is to run in.
struct Streamed {
  std::vector<StreamAxis> axes;  // The outermost first.
  StreamMap map;

  const StreamAxis& outermost() const { return axes[0]; }
};
using StreamedOps = std::unordered_map<const Op*, Streamed>;  // Lookups only.

// The axis of `value`, in LOGICAL axes, along which chunk i is what iteration i of `reader` needs; nothing where it
// needs all of it, or only a part of the axes decide.
std::optional<StreamAxis> CutAlike(const Value& value, const Op& reader, const Streamed& streamed) {
  for (size_t i = 0; i < reader.operands.size(); ++i) {
    if (reader.operands[i] != &value) continue;
    StreamAxis cut = streamed.outermost();
    cut.axes = streamed.map.Needed(static_cast<int>(i), cut);
    if (std::ranges::count(cut.axes, -1) > 0) return std::nullopt;
    for (int& axis : cut.axes) axis = ir::LogicalIndex(*value.type, axis);
    // Read twice: alike each time.
    for (size_t j = i + 1; j < reader.operands.size(); ++j) {
      if (reader.operands[j] != &value) continue;
      if (streamed.map.Needed(static_cast<int>(j), streamed.outermost()) !=
          streamed.map.Needed(static_cast<int>(i), streamed.outermost()))
        return std::nullopt;
    }
    return cut;
  }
  return std::nullopt;
}

bool IsPartial(const Op& op, const Streamed& streamed) {
  return op.results[0]->type->axes[static_cast<size_t>(streamed.outermost().axes[0])].kind == ir::AxisKind::kReduction;
}

// Whether its extents are those of uneven blocks without their padding: loops run alike on all ranks, and memory is as
// large on all, so no chunk of it lies where another rank has it.
bool DiffersByRank(const Value& value) {
  std::vector<std::string_view> symbols;
  for (const ir::Axis& axis : value.type->axes) ir::CollectSymbols(axis.extent, symbols);
  return std::ranges::any_of(symbols, [](std::string_view symbol) { return symbol[0] == '@'; });
}

// Whether all ops of `merged` can run in one loop.
class OneLoop {
 public:
  explicit OneLoop(const StreamedOps& streamed) : streamed_(streamed) {}

  std::optional<segment::Gain> operator()(const segment::GroupView& producer, const segment::GroupView& consumer,
                                          const segment::GroupView& merged) const {
    std::set<const Op*> ops(merged.ops.begin(), merged.ops.end());  // Lookups only.
    bool connected = false;
    // One op stands for the loop.
    if (std::max(merged.inputs.size(), merged.outputs.size()) > ir::kOperandsMax) return std::nullopt;
    for (const Op* op : merged.ops) {
      const auto at = streamed_.find(op);
      if (at == streamed_.end()) return std::nullopt;
      for (const Value* operand : op->operands) {
        if (!IsTensor(*operand) || operand->def == nullptr || !ops.contains(operand->def)) continue;
        const auto maker = streamed_.find(operand->def);
        if (maker == streamed_.end() || IsPartial(*operand->def, maker->second)) return std::nullopt;
        if (fusion::CodeOf(*op) == FusionOp::kSegmentSet) return std::nullopt;  // That boundary binds.
        if (CutAlike(*operand, *op, at->second) != maker->second.outermost()) return std::nullopt;
        connected = true;
      }
    }
    const bool neighbours = connected && std::ranges::any_of(producer.outputs, [&](const Value* value) {
                              return std::ranges::find(consumer.inputs, value) != consumer.inputs.end();
                            });
    if (!neighbours && !ShareACut(producer, consumer)) return std::nullopt;
    segment::Gain gain = {.bytes = 0, .launches = 1};
    for (const Value* value : producer.outputs) {
      if (std::ranges::find(consumer.inputs, value) != consumer.inputs.end())
        gain.bytes += segment::StorageBytes(*value);
    }
    return gain;
  }

 private:
  bool ShareACut(const segment::GroupView& a, const segment::GroupView& b) const {
    for (const Value* value : a.inputs) {
      if (!IsTensor(*value) || std::ranges::find(b.inputs, value) == b.inputs.end()) continue;
      const std::optional<StreamAxis> of_a = CutBy(*value, a);
      if (of_a && of_a == CutBy(*value, b)) return true;
    }
    return false;
  }

  std::optional<StreamAxis> CutBy(const Value& value, const segment::GroupView& group) const {
    for (const Op* op : group.ops) {
      if (const auto cut = CutAlike(value, *op, streamed_.at(op))) return cut;
    }
    return std::nullopt;
  }

  const StreamedOps& streamed_;
};

// Host programs are read again as text: a loop's body may have one block more, an `if` or a `group`, around its ops.
constexpr size_t kNestedLoopsMax = ir::kNestingMax - 2;

class LoopMaker {
 public:
  // `root`: the graph of the program, not of a body.
  LoopMaker(ir::Graph& root, const LoopOptions& options, std::vector<plan::Communication>& communications,
            std::vector<ir::Guard>& evenness)
      : root_(root), options_(options), communications_(communications), evenness_(evenness) {}

  Status Form(Segmented& program);

 private:
  Result<StreamedOps> FindStreamed(const ir::Graph& graph) const;
  Status Outline(Segmented& program, const segment::Group& group, const StreamedOps& streamed);
  // How often it goes round, and whether a rest is left behind that. Returns whether all iterations are as long.
  Result<bool> SetIterations(ir::ExprPool& pool, const Op& first, StreamLoop& loop);
  // The results of `made`, partial ones added up, in the places of those of the group.
  static void TakePlaces(Segmented& program, const segment::Group& group, const StreamedOps& streamed,
                         ir::Builder& builder, const Op& made);
  std::optional<int64_t> SizeAtHand(const ir::Expr* extent) const;

  ir::Graph& root_;
  const LoopOptions& options_;
  std::vector<plan::Communication>& communications_;
  std::vector<ir::Guard>& evenness_;
  int next_loop_ = 0;
};

// The entry of a plan for one iteration of a communication, and the op that it is of outside of the loop.
using Followed = std::pair<const Op*, plan::Communication>;

// One body of a loop.
class BodyMaker {
 public:
  // `rest`: of the last, short iteration.
  BodyMaker(const std::vector<plan::Communication>& communications, const Segmented& program,
            const segment::Group& group, const StreamedOps& streamed, const StreamLoop& loop, bool even, bool rest)
      : communications_(communications),
        program_(program),
        group_(group),
        streamed_(streamed),
        loop_(loop),
        even_(even),
        rest_(rest),
        graph_(std::make_unique<ir::Graph>(program.graph->ops(), Cat(program.graph->name(), ".", loop.name))),
        pool_(graph_->exprs()) {}

  // `operands`: what the stream_loop reads, extended where needed; `followed`: the communications that went in.
  Result<LoopBody> Make(std::vector<Value*>& operands, std::vector<Followed>& followed) {
    for (const ir::Expr* symbol : program_.graph->exprs().symbols()) pool_.Symbol(symbol->symbol);
    for (const ir::Mesh& mesh : program_.graph->meshes()) graph_->AddMesh(mesh.mesh, mesh.name);
    for (const Op* op : group_.ops) HIR_TRY(ir::WithLocation(Add(*op, operands), op->location));
    followed.insert(followed.end(), followed_.begin(), followed_.end());
    for (size_t i = 0; i < group_.outputs.size(); ++i) HIR_TRY(AddOutput(i));
    HIR_TRY(pool_.status());
    body_.graph = std::move(graph_);
    body_.segments.graph = body_.graph.get();
    return std::move(body_);
  }

 private:
  const ir::Expr* Index() { return pool_.Symbol(Cat("%", loop_.index)); }

  // Whether the merged axes of a loop can be seen as one of `value`: then it is plain that iterations share no element.
  bool IsOneAxis(const Value& value, const std::vector<int>& axes) const {
    if (axes.size() < 2 || program_.strides.contains(&value)) return false;
    const std::vector<ir::Axis> value_axes = ir::ValueAxes(*value.type);
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] < 0 || (i > 0 && axes[i] != axes[i - 1] + 1)) return false;
      if (value_axes[static_cast<size_t>(axes[i])].kind != ir::AxisKind::kIteration) return false;
    }
    return true;
  }

  // How `extent`, component `k` of the loop's axes, is cut; `extents` are those of all components.
  Cut CutOf(const StreamAxis& stream, size_t k, const std::vector<const ir::Expr*>& extents) {
    const ir::Expr* const extent = extents[k];
    switch (stream.kind) {
      case StreamAxis::Kind::kWhole: {
        const ir::Expr* begin = Index();
        const ir::Expr* inner = pool_.Const(1);
        for (size_t j = k + 1; j < extents.size(); ++j) inner = pool_.Mul(inner, extents[j]);
        // Axes without elements have no iteration; Max avoids the division by 0.
        begin = pool_.FloorDiv(begin, pool_.Max(inner, pool_.Const(1)));
        if (k > 0) begin = pool_.Mod(begin, pool_.Max(extent, pool_.Const(1)));
        return {.begin = begin, .size = pool_.Const(1)};
      }
      case StreamAxis::Kind::kDealt: {
        const ir::Expr* const size = pool_.FloorDiv(extent, pool_.Const(stream.factor));
        return {.begin = Index(), .size = size, .step = stream.factor, .index = Index(), .ways = stream.factor};
      }
      case StreamAxis::Kind::kWays:
        if (even_) {
          const ir::Expr* const size = pool_.FloorDiv(extent, pool_.Const(stream.factor));
          Cut cut = {.begin = pool_.Mul(Index(), size), .size = size};
          if (!extent->IsConst()) cut.index = Index(), cut.ways = stream.factor;
          return cut;
        }
        break;
      case StreamAxis::Kind::kChunks: break;
    }
    const fusion::Chunks chunks = fusion::ChunksOf(pool_, stream, extent);
    if (rest_) return {.begin = pool_.Mul(chunks.full, chunks.size), .size = chunks.rest};
    return {.begin = pool_.Mul(Index(), chunks.size), .size = chunks.size};
  }

  // `axes`: of each component the VALUE axis that it cuts, or -1; `extents`: those along the components.
  std::vector<Cut> CutsOf(const Value& value, const StreamAxis& stream, const std::vector<int>& axes,
                          const std::vector<const ir::Expr*>& extents) {
    std::vector<Cut> cuts;
    if (IsOneAxis(value, axes)) {
      return {{.axis = axes[0], .begin = Index(), .size = pool_.Const(1), .merged = static_cast<int>(axes.size())}};
    }
    for (size_t k = 0; k < axes.size(); ++k) {
      if (axes[k] < 0) continue;
      Cut cut = CutOf(stream, k, extents);
      cut.axis = axes[k];
      cuts.push_back(cut);
    }
    std::ranges::sort(cuts, {}, &Cut::axis);
    return cuts;
  }

  // Of the result of `op`, by component, in this pool.
  std::vector<const ir::Expr*> ExtentsOf(const Op& op) {
    std::vector<const ir::Expr*> extents;
    for (const int axis : streamed_.at(&op).outermost().axes) {
      extents.push_back(pool_.Import(op.results[0]->type->axes[static_cast<size_t>(axis)].extent));
    }
    return extents;
  }

  // Where an op splits or merges axes, the operand's axis has another extent than the result's, cut as often.
  std::vector<const ir::Expr*> ExtentsIn(const Value& operand, const std::vector<int>& axes,
                                         std::vector<const ir::Expr*> extents) {
    const std::vector<ir::Axis> value_axes = ir::ValueAxes(*operand.type);
    for (size_t k = 0; k < axes.size(); ++k) {
      if (axes[k] >= 0) extents[k] = pool_.Import(value_axes[static_cast<size_t>(axes[k])].extent);
    }
    return extents;
  }

  Result<Value*> Operand(const Op& op, size_t number, std::vector<Value*>& operands) {
    Value* const outer = op.operands[number];
    if (const auto made = values_.find(outer); made != values_.end()) return made->second;
    if (!IsTensor(*outer)) return Scalar(outer, operands);
    const Streamed& streamed = streamed_.at(&op);
    const std::vector<int> axes = streamed.map.Needed(static_cast<int>(number), streamed.outermost());
    const auto key = std::pair(outer->id, axes);
    if (const auto known = params_.find(key); known != params_.end()) return known->second;
    const std::vector<Cut> cuts = CutsOf(*outer, streamed.outermost(), axes, ExtentsIn(*outer, axes, ExtentsOf(op)));
    std::vector<ir::Axis> value_axes = ir::ValueAxes(*outer->type);
    for (ir::Axis& axis : value_axes) axis.extent = pool_.Import(axis.extent);
    for (const Cut& cut : cuts) {
      for (int i = 0; i < cut.merged; ++i) value_axes[static_cast<size_t>(cut.axis + i)].extent = cut.size;
    }
    Value* const param = graph_->AddParam(outer->name, graph_->Tensor(outer->type->dtype, value_axes));
    Place(*param, *outer, {});
    params_.emplace(key, param);
    body_.inputs.push_back({.number = NumberOf(outer, operands), .cuts = cuts});
    SetStrides(*param, *outer, cuts);
    return param;
  }

  // Host scalars come in where they are inputs; others are made again.
  Result<Value*> Scalar(Value* outer, std::vector<Value*>& operands) {
    Value*& made = values_[outer];
    if (outer->def == nullptr) {
      body_.inputs.push_back({.number = NumberOf(outer, operands), .cuts = {}});
      return made = graph_->AddParam(outer->name, graph_->Scalar(outer->type->dtype));
    }
    std::vector<Value*> own;
    for (Value* operand : outer->def->operands) {
      HIR_ASSIGN(Value* const scalar, Scalar(operand, operands));
      own.push_back(scalar);
    }
    const std::vector<ir::Attr> attrs = AttrsOf(*outer->def, nullptr);
    ir::Builder builder(*graph_);
    HIR_ASSIGN(Op* const op, builder.Add({.info = outer->def->info,
                                          .operands = own,
                                          .attrs = attrs,
                                          .result_names = {&outer->name, 1},
                                          .location = outer->def->location}));
    return values_[outer] = op->results[0];
  }

  static size_t NumberOf(Value* outer, std::vector<Value*>& operands) {
    const auto at = std::ranges::find(operands, outer);
    if (at != operands.end()) return static_cast<size_t>(at - operands.begin());
    operands.push_back(outer);
    return operands.size() - 1;
  }

  // The mesh of `outer`, and the stream axes of the loops inside.
  void Place(Value& value, const Value& outer, const std::vector<StreamAxis>& streams) {
    if (outer.layout == nullptr) return;
    const ir::Mesh* const mesh = outer.layout->mesh == nullptr ? nullptr : graph_->FindMesh(outer.layout->mesh->name);
    value.layout =
        fusion::LayoutFor(*graph_, *value.type, {mesh, std::vector<fusion::Types>(value.type->axes.size())}, streams);
  }

  // `copy` has no reduction axes: it does not make what partial results make.
  Status PlaceCopy(Value& copy, const Value& of) {
    if (of.layout == nullptr) return {};
    HIR_ASSIGN(const std::vector<StreamAxis> streams, fusion::StreamAxesOf(of));
    Place(copy, of, fusion::StreamsOfElements(of, streams));
    return {};
  }

  // The strides of `value`, a part of a larger tensor, where it has gaps.
  void SetStrides(const Value& value, const Value& outer, const std::vector<Cut>& cuts) {
    const std::vector<ir::Axis> whole = ir::ValueAxes(*outer.type);
    std::vector<const ir::Expr*> strides(whole.size());
    if (const auto own = program_.strides.find(&outer); own != program_.strides.end()) {
      for (size_t i = 0; i < whole.size(); ++i) strides[i] = pool_.Import(own->second[i]);
    } else {
      const ir::Expr* stride = pool_.Const(1);
      for (size_t i = whole.size(); i-- > 0;) {
        const bool once = whole[i].kind == ir::AxisKind::kBroadcast;
        strides[i] = once ? pool_.Const(0) : stride;
        if (!once) stride = pool_.Mul(stride, WholeExtent(whole[i], cuts, i));
      }
    }
    for (const Cut& cut : cuts) {
      const auto axis = static_cast<size_t>(cut.axis);
      strides[axis] = pool_.Mul(strides[axis], pool_.Const(cut.step));
    }
    const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
    const ir::Expr* dense = pool_.Const(1);
    bool gaps = false;
    for (size_t i = axes.size(); i-- > 0;) {
      if (axes[i].kind == ir::AxisKind::kBroadcast || axes[i].extent->IsConst(1)) continue;
      gaps |= strides[i] != dense;
      dense = pool_.Mul(dense, axes[i].extent);
    }
    if (gaps) body_.segments.strides.emplace(&value, std::move(strides));
  }

  // The extent of an axis; where it is seen as [ways, size], their product, as the view says.
  const ir::Expr* WholeExtent(const ir::Axis& axis, const std::vector<Cut>& cuts, size_t number) {
    for (const Cut& cut : cuts) {
      if (static_cast<size_t>(cut.axis) == number && cut.index != nullptr)
        return pool_.Mul(cut.size, pool_.Const(cut.ways));
    }
    return pool_.Import(axis.extent);
  }

  // `value` without gaps.
  Result<Value*> Packed(Value* value) {
    Value*& packed = packed_[value];
    if (packed != nullptr) return packed;
    ir::Builder builder(*graph_);
    const ir::Attr axis = {"axis", int64_t{0}};
    HIR_ASSIGN(Op* const op, builder.Add({.name = "cat", .operands = {&value, 1}, .attrs = {&axis, 1}}));
    HIR_TRY(PlaceCopy(*op->results[0], *value));
    return packed = op->results[0];
  }

  // Communications move whole buffers; library calls know gaps, but not along the last axis.
  bool MustBePacked(const Op& op, const Value* value) const {
    if (!body_.segments.strides.contains(value)) return false;
    if (op.info->effects & ir::kComm) return true;
    return (op.info->effects & ir::kLibrary) != 0 && RowsHaveGaps(*value, body_.segments.strides);
  }

  // Attributes that name extents name those of the chunk. `streamed` null: of a host scalar.
  std::vector<ir::Attr> AttrsOf(const Op& op, const Streamed* streamed) {
    std::vector<ir::Attr> attrs(op.attrs.begin(), op.attrs.end());
    for (ir::Attr& attr : attrs) {
      if (auto* mesh = std::get_if<const ir::Mesh*>(&attr.value)) *mesh = graph_->FindMesh((*mesh)->name);
      if (auto* expr = std::get_if<const ir::Expr*>(&attr.value)) *expr = pool_.Import(*expr);
      auto* exprs = std::get_if<std::span<const ir::Expr* const>>(&attr.value);
      if (exprs == nullptr) continue;
      std::vector<const ir::Expr*> own;
      for (const ir::Expr* expr : *exprs) own.push_back(pool_.Import(expr));
      if (streamed != nullptr) {
        const std::vector<const ir::Expr*> extents = ExtentsOf(op);
        const StreamAxis& stream = streamed->outermost();
        for (size_t k = 0; k < stream.axes.size(); ++k) {
          const Cut cut = CutOf(stream, k, extents);
          const ir::Expr*& entry = own[static_cast<size_t>(stream.axes[k])];
          if (attr.name == "offset") {
            entry = pool_.Add(entry, cut.begin);
          } else if (attr.name != "start") {
            entry = cut.size;  // Of a shape, or the end of a slice of all of the axis.
          }
        }
      }
      *exprs = graph_->Copy(own);
    }
    return attrs;
  }

  Status Add(const Op& op, std::vector<Value*>& operands) {
    const Streamed& streamed = streamed_.at(&op);
    std::vector<Value*> own;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      HIR_ASSIGN(Value * operand, Operand(op, i, operands));
      if (MustBePacked(op, operand)) {
        HIR_ASSIGN(operand, Packed(operand));
      }
      own.push_back(operand);
    }
    const std::vector<ir::Attr> attrs = AttrsOf(op, &streamed);
    const Value& outer = *op.results[0];
    ir::Builder builder(*graph_);
    HIR_ASSIGN(Op* const made, builder.Add({.info = op.info,
                                            .operands = own,
                                            .attrs = attrs,
                                            .result_names = {&outer.name, 1},
                                            .location = op.location,
                                            .line = op.line}));
    graph_->guards.clear();  // What is found of chunks the whole program's guards make true.
    Value* value = made->results[0];
    Place(*value, outer, {streamed.axes.begin() + 1, streamed.axes.end()});
    HIR_ASSIGN(value, StoredLike(value, outer));
    values_[&outer] = value;
    if (op.info->effects & ir::kComm) Follow(op, *made);
    return {};
  }

  // Axes that `outer` stores are stored in the chunk, too, though they may come out with one element.
  Result<Value*> StoredLike(Value* value, const Value& outer) {
    const std::vector<ir::Axis> wanted = ir::ValueAxes(*outer.type);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const ir::Axis axis = ir::ValueAxes(*value->type)[i];
      if (wanted[i].kind != ir::AxisKind::kIteration || axis.kind != ir::AxisKind::kBroadcast ||
          axis.extent->IsConst(1))
        continue;
      ir::Builder builder(*graph_);
      const ir::Attr along = {"axis", static_cast<int64_t>(i)};
      HIR_ASSIGN(Op* const op, builder.Add({.name = "cat", .operands = {&value, 1}, .attrs = {&along, 1}}));
      HIR_TRY(PlaceCopy(*op->results[0], *value));
      value = op->results[0];
    }
    return value;
  }

  // The plan's entry for a communication says what one iteration does.
  void Follow(const Op& op, const Op& made) {
    const auto at = std::ranges::find(communications_, &op, &plan::Communication::op);
    if (at == communications_.end()) return;
    plan::Communication own = *at;
    const auto bytes = [&](const Value& value) {
      const ir::Expr* product = pool_.Const(DTypeBytes(value.type->dtype));
      for (const ir::Axis& axis : ir::ValueAxes(*value.type)) {
        if (axis.kind == ir::AxisKind::kIteration) product = pool_.Mul(product, axis.extent);
      }
      return product;
    };
    const bool grows = own.type == "Allgather" || own.type == "Gather";
    own.bytes = bytes(grows ? *made.results[0] : *made.operands[0]);
    own.op = &made;
    followed_.emplace_back(&op, std::move(own));
  }

  Status AddOutput(size_t number) {
    const Value& outer = *group_.outputs[number];
    const Op& op = *outer.def;
    const Streamed& streamed = streamed_.at(&op);
    Value* value = values_.at(&outer);
    LoopPart part = {.number = number};
    if (IsPartial(op, streamed)) {
      part.select = rest_ ? fusion::ChunksOf(pool_, streamed.outermost(), ExtentsOf(op)[0]).full : Index();
    } else {
      StreamAxis stream = streamed.outermost();
      std::vector<int> axes;
      for (const int axis : stream.axes) axes.push_back(ValueAxis(*outer.type, axis));
      part.cuts = CutsOf(outer, stream, axes, ExtentsOf(op));
      SetStrides(*value, outer, part.cuts);
      bool packs = MustBePacked(*value->def, value);
      for (const Op* reader = graph_->body.first; reader != nullptr; reader = reader->next) {
        packs |= std::ranges::count(reader->operands, value) > 0 && MustBePacked(*reader, value);
      }
      if (packs) {  // What is communicated has no gaps; its copy does.
        auto strides = body_.segments.strides.extract(value);
        HIR_ASSIGN(value, Packed(value));
        strides.key() = value;
        body_.segments.strides.insert(std::move(strides));
      }
    }
    graph_->outputs.push_back({value, nullptr});
    body_.outputs.push_back(std::move(part));
    return {};
  }

  static int ValueAxis(const ir::Type& type, int logical) {
    int axis = 0;
    for (int i = 0; i < logical; ++i)
      axis += type.axes[static_cast<size_t>(i)].kind != ir::AxisKind::kReduction ? 1 : 0;
    return axis;
  }

  const std::vector<plan::Communication>& communications_;
  const Segmented& program_;
  const segment::Group& group_;
  const StreamedOps& streamed_;
  const StreamLoop& loop_;
  const bool even_, rest_;
  std::unique_ptr<ir::Graph> graph_;
  ir::ExprPool& pool_;
  LoopBody body_;
  std::unordered_map<const Value*, Value*> values_;            // Outer to own: of the group's ops, and scalars.
  std::map<std::pair<int, std::vector<int>>, Value*> params_;  // By outer id and axes cut.
  std::unordered_map<const Value*, Value*> packed_;
  std::vector<Followed> followed_;
};

Result<StreamedOps> LoopMaker::FindStreamed(const ir::Graph& graph) const {
  StreamedOps streamed;
  for (const Op* op = graph.body.first; op != nullptr; op = op->next) {
    if (op->info->effects & ir::kLoop) continue;
    const Value& result = *op->results[0];
    if (!IsTensor(result)) continue;
    HIR_ASSIGN(std::vector<StreamAxis> axes, fusion::StreamAxesOf(result));
    if (axes.empty()) continue;
    if (axes.size() > kNestedLoopsMax) {
      return ir::WithLocation(ResourceExhausted(Cat(result.name, ": ", op->info->name, " has ", axes.size(),
                                                    " stream axes, which are loops in each other; the limit is ",
                                                    kNestedLoopsMax, ": leave some of them serial")),
                              op->location);
    }
    const bool differs =
        std::ranges::any_of(op->operands, [](const Value* operand) { return DiffersByRank(*operand); });
    if (differs || DiffersByRank(result)) continue;  // Computed as a whole.
    StreamMap map(*op);
    for (const StreamAxis& stream : axes) {
      const auto axis = static_cast<size_t>(stream.axes[0]);
      const bool kept = map.IsReduced(stream.axes[0]) && result.type->axes[axis].kind != ir::AxisKind::kReduction;
      if (!kept && map.CanCompute(stream)) continue;
      return ir::WithLocation(
          Unimplemented(Cat(result.name, ": a loop over ", Describe(stream), " cannot make it: ", op->info->name,
                            kept ? " keeps that axis with one element: reduce with keepdim=false"
                                 : " needs more than one chunk of its operands for a chunk of it: "
                                   "take another axis, or annotate a set of it")),
          op->location);
    }
    streamed.emplace(op, Streamed{std::move(axes), std::move(map)});
  }
  return streamed;
}

std::optional<int64_t> LoopMaker::SizeAtHand(const ir::Expr* extent) const {
  const Result<int64_t> size = ir::Evaluate(extent, [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto at = options_.sizes.find(std::string(symbol));
    return at == options_.sizes.end() ? std::nullopt : std::optional(at->second);
  });
  return size.ok() ? std::optional(*size) : std::nullopt;
}

Result<bool> LoopMaker::SetIterations(ir::ExprPool& pool, const Op& first, StreamLoop& loop) {
  const StreamAxis& stream = loop.axis;
  const Value& leader = *first.results[0];
  const ir::Expr* extent = leader.type->axes[static_cast<size_t>(stream.axes[0])].extent;
  bool even = true;
  switch (stream.kind) {
    case StreamAxis::Kind::kWhole:
      loop.iterations = pool.Const(1);
      for (const int axis : stream.axes) {
        loop.iterations = pool.Mul(loop.iterations, leader.type->axes[static_cast<size_t>(axis)].extent);
      }
      break;
    case StreamAxis::Kind::kWays:
    case StreamAxis::Kind::kDealt:
    case StreamAxis::Kind::kChunks: {
      const ir::Expr* const rest = pool.Mod(extent, pool.Const(stream.factor));
      const std::optional<int64_t> size = SizeAtHand(extent);
      even = !size || *size % stream.factor == 0;
      if (!even && stream.kind == StreamAxis::Kind::kDealt) {
        return ir::WithLocation(
            Unimplemented(Cat(leader.name, ": ", first.info->name, " in a loop over ", Describe(stream), " of ",
                              extent->IsConst() ? "" : Cat(ir::ToString(extent), " = "), *size,
                              " elements, which is no whole number of turns: pad it to a multiple of ", stream.factor,
                              ", or use an outer split")),
            first.location);
      }
      if (even && !rest->IsConst(0)) {
        const ir::Guard guard = {ir::Guard::Kind::kEqual, root_.exprs().Import(rest), root_.exprs().Const(0),
                                 Cat(leader.name, ": ", Describe(stream), " on stream")};
        HIR_TRY(root_.AddGuard(guard));
        evenness_.push_back(guard);
      }
      const fusion::Chunks chunks = fusion::ChunksOf(pool, stream, extent);
      const bool ways = even && stream.kind != StreamAxis::Kind::kChunks;
      loop.iterations = ways ? pool.Const(stream.factor) : chunks.full;
      if (!even && !chunks.rest->IsConst(0)) loop.rest = pool.Min(chunks.rest, pool.Const(1));
      break;
    }
  }
  return even;
}

void LoopMaker::TakePlaces(Segmented& program, const segment::Group& group, const StreamedOps& streamed,
                           ir::Builder& builder, const Op& made) {
  ir::Graph& graph = *program.graph;
  for (size_t i = 0; i < group.outputs.size(); ++i) {
    Value* const before = group.outputs[i];
    Value* now = made.results[i];
    const auto place = [&](Value& value) {
      if (before->layout == nullptr) return;
      value.layout = fusion::LayoutFor(graph, *value.type,
                                       {before->layout->mesh, std::vector<fusion::Types>(value.type->axes.size())});
    };
    place(*now);
    if (IsPartial(*before->def, streamed.at(before->def))) {
      const int64_t axes[] = {0};
      const std::string_view reduce = fusion::ReduceName(*before->def);
      now = builder.Make(
          reduce, {now},
          {{"axes", std::span<const int64_t>(axes)}, {"keepdim", false}, {"dtype", DTypeName(before->type->dtype)}});
      place(*now);
      now->def->location = before->def->location;
    }
    graph.TakeName(*now, *before);
    ir::ReplaceUses(graph, before, now);
    if (const auto strides = program.strides.find(before); strides != program.strides.end()) {
      program.strides.emplace(now, strides->second);
    }
  }
}

Status LoopMaker::Outline(Segmented& program, const segment::Group& group, const StreamedOps& streamed) {
  ir::Graph& graph = *program.graph;
  ir::ExprPool& pool = graph.exprs();
  const Op& first = *group.ops[0];
  const StreamAxis& stream = streamed.at(&first).outermost();
  StreamLoop loop = {.name = Cat("loop", next_loop_), .index = Cat("i", next_loop_), .axis = stream};
  ++next_loop_;
  HIR_ASSIGN(const bool even, SetIterations(pool, first, loop));
  // A chunk that is longer than the axis leaves the rest alone.
  const bool only_rest = loop.iterations->IsConst(0) && loop.rest != nullptr;
  if (only_rest) loop.iterations = std::exchange(loop.rest, nullptr);
  std::vector<Value*> operands;
  std::vector<Followed> followed;
  BodyMaker main(communications_, program, group, streamed, loop, even, only_rest);
  HIR_ASSIGN(loop.body, main.Make(operands, followed));
  if (loop.rest != nullptr) {
    BodyMaker rest(communications_, program, group, streamed, loop, even, true);
    HIR_ASSIGN(loop.rest_body, rest.Make(operands, followed));
  }
  for (auto& [op, own] : followed) {
    const auto at = std::ranges::find(communications_, op, &plan::Communication::op);
    communications_.insert(at, std::move(own));
  }
  for (const auto& [op, own] : followed) {
    std::erase_if(communications_, [op = op](const plan::Communication& c) { return c.op == op; });
  }
  // The op that stands for all of them, and what adds up partial results.
  std::vector<const ir::Type*> types;
  std::vector<std::string_view> names;
  const ir::Expr* const chunks = loop.rest == nullptr ? loop.iterations : pool.Add(loop.iterations, loop.rest);
  for (const Value* output : group.outputs) {
    std::vector<ir::Axis> axes = ir::ValueAxes(*output->type);
    const bool partial = IsPartial(*output->def, streamed.at(output->def));
    if (partial) axes.insert(axes.begin(), {ir::AxisKind::kIteration, chunks});
    types.push_back(graph.Tensor(output->type->dtype, axes));
    names.push_back(graph.Copy(partial ? Cat(output->name, ".chunks") : std::string(output->name)));
  }
  ir::Builder builder(graph, graph.body, group.ops.back()->next);
  const ir::Attr number = {"loop", static_cast<int64_t>(program.loops.size())};
  HIR_ASSIGN(Op* const made, builder.Add({.name = "stream_loop",
                                          .operands = operands,
                                          .attrs = {&number, 1},
                                          .result_names = names,
                                          .declared = types,
                                          .num_results = static_cast<int>(types.size()),
                                          .location = first.location}));
  TakePlaces(program, group, streamed, builder, *made);
  for (auto op = group.ops.rbegin(); op != group.ops.rend(); ++op) graph.body.Erase(*op);
  HIR_TRY(Form(loop.body.segments));
  if (loop.rest != nullptr) HIR_TRY(Form(loop.rest_body.segments));
  program.loops.push_back(std::move(loop));
  return {};
}

Status LoopMaker::Form(Segmented& program) {
  ir::Graph& graph = *program.graph;
  HIR_ASSIGN(const StreamedOps streamed, FindStreamed(graph));
  if (streamed.empty()) return {};
  HIR_ASSIGN(const std::vector<segment::Group> groups,
             segment::Segment(graph, OneLoop(streamed), {.merge_siblings = true}));
  // The ops of a group side by side, so that one op can stand for them.
  for (const segment::Group& group : groups) {
    for (Op* op : group.ops) {
      graph.body.Erase(op);
      graph.body.InsertBefore(nullptr, op);
    }
  }
  for (const segment::Group& group : groups) {
    if (streamed.contains(group.ops[0])) HIR_TRY(Outline(program, group, streamed));
  }
  return {};
}

}  // namespace

Status FormStreamLoops(Segmented& program, const LoopOptions& options, std::vector<plan::Communication>& communications,
                       std::vector<ir::Guard>& evenness) {
  return LoopMaker(*program.graph, options, communications, evenness).Form(program);
}

}  // namespace hir::host
