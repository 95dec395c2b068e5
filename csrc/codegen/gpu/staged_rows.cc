// Which tensors have such rows, and the copies.
#include "csrc/codegen/gpu/staged_rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

// Elements of a row, where some are stored and where not (ms on an H200, 7.5 million float32: softmax backward of rows
// of 3 0.032, without staging 0.028; softmax of 5 0.024 and 0.046, of 15 0.020 and 0.087; sums of 7 0.015 and 0.014, of
// 15 0.0143 and 0.0164).
constexpr int64_t kLeastStored = 4, kLeastRead = 12;
// Longer rows of float32 are faster in vectors: softmax of rows of 47 takes 0.031 ms staged, in vectors of 50 0.022.
constexpr int64_t kMostBytes = 160;

// The elements of a row of `offset`, where that is a place in a row of so many behind those of the rows before it, and
// `inner` go through all of them, each once.
std::optional<int64_t> RowOf(Emitter& em, const ir::Expr* offset, std::span<const Loop> rows,
                             const std::vector<Loop>& inner) {
  ir::ExprPool& pool = em.pool;
  int64_t row = 1;
  for (const Loop& loop : inner) {
    if (!loop.begin->IsConst(0) || !loop.end->IsConst()) return {};
    row *= loop.end->value;
  }
  const ir::Expr* stride = pool.Const(row);
  for (size_t i = rows.size(); i-- > 0;) {
    const auto split = em.math.Split(offset, rows[i].variable);
    const ir::Expr* end = pool.Import(rows[i].end);
    if (!split || !rows[i].begin->IsConst(0) || (split->stride != stride && !end->IsConst(1))) return {};
    offset = split->base;
    stride = pool.Mul(stride, end);
  }
  std::vector<std::pair<int64_t, int64_t>> steps;  // Strides and extents.
  for (const Loop& loop : inner) {
    const auto split = em.math.Split(offset, loop.variable);
    if (!split || !split->stride->IsConst()) return {};
    offset = split->base;
    if (loop.end->value != 1) steps.emplace_back(split->stride->value, loop.end->value);
  }
  std::ranges::sort(steps);
  int64_t next = 1;
  for (const auto& [step, extent] : steps) {
    if (step != next) return {};
    next *= extent;
  }
  return offset->IsConst(0) ? std::optional(row) : std::nullopt;
}

// How a region reads and writes a tensor.
struct Use {
  int64_t row = 0;         // 0: not such rows,
  bool is_shared = false;  // but the same for all rows, or for all elements of one.
  int stores = 0;
  size_t last_read = 0, stored = 0;                      // Phases.
  std::vector<const ir::Expr*> reads = {}, writes = {};  // Offsets.
};

class Uses {
 public:
  Uses(Emitter& em, std::span<const Loop> rows) : em_(em), rows_(rows) {}

  std::map<int, Use> Of(const Region& region) {
    for (size_t p = 0; p < region.phases.size(); ++p) {
      const Phase& phase = region.phases[p];
      seen_.clear();
      for (const fusion::Element* root : RootsOf(phase)) Visit(root, p, phase);
      for (const Store& store : phase.stores) {
        for (const fusion::Element* at : store.index) Visit(at, p, phase);
        const Places::Offset offset = em_.places.OffsetOf(store.tensor, store.index);
        Use& use = Add(store.tensor, offset, phase);
        use.stored = p;
        ++use.stores;
        use.writes.push_back(offset.affine);
      }
    }
    return std::move(uses_);
  }

 private:
  void Visit(const fusion::Element* e, size_t p, const Phase& phase) {
    if (!e->has_load || !seen_.insert(e).second) return;
    for (const fusion::Element* arg : e->args) Visit(arg, p, phase);
    if (e->kind != fusion::Element::Kind::kLoad || !em_.places.IsInMemory(e)) return;
    const Places::Offset offset = em_.places.OffsetOf({e, 0});
    Use& use = Add(em_.arguments.TensorOf(e->value), offset, phase);
    use.last_read = p;
    use.reads.push_back(offset.affine);
  }

  Use& Add(int tensor, const Places::Offset& offset, const Phase& phase) {
    const uint64_t vars = em_.places.VarsOf(offset);
    const bool is_plain = offset.data.empty();
    const int64_t row = is_plain ? RowOf(em_, offset.affine, rows_, phase.loops).value_or(0) : 0;
    const bool is_shared =
        row == 0 && !(em_.dependences.HasAny(vars, rows_) && em_.dependences.HasAny(vars, phase.loops));
    const auto [at, is_new] = uses_.try_emplace(tensor, Use{.row = row, .is_shared = is_shared});
    Use& use = at->second;
    if (use.row != row) use.row = 0;
    use.is_shared = use.is_shared && is_shared;
    return use;
  }

  Emitter& em_;
  std::span<const Loop> rows_;
  std::set<const fusion::Element*> seen_;
  std::map<int, Use> uses_;
};

// Whether a thread that stores has read the same element before, and reads no other of it afterwards.
bool IsInsteadOf(const Use& read, const Use& stored) {
  return stored.stored >= read.last_read &&
         std::ranges::all_of(read.reads, [&](const ir::Expr* offset) { return offset == stored.writes[0]; });
}

std::string NameOf(std::span<const StagedTensor> staged, const StagedTensor& each) {
  const StagedTensor& place = each.instead_of < 0 ? each : staged[static_cast<size_t>(each.instead_of)];
  return Cat("rows", place.tensor);
}

}  // namespace

std::vector<StagedTensor> StagedTensorsOf(Emitter& em, const Region& region, std::span<const Loop> rows, int width,
                                          int64_t bytes_max) {
  const std::map<int, Use> uses = Uses(em, rows).Of(region);
  const bool stores =
      std::ranges::any_of(uses, [](const auto& use) { return use.second.stores > 0 && use.second.row > 1; });
  std::vector<StagedTensor> staged;
  int64_t all = 0;
  for (const bool stored : {false, true}) {
    for (const auto& [tensor, use] : uses) {
      if ((use.stores > 0) != stored || use.is_shared || use.row == 1) continue;
      const int64_t bytes = DTypeBytes(em.arguments.tensor(tensor).dtype);
      const bool is_either = stored ? use.reads.empty() && use.stores == 1 : true;
      const bool fits = use.row >= (stores ? kLeastStored : kLeastRead) && use.row * bytes <= kMostBytes;
      if (!is_either || !fits || (bytes != 2 && bytes != 4)) return {};
      StagedTensor each = {.tensor = tensor, .row = use.row, .bytes = bytes, .is_stored = stored};
      for (size_t i = 0; stored && each.instead_of < 0 && i < staged.size(); ++i) {
        const auto has_it = [&](const StagedTensor& other) { return other.instead_of == static_cast<int>(i); };
        if (!staged[i].is_stored && staged[i].bytes == bytes && staged[i].row == use.row &&
            std::ranges::none_of(staged, has_it) && IsInsteadOf(uses.at(staged[i].tensor), use))
          each.instead_of = static_cast<int>(i);
      }
      if (each.instead_of < 0) all += (width * use.row * bytes + 15) / 16 * 16;
      staged.push_back(each);
    }
  }
  return all <= bytes_max ? staged : std::vector<StagedTensor>();
}

void BeginStaging(Emitter& em, std::span<const StagedTensor> staged, const std::string& rows, int width, int threads) {
  em.code.Line("const ix first = (ix)unit * ", width, ";");
  em.code.Line("const int some = (int)mini<ix>(", width, ", ", rows, " - first);");
  for (const StagedTensor& each : staged) {
    const std::string name = NameOf(staged, each),
                      base = Cat(em.arguments.AddressOf(each.tensor), " + first * ", each.row);
    em.conditions.RequireAligned(each.tensor, 16);
    if (each.instead_of < 0) em.code.Line("SHARED uint4 ", name, "[", (width * each.row * each.bytes + 15) / 16, "];");
    if (!each.is_stored)
      em.code.Line("copy_in<", threads, ", ", each.bytes, ">(", name, ", ", base, ", some * ", each.row, ");");
  }
  em.code.Line("copies_end();\ncopies_wait<0>();\nsync();");
  for (const StagedTensor& each : staged) {
    const DType dtype = em.arguments.tensor(each.tensor).dtype;
    const std::string own = Cat("own", each.tensor);
    em.code.Line(MemoryText(dtype), "* const ", own, " = (", MemoryText(dtype), "*)", NameOf(staged, each),
                 " - first * ", each.row, ";");
    em.arguments.SetAddress(each.tensor, own);
  }
}

void EndStaging(Emitter& em, std::span<const StagedTensor> staged, int threads) {
  const bool stores = std::ranges::any_of(staged, &StagedTensor::is_stored);
  if (stores) em.code.Line("sync();");
  for (const StagedTensor& each : staged) {
    em.arguments.SetAddress(each.tensor, {});
    if (!each.is_stored) continue;
    em.code.Line("copy_out<", threads, ", ", each.bytes, ">(", em.arguments.AddressOf(each.tensor), " + first * ",
                 each.row, ", ", NameOf(staged, each), ", some * ", each.row, ");");
  }
}

}  // namespace hir::codegen::gpu
