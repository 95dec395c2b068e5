// Turns resharding steps into ops on one rank's part. Private to multidevice/plan.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"
#include "multidevice/plan/local_extents.h"
#include "multidevice/plan/localize.h"
#include "multidevice/plan/resharding.h"

namespace hir::plan {

// "y" of "y.sum.partial": the name before passes added to it. For messages.
std::string_view UserName(std::string_view name);
// Gives `value` the layout {mesh}.
void PlaceOn(ir::Graph& graph, ir::Value& value, const ir::Mesh* mesh);
// Bytes of the elements that are stored of it.
const ir::Expr* StoredBytes(ir::ExprPool& pool, const ir::Value& value);
// The symbol of a rank's coordinate: "@m.x".
std::string CoordinateOf(const ir::Mesh& mesh, mesh::ParallelType type);

// One per localized graph. Communications move whole contiguous buffers, chunk by chunk along a new leading axis, so
// what lies elsewhere is brought there first and back after:
//
//   Allgather of axis 1:  allgather(%x: [a, b]) -> [d, a, b]   permute -> [a, d, b]   reshape -> [a, d*b]
//   ReduceScatter:        reshape -> [a, d, b/d]   permute -> [d, a, b/d]   reduce_scatter -> [a, b/d]
//   AllToAll:             the one before it and the other after it
//   slice:                slice(%x) {start=[0, @m.x*(b/d)], ...}
//   reorder, b natural:   reshape -> [a, b/d, d]   permute -> [a, d, b/d]   reshape -> [a, b]
//   AllToAll, b/d dealt:  reshape -> [a, d, c]   permute -> [d, a, c]   all_to_all   permute -> [a, c, d]   reshape
class StepEmitter {
 public:
  // All outlive it. Ops go to the end of graph.body.
  StepEmitter(ir::Graph& graph, LocalExtents& extents, const LocalizeOptions& options)
      : graph_(graph),
        extents_(extents),
        cost_(options.cost),
        resharding_bytes_max_(options.resharding_bytes_max),
        overlap_(options.overlap) {}

  struct Request {
    ir::Value* value = nullptr;         // A rank's part.
    const ir::Value* global = nullptr;  // The result in the global program: its name and type.
    mesh::Sharding from, to;
    std::string_view reduce = {};  // Of partial results.
    std::string_view source = {};  // The operand's name in the global program.
    std::string_view location = {};
  };
  // A rank's part of the resharded tensor. A step that was taken before from the same part is shared.
  Result<ir::Value*> Reshard(const Request& request);

  // The elements of `value`, a rank's part, along value axis `axis` of global `extent` that are no padding.
  Result<ir::Value*> Valid(ir::Value* value, size_t axis, const ir::Expr* extent, const mesh::Sharding& sharding,
                           std::string_view location);
  // `value`, where axes that `type` stores are stored, and those that it has once are there once.
  Result<ir::Value*> StoreLike(ir::Value* value, const ir::Type& type);

  std::vector<Communication>& communications() { return communications_; }
  // What must hold of sizes for the steps to be right.
  std::vector<ir::Guard>& guards() { return guards_; }
  // What must hold of sizes for the steps that were chosen; for others, others may: to stay within the bound of memory,
  // and for turns to be exchanged.
  const std::vector<ir::Guard>& bounds() const { return bounds_; }

 private:
  // A step from one part: its kind, type, axes, meshes and what it leads to.
  using Key = std::tuple<int, StepKind, mesh::ParallelType, size_t, size_t, std::string>;
  static Key KeyOf(const Step& step, const ir::Value& value);

  Result<ir::Value*> Emit(std::string_view name, ir::Value* operand, std::initializer_list<ir::Attr> attrs);
  Result<ir::Value*> Emit(std::string_view name, std::initializer_list<ir::Value*> operands,
                          std::initializer_list<ir::Attr> attrs);
  Result<ir::Value*> Take(const Step& step, ir::Value* value);
  Result<ir::Value*> Communicate(const Step& step, ir::Value* value);
  bool IsExchangedSum(const Step& step, const ir::Value& value, size_t axis);
  Result<ir::Value*> ExchangeSum(const Step& step, ir::Value* value, size_t axis);
  Result<ir::Value*> Slice(const Step& step, ir::Value* value);
  Result<ir::Value*> Spread(const Step& step, ir::Value* value);
  Result<ir::Value*> Reorder(const Step& step, ir::Value* value);
  Result<ir::Value*> ExchangeTurns(const Step& step, ir::Value* value);
  Result<ir::Value*> Split(ir::Value* value, size_t axis, const ir::Expr* outer, const ir::Expr* inner);
  Result<ir::Value*> Merge(ir::Value* value, size_t axis, const ir::Expr* extent);
  ir::Value* Unmerged(ir::Value* value, const std::vector<const ir::Expr*>& shape);
  void DropUnread(size_t first_value, const ir::Value* result);
  Result<ir::Value*> Compact(ir::Value* value);
  bool LosesStoredOnce(const Step& step) const;
  Result<ir::Value*> SplitToFront(ir::Value* value, const std::vector<int64_t>& chunks);
  Result<ir::Value*> MergeFromFront(ir::Value* value, const std::vector<int64_t>& chunks,
                                    const std::vector<const ir::Expr*>& shape);
  Result<ir::Value*> PadTo(ir::Value* value, size_t axis, const ir::Expr* extent);
  Result<ir::Value*> CropTo(ir::Value* value, size_t axis, const ir::Expr* extent);
  Result<ir::Value*> SliceAxis(ir::Value* value, size_t axis, const ir::Expr* start, const ir::Expr* end);
  Result<ir::Value*> Reshape(ir::Value* value, const std::vector<const ir::Expr*>& shape);
  Result<ir::Value*> MoveAxis(ir::Value* value, size_t from, size_t to);
  Result<ir::Value*> ExpandTo(ir::Value* value, const std::vector<const ir::Expr*>& shape);

  // The extents of a rank's part under `sharding`; of one axis, cut into `ways` more.
  std::vector<const ir::Expr*> ShareOf(const mesh::Sharding& sharding);
  const ir::Expr* ShareOf(const mesh::Sharding& sharding, size_t axis, int64_t ways);
  Result<ir::Value*> StoreOnceLike(ir::Value* value, const std::vector<ir::Axis>& wanted);
  void GuardSplits(const Plan& plan);
  bool IsEven(size_t axis) const;  // All blocks of it, in the program.
  // The steps of a request, and the sizes up to which they stay within the bound.
  Result<Plan> PlanSteps(const Request& request);
  void BoundSizes(const Plan& plan, const TensorSize& size);
  TensorSize SizeOf(const ir::Value& value) const;
  void Record(const Step& step, const ir::Value& operand, const ir::Value& result);
  void Record(StepKind kind, const Step& step, const ir::Value& operand, const ir::Value& result);

  ir::Graph& graph_;
  LocalExtents& extents_;
  const CostModel& cost_;
  const int64_t resharding_bytes_max_;
  const OverlapLimits overlap_;
  std::map<Key, ir::Value*> taken_;
  std::set<const ir::Value*> merged_;  // By Merge: what is split again at once need not be merged.
  std::vector<Communication> communications_;
  std::vector<ir::Guard> guards_, bounds_;
  // Of the request being served:
  const Request* request_ = nullptr;
  std::vector<ir::Value*> unmerged_;  // Whose operands were read instead.
  mesh::Sharding at_ = mesh::Sharding::OnDevice0(0);
  const ir::Mesh* mesh_ = nullptr;  // Of the op being emitted.
};

}  // namespace hir::plan
