// Launches, library calls and fills.
#include <algorithm>
#include <bit>
#include <utility>

#include "csrc/base/text.h"
#include "host_ir/eval/compile.h"

namespace hir::host {
namespace {

uint64_t PatternOf(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool: return value != 0 ? 1 : 0;
    case DType::kUInt8:
    case DType::kInt8: return static_cast<uint8_t>(static_cast<int64_t>(value));
    case DType::kInt32: return static_cast<uint32_t>(static_cast<int32_t>(value));
    case DType::kInt64: return static_cast<uint64_t>(static_cast<int64_t>(value));
    case DType::kFloat16: return FloatToFloat16(static_cast<float>(value));
    case DType::kBFloat16: return FloatToBFloat16(static_cast<float>(value));
    case DType::kFloat32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kFloat64: return std::bit_cast<uint64_t>(value);
  }
  return 0;
}

bool FitsInteger(DType dtype, double value) {
  if (!IsInt(dtype)) return true;
  const IntLimits limits = LimitsOf(dtype);
  const auto least = static_cast<double>(limits.least);
  const double end = static_cast<double>(limits.greatest / 2 + 1) * 2;  // Exact, one above the greatest.
  return value >= least && value < end;
}

}  // namespace

Status Compiler::CompileLaunch(const ir::Op& op) {
  LaunchCode launch = {.kernel = std::string(op.Name("kernel"))};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (AccessOf(op, static_cast<int>(i)) == Access::kNone) {
      if (op.operands[i]->def != nullptr) return Unimplemented("a host scalar that is not a parameter");
      launch.scalars.push_back(op.operands[i]->index);
    } else {
      launch.buffers.push_back(BufferOf(op, i));
    }
  }
  for (const ir::Expr* extent : op.Exprs("extents")) {
    HIR_ASSIGN(launch.extents.emplace_back(), Slot(extent));
  }
  HIR_ASSIGN(launch.grid, Slot(op.ExprOf("grid")));
  launch.args = code_.num_args;
  code_.num_args += static_cast<int>(launch.buffers.size() + launch.extents.size() + launch.scalars.size());
  code_.launches.push_back(std::move(launch));
  return Add(op, Instr::Kind::kLaunch, code_.launches.size() - 1);
}

Status Compiler::CompileAttention(const ir::Op& op) {
  AttentionCode attention = {.results = {}, .causal = op.Bool("causal"), .diagonal = 0, .scale = op.Float("scale")};
  std::string_view rest = op.Name("results");
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    attention.results.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  HIR_ASSIGN(attention.diagonal, Slot(op.ExprOf("diagonal")));
  if (code_.exprs.LevelOf(attention.diagonal) > 0)
    return Unimplemented("attention whose diagonal changes from iteration to iteration");
  return CompileCall(op, std::move(attention));
}

Status Compiler::CompileGroupedProduct(const ir::Op& op) {
  GroupedProductCode grouped = {.outer = op.Name("op") == "grouped_outer", .first = 0};
  HIR_ASSIGN(grouped.first, Slot(op.ExprOf("first")));
  if (code_.exprs.LevelOf(grouped.first) > 0)
    return Unimplemented(base::Cat(op.Name("op"), " whose first row changes from iteration to iteration"));
  return CompileCall(op, grouped);
}

Status Compiler::CompileCall(const ir::Op& op, CallCode what) {
  const bool is_product = std::holds_alternative<ProductCode>(what) || std::holds_alternative<GroupedProductCode>(what);
  LibraryCode library = {.name = std::string(is_product ? op.Name("op") : op.info->name)};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    HIR_ASSIGN(TensorCode tensor, Tensor(*op.operands[i]));
    tensor.buffer = BufferOf(op, i);
    if (is_product && IsTransposed(op, i)) {
      const size_t rank = tensor.extents.size();
      if (rank < 2) return InvalidArgument(base::Cat("%", op.operands[i]->name, " has no two axes to swap"));
      std::swap(tensor.extents[rank - 2], tensor.extents[rank - 1]);
      std::swap(tensor.strides[rank - 2], tensor.strides[rank - 1]);
    }
    for (const std::vector<int>* slots : {&tensor.extents, &tensor.strides}) {
      const auto varies = [this](int slot) { return code_.exprs.LevelOf(slot) > 0; };
      if (std::any_of(slots->begin(), slots->end(), varies)) {
        return Unimplemented(base::Cat("the shape of %", op.operands[i]->name, " changes from iteration to iteration"));
      }
    }
    (Writes(AccessOf(op, static_cast<int>(i))) ? library.outputs : library.inputs).push_back(std::move(tensor));
  }
  library.what = std::move(what);
  code_.libraries.push_back(std::move(library));
  return Add(op, Instr::Kind::kLibrary, code_.libraries.size() - 1);
}

Status Compiler::CompileFill(const ir::Op& op) {
  const DType dtype = op.operands[0]->type->dtype;
  const double value = op.Float("value");
  if (!FitsInteger(dtype, value)) {
    return InvalidArgument(base::Cat("value is ", value, ", which ", DTypeName(dtype), " does not hold"));
  }
  code_.fills.push_back({BufferOf(op, 0), PatternOf(dtype, value), static_cast<int>(DTypeBytes(dtype))});
  return Add(op, Instr::Kind::kFill, code_.fills.size() - 1);
}

}  // namespace hir::host
