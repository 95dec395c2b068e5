// Attention on CPUs by blocks of queries and keys, whose scores a core's cache holds. Values: the keys pass by a block
// of queries once, while its sums and values are brought to the largest score so far. Gradients: the scores are made
// again, and lse makes weights of them at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/attention.h"
#include "csrc/codegen/library/block_sums.h"
#include "csrc/codegen/library/format.h"
#include "csrc/codegen/library/row_loops.h"

namespace hir::codegen::library {

template <typename T>
void LoopProduct(int64_t m, int64_t n, int64_t k, const Block<T>& a, const Block<T>& b, bool add, T* c,
                 int64_t c_next_row) {
  using Sums = BlockSums<Format<T, T, Same, Same>>;
  const auto strided = [](const Block<T>& block) -> typename Sums::Operand {
    if (block.transposed) return {block.at, 1, block.next_row};
    return {block.at, block.next_row, 1};
  };
  const auto from_a = strided(a), from_b = strided(b);
  Sums sums;
  for (int64_t n0 = 0; n0 < n; n0 += Sums::kColumns) {
    for (int64_t m0 = 0; m0 < m; m0 += Sums::kRows) {
      const int64_t rows = std::min(Sums::kRows, m - m0), columns = std::min(Sums::kColumns, n - n0);
      sums.Make({from_a.at + m0 * from_a.row, from_a.row, from_a.column},
                {from_b.at + n0 * from_b.column, from_b.row, from_b.column}, rows, columns, k);
      for (int64_t i = 0; i < rows; ++i) {
        T* const to = c + (m0 + i) * c_next_row + n0;
        for (int64_t j = 0; j < columns; ++j) to[j] = add ? to[j] + sums.At(i, j) : sums.At(i, j);
      }
    }
  }
}
template void LoopProduct(int64_t, int64_t, int64_t, const Block<float>&, const Block<float>&, bool, float*, int64_t);
template void LoopProduct(int64_t, int64_t, int64_t, const Block<double>&, const Block<double>&, bool, double*,
                          int64_t);

namespace {

// A block's scores take 128 KiB in float32, and their gradients as much. Half or twice of either is no faster.
constexpr int64_t kQueries = 64, kKeys = 512;

template <typename F>
class Blocks final : public Call {
 public:
  using Stored = typename F::Stored;
  using T = typename F::Sum;
  using Matrix = Attention::Matrix;

  Blocks(Attention attention, base::WorkPool& pool, BlockProduct<T> product, std::string name)
      : a_(std::move(attention)), pool_(pool), product_(product), name_(std::move(name)) {
    for (const int64_t extent : a_.batches) batches_ *= extent;
  }

  void Run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) override {
    const Addresses at = {inputs, outputs};
    const Range queries = {0, a_.m}, keys = {0, a_.n};
    if (!a_.backward) {
      ForEach(kQueries, a_.m, [&](int64_t batch, Range some, Scratch& scratch) { Values(at, batch, some, scratch); });
      return;
    }
    // One pass makes all gradients by five products, where two, each of which makes the scores anew, need seven.
    const bool of_q = static_cast<bool>(a_.of_q), of_keys = a_.of_k || a_.of_v;
    if (of_q && of_keys && batches_ > pool_.num_threads()) {
      ForEach(1, 1, [&](int64_t batch, Range, Scratch& scratch) {
        Gradients(at, batch, queries, keys, {.q = true, .keys = true}, scratch);
      });
      return;
    }
    if (of_q) {
      ForEach(kQueries, a_.m, [&](int64_t batch, Range some, Scratch& scratch) {
        Gradients(at, batch, some, keys, {.q = true}, scratch);
      });
    }
    if (of_keys) {
      ForEach(kKeys, a_.n, [&](int64_t batch, Range some, Scratch& scratch) {
        Gradients(at, batch, queries, some, {.keys = true}, scratch);
      });
    }
  }

  std::string implementation() const override { return base::Cat("attention by blocks (", name_, ")"); }

 private:
  struct Addresses {
    std::span<const std::byte* const> inputs;
    std::span<std::byte* const> outputs;
  };
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  struct Wanted {
    bool q = false, keys = false;
  };
  // One thread's.
  struct Scratch {
    std::vector<T> scores, of_scores, queries, keys, values, gradient, mask;
    std::vector<T> sums, sums_of_values, sums_of_queries;  // Of the products.
    std::vector<T> lse, saved, delta, largest, total;
  };

  static T* Room(std::vector<T>& in, int64_t count) {
    if (in.size() < static_cast<size_t>(count)) in.resize(static_cast<size_t>(count));
    return in.data();
  }

  // body(batch, range of at most `block`, scratch) over all batches and blocks of [0, count).
  template <typename Body>
  void ForEach(int64_t block, int64_t count, const Body& body) {
    const int64_t blocks = base::CeilDiv(count, block);
    pool_.ParallelFor(batches_ * blocks, 1, [&](int64_t begin, int64_t end) {
      Scratch scratch;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % blocks * block;
        body(i / blocks, Range{first, std::min(first + block, count)}, scratch);
      }
    });
  }

  int64_t OffsetOf(const Matrix& matrix, int64_t batch) const {
    int64_t offset = 0;
    for (size_t axis = a_.batches.size(); axis-- > 0; batch /= a_.batches[axis])
      offset += batch % a_.batches[axis] * matrix.batch[axis];
    return offset;
  }
  const std::byte* AddressOf(const Matrix& matrix, const std::byte* base, int64_t batch, int64_t row) const {
    return base + (OffsetOf(matrix, batch) + row * matrix.row) * DTypeBytes(matrix.dtype);
  }

  // Rows of an input as a product takes them: where they are, or else widened to `scratch`.
  Block<T> RowsOf(const Matrix& matrix, const std::byte* base, int64_t batch, Range rows, int64_t width,
                  std::vector<T>& scratch) const {
    if (width == 0) return {};
    const bool gapless = (width <= 1 || matrix.column == 1) && (rows.size() <= 1 || matrix.row >= width);
    if (std::is_same_v<Stored, T> && gapless)
      return {reinterpret_cast<const T*>(AddressOf(matrix, base, batch, rows.begin)), std::max(matrix.row, width)};
    return {Copy(matrix, base, batch, rows, width, scratch), width};
  }
  T* Copy(const Matrix& matrix, const std::byte* base, int64_t batch, Range rows, int64_t width,
          std::vector<T>& scratch) const {
    T* const to = Room(scratch, rows.size() * width);
    for (int64_t i = 0; i < rows.size(); ++i)
      loops_.widen(matrix.dtype, AddressOf(matrix, base, batch, rows.begin + i), matrix.column, width, to + i * width);
    return to;
  }
  const T* Column(const Matrix& matrix, const std::byte* base, int64_t batch, Range rows,
                  std::vector<T>& scratch) const {
    T* const to = Room(scratch, rows.size());
    loops_.widen(matrix.dtype, AddressOf(matrix, base, batch, rows.begin), matrix.row, rows.size(), to);
    return to;
  }
  // A query's values times their gradient, summed: the mean, by the weights, of what the weights' gradients are.
  const T* Deltas(const Addresses& at, int64_t batch, Range queries, const Block<T>& gradient, Scratch& scratch) const {
    T* const sums = Room(scratch.delta, queries.size());
    for (int64_t i = 0; i < queries.size(); ++i) {
      const Range row = {queries.begin + i, queries.begin + i + 1};
      const Block<T> values = RowsOf(a_.saved, at.inputs[5], batch, row, a_.e, scratch.saved);
      T sum = 0;
      for (int64_t c = 0; c < a_.e; ++c) sum += gradient.at[i * gradient.next_row + c] * values.at[c];
      sums[i] = sum;
    }
    return sums;
  }
  // The queries times the scale: what the scores are made of, and the gradients of the keys.
  const T* ScaledQueries(const Addresses& at, int64_t batch, Range rows, Scratch& scratch) const {
    T* const queries = Copy(a_.q, at.inputs[0], batch, rows, a_.d, scratch.queries);
    loops_.scale(queries, rows.size() * a_.d, static_cast<T>(a_.scale));
    return queries;
  }

  void Multiply(int64_t m, int64_t n, int64_t k, const Block<T>& a, const Block<T>& b, bool add, T* c,
                int64_t c_next_row) const {
    if (m == 0 || n == 0) return;
    if (k > 0) return product_(m, n, k, a, b, add, c, c_next_row);
    for (int64_t i = 0; i < m && !add; ++i) std::fill_n(c + i * c_next_row, n, T{0});
  }

  // So many of the keys take part, the first ones, for all that causality says.
  int64_t NumKeys(int64_t query) const { return std::clamp(query + a_.diagonal + 1, int64_t{0}, a_.n); }
  // So many of the block's keys.
  int64_t NumKeys(int64_t query, Range keys) const {
    return std::clamp(NumKeys(query) - keys.begin, int64_t{0}, keys.size());
  }

  // Where the next row of scores is: a power of two would put all rows in few places of a cache.
  static int64_t RowOf(int64_t keys) { return base::CeilDiv(keys, Loops::kLanes) * Loops::kLanes + Loops::kLanes; }

  // Each row has scores of so many keys as take part for its query by causality.
  T* Scores(const Addresses& at, int64_t batch, Range queries, Range keys, const T* q, const Block<T>& k,
            Scratch& scratch) const {
    const int64_t next_row = RowOf(keys.size());
    T* const scores = Room(scratch.scores, kQueries * RowOf(std::min(kKeys, a_.n)));
    Multiply(queries.size(), keys.size(), a_.d, {q, a_.d}, {k.at, k.next_row, true}, false, scores, next_row);
    if (!a_.has_mask) return scores;
    T* const mask = Room(scratch.mask, keys.size());
    for (int64_t i = 0; i < queries.size(); ++i) {
      const int64_t query = queries.begin + i;
      if (i == 0 || a_.mask.row != 0) {
        const std::byte* const from = AddressOf(a_.mask, at.inputs.back(), batch, query);
        loops_.widen(a_.mask.dtype, from + keys.begin * a_.mask.column * DTypeBytes(a_.mask.dtype), a_.mask.column,
                     keys.size(), mask);
      }
      (a_.mask.dtype == DType::kBool ? loops_.choose : loops_.add)(scores + i * next_row, mask, NumKeys(query, keys));
    }
    return scores;
  }

  // Behind the keys that take part nothing has a weight.
  static void EndRow(T* row, int64_t num_keys, int64_t size) { std::fill(row + num_keys, row + size, T{0}); }

  // Rows of an output; value(i, place in the row).
  template <typename Value>
  void Store(const Attention::Output& output, const Addresses& at, int64_t batch, Range rows, int64_t width,
             const Value& value) const {
    auto* const to =
        reinterpret_cast<Stored*>(at.outputs[static_cast<size_t>(output.place)]) + OffsetOf(output.matrix, batch);
    for (int64_t i = 0; i < rows.size(); ++i) {
      Stored* const row = to + (rows.begin + i) * output.matrix.row;
      for (int64_t c = 0; c < width; ++c) row[c * output.matrix.column] = F::Store(value(i, c));
    }
  }

  void Values(const Addresses& at, int64_t batch, Range queries, Scratch& scratch) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const T* const q = ScaledQueries(at, batch, queries, scratch);
    T* const values = Room(scratch.sums, queries.size() * a_.e);
    T* const largest = Room(scratch.largest, kQueries);
    T* const total = Room(scratch.total, kQueries);
    std::fill_n(largest, queries.size(), -kInfinity);
    std::fill_n(total, queries.size(), T{0});
    if (a_.values) std::fill_n(values, queries.size() * a_.e, T{0});
    const int64_t end = NumKeys(queries.end - 1);
    for (int64_t first = 0; first < end; first += kKeys) {
      const Range keys = {first, std::min(first + kKeys, end)};
      const int64_t next_row = RowOf(keys.size());
      T* const scores =
          Scores(at, batch, queries, keys, q, RowsOf(a_.k, at.inputs[1], batch, keys, a_.d, scratch.keys), scratch);
      for (int64_t i = 0; i < queries.size(); ++i) {
        T* const row = scores + i * next_row;
        const int64_t num_keys = NumKeys(queries.begin + i, keys);
        const T before = largest[i];
        const T now = std::max(before, loops_.max(row, num_keys));
        // Infinity stays what it is by this, and the difference of two is not NaN where no key has taken part yet.
        if (now != before) {
          const T kept = std::exp(before - now);
          total[i] *= kept;
          if (a_.values) loops_.scale(values + i * a_.e, a_.e, kept);
          largest[i] = now;
        }
        total[i] += loops_.powers(row, num_keys, now == -kInfinity ? T{0} : now);
        EndRow(row, num_keys, keys.size());
      }
      if (!a_.values) continue;
      Multiply(queries.size(), a_.e, keys.size(), {scores, next_row},
               RowsOf(a_.v, at.inputs[2], batch, keys, a_.e, scratch.values), true, values, a_.e);
    }
    if (a_.values) {
      Store(a_.values, at, batch, queries, a_.e,
            [&](int64_t i, int64_t c) { return total[i] == T{0} ? T{0} : values[i * a_.e + c] / total[i]; });
    }
    if (a_.of_lse) {
      auto* const to =
          reinterpret_cast<T*>(at.outputs[static_cast<size_t>(a_.of_lse.place)]) + OffsetOf(a_.of_lse.matrix, batch);
      for (int64_t i = 0; i < queries.size(); ++i)
        to[(queries.begin + i) * a_.of_lse.matrix.row] = largest[i] + std::log(total[i]);
    }
  }

  // The gradients of `queries` that come by `keys`, and those of `keys` that come by `queries`. Each is a sum in the
  // order of the blocks, whatever ranges it is called with.
  void Gradients(const Addresses& at, int64_t batch, Range queries, Range keys, Wanted wanted, Scratch& scratch) const {
    const bool of_k = wanted.keys && a_.of_k, of_v = wanted.keys && a_.of_v;
    const T* const q = ScaledQueries(at, batch, queries, scratch);
    const Block<T> gradient = RowsOf(a_.gradient, at.inputs[3], batch, queries, a_.e, scratch.gradient);
    const T* const lse = Column(a_.lse, at.inputs[4], batch, queries, scratch.lse);
    const T* const delta = wanted.q || of_k ? Deltas(at, batch, queries, gradient, scratch) : nullptr;
    T* const sums_of_q = Room(scratch.sums_of_queries, wanted.q ? queries.size() * a_.d : 0);
    if (wanted.q) std::fill_n(sums_of_q, queries.size() * a_.d, T{0});
    for (int64_t first = keys.begin; first < keys.end; first += kKeys) {
      const Range block = {first, std::min(first + kKeys, keys.end)};
      const Block<T> k = RowsOf(a_.k, at.inputs[1], batch, block, a_.d, scratch.keys);
      const Block<T> v = RowsOf(a_.v, at.inputs[2], batch, block, a_.e, scratch.values);
      T* const sums_of_k = Room(scratch.sums, of_k ? block.size() * a_.d : 0);
      T* const sums_of_v = Room(scratch.sums_of_values, of_v ? block.size() * a_.e : 0);
      if (of_k) std::fill_n(sums_of_k, block.size() * a_.d, T{0});
      if (of_v) std::fill_n(sums_of_v, block.size() * a_.e, T{0});
      for (int64_t row = queries.begin; row < queries.end; row += kQueries) {
        const Range some = {row, std::min(row + kQueries, queries.end)};
        const int64_t num_keys = NumKeys(some.end - 1, block);
        if (num_keys == 0) continue;
        const int64_t at_row = row - queries.begin, next_row = RowOf(num_keys);
        const T* const its_q = q + at_row * a_.d;
        const Block<T> its_gradient = {gradient.at + at_row * gradient.next_row, gradient.next_row};
        const Range its_keys = {first, first + num_keys};
        T* const powers = Scores(at, batch, some, its_keys, its_q, k, scratch);
        T* of_scores = nullptr;
        if (wanted.q || of_k) {
          of_scores = Room(scratch.of_scores, kQueries * RowOf(std::min(kKeys, a_.n)));
          Multiply(some.size(), num_keys, a_.e, its_gradient, {v.at, v.next_row, true}, false, of_scores, next_row);
        }
        for (int64_t i = 0; i < some.size(); ++i) {
          const int64_t its = NumKeys(row + i, its_keys);
          T* const to = of_scores == nullptr ? nullptr : of_scores + i * next_row;
          loops_.gradients(powers + i * next_row, to, its, lse[at_row + i],
                           delta == nullptr ? T{0} : delta[at_row + i]);
          EndRow(powers + i * next_row, its, num_keys);
          if (to != nullptr) EndRow(to, its, num_keys);
        }
        if (of_v) Multiply(num_keys, a_.e, some.size(), {powers, next_row, true}, its_gradient, true, sums_of_v, a_.e);
        if (of_k)
          Multiply(num_keys, a_.d, some.size(), {of_scores, next_row, true}, {its_q, a_.d}, true, sums_of_k, a_.d);
        if (wanted.q)
          Multiply(some.size(), a_.d, num_keys, {of_scores, next_row}, k, true, sums_of_q + at_row * a_.d, a_.d);
      }
      if (of_k) Store(a_.of_k, at, batch, block, a_.d, [&](int64_t i, int64_t c) { return sums_of_k[i * a_.d + c]; });
      if (of_v) Store(a_.of_v, at, batch, block, a_.e, [&](int64_t i, int64_t c) { return sums_of_v[i * a_.e + c]; });
    }
    if (wanted.q) {
      const auto scale = static_cast<T>(a_.scale);
      Store(a_.of_q, at, batch, queries, a_.d, [&](int64_t i, int64_t c) { return scale * sums_of_q[i * a_.d + c]; });
    }
  }

  using Loops = RowLoops<T>;

  const Attention a_;
  base::WorkPool& pool_;
  const BlockProduct<T> product_;
  const std::string name_;
  const Loops& loops_ = *AllRowLoops<T>().front();
  int64_t batches_ = 1;
};

}  // namespace

Result<std::unique_ptr<Call>> MakeAttention(const AttentionDesc& desc, base::WorkPool& pool,
                                            BlockProduct<float> product, const std::string& product_name) {
  HIR_ASSIGN(Attention attention, Normalize(desc));
  return WithFormat(attention.dtype, [&]<typename F>(F) -> std::unique_ptr<Call> {
    if constexpr (std::is_same_v<typename F::Sum, float>) {
      return std::make_unique<Blocks<F>>(std::move(attention), pool, product, product_name);
    } else if constexpr (std::is_same_v<typename F::Sum, double>) {
      return std::make_unique<Blocks<F>>(std::move(attention), pool, LoopProduct<double>, "loops");
    }
    return nullptr;  // Normalize has refused integers.
  });
}

}  // namespace hir::codegen::library
