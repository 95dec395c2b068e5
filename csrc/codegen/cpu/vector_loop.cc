// The innermost loops: vectors, their remainders, and ranges in which conditions on indices are decided.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>

#include "csrc/base/checked.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {

namespace {
constexpr size_t kCutsMax = 10;  // Copies of a loop for ranges in which conditions are decided.
}  // namespace

int Emitter::LanesFor(const Loop& loop) const {
  const int most = target_.vector_bytes / 4;
  const ir::Expr* begin = loop.begin;
  if (!begin->IsConst(0) || !loop.end->IsConst()) return most;
  const int64_t trips = std::max<int64_t>(loop.end->value, 1);
  return trips >= most ? most : static_cast<int>(std::bit_ceil(static_cast<uint64_t>(trips)));
}

void Emitter::EmitVectorLoop(const Loop& loop, const Phase& phase, int lanes, int copies,
                             const std::function<void(int copy)>& body) {
  const ir::Expr* first = pool_.Import(loop.begin);
  const ir::Expr* last = pool_.Import(loop.end);
  const std::vector<int64_t> cuts = CutsOf(phase, loop, lanes);
  if (cuts.size() <= 2) {
    EmitVectors(loop.variable, first, last, lanes, copies, body);
    return;
  }
  // Between two cuts every condition is decided by the range.
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    math_.ResetRange(loop.variable, pool_.Const(cuts[i]), pool_.Const(cuts[i + 1] - 1));
    epoch_ = num_epochs_++;
    element_variables_.clear();
    EmitVectors(loop.variable, pool_.Const(cuts[i]), pool_.Const(cuts[i + 1]), lanes, copies, body);
  }
  math_.ResetRange(loop.variable, first, pool_.Sub(last, pool_.Const(1)));
  epoch_ = 0;
  element_variables_.clear();
}

std::vector<int64_t> Emitter::CutsOf(const Phase& phase, const Loop& loop, int lanes) {
  if (!loop.begin->IsConst(0) || !loop.end->IsConst()) return {};
  const int64_t trips = loop.end->value;
  std::set<int64_t> cuts = {0, trips};
  std::unordered_map<const Element*, bool> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!seen.emplace(e, true).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind != Element::Kind::kPrim || e->dtype != DType::kBool || !math_.IsIndexCondition(e) ||
        e->args.size() != 2)
      return;
    const ir::Expr* a = math_.ToExpr(e->args[0]);
    const ir::Expr* b = math_.ToExpr(e->args[1]);
    if (a == nullptr || b == nullptr) return;  // Of conditions.
    const auto affine = math_.Split(pool_.Sub(a, b), loop.variable);
    if (!affine || !affine->base->IsConst() || !affine->stride->IsConst() ||
        affine->stride->value == 0)
      return;
    const int64_t stride = affine->stride->value;
    const int64_t root =
        base::FloorDiv(stride > 0 ? -affine->base->value : affine->base->value, std::abs(stride));
    for (const int64_t cut :
         {root, root + 1}) {  // The sign changes at one of them, or both for equality.
      if (cut <= 0 || cut >= trips) continue;
      cuts.insert(cut / lanes * lanes);
      cuts.insert(std::min(trips, (cut + lanes - 1) / lanes * lanes));
    }
  };
  for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
  for (const Store& store : phase.stores) visit(visit, store.value);
  if (cuts.size() > kCutsMax) return {};
  return {cuts.begin(), cuts.end()};
}

void Emitter::EmitVectors(int variable, const ir::Expr* first, const ir::Expr* last, int lanes,
                          int copies, const std::function<void(int copy)>& body) {
  const ir::Expr* trips = pool_.Sub(last, first);
  if (trips->IsConst())
    copies = static_cast<int>(std::clamp<int64_t>(trips->value / lanes, 1, copies));
  const int64_t step = int64_t{lanes} * copies;
  const V begin = EmitExpr(first);
  const V end = EmitExpr(last);
  const bool whole = pool_.Mod(trips, pool_.Const(step))->IsConst(0);
  const bool whole_vectors = pool_.Mod(trips, pool_.Const(lanes))->IsConst(0);
  V middle = end;
  if (!whole && trips->IsConst()) {
    middle =
        EmitExpr(pool_.Add(first, pool_.Const(std::max<int64_t>(trips->value, 0) / step * step)));
  } else if (!whole) {
    std::string& code = Here();
    const V left = writer_.Intrinsic(
        code, "smax", {writer_.Binary(code, "sub", end, begin), IntConstant(Ty::kI64, 0)});
    const V rest = writer_.Binary(code, "urem", left, IntConstant(Ty::kI64, step));
    middle = writer_.Binary(code, "add", begin, writer_.Binary(code, "sub", left, rest));
  }
  const auto enter = [&](const V& at, int copy, bool masked) {
    variable_level_[static_cast<size_t>(variable)] = static_cast<int>(levels_.size()) - 1;
    levels_.back().body_memo.clear();
    lanes_ = {variable, lanes, at, false, {}};
    if (copy > 0)
      lanes_.first =
          writer_.Binary(Here(), "add", at, IntConstant(Ty::kI64, int64_t{copy} * lanes));
    if (!masked) return;
    const V index =
        writer_.Binary(Here(), "add", writer_.Splat(Here(), at, lanes), writer_.Iota(lanes));
    lanes_.mask = writer_.Compare(Here(), "slt", index, writer_.Splat(Here(), end, lanes));
    lanes_.masked = true;
  };
  EmitLoop(begin, middle, step, [&](const V& at) {
    for (int copy = 0; copy < copies; ++copy) {
      enter(at, copy, false);
      body(copy);
    }
  });
  if (!whole) {
    EmitLoop(middle, end, lanes, [&](const V& at) {
      enter(at, 0, lanes > 1 && !whole_vectors);
      body(0);
    });
  }
  lanes_ = {};
}

}  // namespace hir::codegen::cpu
