// Fills a loop nest from a group: slots, and the elements of its outputs with producers inlined. Private to
// csrc/codegen.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/codegen/loop_nest.h"
#include "csrc/codegen/size_facts.h"
#include "csrc/codegen/structure.h"

namespace hir::codegen {

class NestBuilder {
 public:
  using Element = fusion::Element;

  NestBuilder(const segment::GroupView& group, const AxisClasses& classes, const Structure& structure,
              const Target& target, const Sizes& sizes, const Strides& strides);

  LoopNest& nest() { return *nest_; }
  const Structure& structure() const { return structure_; }
  const AxisClasses& classes() const { return classes_; }
  const segment::GroupView& group() const { return group_; }
  const Target& target() const { return target_; }
  SizeFacts& facts() { return facts_; }

  // The loop variable of an axis class in the region being built; made when asked for the first time.
  int Variable(int axis_class);
  // A loop variable of no class.
  int NewVariable() { return nest_->num_variables++; }
  // [0, extent of the class).
  Loop LoopOver(int axis_class);
  // From now on classes get new variables, and values are inlined anew.
  void StartRegion();

  // The index of `value` in the region's variables.
  std::vector<const Element*> CanonicalIndex(const ir::Value* value);
  // Its element there, inlined down to the group's inputs and to accumulators.
  const Element* ElementOf(const ir::Value* value) { return Inline(value, CanonicalIndex(value)); }
  // The same at an index of the caller's.
  const Element* Inline(const ir::Value* value, std::vector<const Element*> index);
  // Accumulators that inlining asked for, by phase.
  std::map<int, std::vector<Accumulator>>& accumulators() { return accumulators_; }

  // Which reduction of the group an accumulator belongs to, and which of that reduction's it is.
  struct Source {
    const Reduction* reduction = nullptr;
    int number = 0;
    auto operator<=>(const Source&) const = default;
  };
  const Source& SourceOf(const ir::Value* accumulator) const { return sources_.at(accumulator); }

  // The index at which the result of an accumulator is loaded.
  const std::vector<const Element*>& RowIndex(const ir::Value* accumulator) const { return row_index_.at(accumulator); }

  // Whether one of `values` is loaded in `element` or below.
  bool Reads(const Element* element, const std::set<const ir::Value*>& values) const;

  // Those rebuilt, as by Rewrite.
  template <typename Leaf>
  void RewriteRowIndices(const Leaf& leaf) {
    for (auto& [value, index] : row_index_) {
      for (const Element*& at : index) at = Rewrite(at, leaf);
    }
  }

  // A tensor of the kernel's own, of `axes`. `name` lives as long as the program.
  const ir::Value* MakeValue(DType dtype, std::vector<ir::Axis> axes, std::string_view name = {});
  // The slot of an output or workspace; made when asked for the first time.
  int AddTensor(Tensor::Role role, const ir::Value* value);

  // The strides of `value` in memory.
  std::vector<const ir::Expr*> StridesOf(const ir::Value& value);

  // Adds the inputs, symbols and scalars that the regions use, in their order; slots of stores are renumbered.
  // Returns a launch without its name.
  Result<std::pair<Launch, std::shared_ptr<const LoopNest>>> Finish();

  // `element` rebuilt with what `leaf` returns, where it is not null.
  template <typename Leaf>
  const Element* Rewrite(const Element* element, const Leaf& leaf);

 private:
  const Element* DefineReduction(const Reduction& reduction, const std::vector<const Element*>& index);

  const segment::GroupView& group_;
  const AxisClasses& classes_;
  const Structure& structure_;
  const Target& target_;
  const Strides& strides_;
  std::shared_ptr<LoopNest> nest_ = std::make_shared<LoopNest>();
  SizeFacts facts_;
  std::unordered_map<const ir::Value*, const ir::Op*> makers_;  // Ops of the group, by result.
  std::unordered_map<const ir::Op*, const Reduction*> reductions_;
  std::unordered_map<int, int> variables_;
  std::map<std::pair<const ir::Value*, std::vector<const Element*>>, const Element*> inlined_;
  std::map<int, std::vector<Accumulator>> accumulators_;
  std::unordered_map<const ir::Value*, std::vector<const Element*>> row_index_;
  std::unordered_map<const ir::Value*, Source> sources_;
  bool raw_loads_ = false;
  Status error_;
};

// Bytes that `value` takes.
const ir::Expr* BytesOf(ir::ExprPool& pool, const ir::Type& type);

template <typename Leaf>
const fusion::Element* NestBuilder::Rewrite(const Element* element, const Leaf& leaf) {
  std::unordered_map<const Element*, const Element*> done;
  const auto visit = [&](const auto& self, const Element* e) -> const Element* {
    const auto known = done.find(e);
    if (known != done.end()) return known->second;
    const Element* made = leaf(e);
    if (made == nullptr) {
      std::vector<const Element*> args;
      for (const Element* arg : e->args) args.push_back(self(self, arg));
      fusion::ElementBuilder& builder = nest_->elements;
      if (e->kind == Element::Kind::kPrim) {
        made = e->of_place ? builder.DividePlace(e->prim, args[0], args[1]) : builder.Apply(e->prim, args);
      } else if (e->kind == Element::Kind::kConvert) {
        made = builder.Convert(e->dtype, args[0]);
      } else if (e->kind == Element::Kind::kLoad) {
        made = builder.MakeLoad(e->value, args);
      } else {
        made = e;
      }
    }
    return done[e] = made;
  };
  return visit(visit, element);
}

}  // namespace hir::codegen
