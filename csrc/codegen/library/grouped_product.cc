// Products of groups of rows on CPUs. Each group is cut into blocks of the output, the same ones on any number of
// threads, of which each is a sum that one thread makes: by the given product of blocks in float32, to which other
// elements are widened, or by loops.
#include "csrc/codegen/library/grouped_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/block_sums.h"
#include "csrc/codegen/library/format.h"
#include "csrc/codegen/library/row_loops.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

std::string ShapeText(const Tensor& tensor) { return Cat("[", base::Join(tensor.shape, ", "), "]"); }

GroupedProduct::Matrix MatrixOf(const Tensor& tensor) {
  const size_t rank = tensor.shape.size();
  const auto stride = [&](size_t axis) { return tensor.shape[axis] == 1 ? 0 : tensor.strides[axis]; };
  return {rank == 3 ? stride(0) : 0, stride(rank - 2), stride(rank - 1)};
}

}  // namespace

Result<GroupedProduct> Normalize(const GroupedProductDesc& desc) {
  const std::string_view name = desc.outer ? "grouped_outer" : "grouped_matmul";
  if (desc.a.dtype != desc.b.dtype || desc.a.dtype != desc.output.dtype || desc.a.dtype == DType::kBool ||
      !IsIndex(desc.ends.dtype)) {
    return Unimplemented(Cat(name, " of ", DTypeName(desc.a.dtype), " and ", DTypeName(desc.b.dtype), " with ends of ",
                             DTypeName(desc.ends.dtype), " to ", DTypeName(desc.output.dtype)));
  }
  using Shape = std::vector<int64_t>;
  bool fits = desc.a.shape.size() == 2 && desc.ends.shape.size() == 1 && !desc.b.shape.empty();
  if (fits) {
    const int64_t rows = desc.a.shape[0], k = desc.a.shape[1], n = desc.b.shape.back(), groups = desc.ends.shape[0];
    const Shape matrices = {groups, k, n}, rows_of_n = {rows, n};
    fits =
        desc.b.shape == (desc.outer ? rows_of_n : matrices) && desc.output.shape == (desc.outer ? matrices : rows_of_n);
  }
  if (!fits) {
    return InvalidArgument(Cat(name, " of ", ShapeText(desc.a), " and ", ShapeText(desc.b), " by ends ",
                               ShapeText(desc.ends), " is not ", ShapeText(desc.output)));
  }
  return GroupedProduct{.dtype = desc.a.dtype,
                        .index = desc.ends.dtype,
                        .outer = desc.outer,
                        .rows = desc.a.shape[0],
                        .k = desc.a.shape[1],
                        .n = desc.b.shape.back(),
                        .groups = desc.ends.shape[0],
                        .first = desc.first,
                        .next_end = desc.ends.shape[0] == 1 ? 0 : desc.ends.strides[0],
                        .a = MatrixOf(desc.a),
                        .b = MatrixOf(desc.b),
                        .output = MatrixOf(desc.output)};
}

namespace {

// A matrix's begin, and how far apart its rows and columns are.
template <typename Stored>
struct View {
  Stored* at = nullptr;
  int64_t row = 0, column = 0;

  View From(int64_t i, int64_t j) const { return {at + i * row + j * column, row, column}; }
  View Turned() const { return {at, column, row}; }
};

// Sums by the given product of blocks, which adds in float32.
template <typename F>
class ByProduct {
 public:
  using Stored = typename F::Stored;
  // So many rows take a matrix once: what a product makes of it in a core's cache is used as often.
  static constexpr int64_t kRows = 256, kColumns = 512, kDepth = 512;

  explicit ByProduct(BlockProduct<float> product) : product_(product) {}

  // to[m, n] = a[m, k] b[k, n], of at most kRows and kColumns.
  void Make(const View<const Stored>& a, const View<const Stored>& b, int64_t m, int64_t n, int64_t k,
            const View<Stored>& to) {
    const bool in_place = std::is_same_v<Stored, float> && (n == 1 || to.column == 1) && (m == 1 || to.row >= n);
    float* const sums = in_place ? reinterpret_cast<float*>(to.at) : Room(sums_, m * n);
    const int64_t next_row = in_place ? std::max(to.row, n) : n;
    // Copies are made by parts.
    const int64_t depth = Gapless(a, m, k) && Gapless(b, k, n) ? k : kDepth;
    for (int64_t first = 0; first < k; first += depth) {
      const int64_t count = std::min(depth, k - first);
      const Block<float> from_a = Taken(a.From(0, first), m, count, a_), from_b = Taken(b.From(first, 0), count, n, b_);
      product_(m, n, count, from_a, from_b, first > 0, sums, next_row);
    }
    if (in_place) return;
    for (int64_t i = 0; i < m; ++i) {
      Stored* const row = to.at + i * to.row;
      for (int64_t j = 0; j < n; ++j) row[j * to.column] = F::Store(sums[i * n + j]);
    }
  }

 private:
  static float* Room(std::vector<float>& in, int64_t count) {
    if (in.size() < static_cast<size_t>(count)) in.resize(static_cast<size_t>(count));
    return in.data();
  }
  // Whether elements lie as a product takes them, by rows or else by columns.
  static bool GaplessRows(const View<const Stored>& view, int64_t rows, int64_t columns) {
    return std::is_same_v<Stored, float> && (columns == 1 || view.column == 1) && (rows == 1 || view.row >= columns);
  }
  static bool Gapless(const View<const Stored>& view, int64_t rows, int64_t columns) {
    return GaplessRows(view, rows, columns) || GaplessRows(view.Turned(), columns, rows);
  }
  // The view, or a copy of it in `scratch`, along the axis whose elements are next to each other.
  Block<float> Taken(const View<const Stored>& view, int64_t rows, int64_t columns, std::vector<float>& scratch) const {
    if (GaplessRows(view, rows, columns))
      return {reinterpret_cast<const float*>(view.at), std::max(view.row, columns), false};
    if (GaplessRows(view.Turned(), columns, rows))
      return {reinterpret_cast<const float*>(view.at), std::max(view.column, rows), true};
    const bool turned = view.column != 1 && view.row == 1;
    const View<const Stored> from = turned ? view.Turned() : view;
    const int64_t lines = turned ? columns : rows, width = turned ? rows : columns;
    float* const to = Room(scratch, lines * width);
    for (int64_t i = 0; i < lines; ++i)
      loops_.widen(kDType, reinterpret_cast<const std::byte*>(from.at + i * from.row), from.column, width,
                   to + i * width);
    return {to, width, turned};
  }

  static constexpr DType kDType = std::is_same_v<Stored, float> ? DType::kFloat32
                                  : std::is_same_v<F, Format<uint16_t, float, BFloat16ToFloat, FloatToBFloat16>>
                                      ? DType::kBFloat16
                                      : DType::kFloat16;

  const BlockProduct<float> product_;
  const RowLoops<float>& loops_ = *AllRowLoops<float>().front();
  std::vector<float> sums_, a_, b_;
};

// Sums by plain loops.
template <typename F>
class ByLoops {
 public:
  using Stored = typename F::Stored;
  static constexpr int64_t kRows = BlockSums<F>::kRows, kColumns = BlockSums<F>::kColumns;

  explicit ByLoops(BlockProduct<float>) {}

  void Make(const View<const Stored>& a, const View<const Stored>& b, int64_t m, int64_t n, int64_t k,
            const View<Stored>& to) {
    sums_->Make({a.at, a.row, a.column}, {b.at, b.row, b.column}, m, n, k);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) to.at[i * to.row + j * to.column] = F::Store(sums_->At(i, j));
  }

 private:
  const std::unique_ptr<BlockSums<F>> sums_ = std::make_unique<BlockSums<F>>();
};

template <typename F, typename Sums>
class Groups final : public Call {
 public:
  using Stored = typename F::Stored;

  Groups(const GroupedProduct& product, base::WorkPool& pool, BlockProduct<float> of_blocks, std::string name)
      : p_(product), pool_(pool), of_blocks_(of_blocks), name_(std::move(name)) {}

  void Run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) override {
    const auto* const a = reinterpret_cast<const Stored*>(inputs[0]);
    const auto* const b = reinterpret_cast<const Stored*>(inputs[1]);
    auto* const to = reinterpret_cast<Stored*>(outputs[0]);
    Cut(inputs[2]);
    pool_.ParallelFor(std::ssize(blocks_), 1, [&](int64_t begin, int64_t end) {
      Sums sums(of_blocks_);
      for (int64_t i = begin; i < end; ++i) RunBlock(blocks_[static_cast<size_t>(i)], a, b, to, sums);
    });
  }

  std::string implementation() const override { return Cat("products of groups (", name_, ")"); }

 private:
  // A block of the output, and the rows of its group.
  struct Block {
    int64_t group = -1;  // Of rows without a group.
    int64_t begin = 0, end = 0;
    int64_t row = 0, column = 0;
  };

  int64_t EndAt(const std::byte* ends, int64_t group) const {
    if (p_.index == DType::kInt32) return int64_t{reinterpret_cast<const int32_t*>(ends)[group * p_.next_end]};
    return reinterpret_cast<const int64_t*>(ends)[group * p_.next_end];
  }

  void Cut(const std::byte* ends) {
    blocks_.clear();
    int64_t begin = 0;
    for (int64_t group = 0; group < p_.groups; ++group) {
      const int64_t end = EndAt(ends, group);
      const int64_t own = end <= p_.first ? 0 : std::min(base::CheckedSub(end, p_.first).value_or(p_.rows), p_.rows);
      const int64_t last = std::max(begin, own);
      CutGroup(group, begin, last);
      begin = last;
    }
    if (!p_.outer) CutGroup(-1, begin, p_.rows);
  }
  void CutGroup(int64_t group, int64_t begin, int64_t end) {
    for (int64_t row = p_.outer ? 0 : begin; row < (p_.outer ? p_.k : end); row += Sums::kRows)
      for (int64_t column = 0; column < p_.n; column += Sums::kColumns)
        blocks_.push_back({group, begin, end, row, column});
  }

  void RunBlock(const Block& block, const Stored* a, const Stored* b, Stored* to, Sums& sums) const {
    const View<const Stored> of_a = {a, p_.a.row, p_.a.column};
    const View<const Stored> of_b = {b + std::max<int64_t>(block.group, 0) * p_.b.group, p_.b.row, p_.b.column};
    const View<Stored> out = {to + std::max<int64_t>(block.group, 0) * p_.output.group, p_.output.row,
                              p_.output.column};
    const int64_t n = std::min(Sums::kColumns, p_.n - block.column);
    const int64_t m = std::min(Sums::kRows, (p_.outer ? p_.k : block.end) - block.row);
    const int64_t depth = block.group < 0 ? 0 : p_.outer ? block.end - block.begin : p_.k;
    const View<Stored> place = out.From(block.row, block.column);
    if (depth == 0) return Clear(place, m, n);
    if (p_.outer) {
      sums.Make(of_a.From(block.begin, block.row).Turned(), of_b.From(block.begin, block.column), m, n, depth, place);
    } else {
      sums.Make(of_a.From(block.row, 0), of_b.From(0, block.column), m, n, depth, place);
    }
  }
  static void Clear(const View<Stored>& place, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) place.at[i * place.row + j * place.column] = Stored{0};
  }

  const GroupedProduct p_;
  base::WorkPool& pool_;
  const BlockProduct<float> of_blocks_;
  const std::string name_;
  std::vector<Block> blocks_;  // Of the present run.
};

}  // namespace

Result<std::unique_ptr<Call>> MakeGroupedProduct(const GroupedProductDesc& desc, base::WorkPool& pool,
                                                 BlockProduct<float> product, const std::string& product_name) {
  HIR_ASSIGN(const GroupedProduct grouped, Normalize(desc));
  return WithFormat(grouped.dtype, [&]<typename F>(F) -> std::unique_ptr<Call> {
    if constexpr (std::is_same_v<typename F::Sum, float>) {
      return std::make_unique<Groups<F, ByProduct<F>>>(grouped, pool, product, product_name);
    } else {
      return std::make_unique<Groups<F, ByLoops<F>>>(grouped, pool, product, "loops");
    }
  });
}

}  // namespace hir::codegen::library
