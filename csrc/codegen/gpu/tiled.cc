// Transpositions of any extents: as transposed.cc, but an element a thread, so that no extent has to be a multiple of a
// vector and no address has to be aligned.
//
// A tile is 1024 elements, 32 by 32, or longer along one axis where the other is short. Each of 256 threads computes
// four of them side by side along the inputs, leaves them in shared memory, and after one barrier writes four side by
// side along the outputs. A row of the tile has one element more than it shows: neighbours of a column are in other
// banks.
//
// Bytes: each operand once, in runs of 32 elements; 4 loads a thread and operand, 32 KiB of float32 a multiprocessor.
#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {
constexpr int kTileThreads = 256;
constexpr int kEach = 4;
constexpr int kSide = 32;
constexpr int64_t kLong = int64_t{1} << 20;  // Of longer sides the last tile does not count.
}  // namespace

void ChooseTiled(const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kTiled;
  s.lanes = 1;
  s.threads = kTileThreads;
  s.unroll = kEach;
  s.items_per_cta = kTileThreads * kEach;
  const auto extent = [&](int variable) {
    const auto loop = std::ranges::find(region.grid, variable, &Loop::variable);
    return std::clamp<int64_t>(SizeOf(loop->end, plan.sizes, kUnknown), 1, kLong);
  };
  // The side that leaves least of its tiles empty; the squarest of equals.
  const int64_t along = extent(s.vector), across = extent(s.across);
  const auto covered = [&](int64_t width) {
    const int64_t height = kTileThreads * kEach / width;
    return base::CeilDiv(along, width) * width * (base::CeilDiv(across, height) * height);
  };
  for (const int width : {kSide, kSide / 2, kSide * 2, kSide / 4, kSide * 4}) {
    if (width == kSide || covered(width) < covered(s.width)) s.width = width;
  }
  s.is_exact = false;
}

const ir::Expr* EmitTiled(Emitter& em, const LoopNest& nest, const Region& region, const Schedule& s) {
  em.vector.Clear();
  const int width = s.width, height = s.threads * s.unroll / s.width;
  const auto& stores = region.phases[0].stores;
  std::vector<std::string> tiles;
  for (const Store& store : stores) {
    tiles.push_back(em.code.NewName("tile"));
    em.code.Line("SHARED ", TypeText(nest.tensors[static_cast<size_t>(store.tensor)].dtype), " ", tiles.back(), "[",
                 height * (width + 1), "];");
  }
  const Tiles grid = OpenTiles(em, region, s, height, width);
  // body() for each element i of the tile that a thread has there, where it exists.
  const auto each = [&](const std::string& to_row, const std::string& to_column, const auto& body) {
    em.code.Open();
    em.code.Line("const int y = ", to_row, ", x = ", to_column, ";");
    em.code.Line("const ix r = tr * ", height, " + y, c = tc * ", width, " + x;");
    em.code.Open();
    em.code.Define(grid.column.variable, "c");
    em.code.Define(grid.row.variable, "r");
    body();
    const std::string inner = em.code.Close();
    em.code.Line("if (r < ", em.indices.Text(grid.rows), " && c < ", em.indices.Text(grid.columns), ") {\n", inner,
                 "}");
    const std::string all = em.code.Close();
    em.code.Line("#pragma unroll\nfor (int u = 0; u < ", s.unroll, "; ++u) {\nconst int i = t + u * ", s.threads, ";\n",
                 all, "}");
  };
  std::vector<std::string> values;
  for (const Store& store : stores) {  // All are computed before the first is left: loads do not wait for stores.
    values.push_back(em.code.NewName("w"));
    em.code.Line(TypeText(nest.tensors[static_cast<size_t>(store.tensor)].dtype), " ", values.back(), "[", s.unroll,
                 "];");
  }
  each(Cat("i / ", width), Cat("i % ", width), [&] {
    for (size_t k = 0; k < stores.size(); ++k) em.code.Line(values[k], "[u] = ", em.stores.ValueText(stores[k]), ";");
  });
  each(Cat("i / ", width), Cat("i % ", width), [&] {
    for (size_t k = 0; k < stores.size(); ++k)
      em.code.Line(tiles[k], "[y * ", width + 1, " + x] = ", values[k], "[u];");
  });
  em.code.Line("sync();");
  each(Cat("i % ", height), Cat("i / ", height), [&] {
    for (size_t k = 0; k < stores.size(); ++k)
      em.code.Line(em.stores.ElementText(stores[k], Cat(tiles[k], "[y * ", width + 1, " + x]")));
  });
  const std::string body = em.code.Close();
  em.code.Line("{\n", body, "}");
  return grid.units;
}

}  // namespace hir::codegen::gpu
