#include "csrc/fusion/interpret/lanes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "csrc/base/text.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

constexpr size_t kLanes = 256;

// One element's values at up to kLanes indices. `poison`: the value stands for a read outside a tensor.
struct Lane {
  std::vector<double> f;
  std::vector<int64_t> i;
  std::vector<uint8_t> poison;
  bool any_poison = false;
};

class Evaluator {
 public:
  Evaluator(const Element* root, const SymbolValues& symbols, const ArrayOf& array_of)
      : root_(root), symbols_(symbols), array_of_(array_of) {}

  Status Run(Array& result) {
    Collect(root_);
    HIR_TRY(EvaluateConstants());
    const int64_t total = result.num_elements();
    for (int64_t begin = 0; begin < total; begin += static_cast<int64_t>(kLanes)) {
      width_ = static_cast<size_t>(std::min(total - begin, static_cast<int64_t>(kLanes)));
      SetIndices(result.shape, begin);
      for (const Element* e : Scope({})) HIR_TRY(EvaluateOne(e));
      HIR_TRY(Store(result, begin));
    }
    return {};
  }

 private:
  using Variables = std::set<int64_t>;

  Lane& LaneOf(const Element* e) { return lanes_[static_cast<size_t>(e->id)]; }

  // Elements in order of their ids, with the reduction variables each depends on.
  void Collect(const Element* root) {
    std::vector<const Element*> pending = {root};
    while (!pending.empty()) {
      const Element* e = pending.back();
      pending.pop_back();
      if (!free_.emplace(e->id, Variables{}).second) continue;
      elements_.emplace(e->id, e);
      for (const Element* arg : e->args) pending.push_back(arg);
    }
    lanes_.resize(static_cast<size_t>(root->id) + 1);
    for (const auto& [id, e] : elements_) {
      Variables& free = free_[id];
      if (e->kind == Element::Kind::kReduceIndex) free.insert(e->integer);
      for (const Element* arg : e->args) free.insert(free_[arg->id].begin(), free_[arg->id].end());
      if (e->kind == Element::Kind::kReduce) {
        for (size_t k = 0; k < e->extents.size(); ++k) free.erase(e->integer + static_cast<int64_t>(k));
      }
      Lane& lane = LaneOf(e);
      (IsFloat(e->dtype) ? lane.f.resize(kLanes) : lane.i.resize(kLanes));
    }
  }

  // What to evaluate, in order, once the innermost of the loops over `bound` steps: all that depends on its last member
  // but on no variable outside; without loops, all that depends on none. Constants are done before.
  const std::vector<const Element*>& Scope(const Variables& bound, const Variables& innermost = {}) {
    const auto [found, is_new] = scopes_.try_emplace(bound);
    if (!is_new) return found->second;
    for (const auto& [id, e] : elements_) {
      if (e->kind == Element::Kind::kInt || e->kind == Element::Kind::kFloat || e->kind == Element::Kind::kExtent ||
          e->kind == Element::Kind::kScalar || e->kind == Element::Kind::kIndex) {
        continue;
      }
      const Variables& free = free_[id];
      const bool inside = std::ranges::includes(bound, free);
      const bool steps =
          innermost.empty() || std::ranges::any_of(free, [&](int64_t v) { return innermost.contains(v); });
      if (inside && steps) found->second.push_back(e);
    }
    return found->second;
  }

  Status EvaluateConstants() {
    for (const auto& [id, e] : elements_) {
      Lane& lane = LaneOf(e);
      switch (e->kind) {
        case Element::Kind::kInt: std::ranges::fill(lane.i, e->integer); break;
        case Element::Kind::kFloat: std::ranges::fill(lane.f, e->number); break;
        case Element::Kind::kExtent: {
          HIR_ASSIGN(const int64_t value, ValueOf(e->extent, symbols_));
          std::ranges::fill(lane.i, value);
          break;
        }
        case Element::Kind::kScalar: {
          const Array& array = array_of_(e->value);
          if (IsFloat(e->dtype)) std::ranges::fill(lane.f, array.floats[0]);
          if (!IsFloat(e->dtype)) std::ranges::fill(lane.i, array.ints[0]);
          break;
        }
        case Element::Kind::kReduce:
          for (const ir::Expr* extent : e->extents) {
            HIR_ASSIGN(trips_[id].emplace_back(), ValueOf(extent, symbols_));
          }
          break;
        case Element::Kind::kIndex:
        case Element::Kind::kLoad:
        case Element::Kind::kConvert:
        case Element::Kind::kPrim:
        case Element::Kind::kReduceIndex: break;
      }
    }
    return {};
  }

  void SetIndices(const std::vector<int64_t>& shape, int64_t begin) {
    for (const auto& [id, e] : elements_) {
      if (e->kind != Element::Kind::kIndex) continue;
      int64_t stride = 1;
      for (size_t k = shape.size(); k-- > static_cast<size_t>(e->integer) + 1;) stride *= shape[k];
      const int64_t extent = shape[static_cast<size_t>(e->integer)];
      for (size_t n = 0; n < width_; ++n) LaneOf(e).i[n] = (begin + static_cast<int64_t>(n)) / stride % extent;
    }
  }

  Status EvaluateOne(const Element* e) {
    Lane& lane = LaneOf(e);
    if (e->kind == Element::Kind::kReduce) return EvaluateReduce(e, lane);
    if (e->kind == Element::Kind::kReduceIndex) {
      std::fill_n(lane.i.begin(), width_, variables_.at(e->integer));
      return {};
    }
    lane.any_poison = false;
    for (const Element* arg : e->args) lane.any_poison |= LaneOf(arg).any_poison;
    if (lane.any_poison) SpreadPoison(e, lane);
    if (e->kind == Element::Kind::kLoad) EvaluateLoad(e, lane);
    if (e->kind == Element::Kind::kConvert) EvaluateConvert(e, lane);
    if (e->kind == Element::Kind::kPrim) EvaluatePrim(e, lane);
    return {};
  }

  void SpreadPoison(const Element* e, Lane& lane) {
    lane.poison.assign(kLanes, 0);
    const bool select = e->kind == Element::Kind::kPrim && e->prim == Prim::kSelect;
    const std::vector<int64_t>* chosen = select ? &LaneOf(e->args[0]).i : nullptr;
    for (size_t k = 0; k < e->args.size(); ++k) {
      const Lane& arg = LaneOf(e->args[k]);
      if (!arg.any_poison) continue;
      for (size_t n = 0; n < width_; ++n) {
        const bool used = !select || k == 0 || ((*chosen)[n] != 0) == (k == 1);
        if (used) lane.poison[n] |= arg.poison[n];
      }
    }
  }

  void EvaluateLoad(const Element* e, Lane& lane) {
    const Array& array = array_of_(e->value);
    HIR_CHECK(array.shape.size() == e->args.size());
    int64_t at[kLanes] = {};
    bool out[kLanes] = {};
    for (size_t k = 0; k < e->args.size(); ++k) {
      const std::vector<int64_t>& index = LaneOf(e->args[k]).i;
      for (size_t n = 0; n < width_; ++n) {
        out[n] |= index[n] < 0 || index[n] >= array.shape[k];
        at[n] = out[n] ? 0 : at[n] * array.shape[k] + index[n];
      }
    }
    for (size_t n = 0; n < width_; ++n) {
      const bool outside = out[n];
      if (outside) {
        if (!lane.any_poison) lane.poison.assign(kLanes, 0);
        lane.any_poison = true;
        lane.poison[n] = 1;
      }
      if (IsFloat(e->dtype)) lane.f[n] = outside ? 0 : array.floats[static_cast<size_t>(at[n])];
      if (!IsFloat(e->dtype)) lane.i[n] = outside ? 0 : array.ints[static_cast<size_t>(at[n])];
    }
  }

  void EvaluateConvert(const Element* e, Lane& lane) {
    const Lane& x = LaneOf(e->args[0]);
    const bool from_float = IsFloat(e->args[0]->dtype);
    for (size_t n = 0; n < width_; ++n) {
      if (IsFloat(e->dtype)) {
        lane.f[n] = from_float ? RoundTo(e->dtype, x.f[n]) : IntToFloat(e->dtype, x.i[n]);
      } else if (from_float) {
        lane.i[n] = FloatToInt(e->dtype, x.f[n]);
      } else {
        lane.i[n] = e->dtype == DType::kBool ? x.i[n] != 0 : Wrap(e->dtype, x.i[n]);
      }
    }
  }

  void EvaluatePrim(const Element* e, Lane& lane) {
    const Lane& x = LaneOf(e->args[0]);
    const Lane& y = LaneOf(e->args.back());
    if (e->prim == Prim::kSelect) {
      const Lane& yes = LaneOf(e->args[1]);
      for (size_t n = 0; n < width_; ++n) {
        if (IsFloat(e->dtype)) lane.f[n] = x.i[n] != 0 ? yes.f[n] : y.f[n];
        if (!IsFloat(e->dtype)) lane.i[n] = x.i[n] != 0 ? yes.i[n] : y.i[n];
      }
      return;
    }
    if (!IsFloat(e->args[0]->dtype)) {
      const IntFn function = IntFunction(e->prim);
      HIR_CHECK(function != nullptr);
      for (size_t n = 0; n < width_; ++n) lane.i[n] = Wrap(e->dtype, function(x.i[n], y.i[n]));
    } else if (const FloatTestFn test = FloatTest(e->prim)) {
      for (size_t n = 0; n < width_; ++n) lane.i[n] = test(x.f[n], y.f[n]);
    } else {
      const FloatFn function = FloatFunction(e->prim, e->dtype);
      HIR_CHECK(function != nullptr);
      for (size_t n = 0; n < width_; ++n) lane.f[n] = function(x.f[n], y.f[n]);
    }
  }

  static void SetNeutral(const Element* e, Lane& lane) {
    if (IsFloat(e->dtype)) std::ranges::fill(lane.f, InfoOf(e->reduce).neutral);
    if (!IsFloat(e->dtype)) std::ranges::fill(lane.i, IntNeutral(e->reduce, e->dtype));
    lane.any_poison = false;
  }

  Status EvaluateReduce(const Element* e, Lane& lane) {
    Variables own;
    for (size_t k = 0; k < e->extents.size(); ++k) own.insert(e->integer + static_cast<int64_t>(k));
    Variables bound = own;
    for (const auto& [variable, value] : variables_) bound.insert(variable);
    const std::vector<const Element*>& body = Scope(bound, own);
    const std::vector<int64_t>& trips = trips_.at(e->id);
    int64_t steps = 1;
    for (const int64_t trip : trips) steps *= trip;
    SetNeutral(e, lane);
    for (int64_t step = 0; step < steps; ++step) {
      int64_t rest = step;
      for (size_t k = trips.size(); k-- > 0; rest /= trips[k])
        variables_[e->integer + static_cast<int64_t>(k)] = rest % trips[k];
      for (const Element* inner : body) HIR_TRY(EvaluateOne(inner));
      Accumulate(e, lane);
    }
    for (const int64_t variable : own) variables_.erase(variable);
    return {};
  }

  void Accumulate(const Element* e, Lane& lane) {
    const Lane& x = LaneOf(e->args[0]);
    if (x.any_poison) {
      if (!lane.any_poison) lane.poison.assign(kLanes, 0);
      lane.any_poison = true;
      for (size_t n = 0; n < width_; ++n) lane.poison[n] |= x.poison[n];
    }
    const Prim prim = InfoOf(e->reduce).combine;
    if (IsFloat(e->dtype) && prim == Prim::kAdd) {  // Most of all reductions.
      for (size_t n = 0; n < width_; ++n) lane.f[n] += x.f[n];
    } else if (IsFloat(e->dtype)) {
      const FloatFn function = FloatFunction(prim, e->dtype);
      for (size_t n = 0; n < width_; ++n) lane.f[n] = function(lane.f[n], x.f[n]);
    } else {
      const IntFn function = IntFunction(prim);
      for (size_t n = 0; n < width_; ++n) lane.i[n] = Wrap(e->dtype, function(lane.i[n], x.i[n]));
    }
  }

  Status Store(Array& result, int64_t begin) {
    const Lane& lane = LaneOf(root_);
    for (size_t n = 0; n < width_; ++n) {
      const size_t at = static_cast<size_t>(begin) + n;
      if (lane.any_poison && lane.poison[n] != 0) {
        return Internal(base::Cat("element ", at, " reads outside a tensor"));
      }
      if (IsFloat(result.dtype)) result.floats[at] = RoundTo(result.dtype, lane.f[n]);
      if (!IsFloat(result.dtype)) result.ints[at] = lane.i[n];
    }
    return {};
  }

  const Element* const root_;
  const SymbolValues& symbols_;
  const ArrayOf& array_of_;
  size_t width_ = 0;                           // Lanes in use.
  std::map<int, const Element*> elements_;     // By id: operands before users.
  std::map<int, Variables> free_;              // Reduction variables that an element depends on.
  std::vector<Lane> lanes_;                    // By id.
  std::map<int, std::vector<int64_t>> trips_;  // Of each kReduce.
  std::map<int64_t, int64_t> variables_;       // Reduction variables of the loops we are in.
  std::map<Variables, std::vector<const Element*>> scopes_;
};

}  // namespace

Array::Array(DType dtype_in, std::vector<int64_t> shape_in) : dtype(dtype_in), shape(std::move(shape_in)) {
  const auto count = static_cast<size_t>(num_elements());
  (IsFloat(dtype) ? floats.resize(count) : ints.resize(count));
}

Array::Array(const HostTensor& tensor) : dtype(tensor.dtype), shape(tensor.shape) {
  if (IsFloat(dtype)) floats = ToDoubles(tensor);
  if (!IsFloat(dtype)) ints = ToInts(tensor);
}

HostTensor Array::ToTensor() const {
  return IsFloat(dtype) ? TensorOf(dtype, shape, floats) : TensorOfInts(dtype, shape, ints);
}

int64_t Array::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Status Evaluate(const Element* root, const SymbolValues& symbols, const ArrayOf& array_of, Array& result) {
  return Evaluator(root, symbols, array_of).Run(result);
}

}  // namespace hir::fusion
