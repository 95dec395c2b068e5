// Pointwise where inputs are contiguous along one axis and outputs along another: through a tile in shared memory, so
// that both sides move 16 bytes a thread and segments of 128 bytes and more.
//
// A tile is 64 words of 4 bytes along the outputs' axis (128 elements of 2 bytes, 64 of 4) by 8 vectors along the
// inputs'. Each of 512 threads computes one vector (two rows of them for 2-byte elements, whose words hold a pair of
// rows), turns it into the tile, and after one barrier writes 16-byte chunks.
//
// Bytes: each operand once; 16 KiB of tile a CTA, 4 CTAs a multiprocessor: 2048 threads with at least 32 bytes each.
#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {
constexpr int kTransposedThreads = 512;
constexpr int kWords = 64;
constexpr int kVectors = 8;
constexpr double kFilled = 0.75;
}  // namespace

bool FillsTransposed(const LoopNest& nest, const Region& region, const KernelPlan& plan, int along, int across) {
  const int64_t bytes = DTypeBytes(nest.tensors[static_cast<size_t>(region.phases[0].stores[0].tensor)].dtype);
  double filled = 1;
  int64_t tiles = 1;
  for (const Loop& loop : region.grid) {
    const int64_t extent = SizeOf(loop.end, plan.sizes, kUnknown);
    const int64_t side = loop.variable == along    ? kVectors * 16 / bytes
                         : loop.variable == across ? kWords * 4 / bytes
                                                   : 1;
    const int64_t count = base::CeilDiv(extent, side);
    filled *= static_cast<double>(extent) / static_cast<double>(count * side);
    tiles *= std::min<int64_t>(count, kUnknown);
  }
  return filled >= kFilled && tiles >= plan.target.multiprocessors;
}

void ChooseTransposed(const LoopNest& nest, const Region& region, Schedule& s) {
  s.kind = Schedule::Kind::kTransposed;
  const DType dtype = nest.tensors[static_cast<size_t>(region.phases[0].stores[0].tensor)].dtype;
  s.lanes = static_cast<int>(16 / DTypeBytes(dtype));
  s.threads = kTransposedThreads;
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
  ir::ExprPool& pool = em.pool;
  Tiles tiles;
  std::vector<Loop> outer;
  for (const Loop& loop : region.grid) {
    (loop.variable == s.vector ? tiles.column : loop.variable == s.across ? tiles.row : outer.emplace_back()) = loop;
  }
  tiles.rows = pool.Import(tiles.row.end);
  tiles.columns = pool.Import(tiles.column.end);
  const ir::Expr* of_rows = pool.CeilDiv(tiles.rows, pool.Const(height));
  const ir::Expr* of_columns = pool.CeilDiv(tiles.columns, pool.Const(width));
  em.code.Line("const ix tc = (ix)unit % ", em.indices.Text(of_columns), ";");
  em.code.Line("const ix rest = (ix)unit / ", em.indices.Text(of_columns), ";");
  em.code.Line("const ix tr = rest % ", em.indices.Text(of_rows), ";");
  em.code.Line("const ix item = rest / ", em.indices.Text(of_rows), ";");
  em.code.Open();
  em.indices.Decode(outer, "item");
  tiles.units = pool.Mul(em.indices.TripsOf(outer), pool.Mul(of_rows, of_columns));
  return tiles;
}

namespace {

class TransposedEmitter {
 public:
  TransposedEmitter(Emitter& em, const LoopNest& nest, const Region& region, const Schedule& schedule)
      : em_(em),
        code_(em.code),
        nest_(nest),
        region_(region),
        s_(schedule),
        stores_(region.phases[0].stores),
        pair_(schedule.unroll),
        tile_rows_(kWords * pair_),
        tile_columns_(kVectors * schedule.lanes) {}

  const ir::Expr* Run() {
    em_.vector.Set(s_.vector, s_.lanes);
    code_.Line("SHARED uint4 tiles[", stores_.size(), "][", kWords * tile_columns_ / 4, "];");
    tiles_ = OpenTiles(em_, region_, s_, tile_rows_, tile_columns_);
    em_.conditions.Require(Cat("(", em_.arguments.SymbolText(tiles_.columns), " % ", s_.lanes, " | ",
                               em_.arguments.SymbolText(tiles_.rows), " % ", s_.lanes, ") == 0"));
    IntoTile();
    code_.Line("sync();");
    OutOfTile();
    const std::string body = code_.Close();
    code_.Line("{\n", body, "}");
    return tiles_.units;
  }

 private:
  void IntoTile() {
    code_.Line("const int cv = t % ", kVectors, ", word = t / ", kVectors, ";");
    code_.Line("const ix c = tc * ", tile_columns_, " + cv * ", s_.lanes, ";");
    code_.Open();
    code_.Define(tiles_.column.variable, "c");
    std::vector<std::vector<std::string>> packs(stores_.size());
    for (std::vector<std::string>& words : packs) {
      for (int h = 0; h < pair_; ++h) {
        words.push_back(code_.NewName("w"));
        code_.Line("Pk<16> ", words.back(), " = none<16>();");
      }
    }
    code_.Line("const ix r = tr * ", tile_rows_, " + word * ", pair_, ";");
    code_.Open();  // Extents are multiples of a vector, so the rows of a word exist together.
    Compute(packs);
    const std::string both = code_.Close();
    const std::string inside = s_.is_exact ? std::string()
                                           : Cat("if (r < ", em_.indices.Text(tiles_.rows), " && c < ",
                                                 em_.indices.Text(tiles_.columns), ") ");
    code_.Line(inside, "{\n", both, "}");
    for (size_t k = 0; k < stores_.size(); ++k) {
      code_.Line("tile_put<", s_.lanes, ">((u32*)tiles[", k, "], cv, word, ", base::Join(packs[k], ", "), ");");
    }
    const std::string put = code_.Close();
    code_.Line("{\n", put, "}");
  }

  // The rows of a word, of each store: all loads before the first use.
  void Compute(const std::vector<std::vector<std::string>>& packs) {
    const auto define_row = [&](int h) { code_.Define(tiles_.row.variable, Cat("(r + ", h, ")")); };
    std::vector<const fusion::Element*> roots;
    for (const Store& store : stores_) roots.push_back(store.value);
    const std::vector<Access> loads = em_.loads.Vectors(roots);
    std::vector<std::vector<std::string>> loaded(static_cast<size_t>(pair_));
    for (int h = 0; h < pair_; ++h) {
      code_.Open();
      define_row(h);
      std::vector<std::string> texts;
      for (const Access& access : loads) texts.push_back(em_.values.LoadText(access, Values::Reading::kPlain));
      const std::string before = code_.Close();
      std::vector<std::string>& names = loaded[static_cast<size_t>(h)];
      for (const Access& access : loads) {
        names.push_back(code_.NewName("l"));
        code_.Line("Pk<", em_.places.BytesOf(access), "> ", names.back(), ";");
      }
      code_.Line("{\n", before);
      for (size_t i = 0; i < loads.size(); ++i) code_.Line(names[i], " = ", texts[i], ";");
      code_.Line("}");
    }
    for (size_t k = 0; k < stores_.size(); ++k) {
      const DType dtype = nest_.tensors[static_cast<size_t>(stores_[k].tensor)].dtype;
      for (int h = 0; h < pair_; ++h) {
        code_.Open();
        define_row(h);
        for (size_t i = 0; i < loads.size(); ++i) em_.loaded.SetPack(loads[i], loaded[static_cast<size_t>(h)][i]);
        const std::string pack = em_.lanes.PackOf(stores_[k].value, dtype);
        em_.loaded.ForgetPacks();
        code_.Line(packs[k][static_cast<size_t>(h)], " = ", pack, ";");
        const std::string inner = code_.Close();
        code_.Line("{\n", inner, "}");
      }
    }
  }

  // Chunks of one column follow each other.
  void OutOfTile() {
    const int chunks = kWords / 4;
    em_.vector.Clear();
    code_.Open();
    code_.Line("const ix c = tc * ", tile_columns_, " + i / ", chunks, ";");
    code_.Line("const ix r = tr * ", tile_rows_, " + i % ", chunks, " * ", s_.lanes, ";");
    code_.Open();
    code_.Define(tiles_.column.variable, "c");
    code_.Define(tiles_.row.variable, "r");
    for (size_t k = 0; k < stores_.size(); ++k) {
      code_.Line("stv(", em_.stores.AddressOf(stores_[k].tensor, stores_[k].index), ", tile_get<", s_.lanes,
                 ">((const u32*)tiles[", k, "], i / ", chunks, ", i % ", chunks, "));");
      em_.conditions.RequireAligned(stores_[k].tensor, 16);
    }
    const std::string out = code_.Close();
    const std::string within = s_.is_exact ? std::string()
                                           : Cat("if (c < ", em_.indices.Text(tiles_.columns), " && r < ",
                                                 em_.indices.Text(tiles_.rows), ") ");
    code_.Line(within, "{\n", out, "}");
    const std::string each = code_.Close();
    code_.Line("#pragma unroll\nfor (int i = t; i < ", tile_columns_ * chunks, "; i += ", s_.threads, ") {\n", each,
               "}");
  }

  Emitter& em_;
  Scopes& code_;
  const LoopNest& nest_;
  const Region& region_;
  const Schedule& s_;
  const std::vector<Store>& stores_;
  const int pair_;  // Rows of a word.
  const int tile_rows_, tile_columns_;
  Tiles tiles_;
};

}  // namespace

const ir::Expr* EmitTransposed(Emitter& em, const LoopNest& nest, const Region& region, const Schedule& s) {
  return TransposedEmitter(em, nest, region, s).Run();
}

}  // namespace hir::codegen::gpu
