#include "csrc/codegen/nest_builder.h"

#include <algorithm>
#include <set>

#include "csrc/base/text.h"

namespace hir::codegen {

using base::Cat;

NestBuilder::NestBuilder(const segment::GroupView& group, const AxisClasses& classes, const Structure& structure,
                         const Target& target, const Sizes& sizes, const Strides& strides)
    : group_(group),
      classes_(classes),
      structure_(structure),
      target_(target),
      strides_(strides),
      facts_(sizes, nest_->exprs) {
  for (const ir::Op* op : group.ops) {
    for (const ir::Value* result : op->results) makers_[result] = op;
  }
  for (const Reduction& reduction : structure.reductions) reductions_[reduction.op] = &reduction;
  nest_->elements.set_load([this](const ir::Value* value, std::span<const Element* const> index) {
    if (raw_loads_) return nest_->elements.MakeLoad(value, index);
    return Inline(value, {index.begin(), index.end()});
  });
}

int NestBuilder::Variable(int axis_class) {
  const auto [at, added] = variables_.try_emplace(axis_class, nest_->num_variables);
  if (added) ++nest_->num_variables;
  return at->second;
}

Loop NestBuilder::LoopOver(int axis_class) {
  ir::ExprPool& pool = nest_->exprs;
  return {Variable(axis_class), pool.Const(0), pool.Import(classes_.Extent(axis_class))};
}

void NestBuilder::StartRegion() {
  variables_.clear();
  inlined_.clear();
  accumulators_.clear();
}

std::vector<const fusion::Element*> NestBuilder::CanonicalIndex(const ir::Value* value) {
  std::vector<const Element*> index;
  for (const int axis : classes_.Of(value)) {
    index.push_back(axis < 0 ? nest_->elements.Int(DType::kInt64, 0) : nest_->elements.Index(Variable(axis)));
  }
  return index;
}

const fusion::Element* NestBuilder::Inline(const ir::Value* value, std::vector<const Element*> index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (IsSingle(axes[i])) index[i] = nest_->elements.Int(DType::kInt64, 0);
  }
  const auto maker = makers_.find(value);
  if (maker == makers_.end()) return nest_->elements.MakeLoad(value, index);
  const auto key = std::make_pair(value, std::move(index));
  const auto known = inlined_.find(key);
  if (known != inlined_.end()) return known->second;
  const auto reduction = reductions_.find(maker->second);
  const Element* element = reduction == reductions_.end()
                               ? fusion::Define(nest_->elements, *maker->second, value->index, key.second)
                               : DefineReduction(*reduction->second, key.second);
  inlined_[key] = element;
  return element;
}

// The op's definition, with its kReduce replaced by the result of an accumulator over the classes' variables.
const fusion::Element* NestBuilder::DefineReduction(const Reduction& reduction,
                                                    const std::vector<const Element*>& index) {
  fusion::ElementBuilder& builder = nest_->elements;
  const ir::Value* result = reduction.op->results[0];
  if (index != CanonicalIndex(result)) {
    error_ = Internal(Cat("%", result->name, " is read at another index than it is reduced at"));
    return builder.MakeLoad(result, index);
  }
  raw_loads_ = true;
  const Element* defined = fusion::Define(builder, *reduction.op, 0, index);
  raw_loads_ = false;
  int number = 0;
  return Rewrite(defined, [&](const Element* e) -> const Element* {
    if (e->kind != Element::Kind::kReduce) return nullptr;
    if (e->extents.size() != reduction.reduced.size()) {
      error_ = Internal(Cat("%", result->name, " reduces other axes than its operand's"));
      return e->args[0];
    }
    const ir::Value* total = MakeValue(e->dtype, ir::ValueAxes(*result->type));
    const Element* body = Rewrite(e->args[0], [&](const Element* part) -> const Element* {
      if (part->kind == Element::Kind::kReduceIndex) {
        return builder.Index(Variable(reduction.reduced[static_cast<size_t>(part->integer - e->integer)]));
      }
      if (part->kind != Element::Kind::kLoad) return nullptr;
      return Inline(part->value, CanonicalIndex(part->value));
    });
    accumulators_[reduction.phase].push_back({total, e->reduce, e->dtype, body});
    row_index_[total] = index;
    sources_[total] = {&reduction, number++};
    return builder.MakeLoad(total, index);
  });
}

const ir::Value* NestBuilder::MakeValue(DType dtype, std::vector<ir::Axis> axes, std::string_view name) {
  const std::vector<ir::Axis>& kept = nest_->axes.emplace_back(std::move(axes));
  const ir::Type& type = nest_->types.emplace_back(ir::Type{.dtype = dtype, .axes = kept});
  return &nest_->values.emplace_back(ir::Value{.name = name, .type = &type});
}

int NestBuilder::AddTensor(Tensor::Role role, const ir::Value* value) {
  std::vector<Tensor>& tensors = nest_->tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].value == value && tensors[i].role == role) return static_cast<int>(i);
  }
  tensors.push_back({role, value, value->type->dtype, StridesOf(*value)});
  return static_cast<int>(tensors.size()) - 1;
}

namespace {

// Every element below `roots`, operands before users.
std::vector<const fusion::Element*> AllElements(const std::vector<const fusion::Element*>& roots) {
  std::vector<const fusion::Element*> order;
  std::set<const fusion::Element*> seen;
  std::vector<std::pair<const fusion::Element*, size_t>> open;
  for (const fusion::Element* root : roots) {
    if (!seen.insert(root).second) continue;
    open.emplace_back(root, 0);
    while (!open.empty()) {
      auto& [element, next] = open.back();
      if (next == element->args.size()) {
        order.push_back(element);
        open.pop_back();
        continue;
      }
      const fusion::Element* arg = element->args[next++];
      if (seen.insert(arg).second) open.emplace_back(arg, 0);
    }
  }
  return order;
}

std::vector<const fusion::Element*> RootsOf(const LoopNest& nest) {
  std::vector<const fusion::Element*> roots;
  const auto add = [&](const Store& store) {
    roots.insert(roots.end(), store.index.begin(), store.index.end());
    roots.push_back(store.value);
  };
  for (const Region& region : nest.regions) {
    for (const Phase& phase : region.phases) {
      for (const Accumulator& accumulator : phase.accumulators) roots.push_back(accumulator.body);
      for (const Carried& carried : phase.carried) {
        roots.insert(roots.end(), carried.index.begin(), carried.index.end());
        roots.push_back(carried.accumulator.body);
      }
      for (const Nested& nested : phase.nested) {
        roots.insert(roots.end(), nested.index.begin(), nested.index.end());
        roots.push_back(nested.accumulator.body);
      }
      for (const Store& store : phase.stores) add(store);
    }
    for (const Store& store : region.ahead.stores) add(store);
  }
  return roots;
}

}  // namespace

bool NestBuilder::Reads(const Element* element, const std::set<const ir::Value*>& values) const {
  return std::ranges::any_of(AllElements({element}), [&](const Element* e) {
    return e->kind == Element::Kind::kLoad && values.contains(e->value);
  });
}

namespace {

// Symbols of the extents of all loops.
void CollectSymbolsOfLoops(const LoopNest& nest, std::vector<std::string_view>& symbols) {
  for (const Region& region : nest.regions) {
    for (const Phase& phase : region.phases) {
      for (const Loop& loop : phase.loops)
        ir::CollectSymbols(loop.begin, symbols), ir::CollectSymbols(loop.end, symbols);
    }
    for (const Loop& loop : region.grid) ir::CollectSymbols(loop.end, symbols);
    for (const Loop& loop : region.serial) {
      ir::CollectSymbols(loop.begin, symbols), ir::CollectSymbols(loop.end, symbols);
      if (loop.step != nullptr) ir::CollectSymbols(loop.step, symbols);
    }
    if (region.columns) ir::CollectSymbols(region.columns->end, symbols);
  }
}

// Inputs, outputs, workspaces, in place of the last two, which stores know by their old numbers. An output that no
// store writes is another launch's.
void OrderTensors(LoopNest& nest, std::vector<Tensor> inputs) {
  std::set<int> stored;
  for (const Region& region : nest.regions) {
    for (const Phase& phase : region.phases) {
      for (const Store& store : phase.stores) stored.insert(store.tensor);
    }
  }
  std::vector<Tensor> ordered = std::move(inputs);
  std::vector<int> numbers(nest.tensors.size());
  for (const Tensor::Role role : {Tensor::Role::kInput, Tensor::Role::kOutput, Tensor::Role::kWorkspace}) {
    for (size_t i = 0; i < nest.tensors.size(); ++i) {
      if (nest.tensors[i].role != role) continue;
      if (role == Tensor::Role::kOutput && !stored.contains(static_cast<int>(i))) continue;
      numbers[i] = static_cast<int>(ordered.size());
      ordered.push_back(nest.tensors[i]);
    }
  }
  nest.tensors = std::move(ordered);
  for (Region& region : nest.regions) {
    for (Phase& phase : region.phases) {
      for (Store& store : phase.stores) store.tensor = numbers[static_cast<size_t>(store.tensor)];
      for (Carried& carried : phase.carried) carried.tensor = numbers[static_cast<size_t>(carried.tensor)];
      for (Nested& nested : phase.nested) nested.tensor = numbers[static_cast<size_t>(nested.tensor)];
    }
    for (Store& store : region.ahead.stores) store.tensor = numbers[static_cast<size_t>(store.tensor)];
  }
}

}  // namespace

Result<std::pair<Launch, std::shared_ptr<const LoopNest>>> NestBuilder::Finish() {
  HIR_TRY(error_);
  std::vector<std::string_view> symbols;
  CollectSymbolsOfLoops(*nest_, symbols);
  std::set<const ir::Value*> accumulated, loaded, scalars;
  for (const Region& region : nest_->regions) {
    for (const Phase& phase : region.phases) {
      for (const Accumulator& accumulator : phase.accumulators) accumulated.insert(accumulator.value);
    }
  }
  for (const Element* element : AllElements(RootsOf(*nest_))) {
    if (element->kind == Element::Kind::kLoad && !accumulated.contains(element->value)) loaded.insert(element->value);
    if (element->kind == Element::Kind::kExtent) ir::CollectSymbols(element->extent, symbols);
    if (element->kind == Element::Kind::kScalar && scalars.insert(element->value).second) {
      nest_->scalars.push_back(element->value);
    }
  }
  std::vector<Tensor> inputs;
  for (const ir::Value* value : group_.inputs) {
    if (!loaded.erase(value)) continue;
    inputs.push_back({Tensor::Role::kInput, value, value->type->dtype, StridesOf(*value)});
  }
  for (const Tensor& tensor : nest_->tensors) loaded.erase(tensor.value);
  if (!loaded.empty())
    return Internal(Cat("a kernel reads %", (*loaded.begin())->name, ", which is no input of its group"));
  OrderTensors(*nest_, std::move(inputs));
  Launch launch;
  for (const Tensor& tensor : nest_->tensors) {
    for (const ir::Expr* stride : tensor.strides) ir::CollectSymbols(stride, symbols);
    if (tensor.role == Tensor::Role::kInput) launch.inputs.push_back(tensor.value);
    if (tensor.role == Tensor::Role::kOutput) launch.outputs.push_back(tensor.value);
  }
  for (std::string_view symbol : symbols) {
    if (VariableOf(symbol) >= 0) continue;
    launch.extents.push_back(nest_->exprs.Symbol(symbol));
    if (std::ranges::find(nest_->symbols, launch.extents.back()->symbol) != nest_->symbols.end()) {
      launch.extents.pop_back();
      continue;
    }
    nest_->symbols.push_back(launch.extents.back()->symbol);
  }
  launch.scalars = nest_->scalars;
  launch.grid = GridOf(nest_->exprs, *nest_);
  HIR_TRY(nest_->exprs.status().WithContext(Cat("the kernel that makes %", group_.outputs[0]->name)));
  nest_->elements.set_load({});
  return std::make_pair(std::move(launch), std::shared_ptr<const LoopNest>(nest_));
}

// Row-major over the stored extents; 0 along axes that are stored once.
std::vector<const ir::Expr*> NestBuilder::StridesOf(const ir::Value& value) {
  ir::ExprPool& pool = nest_->exprs;
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
  if (const auto given = strides_.find(&value); given != strides_.end()) {
    std::vector<const ir::Expr*> own;
    for (const ir::Expr* stride : given->second) own.push_back(pool.Import(stride));
    return own;
  }
  std::vector<const ir::Expr*> strides(axes.size(), pool.Const(0));
  const ir::Expr* stride = pool.Const(1);
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) continue;
    strides[i] = stride;
    stride = pool.Mul(stride, pool.Import(axes[i].extent));
  }
  return strides;
}

const ir::Expr* BytesOf(ir::ExprPool& pool, const ir::Type& type) {
  const ir::Expr* bytes = pool.Const(DTypeBytes(type.dtype));
  for (const ir::Axis& axis : ir::ValueAxes(type)) {
    if (axis.kind != ir::AxisKind::kBroadcast) bytes = pool.Mul(bytes, pool.Import(axis.extent));
  }
  return bytes;
}

}  // namespace hir::codegen
