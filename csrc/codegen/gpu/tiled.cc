// Transpositions of any extents: as transposed.cc, but each side has the widest vectors that its extent and its tensors
// allow, single elements where they allow none, so that no extent has to be a multiple of anything.
//
// A tile is 1024 elements, 2048 where a vector has 8; its sides are those that leave least of it empty and of memory's
// sectors unused: a short axis is a side as a whole. Each of at most 256 threads loads vectors along the inputs,
// computes what depends on those alone, leaves it in shared memory, and after one barrier computes the rest along the
// outputs: operands that lie as the outputs are read as they lie. Outputs that lie as the inputs are stored in front
// of the barrier. A row of the tile has one element more than it shows: neighbours of a column are in other banks.
//
// Bytes: each operand once, in runs of a side. All loads of a thread are on their way before the first is used: beyond
// the edges of a tensor the last element is loaded again, as a load under a condition waits for those before it. That
// takes 2048 threads a multiprocessor: on an H200 115475 x 160 in float32 with three exponentials takes 0.074 ms, with
// registers for 1536 threads 0.087, for 1280 0.097, and with eight elements a thread 0.129.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "csrc/base/checked.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;
using fusion::Element;

namespace {
constexpr int kTileThreads = 256;
constexpr int kEach = 4;         // Elements of a thread at least.
constexpr int64_t kSector = 32;  // Bytes that memory gives at least.
// 16 KiB of a tile, in each of a kernel's two functions, are below the 48 KiB that a CTA has.
constexpr int64_t kTileBytesMax = 16 * 1024;
constexpr int64_t kLong = int64_t{1} << 20;  // Of longer sides the last tile does not count.
constexpr int64_t kShortSide = 64;           // Shorter axes may be a side as a whole.

// By which of a tile's axes elements are read side by side.
class Sides {
 public:
  enum Bits : uint8_t { kTurned = 1, kStraight = 2 };

  // For tiles of `elements`.
  Sides(Emitter& em, const Region& region, const Schedule& s, int64_t elements) : em_(em), s_(s) {
    for (const Store& store : region.phases[0].stores) {
      if (LiesAlong(em.places.OffsetOf(store.tensor, store.index).affine, s.vector)) {
        straight_.push_back(store);
        continue;
      }
      turned_.push_back(store);
      values_.push_back(em.stores.ValueOf(store));
    }
    for (const Element* value : values_) {
      if (Cross(value)) continue;
      crossing_.clear();
      break;
    }
    if (crossing_.empty() || BytesOf(crossing_) * elements > kTileBytesMax) {
      crossing_.clear();
      for (const Element* value : values_) Add(value);
    }
    fits_ = !turned_.empty() && BytesOf(crossing_) * elements <= kTileBytesMax &&
            std::ranges::all_of(straight_, [&](const Store& store) { return (Of(store.value) & kStraight) == 0; });
  }

  // Whether tiles are small enough, and what is stored along the inputs is made of what is read there.
  bool fits() const { return fits_; }
  // Stores along the outputs, and those along the inputs.
  const std::vector<Store>& turned() const { return turned_; }
  const std::vector<Store>& straight() const { return straight_; }

  // The values that pass through shared memory: the largest subexpressions of the stored ones whose loads are all side
  // by side along the inputs. The stored values themselves where a condition on which elements exist guards both kinds.
  const std::vector<const Element*>& crossing() const { return crossing_; }

  // The largest parts that are computed behind the barrier and have nothing of a tile.
  std::vector<const Element*> Rest() {
    std::vector<const Element*> rest;
    std::set<const Element*> seen;
    const auto visit = [&](const auto& self, const Element* e) -> void {
      if (!seen.insert(e).second || std::ranges::find(crossing_, e) != crossing_.end()) return;
      if ((Of(e) & kTurned) == 0) return rest.push_back(e);
      for (const Element* arg : e->args) self(self, arg);
    };
    for (const Element* value : values_) visit(visit, value);
    return rest;
  }

 private:
  unsigned Of(const Element* e) {
    const auto known = sides_.find(e);
    if (known != sides_.end()) return known->second;
    unsigned sides = 0;
    for (const Element* arg : e->args) sides |= Of(arg);
    if (e->kind == Element::Kind::kLoad && em_.places.IsInMemory(e)) {
      const ir::Expr* offset = em_.places.AffineOf({e, 0});
      if (LiesAlong(offset, s_.vector) && em_.math.DependsOn(offset, s_.across)) sides |= kTurned;
      if (LiesAlong(offset, s_.across) && em_.math.DependsOn(offset, s_.vector)) sides |= kStraight;
    }
    return sides_[e] = sides;
  }

  bool LiesAlong(const ir::Expr* offset, int variable) {
    const auto split = offset == nullptr ? std::nullopt : em_.math.Split(offset, variable);
    return split && split->stride->IsConst(1);
  }

  static int64_t BytesOf(const std::vector<const Element*>& values) {
    int64_t bytes = 0;
    for (const Element* value : values) bytes += std::max<int64_t>(DTypeBytes(value->dtype), 4);
    return bytes;
  }

  void Add(const Element* e) {
    if (std::ranges::find(crossing_, e) == crossing_.end()) crossing_.push_back(e);
  }

  // Whether what it is made of can be taken apart.
  bool Cross(const Element* e) {
    const unsigned sides = Of(e);
    if ((sides & kTurned) == 0 || !crossed_.insert(e).second) return true;
    if ((sides & kStraight) == 0) {
      Add(e);
      return true;
    }
    const bool is_select = e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect;
    if (is_select && em_.math.GuardsSides(e)) return false;
    return std::ranges::all_of(e->args, [&](const Element* arg) { return Cross(arg); });
  }

  Emitter& em_;
  const Schedule& s_;
  std::vector<Store> turned_, straight_;
  std::vector<const Element*> values_, crossing_;  // `values_`: what is stored along the outputs.
  bool fits_ = false;
  std::map<const Element*, unsigned> sides_;
  std::set<const Element*> crossed_;  // Those that Cross has been to.
};

class TiledEmitter {
 public:
  TiledEmitter(Emitter& em, const Region& region, const Schedule& s)
      : em_(em),
        code_(em.code),
        s_(s),
        sides_(em, region, s, int64_t{s.width} * s.height),
        in_{s.vector, s.lanes, Cat("i / ", s.width / s.lanes), Cat("i % ", s.width / s.lanes, By(s.lanes))},
        out_{s.across, s.lanes_across, Cat("i % ", s.height / s.lanes_across, By(s.lanes_across)),
             Cat("i / ", s.height / s.lanes_across)} {
    em.vector.Clear();
    for (const Element* value : sides_.crossing()) {
      tiles_.push_back(code_.NewName("tile"));
      code_.Line("SHARED ", TypeText(value->dtype), " ", tiles_.back(), "[", s.height * (s.width + 1), "];");
    }
    grid_ = OpenTiles(em, region, s, s.height, s.width);
    em.conditions.Divisible(grid_.columns, s.lanes);
    em.conditions.Divisible(grid_.rows, s.lanes_across);
  }

  const ir::Expr* Run() {
    std::vector<const Element*> before = sides_.crossing();
    for (const Store& store : sides_.straight()) before.push_back(store.value);
    const Arrays leaving = Load(in_, before);
    const Arrays arriving = Load(out_, sides_.Rest());
    // All are computed before the first is left: loads under conditions do not wait for stores.
    std::vector<std::string> values;
    for (const Element* value : sides_.crossing()) {
      values.push_back(code_.NewName("w"));
      code_.Line(TypeText(value->dtype), " ", values.back(), "[", StepsOf(in_) * in_.lanes, "];");
    }
    const std::string lane = in_.lanes > 1 ? Cat("u * ", in_.lanes, " + e") : "u";
    Each(in_, [&] {
      Use(leaving);
      em_.lanes.Each([&] {
        for (size_t k = 0; k < values.size(); ++k) {
          const std::string text = em_.values.Text(sides_.crossing()[k]);
          code_.Line(values[k], "[", lane, "] = ", text, ";");
        }
      });
      if (!sides_.straight().empty()) IfInside(in_, [&] { em_.lanes.Body({}, {}, sides_.straight()); });
    });
    Each(in_, [&] {
      em_.lanes.Each([&] {
        for (size_t k = 0; k < values.size(); ++k)
          code_.Line(tiles_[k], "[y * ", s_.width + 1, " + x", in_.lanes > 1 ? " + e" : "", "] = ", values[k], "[",
                     lane, "];");
      });
    });
    code_.Line("sync();");
    Each(out_, [&] {
      Use(arriving);
      for (size_t k = 0; k < tiles_.size(); ++k) {
        const std::string row = out_.lanes > 1 ? "(y + e)" : "y";
        em_.loaded.SetScalar(sides_.crossing()[k], Cat(tiles_[k], "[", row, " * ", s_.width + 1, " + x]"));
      }
      IfInside(out_, [&] { em_.lanes.Body({}, {}, sides_.turned()); });
    });
    em_.vector.Clear();
    const std::string body = code_.Close();
    code_.Line("{\n", body, "}");
    return grid_.units;
  }

 private:
  // Threads side by side along the inputs, or along the outputs: vector `i` of the tile begins at its element y, x.
  struct Side {
    int variable;
    int lanes;
    std::string y, x;
  };
  struct Arrays {
    std::vector<std::pair<Access, std::string>> packs, scalars;
  };

  static std::string By(int lanes) { return lanes > 1 ? Cat(" * ", lanes) : std::string(); }
  int VectorsOf(const Side& side) const { return s_.width * s_.height / side.lanes; }
  int StepsOf(const Side& side) const { return (VectorsOf(side) + s_.threads - 1) / s_.threads; }

  // body() for each vector i of the tile that a thread has: of the nearest that exists.
  template <typename Body>
  void Each(const Side& side, const Body& body) {
    em_.vector.Set(side.lanes > 1 ? side.variable : -1, side.lanes);
    const bool along = side.variable == s_.vector;
    const auto nearest = [&](const std::string& at, const ir::Expr* extent, int lanes) {
      return Cat("mini<ix>(", at, ", ", em_.indices.Text(extent), " - ", lanes, ")");
    };
    const std::string row = nearest(Cat("tr * ", s_.height, " + y"), grid_.rows, along ? 1 : side.lanes);
    const std::string column = nearest(Cat("tc * ", s_.width, " + x"), grid_.columns, along ? side.lanes : 1);
    code_.Open();
    code_.Line("const int y = ", side.y, ", x = ", side.x, ";");
    code_.Line("const ix r = ", row, ", c = ", column, ";");
    code_.Define(grid_.column.variable, "c");
    code_.Define(grid_.row.variable, "r");
    body();
    em_.loaded.ForgetScalars();
    em_.loaded.ForgetPacks();
    const std::string all = code_.Close();
    const std::string at = Cat("t + u * ", s_.threads);
    const int vectors = VectorsOf(side);
    code_.Line("#pragma unroll\nfor (int u = 0; u < ", StepsOf(side),
               "; ++u) {\nconst int i = ", vectors % s_.threads == 0 ? at : Cat("mini(", at, ", ", vectors - 1, ")"),
               ";\n", all, "}");
  }

  // body() for vectors that exist, and once for each of them.
  template <typename Body>
  void IfInside(const Side& side, const Body& body) {
    std::string condition = Cat("tr * ", s_.height, " + y < ", em_.indices.Text(grid_.rows), " && tc * ", s_.width,
                                " + x < ", em_.indices.Text(grid_.columns));
    if (VectorsOf(side) % s_.threads != 0) Append(condition, " && t + u * ", s_.threads, " < ", VectorsOf(side));
    code_.Open();
    body();
    const std::string inner = code_.Close();
    code_.Line("if (", condition, ") {\n", inner, "}");
  }

  // Into arrays, whatever conditions say: vectors, and what varies from one to the next.
  Arrays Load(const Side& side, const std::vector<const Element*>& roots) {
    const Loop loops[] = {grid_.row, grid_.column};
    const bool along = side.variable == s_.vector;
    em_.vector.Set(side.lanes > 1 ? side.variable : -1, side.lanes);
    Arrays arrays;
    if (side.lanes > 1) {
      for (const Access& access : em_.loads.Vectors(roots)) {
        arrays.packs.emplace_back(access, code_.NewName("l"));
        code_.Line("Pk<", em_.places.BytesOf(access), "> ", arrays.packs.back().second, "[", StepsOf(side), "];");
      }
    }
    const std::span<const Loop> all = loops;
    const std::vector<Access> scalars =
        side.lanes == 1 ? em_.loads.Scalars(roots, all, {})
                        : em_.loads.Scalars(roots, all.subspan(along ? 0 : 1, 1), all.subspan(along ? 1 : 0, 1));
    for (const Access& access : scalars) {
      arrays.scalars.emplace_back(access, code_.NewName("l"));
      code_.Line(TypeText(access.load->dtype), " ", arrays.scalars.back().second, "[", StepsOf(side), "];");
    }
    if (arrays.packs.empty() && arrays.scalars.empty()) return arrays;
    Each(side, [&] {
      for (const auto& [access, name] : arrays.packs) {
        const std::string text = em_.values.LoadText(access, Values::Reading::kPlain);
        code_.Line(name, "[u] = ", text, ";");
      }
      for (const auto& [access, name] : arrays.scalars) {
        const std::string text = em_.values.ScalarText(access);
        code_.Line(name, "[u] = ", text, ";");
      }
    });
    return arrays;
  }

  void Use(const Arrays& arrays) {
    for (const auto& [access, name] : arrays.packs) em_.loaded.SetPack(access, Cat(name, "[u]"));
    for (const auto& [access, name] : arrays.scalars) em_.loaded.SetScalar(access.load, Cat(name, "[u]"));
  }

  Emitter& em_;
  Scopes& code_;
  const Schedule& s_;
  Sides sides_;
  const Side in_, out_;
  std::vector<std::string> tiles_;
  Tiles grid_;
};

// The widest vectors, up to `most` lanes, of what is read below `roots` and stored by `stores` along `variable`.
int LanesOf(Emitter& em, const Region& region, int variable, const std::vector<const Element*>& roots,
            const std::vector<Store>& stores, int most) {
  Region side = region;
  std::vector<Store>& parts = side.phases[0].stores;
  parts.clear();
  for (const Element* root : roots) parts.push_back({.tensor = 0, .index = {}, .value = root});
  for (const Store& store : stores)
    parts.push_back({.tensor = store.tensor, .index = store.index, .value = em.elements.Int(DType::kInt64, 0)});
  for (int lanes = most; lanes > 1; lanes /= 2) {
    em.vector.Set(variable, lanes);
    const int misfits = em.loads.Misfits(side);
    em.vector.Clear();
    if (misfits == 0) return lanes;
  }
  return 1;
}

// How tall and wide a tile is, of at most `elements`.
class Shape {
 public:
  Shape(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan, const Sides& sides,
        const Schedule& s, int64_t elements)
      : elements_(elements) {
    for (const Loop& loop : region.grid) {
      if (loop.variable != s.vector && loop.variable != s.across) continue;
      Axis& axis = loop.variable == s.vector ? along_ : across_;
      axis.extent = std::clamp<int64_t>(SizeOf(loop.end, plan.sizes, kUnknown), 1, kLong);
      axis.is_constant = loop.end->IsConst();
    }
    along_.lanes = s.lanes;
    across_.lanes = s.lanes_across;
    const auto steps_by = [&](const ir::Expr* offset, int variable, int64_t step) {
      const auto split = offset == nullptr ? std::nullopt : em.math.Split(offset, variable);
      return split && split->stride->IsConst(step);
    };
    across_.joins = across_.is_constant;
    for (const Store& store : sides.turned()) {
      const int64_t bytes = DTypeBytes(nest.tensors[static_cast<size_t>(store.tensor)].dtype);
      across_.bytes = std::max(across_.bytes, bytes);
      const ir::Expr* offset = em.places.OffsetOf(store.tensor, store.index).affine;
      across_.joins = across_.joins && steps_by(offset, s.vector, across_.extent);
    }
    along_.joins = along_.is_constant;
    for (const Access& access : em.loads.Scalars(sides.crossing(), region.grid, {})) {
      const ir::Expr* offset = em.places.AffineOf(access);
      if (!steps_by(offset, s.vector, 1)) continue;
      along_.bytes = std::max(along_.bytes, DTypeBytes(access.load->dtype));
      along_.joins = along_.joins && steps_by(offset, s.across, along_.extent);
    }
  }

  void Choose(Schedule& s) {
    for (const int64_t width : {32, 64, 16, 128, 8}) Try(width, elements_ / width, s);
    // Short axes as a whole, beside as much of the other as fills memory's sectors, or as leaves equal parts of it.
    if (along_.is_constant && along_.extent < kShortSide) {
      for (const int64_t height : Beside(along_, across_)) Try(along_.extent, height, s);
    }
    if (across_.is_constant && across_.extent < kShortSide) {
      for (const int64_t width : Beside(across_, along_)) Try(width, across_.extent, s);
    }
  }

 private:
  // One axis of a tile, and how it lies in memory.
  struct Axis {
    int64_t extent = 1, bytes = 1;
    int64_t lanes = 1;
    bool is_constant = false;
    bool joins = false;  // Whole ones follow each other in memory.

    // Bytes that lie side by side where a tile has `side` of it, and as many `beside` it.
    int64_t Run(int64_t side, int64_t beside) const {
      const bool is_whole = joins && side == extent;
      return std::min(side, extent) * bytes * (is_whole ? beside : 1);
    }
    // Rows that vectors divide begin with a sector, or in its middle.
    bool FillsSectors(int64_t run) const { return lanes * bytes * 2 >= kSector && run % kSector == 0; }
  };

  // Bytes that pass, for each that is wanted, in runs of so many. The rest of a sector that is read waits in the cache
  // for the tile beside this one; one that is written in two pieces is often written twice.
  static double ExcessOf(int64_t run, double sectors) {
    return 1 + sectors * static_cast<double>(kSector) / static_cast<double>(run);
  }
  double Excess(int64_t width, int64_t height) const {
    const int64_t read = along_.Run(width, std::min(height, across_.extent));
    const int64_t written = across_.Run(height, std::min(width, along_.extent));
    return ExcessOf(read, along_.FillsSectors(read) ? 0.25 : 0.5) +
           ExcessOf(written, across_.FillsSectors(written) ? 0.25 : 1);
  }

  std::array<int64_t, 3> Beside(const Axis& whole, const Axis& other) const {
    const int64_t most = elements_ / whole.extent;
    const auto floor_to = [&](int64_t by) { return most / std::max(by, other.lanes) * std::max(by, other.lanes); };
    const int64_t parts = base::CeilDiv(other.extent, std::max<int64_t>(most, 1));
    const int64_t equal = base::CeilDiv(base::CeilDiv(other.extent, parts), other.lanes) * other.lanes;
    return {floor_to(1), floor_to(kSector / other.bytes), std::min(equal, floor_to(1))};
  }

  void Try(int64_t width, int64_t height, Schedule& s) {
    if (width <= 0 || height <= 0 || width % along_.lanes != 0 || height % across_.lanes != 0) return;
    const double cost = CostOf(width, height);
    if (best_ >= 0 && cost >= best_) return;
    best_ = cost;
    s.width = static_cast<int>(width);
    s.height = static_cast<int>(height);
  }

  double CostOf(int64_t width, int64_t height) const {
    const int64_t tiles = base::CeilDiv(along_.extent, width) * base::CeilDiv(across_.extent, height);
    // Threads without an element cost less than elements that no tensor has.
    const double covered = static_cast<double>(tiles) * static_cast<double>(width * height + elements_) / 2;
    return covered * Excess(width, height);
  }

  const int64_t elements_;
  Axis along_, across_;
  double best_ = -1;
};

// No more than have a vector in each step.
int ThreadsFor(const Schedule& s) {
  int most = kWarp;
  for (const int lanes : {s.lanes, s.lanes_across}) {
    const int vectors = s.width * s.height / lanes;
    const int steps = (vectors + kTileThreads - 1) / kTileThreads;
    most = std::max(most, ((vectors + steps - 1) / steps + kWarp - 1) / kWarp * kWarp);
  }
  return most;
}

}  // namespace

bool ChooseTiled(Emitter& em, const LoopNest& nest, const Region& region, const KernelPlan& plan, Schedule& s) {
  int64_t narrowest = 8;
  for (const Tensor& tensor : nest.tensors) narrowest = std::min(narrowest, DTypeBytes(tensor.dtype));
  const int most = std::min<int>(kLanesMax, static_cast<int>(16 / narrowest));
  // Vectors of 8 make tiles twice as large, for which shared memory may be too small.
  for (const int lanes_max : {most, kEach}) {
    const int64_t least = int64_t{kTileThreads} * std::max(kEach, lanes_max);
    Sides sides(em, region, s, least);
    if (!sides.fits()) continue;
    std::vector<const Element*> before = sides.crossing();
    for (const Store& store : sides.straight()) before.push_back(store.value);
    s.lanes = LanesOf(em, region, s.vector, before, sides.straight(), lanes_max);
    s.lanes_across = LanesOf(em, region, s.across, sides.Rest(), sides.turned(), lanes_max);
    s.unroll = std::max({kEach, s.lanes, s.lanes_across});
    Shape(em, nest, region, plan, sides, s, int64_t{kTileThreads} * s.unroll).Choose(s);
    s.kind = Schedule::Kind::kTiled;
    s.threads = ThreadsFor(s);
    s.is_exact = false;
    s.ctas_per_sm = kThreadsOfMultiprocessor / s.threads;
    s.items_per_cta = int64_t{s.width} * s.height;
    return true;
  }
  return false;
}

const ir::Expr* EmitTiled(Emitter& em, const Region& region, const Schedule& s) {
  return TiledEmitter(em, region, s).Run();
}

}  // namespace hir::codegen::gpu
