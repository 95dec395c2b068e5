// A loop nest as text: loops as they nest, scalar code as one line an element.
#include <set>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen {
namespace {

using base::Append;
using base::Cat;
using fusion::Element;

class Printer {
 public:
  explicit Printer(const LoopNest& nest) : nest_(nest) {}

  std::string Run() {
    for (const Tensor& tensor : nest_.tensors) {
      static constexpr const char* kRoles[] = {"input", "output", "workspace"};
      std::vector<std::string> strides;
      for (const ir::Expr* stride : tensor.strides) strides.push_back(ir::ToString(stride));
      Append(out_, kRoles[static_cast<int>(tensor.role)], " ", tensor.value->name, ": ", DTypeName(tensor.dtype),
             ", strides [", base::Join(strides, ", "), "]\n");
    }
    for (const Region& region : nest_.regions) PrintRegion(region);
    return std::move(out_);
  }

 private:
  static std::string Name(const Element* element) { return Cat("e", element->id); }

  static std::string LoopText(const Loop& loop) {
    return Cat(VariableSymbol(loop.variable), " in ", ir::ToString(loop.begin), "..", ir::ToString(loop.end));
  }

  static std::string LoopsText(const std::vector<Loop>& loops) {
    std::vector<std::string> texts;
    for (const Loop& loop : loops) texts.push_back(LoopText(loop));
    return Cat("(", base::Join(texts, ", "), ")");
  }

  void PrintRegion(const Region& region) {
    Append(out_, "for each of ", LoopsText(region.grid));
    if (region.columns) Append(out_, ", columns (", LoopText(*region.columns), ")");
    out_ += ":\n";
    for (const Loop& loop : region.serial) {
      Append(out_, "  in order ", VariableSymbol(loop.variable), "\n    from ", ir::ToString(loop.begin), "\n    to ",
             ir::ToString(loop.end), "\n");
      if (loop.step != nullptr) Append(out_, "    by ", ir::ToString(loop.step), "\n");
    }
    if (!region.ahead.loops.empty()) PrintPhase(region.ahead, "  ahead of the last, for ");
    for (const Phase& phase : region.phases) PrintPhase(phase, "  for ");
  }

  void PrintPhase(const Phase& phase, std::string_view kind) {
    printed_.clear();
    Append(out_, kind, LoopsText(phase.loops), ":\n");
    for (const Accumulator& accumulator : phase.accumulators) {
      PrintElement(accumulator.body);
      Append(out_, "    ", accumulator.value->name, " = ", InfoOf(accumulator.kind).name, " of ",
             Name(accumulator.body), " in ", DTypeName(accumulator.dtype), "\n");
    }
    for (const Carried& carried : phase.carried) {
      PrintElement(carried.accumulator.body);
      const std::string place = PlaceOf(carried.tensor, carried.index);
      Append(out_, "    ", place, " = ", InfoOf(carried.accumulator.kind).name, " of ", Name(carried.accumulator.body),
             " in ", DTypeName(carried.accumulator.dtype), " over serial loops from ", carried.depth, "\n");
    }
    for (const Nested& nested : phase.nested) {
      PrintElement(nested.accumulator.body);
      const std::string place = PlaceOf(nested.tensor, nested.index);
      Append(out_, "    ", place, " = ", InfoOf(nested.accumulator.kind).name, " of ", Name(nested.accumulator.body),
             " in ", DTypeName(nested.accumulator.dtype), " for each of the outer loops\n");
    }
    for (const Store& store : phase.stores) {
      PrintElement(store.value);
      const std::string place = PlaceOf(store.tensor, store.index);
      Append(out_, "    ", place, " = ", Name(store.value), "\n");
    }
  }

  // "y[e1, e2]", behind the lines of what it names.
  std::string PlaceOf(int tensor, const std::vector<const Element*>& index) {
    std::vector<std::string> names;
    for (const Element* element : index) {
      PrintElement(element);
      names.push_back(Name(element));
    }
    return Cat(nest_.tensors[static_cast<size_t>(tensor)].value->name, "[", base::Join(names, ", "), "]");
  }

  // The element's line behind those of what it reads, each once a phase.
  void PrintElement(const Element* element) {
    if (!printed_.insert(element->id).second) return;
    std::vector<std::string> args;
    for (const Element* arg : element->args) {
      PrintElement(arg);
      args.push_back(Name(arg));
    }
    const std::string list = args.empty() ? "" : Cat("(", base::Join(args, ", "), ")");
    Append(out_, "    ", Name(element), ": ", DTypeName(element->dtype), " = ", Definition(*element), list, "\n");
  }

  static std::string Definition(const Element& element) {
    switch (element.kind) {
      case Element::Kind::kFloat: return base::FormatDouble(element.number);
      case Element::Kind::kInt: return Cat(element.integer);
      case Element::Kind::kIndex: return VariableSymbol(static_cast<int>(element.integer));
      case Element::Kind::kExtent: return ir::ToString(element.extent);
      case Element::Kind::kScalar: return Cat("scalar ", element.value->name);
      case Element::Kind::kLoad: return Cat("load ", element.value->name);
      case Element::Kind::kConvert: return "convert";
      case Element::Kind::kPrim: return std::string(InfoOf(element.prim).name);
      case Element::Kind::kReduce: return Cat("reduce ", InfoOf(element.reduce).name);
      case Element::Kind::kReduceIndex: return Cat("reduction index ", element.integer);
    }
    return {};
  }

  const LoopNest& nest_;
  std::set<int> printed_;  // Ids, in this phase.
  std::string out_;
};

}  // namespace

std::string Print(const LoopNest& nest) { return Printer(nest).Run(); }

}  // namespace hir::codegen
