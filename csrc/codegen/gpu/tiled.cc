// Transpositions of any extents: as transposed.cc, but an element a thread, so that no extent has to be a multiple of a
// vector and no address has to be aligned.
//
// A tile is 1024 elements; its sides are those that leave least of it empty and of memory's sectors unused. Each of 256
// threads loads four of them side by side along the inputs, computes what depends on those alone, leaves it in shared
// memory, and after one barrier computes the rest side by side along the outputs: operands that lie as the outputs are
// read as they lie. A row of the tile has one element more than it shows: neighbours of a column are in other banks.
//
// Bytes: each operand once, in runs of a side. All loads of a thread are on their way before the first is used: beyond
// the edges of a tensor the last element is loaded again, as a load under a condition waits for those before it. That
// takes 2048 threads a multiprocessor: on an H200 115475 x 160 in float32 with three exponentials takes 0.074 ms, with
// registers for 1536 threads 0.087, for 1280 0.097, and with eight elements a thread 0.129.
#include <algorithm>
#include <map>
#include <set>

#include "csrc/base/checked.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Element;

namespace {
constexpr int kTileThreads = 256;
constexpr int kEach = 4;
constexpr int64_t kSector = 32;  // Bytes that memory gives at least.
// Of an element: 16 KiB of a tile, in each of a kernel's two functions, are below the 48 KiB that a CTA has.
constexpr int64_t kCrossingBytesMax = 16;
constexpr int64_t kLong = int64_t{1} << 20;  // Of longer sides the last tile does not count.

// By which of a tile's axes elements are read side by side.
class Sides {
 public:
  enum Bits : uint8_t { kTurned = 1, kStraight = 2 };

  Sides(Emitter& em, const Region& region, const Schedule& s) : em_(em), s_(s) {
    for (const Store& store : region.phases[0].stores) stores_.push_back(em.stores.ValueOf(store));
    for (const Element* value : stores_) {
      if (Cross(value)) continue;
      crossing_.clear();
      break;
    }
    int64_t bytes = 0;
    for (const Element* value : crossing_) bytes += std::max<int64_t>(DTypeBytes(value->dtype), 4);
    if (crossing_.empty() || bytes > kCrossingBytesMax) {
      crossing_.clear();
      for (const Element* value : stores_) Add(value);
    }
  }

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
    for (const Element* value : stores_) visit(visit, value);
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
      const auto is_along = [&](int variable, int other) {
        const auto split = offset == nullptr ? std::nullopt : em_.math.Split(offset, variable);
        return split && split->stride->IsConst(1) && em_.math.DependsOn(offset, other);
      };
      if (is_along(s_.vector, s_.across)) sides |= kTurned;
      if (is_along(s_.across, s_.vector)) sides |= kStraight;
    }
    return sides_[e] = sides;
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
  std::vector<const Element*> stores_, crossing_;
  std::map<const Element*, unsigned> sides_;
  std::set<const Element*> crossed_;  // Those that Cross has been to.
};

class TiledEmitter {
 public:
  TiledEmitter(Emitter& em, const Region& region, const Schedule& s)
      : em_(em),
        code_(em.code),
        s_(s),
        stores_(region.phases[0].stores),
        sides_(em, region, s),
        width_(s.width),
        height_(s.threads * s.unroll / s.width) {
    em.vector.Clear();
    for (const Element* value : sides_.crossing()) {
      tiles_.push_back(code_.NewName("tile"));
      code_.Line("SHARED ", TypeText(value->dtype), " ", tiles_.back(), "[", height_ * (width_ + 1), "];");
    }
    grid_ = OpenTiles(em, region, s, height_, width_);
  }

  const ir::Expr* Run() {
    const std::string in_row = Cat("i / ", width_), in_column = Cat("i % ", width_);
    const std::string out_row = Cat("i % ", height_), out_column = Cat("i / ", height_);
    const std::vector<const Element*> rest = sides_.Rest();
    const auto leaving = Load(sides_.crossing(), in_row, in_column);
    const auto arriving = Load(rest, out_row, out_column);
    // All are computed before the first is left: loads under conditions do not wait for stores.
    std::vector<std::string> values;
    for (const Element* value : sides_.crossing()) {
      values.push_back(code_.NewName("w"));
      code_.Line(TypeText(value->dtype), " ", values.back(), "[", s_.unroll, "];");
    }
    Each(in_row, in_column, /*inside=*/true, [&] {
      Use(leaving);
      for (size_t k = 0; k < values.size(); ++k) {
        const std::string text = em_.values.Text(sides_.crossing()[k]);
        code_.Line(values[k], "[u] = ", text, ";");
      }
    });
    Each(in_row, in_column, /*inside=*/true, [&] {
      for (size_t k = 0; k < values.size(); ++k)
        code_.Line(tiles_[k], "[y * ", width_ + 1, " + x] = ", values[k], "[u];");
    });
    code_.Line("sync();");
    Each(out_row, out_column, /*inside=*/false, [&] {
      Use(arriving);
      Store();
    });
    const std::string body = code_.Close();
    code_.Line("{\n", body, "}");
    return grid_.units;
  }

 private:
  using Arrays = std::vector<std::pair<const Element*, std::string>>;

  // body() for each element i of the tile that a thread has there: where it exists, or, `inside`, of the nearest that
  // does.
  template <typename Body>
  void Each(const std::string& to_row, const std::string& to_column, bool inside, const Body& body) {
    const std::string rows = em_.indices.Text(grid_.rows), columns = em_.indices.Text(grid_.columns);
    const std::string row = Cat("tr * ", height_, " + y"), column = Cat("tc * ", width_, " + x");
    code_.Open();
    code_.Line("const int y = ", to_row, ", x = ", to_column, ";");
    code_.Line("const ix r = ", inside ? Cat("mini<ix>(", row, ", ", rows, " - 1)") : row,
               ", c = ", inside ? Cat("mini<ix>(", column, ", ", columns, " - 1)") : column, ";");
    code_.Open();
    code_.Define(grid_.column.variable, "c");
    code_.Define(grid_.row.variable, "r");
    body();
    em_.loaded.ForgetScalars();
    const std::string inner = code_.Close();
    code_.Line(inside ? std::string() : Cat("if (r < ", rows, " && c < ", columns, ") "), "{\n", inner, "}");
    const std::string all = code_.Close();
    code_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll, "; ++u) {\nconst int i = t + u * ", s_.threads, ";\n",
               all, "}");
  }

  // Into arrays, whatever conditions say: loads of `roots` that vary along the tile.
  Arrays Load(const std::vector<const Element*>& roots, const std::string& to_row, const std::string& to_column) {
    const Loop loops[] = {grid_.row, grid_.column};
    Arrays arrays;
    const std::vector<Access> loads = em_.loads.Scalars(roots, loops, {});
    for (const Access& access : loads) {
      arrays.emplace_back(access.load, code_.NewName("l"));
      code_.Line(TypeText(access.load->dtype), " ", arrays.back().second, "[", s_.unroll, "];");
    }
    if (loads.empty()) return arrays;
    Each(to_row, to_column, /*inside=*/true, [&] {
      for (size_t i = 0; i < loads.size(); ++i) {
        const std::string text = em_.values.ScalarText(loads[i]);
        code_.Line(arrays[i].second, "[u] = ", text, ";");
      }
    });
    return arrays;
  }

  void Use(const Arrays& arrays) {
    for (const auto& [element, name] : arrays) em_.loaded.SetScalar(element, Cat(name, "[u]"));
  }

  void Store() {
    for (size_t k = 0; k < tiles_.size(); ++k) {
      const Element* value = sides_.crossing()[k];
      const std::string name = code_.NewName("x");
      code_.Line("const ", TypeText(value->dtype), " ", name, " = ", tiles_[k], "[y * ", width_ + 1, " + x];");
      em_.loaded.SetScalar(value, name);
    }
    // All that is read comes first: one may be stored where another's value is read (Launch::in_place).
    std::vector<std::string> writes;
    for (const auto& store : stores_) {
      const std::string value = em_.stores.ValueText(store);
      writes.push_back(em_.stores.ElementText(store, value));
    }
    for (const std::string& write : writes) code_.Line(write);
  }

  Emitter& em_;
  Scopes& code_;
  const Schedule& s_;
  const std::vector<codegen::Store>& stores_;
  Sides sides_;
  const int width_, height_;
  std::vector<std::string> tiles_;
  Tiles grid_;
};

}  // namespace

void ChooseTiled(const LoopNest& nest, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kTiled;
  s.lanes = 1;
  s.threads = kTileThreads;
  s.is_exact = false;
  int64_t bytes = 1;
  for (const Store& store : region.phases[0].stores)
    bytes = std::max(bytes, DTypeBytes(nest.tensors[static_cast<size_t>(store.tensor)].dtype));
  s.unroll = kEach;
  s.ctas_per_sm = kThreadsOfMultiprocessor / kTileThreads;
  s.items_per_cta = int64_t{s.threads} * s.unroll;
  const auto extent = [&](int variable) {
    const auto loop = std::ranges::find(region.grid, variable, &Loop::variable);
    return std::clamp<int64_t>(SizeOf(loop->end, plan.sizes, kUnknown), 1, kLong);
  };
  const int64_t along = extent(s.vector), across = extent(s.across);
  // Bytes that pass where runs are of so many elements, for each that is wanted.
  const auto excess = [&](int64_t run) { return 1 + static_cast<double>(kSector) / static_cast<double>(run * bytes); };
  const auto cost = [&](int64_t width) {
    const int64_t height = s.items_per_cta / width;
    const int64_t covered = base::CeilDiv(along, width) * width * (base::CeilDiv(across, height) * height);
    return static_cast<double>(covered) * (excess(std::min(width, along)) + excess(std::min(height, across)));
  };
  s.width = 32;
  for (const int width : {64, 16, 128, 8}) {
    if (cost(width) < cost(s.width)) s.width = width;
  }
}

const ir::Expr* EmitTiled(Emitter& em, const Region& region, const Schedule& s) {
  return TiledEmitter(em, region, s).Run();
}

}  // namespace hir::codegen::gpu
