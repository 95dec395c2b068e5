#include "host_ir/lower/products.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/codegen/library/abilities.h"
#include "csrc/fusion/axes.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "host_ir/lower/storage.h"

namespace hir::host {
namespace {

using codegen::library::Epilogue;
using codegen::library::Provider;
using fusion::FusionOp;
using ir::Op;
using ir::Value;

bool IsProduct(const Op& op) { return fusion::IsProduct(fusion::CodeOf(op)); }

bool Is16BitFloat(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

bool IsBroadcast(const ir::Axis& axis) { return axis.kind == ir::AxisKind::kBroadcast; }

bool SameAxes(const ir::Type& a, const ir::Type& b) {
  return std::ranges::equal(ir::ValueAxes(a), ir::ValueAxes(b), [](const ir::Axis& x, const ir::Axis& y) {
    return x.kind == y.kind && x.extent == y.extent;
  });
}

// `made` defines the value that `op` defined, which keeps its name and its readers; `op` goes.
void TakeOver(ir::Graph& graph, Op* made, Op* op) {
  Value* kept = op->results[0];
  Value* fresh = made->results[0];
  std::swap(kept->type, fresh->type);
  std::swap(kept->layout, fresh->layout);
  std::swap(kept->def, fresh->def);
  std::swap(op->results[0], made->results[0]);
  made->location = op->location;
  graph.body.Erase(op);
}

// --- sums of products
// ----------------------------------------------------------------------------------------------------------

// The ops in the place of one product.
class SumOfProducts {
 public:
  SumOfProducts(ir::Graph& graph, Op* product)
      : graph_(graph), product_(product), builder_(graph, graph.body, product) {}

  void Run() {
    const ir::Type wanted = *product_->results[0]->type;
    const bool matmul = fusion::CodeOf(*product_) == FusionOp::kMatmul;
    Value* result = matmul ? Matmul() : Linear();
    if (product_->operands.size() == 3) result = Make("add", {result, product_->operands[2]});
    // A product stores what its operands hold once.
    if (!SameAxes(*result->type, wanted)) result = WrittenOut(result);
    TakeOver(graph_, result->def, product_);
  }

 private:
  static size_t RankOf(const Value* value) { return ir::ValueAxes(*value->type).size(); }

  Value* Make(std::string_view name, std::initializer_list<Value*> operands,
              std::initializer_list<ir::Attr> attrs = {}) {
    Value* made = builder_.Make(name, operands, attrs);
    if (const ir::Layout* layout = product_->results[0]->layout; layout != nullptr) {
      const std::vector<mesh::ParallelType> serial(made->type->axes.size(), mesh::ParallelType::kSerial);
      made->layout = graph_.New(ir::Layout{.mesh = layout->mesh, .parallel = graph_.Copy(serial)});
    }
    return made;
  }

  // With an axis of extent 1 before value axis `axis`.
  Value* Inserted(Value* value, size_t axis) {
    std::vector<int64_t> flags(RankOf(value) + 1, 0);
    flags[axis] = 1;
    return Make("broadcast", {value}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
  }

  Value* WrittenOut(Value* value) {
    std::vector<const ir::Expr*> shape;
    for (const ir::Axis& axis : ir::ValueAxes(*value->type)) shape.push_back(axis.extent);
    Value* zero = Make(
        "full", {},
        {{"shape", std::span<const ir::Expr* const>(shape)}, {"value", 0.0}, {"dtype", DTypeName(value->type->dtype)}});
    return Make("add", {value, zero});
  }

  // The sum along `axis` of x * y. Where both hold it once, x is written out: a loop needs an axis.
  Value* Sum(Value* x, size_t x_axis, Value* y, size_t y_axis) {
    if (IsBroadcast(ir::ValueAxes(*x->type)[x_axis]) && IsBroadcast(ir::ValueAxes(*y->type)[y_axis])) x = WrittenOut(x);
    Value* products = Make("mul", {x, y});
    const size_t from_end = RankOf(x) - x_axis;
    const int64_t axes[] = {static_cast<int64_t>(RankOf(products) - from_end)};
    return Make(
        "sum", {products},
        {{"axes", std::span<const int64_t>(axes)}, {"keepdim", false}, {"dtype", DTypeName(products->type->dtype)}});
  }

  Value* Linear() {
    Value* x = product_->operands[0];
    return Sum(Inserted(x, RankOf(x) - 1), RankOf(x), product_->operands[1], 1);
  }

  Value* Matmul() {
    Value* x = product_->operands[0];
    Value* y = product_->operands[1];
    const size_t x_rank = RankOf(x), y_rank = RankOf(y);
    if (y_rank == 1) return Sum(x, x_rank - 1, y, 0);               // [..., m, k] [k]
    if (x_rank == 1) return Sum(Inserted(x, 1), 0, y, y_rank - 2);  // [k, 1] [..., k, n]
    if (y_rank > 2) y = Inserted(y, y_rank - 2);
    return Sum(Inserted(x, x_rank), x_rank - 1, y, RankOf(y) - 2);  // [..., m, k, 1] [..., 1, k, n]
  }

  ir::Graph& graph_;
  Op* product_;
  ir::Builder builder_;
};

// --- transposed operands
// ---------------------------------------------------------------------------------------------------

// The value of which `value` is the permute that swaps the last two axes; null where it is something else.
Value* Untransposed(const Value* value, const codegen::Strides& strides) {
  const Op* const op = value->def;
  if (op == nullptr || fusion::CodeOf(*op) != FusionOp::kPermute) return nullptr;
  const std::span<const int64_t> dims = op->Ints("dims");
  const auto rank = std::ssize(dims);
  if (rank < 2 || strides.contains(value) || strides.contains(op->operands[0])) return nullptr;
  for (int64_t k = 0; k < rank; ++k) {
    const int64_t wanted = k == rank - 1 ? rank - 2 : k == rank - 2 ? rank - 1 : k;
    if (dims[static_cast<size_t>(k)] != wanted) return nullptr;
  }
  // Stored once along one of them it is no matrix that a library knows.
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  return IsBroadcast(axes[axes.size() - 1]) || IsBroadcast(axes[axes.size() - 2]) ? nullptr : op->operands[0];
}

// Whether it is exchanged between ranks, under another shape perhaps.
bool IsExchanged(const Value* value, const std::vector<std::vector<Op*>>& uses) {
  std::vector<const Value*> shapes = {value};  // A program may be nothing but views of it.
  while (!shapes.empty()) {
    const Value* const shape = shapes.back();
    shapes.pop_back();
    for (const Op* reader : uses[static_cast<size_t>(shape->id)]) {
      if (fusion::CodeOf(*reader) == FusionOp::kAllToAll) return true;
      if (reader->operands.size() == 1 && IsView(*reader)) shapes.push_back(reader->results[0]);
    }
  }
  return false;
}

// Products take operands as they were before they were transposed.
void TakeUntransposed(ir::Graph& graph, const codegen::Strides& strides) {
  const std::vector<std::vector<Op*>> uses = ir::UsesOf(graph);
  for (Op* op = graph.body.first; op != nullptr;) {
    Op* const product = std::exchange(op, op->next);
    if (!IsProduct(*product) || !IsFloat(product->results[0]->type->dtype)) continue;
    const bool is_linear = fusion::CodeOf(*product) == FusionOp::kLinear;
    if (is_linear && ir::ValueAxes(*product->operands[0]->type).size() < 2) continue;
    Value* const x = IsExchanged(product->results[0], uses) ? nullptr : Untransposed(product->operands[0], strides);
    Value* const y = Untransposed(product->operands[1], strides);
    if (x == nullptr && y == nullptr) continue;
    fusion::Transposed transposed = fusion::TransposedOf(*product);
    transposed.y ^= is_linear;  // As matmul knows the weight.
    transposed.x ^= x != nullptr;
    transposed.y ^= y != nullptr;
    std::vector<Value*> operands(product->operands.begin(), product->operands.end());
    if (x != nullptr) operands[0] = x;
    if (y != nullptr) operands[1] = y;
    ir::Builder builder(graph, graph.body, product);
    const ir::Attr attrs[] = {{"epilogue", product->Name("epilogue")},
                              {"precision", product->Name("precision")},
                              {"transposed", fusion::TransposedName(transposed)}};
    const auto made = builder.Add({.name = "matmul", .operands = operands, .attrs = attrs});
    HIR_CHECK(made.ok());
    (*made)->results[0]->layout = product->results[0]->layout;
    TakeOver(graph, *made, product);
  }
}

// Products of groups do, too, with their matrices.
void TakeUntransposedMatrices(ir::Graph& graph, const codegen::Strides& strides) {
  for (Op* op = graph.body.first; op != nullptr;) {
    Op* const product = std::exchange(op, op->next);
    if (fusion::CodeOf(*product) != FusionOp::kGroupedMatmul) continue;
    Value* const matrices = Untransposed(product->operands[1], strides);
    if (matrices == nullptr) continue;
    Value* const operands[] = {product->operands[0], matrices, product->operands[2]};
    ir::Builder builder(graph, graph.body, product);
    const fusion::Transposed transposed = {.y = !fusion::TransposedOf(*product).y};
    const ir::Attr attrs[] = {{"offset", product->Exprs("offset")}, {"transposed", fusion::TransposedName(transposed)}};
    const auto made = builder.Add({.name = "grouped_matmul", .operands = operands, .attrs = attrs});
    HIR_CHECK(made.ok());
    (*made)->results[0]->layout = product->results[0]->layout;
    TakeOver(graph, *made, product);
  }
}

// --- epilogues
// ----------------------------------------------------------------------------------------------------------

class Fusing {
 public:
  Fusing(ir::Graph& graph, Provider provider, const codegen::Strides& strides)
      : graph_(graph), provider_(provider), strides_(strides), uses_(ir::UsesOf(graph)) {
    for (const ir::Output& output : graph.outputs) returned_.push_back(output.value);
  }

  void Run() {
    std::vector<Op*> products;
    for (Op* op = graph_.body.first; op != nullptr; op = op->next) {
      if (IsProduct(*op) && IsFloat(op->results[0]->type->dtype)) products.push_back(op);
    }
    for (Op* product : products) {
      if (Op* with_bias = FuseBias(product)) product = with_bias;
      FuseActivation(product);
    }
  }

 private:
  // The only reader of `value`, on the same mesh; null where there are more, or it is returned.
  Op* OnlyReader(const Value* value) const {
    const std::vector<Op*>& readers = uses_[static_cast<size_t>(value->id)];
    if (readers.size() != 1 || std::ranges::find(returned_, value) != returned_.end()) return nullptr;
    const ir::Layout* theirs = readers[0]->results[0]->layout;
    if ((theirs == nullptr) != (value->layout == nullptr)) return nullptr;
    return theirs == nullptr || theirs->mesh == value->layout->mesh ? readers[0] : nullptr;
  }

  // A product with these operands and this epilogue, in the place of `last`, which is behind it.
  Op* Replace(Op* product, std::vector<Value*> operands, std::string_view epilogue, Op* last) {
    ir::Builder builder(graph_, graph_.body, last);
    std::vector<ir::Attr> attrs = {{"epilogue", epilogue}, {"precision", product->Name("precision")}};
    if (const fusion::Transposed transposed = fusion::TransposedOf(*product); transposed != fusion::Transposed())
      attrs.push_back({"transposed", fusion::TransposedName(transposed)});
    const auto made = builder.Add({.info = product->info, .operands = operands, .attrs = attrs});
    HIR_CHECK(made.ok());
    Op* const op = *made;
    op->results[0]->layout = product->results[0]->layout;  // Of one type.
    TakeOver(graph_, op, last);
    graph_.body.Erase(product);
    uses_.resize(graph_.values().size());
    for (Value* operand : operands) {
      std::vector<Op*>& readers = uses_[static_cast<size_t>(operand->id)];
      std::ranges::replace(readers, product, op);
      std::ranges::replace(readers, last, op);
    }
    return op;
  }

  Op* FuseBias(Op* product) {
    const Value* sum = product->results[0];
    const bool matrix = ir::ValueAxes(*product->operands[1]->type).size() == 2;
    Op* add = OnlyReader(sum);
    if (product->operands.size() != 2 || !matrix || add == nullptr || fusion::CodeOf(*add) != FusionOp::kAdd ||
        !SameValueType(*sum, *add->results[0]))
      return nullptr;
    Value* other = add->operands[add->operands[0] == sum ? 1 : 0];
    Value* bias = PerColumn(other, *sum);
    if (bias == nullptr || other == sum) return nullptr;
    if (RowsHaveGaps(*bias, strides_) || RowsHaveGaps(*add->results[0], strides_)) return nullptr;
    return Replace(product, {product->operands[0], product->operands[1], bias}, fusion::kNoEpilogue, add);
  }

  static bool SameValueType(const Value& a, const Value& b) {
    return a.type->dtype == b.type->dtype && SameAxes(*a.type, *b.type);
  }

  // The value with one axis of which `value` is a row for each row of `sum`; null where it is something else.
  static Value* PerColumn(Value* value, const Value& sum) {
    if (value->type->kind != ir::TypeKind::kTensor || value->type->dtype != sum.type->dtype) return nullptr;
    const ir::Expr* columns = ir::ValueAxes(*sum.type).back().extent;
    while (true) {
      const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
      if (axes.empty() || axes.back().extent != columns) return nullptr;
      if (axes.size() == 1) return IsBroadcast(axes[0]) ? nullptr : value;
      if (value->def == nullptr) return nullptr;
      const FusionOp code = fusion::CodeOf(*value->def);
      if (code != FusionOp::kBroadcast && code != FusionOp::kBroadcastInDim && code != FusionOp::kExpand)
        return nullptr;
      // Its last axis is the operand's, in place; every other one must turn out to be stored once.
      const int last = static_cast<int>(axes.size()) - 1;
      const int operand_last = static_cast<int>(ir::ValueAxes(*value->def->operands[0]->type).size()) - 1;
      const auto links = fusion::AxesOf(*value->def);
      const bool kept = std::ranges::any_of(links, [&](const fusion::AxisLink& link) {
        return link.result_axis == last && link.operand_axis == operand_last &&
               link.relation == fusion::AxisRelation::kSame;
      });
      if (!kept) return nullptr;
      value = value->def->operands[0];
    }
  }

  void FuseActivation(Op* product) {
    const Value* sum = product->results[0];
    const DType dtype = sum->type->dtype;
    Op* first = OnlyReader(sum);
    if (first == nullptr || product->Name("epilogue") != fusion::kNoEpilogue) return;
    Op* activation = first;
    const bool casts = fusion::CodeOf(*first) == FusionOp::kCast && Is16BitFloat(dtype) &&
                       first->results[0]->type->dtype == DType::kFloat32;
    if (casts) activation = OnlyReader(first->results[0]);
    if (activation == nullptr || activation->operands.size() != 1) return;
    const std::string_view name = activation->info->name;
    const std::optional<Epilogue> epilogue = codegen::library::EpilogueNamed(name);
    if (!epilogue || !HasEpilogue(provider_, *epilogue, dtype)) return;
    Op* last = activation;
    if (casts) {
      last = OnlyReader(activation->results[0]);
      if (last == nullptr || fusion::CodeOf(*last) != FusionOp::kCast) return;
    }
    if (!SameValueType(*sum, *last->results[0]) || RowsHaveGaps(*last->results[0], strides_)) return;
    std::vector<Value*> operands(product->operands.begin(), product->operands.end());
    Replace(product, std::move(operands), name, last);
    if (!casts) return;
    graph_.body.Erase(activation);
    graph_.body.Erase(first);
  }

  ir::Graph& graph_;
  const Provider provider_;
  const codegen::Strides& strides_;
  std::vector<std::vector<Op*>> uses_;  // By value id.
  std::vector<const Value*> returned_;
};

// What a bias went through, and nothing else reads.
void EraseUnread(ir::Graph& graph) {
  std::vector<int> readers(graph.values().size(), 0);
  ir::ForEachOp(graph.body, [&](const Op* op) {
    for (const Value* operand : op->operands) ++readers[static_cast<size_t>(operand->id)];
  });
  for (const ir::Output& output : graph.outputs) ++readers[static_cast<size_t>(output.value->id)];
  for (Op* op = graph.body.last; op != nullptr;) {
    Op* const previous = op->prev;
    const bool read = std::ranges::any_of(
        op->results, [&](const Value* result) { return readers[static_cast<size_t>(result->id)] > 0; });
    if (!read && op->info->effects == ir::kPure) {
      for (const Value* operand : op->operands) --readers[static_cast<size_t>(operand->id)];
      graph.body.Erase(op);
    }
    op = previous;
  }
}

}  // namespace

Provider ProviderOf(const codegen::Target& target) {
  return target.kind == codegen::Target::Kind::kGpu ? Provider::kCublasLt : Provider::kOneDnn;
}

bool RowsHaveGaps(const Value& value, const codegen::Strides& strides) {
  const auto known = strides.find(&value);
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
  if (known == strides.end() || axes.empty()) return false;
  return !known->second.back()->IsConst(1) && !IsBroadcast(axes.back()) && !axes.back().extent->IsConst(1);
}

Status FitProducts(ir::Graph& local, const codegen::Target& target, const codegen::Strides& strides) {
  const Provider provider = ProviderOf(target);
  std::vector<Op*> lacking;
  for (Op* op = local.body.first; op != nullptr; op = op->next) {
    if (IsProduct(*op) && !HasProducts(provider, op->results[0]->type->dtype)) lacking.push_back(op);
  }
  for (Op* op : lacking) SumOfProducts(local, op).Run();
  TakeUntransposed(local, strides);
  TakeUntransposedMatrices(local, strides);
  Fusing(local, provider, strides).Run();
  EraseUnread(local);
  return {};
}

}  // namespace hir::host
