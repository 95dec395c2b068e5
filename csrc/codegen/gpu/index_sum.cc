#include "csrc/codegen/gpu/index_sum.h"

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/gpu/prelude.h"
#include "csrc/codegen/gpu/words.h"
#include "csrc/ir/type.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

constexpr int kUpdateTile = 1024;  // Updates, a thread each.
constexpr int kUpdateThreads = 256;
constexpr int kUpdateAxes = static_cast<int>(ir::kAxesMax);
constexpr int64_t kPlace = sizeof(int64_t);  // The number of an update, or of a row.

// In `row` the row of each update, or its complement where one before it in the tile has the same.
constexpr std::string_view kLinks = R"(
struct Args { const INDEX* index; i64* next; i64* row; i64 count, size, index_next; };
KERNEL(k0, TILE, 1) {
  SHARED i64 rows[TILE];
  const i64 n = CTA * TILE + TID;
  i64 row = -1;
  if (n < a.count) {
    row = (i64)a.index[n * a.index_next];
    if (row < 0) row += a.size;
    row = row < 0 ? 0 : row >= a.size ? a.size - 1 : row;
  }
  rows[TID] = row;
  sync();
  if (n >= a.count) return;
  int next = TID + 1, before = TID - 1;
  while (next < TILE && rows[next] != row) ++next;
  while (before >= 0 && rows[before] != row) --before;
  a.next[n] = next < TILE ? n + (next - TID) : -1;
  a.row[n] = before < 0 ? row : ~row;
}
)";

// In `head` the first update of each row in the tiles so far.
constexpr std::string_view kHeads = R"(
struct Args { i64* head; i64* next; const i64* row; i64 count; };
KERNEL(k1, TILE, 1) {
  for (i64 tile = (a.count + TILE - 1) / TILE - 1; tile >= 0; --tile) {
    const i64 n = tile * TILE + TID;
    const bool is_one = n < a.count;
    const i64 row = is_one ? a.row[n] : 0;
    if (is_one && a.next[n] < 0) a.next[n] = a.head[row < 0 ? ~row : row];
    sync();
    if (is_one && row >= 0) a.head[row] = n;
    sync();
  }
}
)";

constexpr std::string_view kSums = R"(
struct Args {
  const STORED* from;
  STORED* to;
  const i64* head;
  const i64* next;
  i64 elements, columns, size, from_column, to_column, from_next, to_next, axes;
  i64 extent[AXES], from_axis[AXES], to_axis[AXES];
};
DEV SUM load(STORED x) { return LOAD; }
DEV STORED store(SUM x) { return STORE; }
KERNEL(k2, THREADS, 1) {
  const i64 i = CTA * THREADS + TID;
  if (i >= a.elements) return;
  i64 column, row, block;
  if (a.elements <= 0x7fffffff) {
    const u32 above = (u32)i / (u32)a.columns;
    column = (u32)i % (u32)a.columns, row = above % (u32)a.size, block = above / (u32)a.size;
  } else {
    const i64 above = i / a.columns;
    column = i % a.columns, row = above % a.size, block = above / a.size;
  }
  const STORED* from = a.from + column * a.from_column;
  STORED* to = a.to + column * a.to_column + row * a.to_next;
  for (i64 k = a.axes - 1; k >= 0; --k) {
    const i64 at = block % a.extent[k];
    block /= a.extent[k];
    from += at * a.from_axis[k];
    to += at * a.to_axis[k];
  }
  SUM sum = 0;
  for (i64 n = a.head[row]; n >= 0; n = a.next[n]) sum += load(from[n * a.from_next]);
  *to = store(sum);
}
)";

int64_t ElementsOf(const library::IndexSum& sum) {
  int64_t elements = sum.size * sum.columns.extent;
  for (const library::IndexSum::Axis& axis : sum.outer) elements *= axis.extent;
  return elements;
}

}  // namespace

Source EmitIndexSum(DType dtype, DType index) {
  const std::string begin =
      Cat("#undef TILE\n#undef THREADS\n#undef AXES\n", "#define TILE ", kUpdateTile, "\n#define THREADS ",
          kUpdateThreads, "\n#define AXES ", kUpdateAxes, "\n", DefinitionsOf(dtype, index));
  Source source = {.prelude = std::string(kIntrinsics), .parts = {}, .kernels = {}, .caps = {}, .tunings = {}};
  const auto add = [&](std::string_view text, int threads, int64_t items_per_cta, int num_slots) {
    source.parts.push_back(Cat(begin, "namespace of", source.parts.size(), " {", text, "}\n"));
    source.kernels.push_back({.threads = threads, .items_per_cta = items_per_cta, .num_slots = num_slots});
    source.caps.push_back(1);
    source.tunings.push_back({.schedule = kIndexSumKernels[source.tunings.size()], .threads = threads});
  };
  add(kLinks, kUpdateTile, kUpdateTile, 6);
  add(kHeads, kUpdateTile, 1, 4);
  add(kSums, kUpdateThreads, kUpdateThreads, 12 + 3 * kUpdateAxes);
  return source;
}

IndexSumWorkspace WorkspaceOf(const library::IndexSum& sum) {
  return {.bytes = (sum.size + 2 * sum.count) * kPlace, .bytes_set = sum.size * kPlace};
}

std::vector<IndexSumLaunch> LaunchesOf(const library::IndexSum& sum, int64_t updates, int64_t indices, int64_t output,
                                       int64_t workspace) {
  const int64_t elements = ElementsOf(sum);
  if (elements == 0) return {};
  const int64_t head = workspace, next = head + sum.size * kPlace, row = next + sum.count * kPlace;
  std::vector<IndexSumLaunch> launches;
  if (sum.count > 0) {
    launches.push_back({0, {indices, next, row, sum.count, sum.size, sum.index_next}, sum.count});
    launches.push_back({1, {head, next, row, sum.count}, 1});
  }
  IndexSumLaunch& sums = launches.emplace_back(
      IndexSumLaunch{2,
                     {updates, output, head, next, elements, sum.columns.extent, sum.size, sum.columns.from,
                      sum.columns.to, sum.from_next, sum.to_next, std::ssize(sum.outer)},
                     elements});
  const size_t first = sums.args.size();
  sums.args.resize(first + 3 * size_t{kUpdateAxes});
  for (size_t k = 0; k < sum.outer.size(); ++k) {
    sums.args[first + k] = sum.outer[k].extent;
    sums.args[first + kUpdateAxes + k] = sum.outer[k].from;
    sums.args[first + 2 * kUpdateAxes + k] = sum.outer[k].to;
  }
  return launches;
}

}  // namespace hir::codegen::gpu
