// A product takes an operand transposed for nothing (host_ir/lower/products.h), and makes a transpose by swapping
// its operands. So permutes around products become swaps of the last two axes, or nothing, as far as they can: written
// out they would take a pass over memory.
//
// The transpose of a product whose first operand is transposed, as a weight's gradient is, and which alone reads it, is
// the product of swapped operands. (Of other products rows may go to, or come from, other ranks in parts; and rows of a
// batch are multiplied at once by one matrix.)
// Before: %t = permute(%x) {dims=[1, 0]}  %a = matmul(%t, %y)  %b = permute(%a) {dims=[1, 0]}
// After:  %u = permute(%y) {dims=[1, 0]}  %b = matmul(%u, %x)
// Also where rows or columns are split in between.
// Before: ...  %b = reshape(%a) {shape=[2, 3, 5]}  %c = permute(%b) {dims=[2, 0, 1]}
// After:  ...  %b = matmul(%u, %x)  %c = reshape(%b) {shape=[5, 2, 3]}
//
// An operand whose rows, and columns, are several axes is transposed when they are one each, if they lie the other way
// round in memory.
// Before: %a = permute(%x: [2, 3, 5]) {dims=[2, 0, 1]}  %b = reshape(%a) {shape=[5, 6]}
// After:  %a = reshape(%x) {shape=[6, 5]}  %b = permute(%a) {dims=[1, 0]}
//
// A value whose layout was decided keeps its op. Ops that nothing reads any more are left to dce.
#include "csrc/fusion/passes/transpose_products.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/ir/builder.h"

namespace hir::fusion {
namespace {

using ir::Axis;
using ir::Op;
using ir::Value;

// The op that makes `value`, if it is of the kind and nobody has decided its layout; else null.
const Op* MakerOf(const Value* value, FusionOp code) {
  const Op* const op = value->def;
  return op != nullptr && CodeOf(*op) == code && op->results[0]->layout == nullptr ? op : nullptr;
}

bool IsProductOfMatrices(const Op& op) {
  if (!IsProduct(CodeOf(op)) || op.operands.size() != 2 || !IsFloat(op.results[0]->type->dtype)) return false;
  return op.results[0]->layout == nullptr && std::ranges::all_of(op.operands, [](const Value* operand) {
           return ir::ValueAxes(*operand->type).size() >= 2;
         });
}

std::vector<int64_t> SwapOf(size_t rank) {
  std::vector<int64_t> dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[rank - 1], dims[rank - 2]);
  return dims;
}

// The value whose last two axes are swapped in `value`; null where it is something else.
Value* Untransposed(const Value* value) {
  const std::vector<int64_t> swap = SwapOf(ir::ValueAxes(*value->type).size());
  const Op* const permute = MakerOf(value, FusionOp::kPermute);
  return permute != nullptr && std::ranges::equal(permute->Ints("dims"), swap) ? permute->operands[0] : nullptr;
}

Value* Transposed(ir::Builder& builder, Value* value) {
  if (Value* const untransposed = Untransposed(value); untransposed != nullptr) return untransposed;
  const std::vector<int64_t> swap = SwapOf(ir::ValueAxes(*value->type).size());
  return builder.Make("permute", {value}, {{"dims", std::span<const int64_t>(swap)}});
}

const ir::Expr* Elements(ir::ExprPool& pool, std::span<const Axis> axes) {
  const ir::Expr* elements = pool.Const(1);
  for (const Axis& axis : axes) elements = pool.Mul(elements, axis.extent);
  return elements;
}

// Where rows and columns begin among axes that a reshape makes [..., rows, columns], or makes of them.
struct Parts {
  size_t rows = 0, columns = 0;
};

class Transposing {
 public:
  explicit Transposing(ir::Graph& graph) : graph_(graph), uses_(ir::UsesOf(graph)) {
    for (const ir::Output& output : graph.outputs) returned_.push_back(output.value);
  }

  Status Run() {
    for (Op* op = graph_.body.first; op != nullptr; op = op->next) {
      replaced_.Apply(*op);
      Value* stands_in = nullptr;
      if (CodeOf(*op) == FusionOp::kPermute) stands_in = OfProduct(op);
      if (CodeOf(*op) == FusionOp::kReshape) stands_in = OfOperand(op);
      if (stands_in != nullptr) replaced_.Replace(op->results[0], stands_in);
    }
    replaced_.ApplyToOutputs(graph_);
    return {};
  }

 private:
  const std::vector<Op*>& ReadersOf(const Value* value) const {
    static const std::vector<Op*> kNone;
    return static_cast<size_t>(value->id) < uses_.size() ? uses_[static_cast<size_t>(value->id)] : kNone;
  }
  bool HasOneReader(const Value* value) const {
    return ReadersOf(value).size() == 1 && std::ranges::find(returned_, value) == returned_.end();
  }

  // The ways to see the axes of `matrix` in those of a reshape of it: several where axes have extent 1.
  std::vector<Parts> PartsOf(std::span<const Axis> axes, std::span<const Axis> matrix) {
    ir::ExprPool& pool = graph_.exprs();
    const size_t lead = matrix.size() - 2;
    const ir::Expr* const batches = Elements(pool, matrix.first(lead));
    const ir::Expr* const rows = Elements(pool, matrix.subspan(lead, 1));
    const ir::Expr* const columns = Elements(pool, matrix.subspan(lead + 1, 1));
    std::vector<Parts> parts;
    for (size_t begin = 0; begin < axes.size(); ++begin) {
      if (Elements(pool, axes.first(begin)) != batches) continue;
      for (size_t middle = begin + 1; middle < axes.size(); ++middle) {
        if (Elements(pool, axes.subspan(begin, middle - begin)) == rows &&
            Elements(pool, axes.subspan(middle)) == columns)
          parts.push_back({begin, middle});
      }
    }
    return parts;
  }

  // In place of the permute `op` that swaps rows and columns of a product, split into axes perhaps.
  Value* OfProduct(Op* op) {
    if (op->results[0]->layout != nullptr) return nullptr;
    Value* product = op->operands[0];
    const std::vector<Axis> axes = ir::ValueAxes(*product->type);
    const Op* const reshape = MakerOf(product, FusionOp::kReshape);
    if (!HasOneReader(product)) return nullptr;
    if (reshape != nullptr) product = reshape->operands[0];
    if (product->def == nullptr || !IsProductOfMatrices(*product->def) || !HasOneReader(product)) return nullptr;
    const std::vector<Axis> matrix = ir::ValueAxes(*product->type);
    if (matrix.size() < 2) return nullptr;
    const std::span<const int64_t> dims = op->Ints("dims");
    const bool swaps = reshape == nullptr ? std::ranges::equal(dims, SwapOf(matrix.size()))
                                          : std::ranges::any_of(PartsOf(axes, matrix), [&](Parts parts) {
                                              return std::ranges::equal(dims, Turned(parts, axes.size()));
                                            });
    if (!swaps) return nullptr;
    Value* const y = product->def->operands[1];
    Value* const columns = Untransposed(product->def->operands[0]);
    if (columns == nullptr || ir::ValueAxes(*y->type).size() != ir::ValueAxes(*columns->type).size()) return nullptr;
    ir::Builder builder(graph_, graph_.body, op);
    Value* const rows = CodeOf(*product->def) == FusionOp::kLinear ? y : Transposed(builder, y);
    const ir::Attr precision = {"precision", product->def->Name("precision")};
    const std::string_view name = op->results[0]->name;
    if (reshape == nullptr) return builder.Make("matmul", {rows, columns}, {precision}, name);
    return Reshaped(builder, builder.Make("matmul", {rows, columns}, {precision}, product->name),
                    ir::ValueAxes(*op->results[0]->type), name);
  }

  // In place of the reshape `op` of a permute to an operand of products.
  Value* OfOperand(Op* op) {
    const Op* const permute = MakerOf(op->operands[0], FusionOp::kPermute);
    if (permute == nullptr || op->results[0]->layout != nullptr) return nullptr;
    if (std::ranges::find(returned_, op->results[0]) != returned_.end()) return nullptr;  // It is written anyway.
    const auto multiplies = [](const Op* reader) { return IsProduct(CodeOf(*reader)); };
    if (std::ranges::none_of(ReadersOf(op->results[0]), multiplies)) return nullptr;
    const std::vector<Axis> axes = ir::ValueAxes(*op->operands[0]->type);
    std::vector<Axis> matrix = ir::ValueAxes(*op->results[0]->type);
    if (matrix.size() < 2) return nullptr;
    if (matrix.size() == axes.size()) return nullptr;  // It swaps them already.
    const std::span<const int64_t> dims = permute->Ints("dims");
    if (dims.back() == std::ssize(dims) - 1) return nullptr;  // Neighbours in memory are neighbours in a row.
    std::vector<int64_t> turned;                              // Columns before rows.
    for (const Parts& parts : PartsOf(axes, matrix)) {
      turned.clear();
      for (const int64_t at : Turned(parts, axes.size())) turned.push_back(dims[static_cast<size_t>(at)]);
      if (turned.back() == std::ssize(turned) - 1) break;
    }
    if (turned.empty() || turned.back() != std::ssize(turned) - 1) return nullptr;
    ir::Builder builder(graph_, graph_.body, op);
    std::swap(matrix[matrix.size() - 1], matrix[matrix.size() - 2]);
    Value* operand = permute->operands[0];
    if (!std::ranges::is_sorted(turned)) {
      operand = builder.Make("permute", {operand}, {{"dims", std::span<const int64_t>(turned)}});
    }
    return Transposed(builder, Reshaped(builder, operand, matrix));
  }

  // The permute that has columns before rows.
  static std::vector<int64_t> Turned(Parts parts, size_t rank) {
    std::vector<int64_t> dims(rank);
    std::iota(dims.begin(), dims.end(), 0);
    std::rotate(dims.begin() + static_cast<int64_t>(parts.rows), dims.begin() + static_cast<int64_t>(parts.columns),
                dims.end());
    return dims;
  }

  static Value* Reshaped(ir::Builder& builder, Value* value, std::span<const Axis> axes, std::string_view name = {}) {
    std::vector<const ir::Expr*> shape;
    for (const Axis& axis : axes) shape.push_back(axis.extent);
    return builder.Make("reshape", {value}, {{"shape", std::span<const ir::Expr* const>(shape)}}, name);
  }

  ir::Graph& graph_;
  const std::vector<std::vector<Op*>> uses_;  // By value id, as the program was.
  std::vector<const Value*> returned_;
  Replacements replaced_;
};

}  // namespace

Status TransposeProducts(ir::Graph& graph) { return Transposing(graph).Run(); }

}  // namespace hir::fusion
