// Pointwise where inputs are contiguous along one axis and outputs along another: through a tile in shared memory, so
// that both sides move 16 bytes a thread and segments of 128 bytes and more.
//
// A tile is 64 words of 4 bytes along the outputs' axis (128 elements of 2 bytes, 64 of 4) by 8 vectors along the
// inputs'. Each of 512 threads computes one vector (two rows of them for 2-byte elements, whose words hold a pair of
// rows), turns it into the tile, and after one barrier writes 16-byte chunks.
//
// Bytes: each operand once; 16 KiB of tile a CTA, 4 CTAs a multiprocessor: 2048 threads with at least 32 bytes each.
#include <algorithm>

#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {
constexpr int kThreads = 512;
constexpr int kWords = 64;
constexpr int kVectors = 8;
}  // namespace

void ChooseTransposed(const LoopNest& nest, const Region& region, Schedule& s) {
  s.kind = Schedule::Kind::kTransposed;
  const DType dtype = nest.tensors[static_cast<size_t>(region.phases[0].stores[0].tensor)].dtype;
  s.lanes = static_cast<int>(16 / DTypeBytes(dtype));
  s.threads = kThreads;
  s.ctas_per_sm = 2;
  const int64_t pair = 4 / DTypeBytes(dtype);
  s.unroll = static_cast<int>(pair);
  s.items_per_cta = kWords * pair * kVectors * s.lanes;
  // Where tiles cover the axes each CTA has one, and nothing is tested.
  const auto covers = [&](int variable, int64_t tile) {
    const auto loop = std::ranges::find(region.grid, variable, &Loop::variable);
    return loop->end->IsConst() && loop->end->value % tile == 0;
  };
  s.is_exact = covers(s.across, kWords * pair) && covers(s.vector, int64_t{kVectors} * s.lanes);
}

Tiles OpenTiles(Emitter& em, const Region& region, const Schedule& s, int height, int width) {
  ir::ExprPool& pool = em.pool();
  Tiles tiles;
  std::vector<Loop> outer;
  for (const Loop& loop : region.grid) {
    (loop.variable == s.vector ? tiles.column : loop.variable == s.across ? tiles.row : outer.emplace_back()) = loop;
  }
  tiles.rows = em.Import(tiles.row.end);
  tiles.columns = em.Import(tiles.column.end);
  const ir::Expr* of_rows = pool.CeilDiv(tiles.rows, pool.Const(height));
  const ir::Expr* of_columns = pool.CeilDiv(tiles.columns, pool.Const(width));
  em.Line("const ix tc = (ix)unit % ", em.Expr(of_columns), ";");
  em.Line("const ix rest = (ix)unit / ", em.Expr(of_columns), ";");
  em.Line("const ix tr = rest % ", em.Expr(of_rows), ";");
  em.Line("const ix item = rest / ", em.Expr(of_rows), ";");
  em.Open();
  em.Decode(outer, "item");
  tiles.units = pool.Mul(em.TripsOf(outer), pool.Mul(of_rows, of_columns));
  return tiles;
}

const ir::Expr* EmitTransposed(Emitter& em, const LoopNest& nest, const Region& region, const Schedule& s) {
  const int pair = s.unroll;  // Rows of a word.
  const int tile_rows = kWords * pair, tile_columns = kVectors * s.lanes;
  em.SetVector(s.vector, s.lanes);
  const auto& stores = region.phases[0].stores;
  em.Line("SHARED uint4 tiles[", stores.size(), "][", kWords * tile_columns / 4, "];");
  const auto [row, column, rows, columns, units] = OpenTiles(em, region, s, tile_rows, tile_columns);
  em.Require(Cat("(", em.SymbolText(columns), " % ", s.lanes, " | ", em.SymbolText(rows), " % ", s.lanes, ") == 0"));
  // Into the tile.
  em.Line("const int cv = t % ", kVectors, ", word = t / ", kVectors, ";");
  em.Line("const ix c = tc * ", tile_columns, " + cv * ", s.lanes, ";");
  em.Open();
  em.Define(column.variable, "c");
  std::vector<std::vector<std::string>> packs(stores.size());
  for (size_t k = 0; k < stores.size(); ++k) {
    for (int h = 0; h < pair; ++h) {
      packs[k].push_back(em.NewName("w"));
      em.Line("Pk<16> ", packs[k].back(), " = none<16>();");
    }
  }
  em.Line("const ix r = tr * ", tile_rows, " + word * ", pair, ";");
  em.Open();  // Extents are multiples of a vector, so the rows of a word exist together.
  const auto define_row = [&](int h) { em.Define(row.variable, Cat("(r + ", h, ")")); };
  std::vector<const fusion::Element*> roots;
  for (const Store& store : stores) roots.push_back(store.value);
  const std::vector<Emitter::Access> loads = em.VectorLoads(roots);
  std::vector<std::vector<std::string>> loaded(static_cast<size_t>(pair));
  for (int h = 0; h < pair; ++h) {  // All loads before the first use.
    em.Open();
    define_row(h);
    std::vector<std::string> texts;
    for (const Emitter::Access& access : loads) texts.push_back(em.LoadText(access, Emitter::Reading::kPlain));
    const std::string before = em.Close();
    for (const Emitter::Access& access : loads) {
      loaded[static_cast<size_t>(h)].push_back(em.NewName("l"));
      em.Line("Pk<", em.BytesOf(access), "> ", loaded[static_cast<size_t>(h)].back(), ";");
    }
    em.Line("{\n", before);
    for (size_t i = 0; i < loads.size(); ++i) em.Line(loaded[static_cast<size_t>(h)][i], " = ", texts[i], ";");
    em.Line("}");
  }
  for (size_t k = 0; k < stores.size(); ++k) {
    const DType dtype = nest.tensors[static_cast<size_t>(stores[k].tensor)].dtype;
    for (int h = 0; h < pair; ++h) {
      em.Open();
      define_row(h);
      for (size_t i = 0; i < loads.size(); ++i) em.SetPack(loads[i], loaded[static_cast<size_t>(h)][i]);
      const std::string pack = em.PackOf(stores[k].value, dtype);
      em.ForgetPacks();
      em.Line(packs[k][static_cast<size_t>(h)], " = ", pack, ";");
      const std::string inner = em.Close();
      em.Line("{\n", inner, "}");
    }
  }
  const std::string both = em.Close();
  const std::string inside =
      s.is_exact ? std::string() : Cat("if (r < ", em.Expr(rows), " && c < ", em.Expr(columns), ") ");
  em.Line(inside, "{\n", both, "}");
  for (size_t k = 0; k < stores.size(); ++k) {
    em.Line("tile_put<", s.lanes, ">((u32*)tiles[", k, "], cv, word, ", base::Join(packs[k], ", "), ");");
  }
  const std::string put = em.Close();
  em.Line("{\n", put, "}");
  em.Line("sync();");
  // Out of it: chunks of one column follow each other.
  const int chunks = kWords / 4;
  em.SetVector(-1, 1);
  em.Open();
  em.Line("const ix c = tc * ", tile_columns, " + i / ", chunks, ";");
  em.Line("const ix r = tr * ", tile_rows, " + i % ", chunks, " * ", s.lanes, ";");
  em.Open();
  em.Define(column.variable, "c");
  em.Define(row.variable, "r");
  for (size_t k = 0; k < stores.size(); ++k) {
    em.Line("stv(", em.AddressOf(stores[k].tensor, stores[k].index), ", tile_get<", s.lanes, ">((const u32*)tiles[", k,
            "], i / ", chunks, ", i % ", chunks, "));");
    em.Require(Cat("((u64)a.t", stores[k].tensor, " & 15u) == 0"));
  }
  const std::string out = em.Close();
  const std::string within =
      s.is_exact ? std::string() : Cat("if (c < ", em.Expr(columns), " && r < ", em.Expr(rows), ") ");
  em.Line(within, "{\n", out, "}");
  const std::string each = em.Close();
  em.Line("#pragma unroll\nfor (int i = t; i < ", tile_columns * chunks, "; i += ", s.threads, ") {\n", each, "}");
  const std::string body = em.Close();
  em.Line("{\n", body, "}");
  return units;
}

}  // namespace hir::codegen::gpu
