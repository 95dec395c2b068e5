// Where elements lie, and loads: which are vectors, which are guarded, which are one of two.
#include <algorithm>

#include "csrc/codegen/gpu/emitter.h"
#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;
using fusion::Prim;

Emitter::Offset Emitter::OffsetOf(std::span<const Element* const> index, const Tensor& tensor, int guard) {
  Offset offset = {pool_.Const(0), {}, guard};
  for (size_t i = 0; i < index.size(); ++i) {
    if (tensor.strides[i]->IsConst(0)) continue;
    const ir::Expr* stride = Import(tensor.strides[i]);
    if (const ir::Expr* at = math_.ToExpr(index[i])) {
      offset.affine = pool_.Add(offset.affine, pool_.Mul(at, stride));
    } else {
      offset.data.emplace_back(index[i], stride);
    }
  }
  return offset;
}

Emitter::Offset Emitter::LoadOffset(const Element* load, int guard) {
  auto known = load_offsets_.find(load);
  if (known == load_offsets_.end()) {
    const Tensor& tensor = nest_.tensors[static_cast<size_t>(slots_.at(load->value))];
    known = load_offsets_.emplace(load, OffsetOf(load->args, tensor, 0)).first;
  }
  Offset offset = known->second;
  offset.guard = guard;
  return offset;
}

std::string Emitter::OffsetText(const Offset& offset, bool is_lane) {
  std::string text = ExprText(offset.affine, is_lane);
  for (const auto& [index, stride] : offset.data)
    Append(text, " + (ix)", ValueText(index, offset.guard), " * ", ExprText(stride, false));
  return text;
}

bool Emitter::IsVectorOffset(const Offset& offset, DType dtype, const std::string& pointer) {
  if (lanes_ <= 1 || vector_ < 0) return false;
  for (const auto& [index, stride] : offset.data) {
    // Nor one that each lane has of its own: a result of the columns that they are.
    const uint64_t vars = VarsOf(index);
    if (IsLane(vars) || (vars & kLaneBit) != 0 || !Divisible(stride, lanes_)) return false;
  }
  const auto split = math_.Split(offset.affine, vector_);
  if (!split || !split->stride->IsConst(1) || !Divisible(split->base, lanes_)) return false;
  const int64_t bytes = std::min<int64_t>(16, lanes_ * DTypeBytes(dtype));
  if (!probing_) Require(Cat("((u64)", pointer, " & ", bytes - 1, "u) == 0"));
  return true;
}

bool Emitter::IsVectorLoad(const Element* element, int guard) {
  const auto slot = slots_.find(element->value);
  if (slot == slots_.end() || accumulated_.contains(element->value)) return false;
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot->second)];
  const Offset offset = LoadOffset(element, guard);
  if (!IsLane(VarsOf(offset)) || !IsUniformGuard(guard)) return false;
  return IsVectorOffset(offset, tensor.dtype, Cat("a.t", slot->second));
}

std::string Emitter::LoadText(const Access& access, Reading reading) {
  const std::string bytes = Cat("<", BytesOf(access), ">(");
  const std::string load = Cat(reading == Reading::kLast    ? "lds"
                               : reading == Reading::kFirst ? "ldk"
                                                            : "ldv",
                               bytes, LoadAddress(access), ")");
  return access.guard == 0 ? load : Cat(GuardText(access.guard), " ? ", load, " : none", bytes, ")");
}

const ir::Expr* Emitter::OffsetOfLoad(const Access& access) {
  const Offset offset = LoadOffset(access.load, access.guard);
  return offset.data.empty() ? offset.affine : nullptr;
}

std::string Emitter::ScalarText(const Access& access) {
  return Cat("ld_", Suffix(access.load->dtype), "(", LoadAddress(access), ")");
}

std::string Emitter::LoadAddress(const Access& access) {
  const int slot = slots_.at(access.load->value);
  return Cat("a.t", slot, " + (", OffsetText(LoadOffset(access.load, access.guard), false), ")");
}

int Emitter::BytesOf(const Access& access) const { return lanes_ * static_cast<int>(DTypeBytes(access.load->dtype)); }

bool Emitter::Varies(const Access& access, std::span<const Loop> loops) {
  const uint64_t vars = VarsOf(LoadOffset(access.load, access.guard));
  return std::ranges::any_of(loops, [&](const Loop& loop) { return (vars & BitOf(loop.variable)) != 0; });
}

std::string Emitter::PackText(const Access& access) {
  if (const auto made = packs_.find({access.load, access.guard}); made != packs_.end()) return made->second;
  const size_t level = LevelOf(VarsOf(access.load) | VarsOf(access.guard), false);
  const Key key = {access.load, access.guard, false};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  return Named(key, level, Cat("Pk<", BytesOf(access), ">"), LoadText(access, Reading::kPlain));
}

std::string Emitter::LoadValue(const Element* element, int guard) {
  if (!slots_.contains(element->value)) {
    error_ = Internal("a kernel reads an accumulator before it is complete");
    return "0";
  }
  const int slot = slots_.at(element->value);
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(slot)];
  if (IsVectorLoad(element, guard)) return Cat("get_", Suffix(tensor.dtype), "(", PackText({element, guard}), ", e)");
  const Offset offset = LoadOffset(element, guard);
  const std::string load =
      Cat("ld_", Suffix(tensor.dtype), "(a.t", slot, " + (", OffsetText(offset, IsLane(VarsOf(offset))), "))");
  if (guard == 0) return load;
  return Cat("(", GuardText(guard), " ? ", load, " : 0)");
}

void Emitter::Visit(const Element* element, int guard, std::set<std::pair<const Element*, int>>& seen,
                    std::vector<Access>& found, int* misfits) {
  if (!element->has_load) return;
  if (!seen.insert({element, guard}).second) return;
  if (element->kind == Element::Kind::kLoad) {
    if (!slots_.contains(element->value) || accumulated_.contains(element->value)) return;
    for (const Element* arg : element->args) Visit(arg, guard, seen, found, misfits);
    if (IsVectorLoad(element, guard)) {
      found.push_back({element, guard});
    } else if (misfits != nullptr && IsLane(VarsOf(element) | VarsOf(guard))) {
      ++*misfits;
    }
    return;
  }
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect) {
    const Element* condition = element->args[0];
    if (const std::optional<bool> decided = math_.Decide(condition)) {
      Visit(element->args[*decided ? 1 : 2], guard, seen, found, misfits);
      return;
    }
    if (math_.GuardsSides(element)) {
      if (condition->has_load) Visit(condition, guard, seen, found, misfits);
      for (const bool holds : {true, false}) {
        const Element* side = element->args[holds ? 1 : 2];
        if (side->has_load) Visit(side, AddGuard(guard, condition, holds), seen, found, misfits);
      }
      return;
    }
  }
  for (const Element* arg : element->args) Visit(arg, guard, seen, found, misfits);
}

std::vector<Emitter::Access> Emitter::VectorLoads(const std::vector<const Element*>& roots) {
  std::vector<Access> found;
  std::set<std::pair<const Element*, int>> seen;
  for (const Element* root : roots) Visit(root, 0, seen, found, nullptr);
  return found;
}

int Emitter::Misfits(const Region& region) {
  probing_ = true;
  int misfits = 0;
  std::vector<Access> found;
  std::set<std::pair<const Element*, int>> seen;
  const auto loop = [&](const Loop& l) {
    if (l.variable != vector_) return;
    const ir::Expr* begin = Import(l.begin);
    const bool ends = is_ragged_ || Divisible(pool_.Sub(Import(l.end), begin), lanes_);
    if (!Divisible(begin, lanes_) || !ends) misfits += 1000;
  };
  for (const Loop& l : region.grid) loop(l);
  for (const Loop& l : region.serial) loop(l);
  for (const Phase& phase : region.phases) {
    for (const Loop& l : phase.loops) loop(l);
    for (const Accumulator& accumulator : phase.accumulators) Visit(accumulator.body, 0, seen, found, &misfits);
    for (const Carried& carried : phase.carried) Visit(carried.accumulator.body, 0, seen, found, &misfits);
    for (const Store& store : phase.stores) {
      Visit(store.value, 0, seen, found, &misfits);
      const Tensor& tensor = nest_.tensors[static_cast<size_t>(store.tensor)];
      const Offset offset = OffsetOf(store.index, tensor, 0);
      if (IsLane(VarsOf(offset)) && !IsVectorOffset(offset, tensor.dtype, {})) misfits += 2;
    }
  }
  probing_ = false;
  return misfits;
}

// Vectors of which a uniform condition allows one or the other: one load from the address that it chooses.
void Emitter::PairLoads(const Element* select, int guard) {
  const Element* condition = select->args[0];
  if (lanes_ <= 1 || !IsUniform(condition)) return;
  std::vector<Access> sides[2];
  int guards[2];
  for (const int side : {0, 1}) {
    guards[side] = AddGuard(guard, condition, side == 0);
    std::set<std::pair<const Element*, int>> seen;
    std::vector<Access> found;
    Visit(select->args[static_cast<size_t>(side + 1)], guards[side], seen, found, nullptr);
    for (const Access& access : found) {
      if (access.guard == guards[side] && !packs_.contains({access.load, access.guard})) sides[side].push_back(access);
    }
  }
  const auto level_of = [&](const Access& access) {
    return LevelOf(VarsOf(access.load) | VarsOf(access.guard), false);
  };
  for (size_t k = 0; k < std::min(sides[0].size(), sides[1].size()); ++k) {
    const Access& yes = sides[0][k];
    const Access& no = sides[1][k];
    const size_t level = level_of(yes);
    const Key key = {yes.load, yes.guard, false}, other = {no.load, no.guard, false};
    auto& memo = levels_[level].memo;
    if (yes.load->dtype != no.load->dtype || level != level_of(no) || memo.contains(key) || memo.contains(other))
      continue;
    const std::string bytes = Cat("<", BytesOf(yes), ">(");
    const std::string load =
        Cat("ldv", bytes, ConditionText(condition), " ? ", LoadAddress(yes), " : ", LoadAddress(no), ")");
    memo[other] = Named(key, level, Cat("Pk<", BytesOf(yes), ">"),
                        guard == 0 ? load : Cat(GuardText(guard), " ? ", load, " : none", bytes, ")"));
  }
}

void Emitter::VisitScalars(const Element* element, std::span<const Loop> rows, std::span<const Loop> columns,
                           std::set<const Element*>& seen, std::vector<Access>& found) {
  if (!element->has_load || !seen.insert(element).second) return;
  const auto depends = [&](std::span<const Loop> loops) {
    const uint64_t vars = VarsOf(element);
    return std::ranges::any_of(loops, [&](const Loop& loop) { return (vars & BitOf(loop.variable)) != 0; });
  };
  if (element->kind == Element::Kind::kLoad) {
    if (slots_.contains(element->value) && !accumulated_.contains(element->value) && depends(rows) &&
        !depends(columns) && math_.ToExpr(element) == nullptr &&
        std::ranges::none_of(element->args, [&](const Element* arg) { return arg->has_load; }))
      found.push_back({element, 0});
    return;
  }
  // What a condition may forbid is not looked at.
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect && math_.GuardsSides(element)) return;
  for (const Element* arg : element->args) VisitScalars(arg, rows, columns, seen, found);
}

std::vector<Emitter::Access> Emitter::ScalarLoads(const std::vector<const Element*>& roots, std::span<const Loop> rows,
                                                  std::span<const Loop> columns) {
  std::vector<Access> found;
  std::set<const Element*> seen;
  for (const Element* root : roots) VisitScalars(root, rows, columns, seen, found);
  return found;
}

}  // namespace hir::codegen::gpu
