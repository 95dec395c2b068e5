#include "csrc/codegen/gpu/grouped_product.h"

#include <string>
#include <string_view>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/gpu/prelude.h"
#include "csrc/codegen/gpu/words.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

constexpr int64_t kProductTile = 64;  // Rows, and columns, of a CTA.
constexpr int kDepth = 16;            // Of factors in shared memory.
constexpr int kProductThreads = 256;  // Each makes 4 rows and 4 columns.

constexpr std::string_view kBody = R"(
struct Args {
  const STORED* a;
  const STORED* b;
  const INDEX* ends;
  STORED* to;
  i64 rows, k, n, groups, first, next_end;
  i64 a_row, a_column, b_group, b_row, b_column, to_group, to_row, to_column;
  i64 row_tiles, column_tiles;
};
DEV SUM load(STORED x) { return LOAD; }
DEV STORED store(SUM x) { return STORE; }
KERNEL(NAME, THREADS, 1) {
  SHARED SUM xs[DEPTH][TILE + 1];
  SHARED SUM ys[DEPTH][TILE + 1];
  const i64 row0 = CTA / a.column_tiles % a.row_tiles * TILE, column0 = CTA % a.column_tiles * TILE;
  const i64 own = CTA / a.column_tiles / a.row_tiles;
  const i64 columns = a.n - column0 < TILE ? a.n - column0 : TILE;
  const int first_row = TID / 16, first_column = TID % 16;
  i64 begin = 0;
  for (i64 group = 0; group <= a.groups; ++group) {
    i64 end = a.rows;
    if (group < a.groups) {
      const i64 given = (i64)a.ends[group * a.next_end];
      end = given <= a.first ? 0 : given - a.first;
      end = end < begin ? begin : end > a.rows ? a.rows : end;
    }
    const i64 from = begin;
    begin = end;
#if OUTER
    if (group != own) continue;
    const i64 low = 0, high = a.k - row0 < TILE ? a.k - row0 : TILE, depth = end - from;
    const STORED* x = a.a + from * a.a_row + row0 * a.a_column;
    const STORED* y = a.b + from * a.b_row + column0 * a.b_column;
    const i64 x_line = a.a_column, x_next = a.a_row;
    STORED* to = a.to + group * a.to_group + row0 * a.to_row + column0 * a.to_column;
#else
    const i64 low = from > row0 ? from - row0 : 0, high = end - row0 < TILE ? end - row0 : TILE;
    if (low >= high) continue;
    const i64 depth = group < a.groups ? a.k : 0;
    const STORED* x = a.a + row0 * a.a_row;
    const STORED* y = a.b + group * a.b_group + column0 * a.b_column;
    const i64 x_line = a.a_row, x_next = a.a_column;
    STORED* to = a.to + row0 * a.to_row + column0 * a.to_column;
#endif
    SUM sums[4][4];
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
    for (i64 d0 = 0; d0 < depth; d0 += DEPTH) {
      for (int e = TID; e < TILE * DEPTH; e += THREADS) {
        const int line = x_line == 1 ? e % TILE : e / DEPTH, d = x_line == 1 ? e / TILE : e % DEPTH;
        const bool is_one = line >= low && line < high && d0 + d < depth;
        xs[d][line] = is_one ? load(x[line * x_line + (d0 + d) * x_next]) : (SUM)0;
      }
      for (int e = TID; e < TILE * DEPTH; e += THREADS) {
        const int line = a.b_row == 1 ? e / DEPTH : e % TILE, d = a.b_row == 1 ? e % DEPTH : e / TILE;
        const bool is_one = line < columns && d0 + d < depth;
        ys[d][line] = is_one ? load(y[line * a.b_column + (d0 + d) * a.b_row]) : (SUM)0;
      }
      sync();
      for (int d = 0; d < DEPTH; ++d) {
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) sums[i][j] += xs[d][first_row + 16 * i] * ys[d][first_column + 16 * j];
        }
      }
      sync();
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        const int row = first_row + 16 * i, column = first_column + 16 * j;
        if (row >= low && row < high && column < columns) to[row * a.to_row + column * a.to_column] = store(sums[i][j]);
      }
    }
  }
}
)";
constexpr int kSlots = 20;

}  // namespace

Source EmitGroupedProduct(DType dtype, DType index) {
  Source source = {.prelude = std::string(kIntrinsics), .parts = {}, .kernels = {}, .caps = {}, .tunings = {}};
  for (size_t k = 0; k < kGroupedProductKernels.size(); ++k) {
    source.parts.push_back(Cat("#undef TILE\n#undef THREADS\n#undef DEPTH\n#undef OUTER\n#undef NAME\n#define TILE ",
                               kProductTile, "\n#define THREADS ", kProductThreads, "\n#define DEPTH ", kDepth,
                               "\n#define OUTER ", k, "\n#define NAME k", k, "\n", DefinitionsOf(dtype, index),
                               "namespace of", k, " {", kBody, "}\n"));
    source.kernels.push_back({.threads = kProductThreads, .items_per_cta = 1, .num_slots = kSlots});
    source.caps.push_back(1);
    source.tunings.push_back({.schedule = kGroupedProductKernels[k], .threads = kProductThreads});
  }
  return source;
}

GroupedProductLaunch LaunchOf(const library::GroupedProduct& product, int64_t a, int64_t b, int64_t ends,
                              int64_t output) {
  const library::GroupedProduct& p = product;
  const int64_t row_tiles = base::CeilDiv(p.outer ? p.k : p.rows, kProductTile),
                column_tiles = base::CeilDiv(p.n, kProductTile);
  return {p.outer ? 1 : 0,
          {a,         b,           ends,       output,         p.rows,       p.k,
           p.n,       p.groups,    p.first,    p.next_end,     p.a.row,      p.a.column,
           p.b.group, p.b.row,     p.b.column, p.output.group, p.output.row, p.output.column,
           row_tiles, column_tiles},
          row_tiles * column_tiles * (p.outer ? p.groups : 1)};
}

}  // namespace hir::codegen::gpu
