#include "csrc/codegen/cost.h"

#include <algorithm>
#include <bit>

#include "csrc/base/checked.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::codegen {
namespace {

constexpr int64_t kMost = int64_t{1} << 50;  // Of a term: sums of a few, and those of a plan, fit 63 bits.
constexpr int kOwnRegion = 63;               // The bit of what goes with no phase.
constexpr int64_t kBytesOfSum = 4;
constexpr int64_t kBytesOfElement = 4;  // Of most; no plan follows from it.
// Functions beside memory take about half of their price: on two cores an exp 2.5 bytes, a tanh 4.5, a log 6, a
// sine 12.
constexpr int64_t kBeside = 2;
// So much is nothing: of a launch's time on a GPU, and a core reads it from its cache.
constexpr int64_t kShortIdling = 1 << 20;

int64_t Times(int64_t a, int64_t b) { return std::min(base::CheckedMul(a, b).value_or(kMost), kMost); }
int64_t Plus(int64_t a, int64_t b) { return std::min(a + b, kMost); }
// a * b / c, rounded up.
int64_t Share(int64_t a, int64_t b, int64_t c) {
  const auto share = (static_cast<__int128>(a) * b + c - 1) / std::max<int64_t>(c, 1);
  return static_cast<int64_t>(std::min<__int128>(share, kMost));
}

// Parts of rows that are longer than a CTA holds are so many times as slow: they are read element by element, and their
// sums are added up in a workspace. RMS norm backward of 10x32768 in three parts takes 0.163 ms on an H200, at 9 GB/s
// each.
constexpr int64_t kPartsOfLongRows = 16;

// The elements of a vector along so many columns: 16 bytes of the narrowest, or as many as divide them.
int64_t LanesOf(const segment::GroupView& group, int64_t columns) {
  int64_t narrowest = 8;
  for (const ir::Value* input : group.inputs) {
    if (IsTensor(*input)) narrowest = std::min(narrowest, DTypeBytes(input->type->dtype));
  }
  int64_t lanes = std::min<int64_t>(16 / narrowest, 8);
  while (lanes > 1 && columns % lanes != 0) lanes /= 2;
  return lanes;
}

uint64_t BitOf(int phase) { return uint64_t{1} << std::min(phase, kOwnRegion - 1); }

}  // namespace

int64_t CostModel::BytesOf(const ir::Value& value) {
  const auto id = static_cast<size_t>(value.id);
  if (bytes_.size() <= id) bytes_.resize(id + 1, -1);
  if (bytes_[id] < 0) bytes_[id] = segment::StorageBytes(value, sizes_);
  return bytes_[id];
}

int64_t CostModel::ElementsOf(const ir::Value& value) {
  return IsTensor(value) ? BytesOf(value) / std::max<int64_t>(DTypeBytes(value.type->dtype), 1) : 1;
}

CostModel::Use& CostModel::UseOf(const ir::Value& value) {
  const auto id = static_cast<size_t>(value.id);
  if (uses_.size() <= id) uses_.resize(id + 1);
  if (uses_[id].call != call_) uses_[id] = {.call = call_};
  return uses_[id];
}

int64_t CostModel::ExtentOf(const AxisClasses& classes, const std::vector<int>& axes) const {
  int64_t product = 1;
  for (const int axis : axes)
    product = Times(product, std::max<int64_t>(SizeOf(classes.Extent(axis), sizes_, segment::kUnknownExtent), 0));
  return product;
}

// Parts of the rows, each in order (inner_outer.cc), with so many sums over them.
void CostModel::InOrder(int64_t sums, Walk& walk) const {
  int64_t most = walks_.row_parts_max;
  if (most == 0)
    most = walks_.processors * BlocksThatFill(walks_, BlocksOfRowsOf(kBlocksOfRows, walk.columns), walk.rows);
  const int64_t parts = std::clamp<int64_t>(base::CeilDiv(walk.rows, std::max<int64_t>(walks_.rows_min, 1)), 1, most);
  walk.workspaces = Times(2 * kBytesOfSum * sums, Times(parts, walk.columns));
  walk.launches = sums > 0 ? 2 : 1;
  const int64_t fast_parts = walks_.fast_parts * (walk.is_near ? 1 : kPartsOfLongRows);
  walk.share_of = fast_parts * walks_.short_row;
  walk.share = std::min(parts, fast_parts) * std::clamp<int64_t>(walk.columns, 1, walks_.short_row);
  walk.least = Times(base::CeilDiv(walk.rows, parts), walks_.bytes_of_row);
}

// A row for each item, or parts of it (partials.cc).
void CostModel::RowByRow(const segment::GroupView& group, const Structure& structure, const AxisClasses& classes,
                         Walk& walk) const {
  const Reduction& first = structure.reductions.front();
  const std::vector<int> domain = DomainInMemory(group, classes, first);
  const auto is_reduced = [&first](int axis) { return std::ranges::find(first.reduced, axis) != first.reduced.end(); };
  const bool along_rows = !domain.empty() && is_reduced(domain.back());
  int64_t items = walk.rows, items_at_most = items;
  if (!along_rows && !structure.rows.empty()) {
    const int64_t last = std::max<int64_t>(ExtentOf(classes, {structure.rows.back()}), 1);
    items = Times(walk.rows / last, std::max<int64_t>(last / kColumnsOfItem, 1));
    items_at_most = Times(walk.rows / last, std::max<int64_t>(last / walks_.columns_of_item, 1));
  }
  const auto loops = std::ranges::count_if(structure.phase_loops, [](const auto& l) { return !l.empty(); });
  int64_t longest = 0;
  for (const Reduction& reduction : structure.reductions)
    longest = std::max(longest, ExtentOf(classes, reduction.reduced));
  if (walks_.reduces_rows_in_order && structure.schedule == "reduction" && !along_rows && longest >= kRowsThatPay) {
    size_t kept = domain.size();
    while (kept > 0 && !is_reduced(domain[kept - 1])) --kept;
    const int64_t columns = ExtentOf(classes, {domain.begin() + static_cast<std::ptrdiff_t>(kept), domain.end()});
    const bool abreast = columns < walks_.short_columns && longest >= walks_.long_trips;
    if (!abreast) {
      walk.rows = Times(walk.rows / std::max<int64_t>(columns, 1), longest);
      walk.columns = columns;
      return InOrder(std::ssize(structure.reductions), walk);
    }
  }
  walk.is_near = longest <= walks_.long_row_again;
  if (items < walks_.few_items && longest >= LongTrips(walks_, along_rows, loops > 1, items == 1, kBytesOfElement)) {
    walk.is_near = false;
    // Stores of single elements come behind the sums, in a launch of their own.
    const bool stores_points = std::ranges::any_of(structure.outputs, [&](const OutputPlace& output) {
      return output.phase >= 0 && !structure.phase_loops[static_cast<size_t>(output.phase)].empty();
    });
    walk.launches = 2 + (loops > 1 && stores_points ? 1 : 0);
    walk.workspaces = Times(2 * kBytesOfSum * std::ssize(structure.reductions), Times(walks_.full_items, walk.rows));
    return;
  }
  walk.share_of = along_rows ? walks_.fast_items : walks_.fast_columns;
  walk.share = std::clamp<int64_t>(items_at_most, 1, walk.share_of);
}

CostModel::Walk CostModel::WalkOf(const segment::GroupView& group, const Structure& structure,
                                  const AxisClasses& classes) {
  Walk walk{.rows = ExtentOf(classes, structure.rows), .columns = ExtentOf(classes, structure.columns)};
  const auto in_order = std::ranges::count_if(structure.reductions, [](const Reduction& r) { return r.depth >= 0; });
  if (structure.columns.empty()) {
    RowByRow(group, structure, classes, walk);
  } else if (in_order > 0) {
    const int64_t held = Times(walks_.held_vectors, LanesOf(group, walk.columns));
    walk.is_near = held == 0 || walk.columns <= held;
    InOrder(in_order, walk);
  } else {
    const auto loops = std::ranges::count_if(structure.phase_loops, [](const auto& l) { return !l.empty(); });
    walk.is_near = walk.columns <= walks_.long_row_again;
    // Long rows are not cut into parts here, as they are where reductions that keep other axes have their own kernels.
    const bool are_long = walk.columns >= LongTrips(walks_, true, loops > 1, walk.rows == 1, kBytesOfElement);
    walk.share_of = are_long ? std::max(walks_.few_items, walks_.fast_items) : walks_.fast_items;
    walk.share = std::clamp<int64_t>(walk.rows, 1, walk.share_of);
  }
  for (const Reduction& reduction : structure.reductions) {
    if (reduction.nested < 0) continue;  // Else each row leaves results (nested.cc).
    const auto kept = structure.columns.begin() + reduction.nested;
    const int64_t results = Times(walk.rows, ExtentOf(classes, {structure.columns.begin(), kept}));
    // The second launch reads those of one result after the other: few results leave the device idle.
    const int64_t items = std::clamp<int64_t>(ElementsOf(*reduction.op->results[0]), 1, walks_.fast_items);
    const int64_t read = Times(kBytesOfSum, Share(results, walks_.fast_items, items));
    walk.workspaces = Plus(walk.workspaces, Plus(Times(kBytesOfSum, results), read));
    walk.launches = 2;
  }
  return walk;
}

void CostModel::Follow(const ir::Op& op, const Use& use, const OpAxes::Facts& facts) {
  const int64_t elements = std::max<int64_t>(ElementsOf(*op.results[0]), 1);
  for (size_t k = 0; k < op.operands.size(); ++k) {
    const ir::Value& operand = *op.operands[k];
    const OpAxes::Reading& reading = facts.readings[k];
    Use& its = UseOf(operand);
    int64_t times = Plus(use.in_place, use.elsewhere);
    // A piece of a concatenation, and what is padded, are computed at their own elements alone.
    if (reading.is_piece) times = Share(times, ElementsOf(operand), elements);
    // All that the innermost loop computes alike is computed ahead of it, or once a vector.
    if (reading.innermost != nullptr) {
      const int64_t extent = SizeOf(reading.innermost, sizes_, segment::kUnknownExtent);
      times = base::CeilDiv(times, std::clamp<int64_t>(extent, 1, walks_.hoisted_max));
    }
    if (reading.keeps_index) {
      its.in_place = std::max(its.in_place, times);
    } else {
      its.elsewhere = Plus(its.elsewhere, times);
    }
    its.phases |= use.phases;
  }
}

Cost CostModel::Of(const segment::GroupView& group, const Structure& structure, OpAxes& axes,
                   const AxisClasses* classes) {
  ++call_;
  Cost cost;
  if (structure.outputs.empty()) return cost;  // Numbers of the host.
  const Walk walk = structure.reductions.empty() ? Walk() : WalkOf(group, structure, *classes);
  for (const OutputPlace& output : structure.outputs) {
    Use& use = UseOf(*output.value);
    use.in_place = ElementsOf(*output.value);
    if (!output.late) use.phases |= BitOf(output.phase < 0 ? kOwnRegion : output.phase);
    cost.bytes = Plus(cost.bytes, BytesOf(*output.value));
  }
  uint64_t summing = 0;  // Phases.
  for (const Reduction& reduction : structure.reductions) summing |= BitOf(reduction.phase);
  const auto readings = [&walk, summing](uint64_t phases) {
    constexpr uint64_t kOwn = uint64_t{1} << kOwnRegion;
    // A variance goes with its mean, a sum of exponentials with its maximum.
    const int sums = (std::popcount(phases & summing) + 1) / 2;
    const int of_phases = sums + std::popcount(phases & ~summing & ~kOwn);
    return std::max((walk.is_near ? std::min(of_phases, 1) : of_phases) + ((phases & kOwn) != 0 ? 1 : 0), 1);
  };
  size_t left = structure.reductions.size();
  for (size_t i = group.ops.size(); i-- > 0;) {
    const ir::Op& op = *group.ops[i];
    Use use;
    for (const ir::Value* result : op.results) {
      const Use& its = UseOf(*result);
      use.in_place = std::max(use.in_place, its.in_place);
      use.elsewhere = std::max(use.elsewhere, its.elsewhere);
      use.phases |= its.phases;
    }
    const OpAxes::Facts& facts = axes.Of(op);
    if (left > 0 && structure.reductions[left - 1].op == &op) {
      const Reduction& reduction = structure.reductions[--left];
      for (const ir::Value* operand : op.operands) {
        Use& its = UseOf(*operand);
        its.in_place = std::max(its.in_place, ElementsOf(*operand));
        its.phases |= BitOf(reduction.phase);
      }
      continue;
    }
    const int64_t times = Times(Plus(use.in_place, use.elsewhere), readings(use.phases));
    cost.arithmetic = Plus(cost.arithmetic, Times(facts.price, times) / kBeside);
    Follow(op, use, facts);
  }
  for (const ir::Value* input : group.inputs) {
    if (!IsTensor(*input)) continue;
    const Use& use = UseOf(*input);
    const int64_t whole = BytesOf(*input);
    const int64_t read = std::min(whole, Times(Plus(use.in_place, use.elsewhere), DTypeBytes(input->type->dtype)));
    cost.bytes = Plus(cost.bytes, read);
    cost.again = Plus(cost.again, Times(read, readings(use.phases) - 1));
  }
  cost.again = Plus(cost.again, walk.workspaces);
  cost.launches = walk.launches;
  cost.of_launches = walk.launches * walks_.bytes_of_launch;
  const int64_t busy = std::max(Plus(cost.bytes, cost.again), cost.arithmetic);
  const int64_t time = std::max(Share(busy, walk.share_of, walk.share), walk.least);
  cost.idle = std::max<int64_t>(time - busy - kShortIdling, 0);
  return cost;
}

}  // namespace hir::codegen
