// Sums of rows by index on CPUs. The rows are sorted by index, by counting, which keeps the order of equal ones; then
// each row of the output is the sum of its rows, read once and written once. Threads share rows and columns of the
// output: an index that all rows have is spread over columns.
#include "csrc/codegen/library/index_sum.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/format.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

constexpr int64_t kColumns = 512;         // Sums of one pass over the rows of an index.
constexpr int64_t kGrainBytes = 1 << 16;  // Read and written by a piece of work, at least: so much takes 10 us.

}  // namespace

Result<IndexSum> Normalize(const IndexSumDesc& desc) {
  const Tensor& from = desc.updates;
  const Tensor& to = desc.output;
  const size_t rank = from.shape.size();
  const auto along = static_cast<size_t>(desc.axis);
  if (from.dtype != to.dtype || to.dtype == DType::kBool || !IsIndex(desc.indices.dtype)) {
    return Unimplemented(Cat("index_sum of ", DTypeName(from.dtype), " by ", DTypeName(desc.indices.dtype), " to ",
                             DTypeName(to.dtype)));
  }
  if (to.shape.size() != rank || along >= rank || desc.indices.shape.size() != 1 ||
      desc.indices.shape[0] != from.shape[along]) {
    return InvalidArgument("index_sum: wrong ranks, or not one index for each row");
  }
  IndexSum sums = {.dtype = to.dtype,
                   .index = desc.indices.dtype,
                   .outer = {},
                   .columns = {},
                   .count = from.shape[along],
                   .from_next = from.strides[along],
                   .index_next = desc.indices.strides[0],
                   .size = to.shape[along],
                   .to_next = to.strides[along]};
  for (size_t k = 0; k < rank; ++k) {
    if (k == along) continue;
    if (from.shape[k] != to.shape[k])
      return InvalidArgument(Cat("index_sum: axis ", k, " has extent ", to.shape[k], ", not ", from.shape[k]));
    if (from.shape[k] == 1) continue;
    const IndexSum::Axis axis = {from.shape[k], StrideOf(from, k), StrideOf(to, k)};
    if (!sums.outer.empty() && sums.outer.back().from == axis.from * axis.extent &&
        sums.outer.back().to == axis.to * axis.extent) {
      sums.outer.back() = {sums.outer.back().extent * axis.extent, axis.from, axis.to};
    } else {
      sums.outer.push_back(axis);
    }
  }
  if (!sums.outer.empty()) {
    sums.columns = sums.outer.back();
    sums.outer.pop_back();
  }
  return sums;
}

namespace {

template <typename F>
class Sorted final : public Call {
 public:
  using Stored = typename F::Stored;
  using Sum = typename F::Sum;

  Sorted(const IndexSum& sums, base::WorkPool& pool)
      : s_(sums),
        pool_(pool),
        ends_(static_cast<size_t>(sums.size) + 1),
        order_(static_cast<size_t>(sums.count)),
        rows_(static_cast<size_t>(sums.count)) {
    for (const IndexSum::Axis& axis : sums.outer) blocks_ *= axis.extent;
  }

  void Run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) override {
    if (blocks_ == 0 || s_.columns.extent == 0 || s_.size == 0) return;
    if (s_.index == DType::kInt32) {
      Sort(reinterpret_cast<const int32_t*>(inputs[1]));
    } else {
      Sort(reinterpret_cast<const int64_t*>(inputs[1]));
    }
    const auto* from = reinterpret_cast<const Stored*>(inputs[0]);
    auto* to = reinterpret_cast<Stored*>(outputs[0]);
    // Pieces: of each block so many ranges of columns, of each so many ranges of rows, of about equal work.
    const int64_t steps = s_.size + s_.count;
    const int64_t threads = pool_.num_threads() + 1;
    const int64_t widest = base::CeilDiv(s_.columns.extent, threads);
    const int64_t width = threads == 1 ? s_.columns.extent : std::max(std::min(kColumns, widest), kColumnsMin);
    const int64_t ranges = base::CeilDiv(s_.columns.extent, width);
    const int64_t bytes = steps * width * static_cast<int64_t>(sizeof(Stored));
    const int64_t cuts = std::clamp(bytes / kGrainBytes, int64_t{1}, 4 * threads);
    pool_.ParallelFor(blocks_ * ranges * cuts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t cut = i % cuts, range = i / cuts % ranges, block = i / cuts / ranges;
        const int64_t first = range * width;
        RunRows(from, to, block, {RowAt(steps * cut / cuts), RowAt(steps * (cut + 1) / cuts)},
                {first, std::min(first + width, s_.columns.extent)});
      }
    });
  }

  std::string implementation() const override { return "index_sum by counting"; }

 private:
  static constexpr int64_t kColumnsMin = 64 / static_cast<int64_t>(sizeof(Stored));  // A cache line of the output.

  struct Range {
    int64_t begin = 0, end = 0;
  };

  // After it the updates of row v are order_[ends_[v]] up to order_[ends_[v + 1]].
  template <typename Index>
  void Sort(const Index* indices) {
    std::ranges::fill(ends_, 0);
    for (int64_t n = 0; n < s_.count; ++n) {
      int64_t row = int64_t{indices[n * s_.index_next]};
      if (row < 0) row += s_.size;
      row = std::clamp(row, int64_t{0}, s_.size - 1);
      rows_[static_cast<size_t>(n)] = row;
      ++ends_[static_cast<size_t>(row)];
    }
    int64_t before = 0;
    for (int64_t& end : ends_) before += std::exchange(end, before);
    for (int64_t n = 0; n < s_.count; ++n)
      order_[static_cast<size_t>(ends_[static_cast<size_t>(rows_[static_cast<size_t>(n)])]++)] = n;
    // Each is where its row ends now, and the next one begins.
    std::shift_right(ends_.begin(), ends_.end(), 1);
    ends_[0] = 0;
  }

  // The first row before which are `step` rows and updates, or more.
  int64_t RowAt(int64_t step) const {
    int64_t low = 0, high = s_.size;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (middle + ends_[static_cast<size_t>(middle)] < step) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  void RunRows(const Stored* from, Stored* to, int64_t block, Range rows, Range columns) const {
    for (size_t axis = s_.outer.size(); axis-- > 0; block /= s_.outer[axis].extent) {
      const int64_t place = block % s_.outer[axis].extent;
      from += place * s_.outer[axis].from;
      to += place * s_.outer[axis].to;
    }
    std::array<Sum, static_cast<size_t>(kColumns)> sums;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t begin = ends_[static_cast<size_t>(row)], end = ends_[static_cast<size_t>(row) + 1];
      for (int64_t first = columns.begin; first < columns.end; first += kColumns) {
        const int64_t width = std::min(kColumns, columns.end - first);
        std::fill_n(sums.begin(), width, Sum{0});
        for (int64_t n = begin; n < end; ++n)
          Add(from + order_[static_cast<size_t>(n)] * s_.from_next + first * s_.columns.from, width, sums.data());
        Store(sums.data(), width, to + row * s_.to_next + first * s_.columns.to);
      }
    }
  }

  // Loops of their own for rows without gaps, which a compiler makes vectors of.
  void Add(const Stored* from, int64_t width, Sum* sums) const {
    if (s_.columns.from == 1) {
      for (int64_t k = 0; k < width; ++k) sums[k] += F::Load(from[k]);
    } else {
      for (int64_t k = 0; k < width; ++k) sums[k] += F::Load(from[k * s_.columns.from]);
    }
  }
  void Store(const Sum* sums, int64_t width, Stored* to) const {
    if (s_.columns.to == 1) {
      for (int64_t k = 0; k < width; ++k) to[k] = F::Store(sums[k]);
    } else {
      for (int64_t k = 0; k < width; ++k) to[k * s_.columns.to] = F::Store(sums[k]);
    }
  }

  const IndexSum s_;
  base::WorkPool& pool_;
  int64_t blocks_ = 1;
  std::vector<int64_t> ends_;   // By row of the output.
  std::vector<int64_t> order_;  // Numbers of updates, by row.
  std::vector<int64_t> rows_;   // By number.
};

}  // namespace

Result<std::unique_ptr<Call>> MakeIndexSum(const IndexSumDesc& desc, base::WorkPool& pool) {
  HIR_ASSIGN(const IndexSum sums, Normalize(desc));
  return WithFormat(sums.dtype,
                    [&]<typename F>(F) -> std::unique_ptr<Call> { return std::make_unique<Sorted<F>>(sums, pool); });
}

}  // namespace hir::codegen::library
