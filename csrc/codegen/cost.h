// Costs of kernels that are not planned yet: segmentation asks of every group that two others would become. In bytes,
// those that pass through the device's memory in the time that something takes. Private to csrc/codegen but for Cost.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/codegen/structure.h"
#include "csrc/codegen/target.h"
#include "csrc/codegen/walks.h"

namespace hir::codegen {

// Costs of the groups of one graph, which must not change. Not thread-safe.
class CostModel {
 public:
  CostModel(const Target& target, const Sizes& sizes) : walks_(WalksOf(target)), sizes_(sizes) {}

  // `classes`: of the group; null where `structure` has no reductions.
  Cost Of(const segment::GroupView& group, const Structure& structure, OpAxes& axes, const AxisClasses* classes);
  // 0 of a number of the host.
  int64_t BytesOf(const ir::Value& value);

 private:
  // How often a value is computed, or read, at which loops: of index sets that are the same the largest counts.
  struct Use {
    int call = 0;
    int64_t in_place = 0, elsewhere = 0;
    uint64_t phases = 0;
  };
  // How the reductions' loops are walked.
  struct Walk {
    int64_t rows = 1, columns = 1;
    int64_t share_of = 1, share = 1;  // The part of the device's speed: share / share_of.
    int64_t least = 0;                // Bytes that pass in the time that the rows take whatever is in them.
    bool is_near = true;              // What a row reads is in a cache or in registers when it is read again.
    int64_t workspaces = 0, launches = 1;
  };

  Walk WalkOf(const segment::GroupView& group, const Structure& structure, const AxisClasses& classes);
  void InOrder(int64_t sums, Walk& walk) const;
  void RowByRow(const segment::GroupView& group, const Structure& structure, const AxisClasses& classes,
                Walk& walk) const;
  int64_t ExtentOf(const AxisClasses& classes, const std::vector<int>& axes) const;

  int64_t ElementsOf(const ir::Value& value);
  Use& UseOf(const ir::Value& value);
  // `op` is computed `use`; what that makes of its operands' uses.
  void Follow(const ir::Op& op, const Use& use, const OpAxes::Facts& facts);

  const Walks walks_;
  const Sizes sizes_;
  int call_ = 0;
  std::vector<Use> uses_;       // By the number of a value; of the call at hand.
  std::vector<int64_t> bytes_;  // The same; -1: not known yet.
};

}  // namespace hir::codegen
