// Launches, library calls, and the host-level ops that built-in kernels do.
#include <algorithm>
#include <bit>

#include "csrc/base/text.h"
#include "host_ir/eval/builtins.h"
#include "host_ir/eval/compile.h"

namespace hir::host {
namespace {

uint64_t PatternOf(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool: return value != 0 ? 1 : 0;
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
  const double limit = dtype == DType::kInt32 ? 0x1.0p31 : 0x1.0p63;
  return value >= -limit && value < limit;
}

}  // namespace

int64_t BuiltinOp(std::string_view name) {
  constexpr std::pair<std::string_view, BuiltinOperator> kNames[] = {
      {"add", BuiltinOperator::kAdd}, {"sum", BuiltinOperator::kAdd},  {"sub", BuiltinOperator::kSub},
      {"mul", BuiltinOperator::kMul}, {"prod", BuiltinOperator::kMul}, {"div", BuiltinOperator::kDiv},
      {"max", BuiltinOperator::kMax}, {"min", BuiltinOperator::kMin}};
  for (const auto& [known, op] : kNames) {
    if (known == name) return static_cast<int64_t>(op);
  }
  return -1;
}

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

Status Compiler::CompileLibrary(const ir::Op& op) {
  LibraryCode library = {.op = std::string(op.Name("op")),
                         .epilogue = std::string(op.Name("epilogue")),
                         .tf32 = op.Name("precision") == "tf32"};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    HIR_ASSIGN(TensorCode tensor, Tensor(*op.operands[i]));
    tensor.buffer = BufferOf(op, i);
    for (const std::vector<int>* slots : {&tensor.extents, &tensor.strides}) {
      const auto varies = [this](int slot) { return code_.exprs.LevelOf(slot) > 0; };
      if (std::any_of(slots->begin(), slots->end(), varies)) {
        return Unimplemented(base::Cat("the shape of %", op.operands[i]->name, " changes from iteration to iteration"));
      }
    }
    (i + 1 == op.operands.size() ? library.output : library.inputs.emplace_back()) = std::move(tensor);
  }
  code_.libraries.push_back(std::move(library));
  return Add(op, Instr::Kind::kLibrary, code_.libraries.size() - 1);
}

Status Compiler::CompileSet(const ir::Op& op) {
  const Region& src = RegionOf(*op.operands[0]);
  const Region& dst = RegionOf(*op.operands[1]);
  bool dense = IsContiguous(pool_, src) && IsContiguous(pool_, dst);
  for (size_t i = 0; dense && i < src.axes.size(); ++i) dense = src.axes[i].extent == dst.axes[i].extent;
  if (dense) {
    code_.sets.push_back({BufferOf(op, 0), BufferOf(op, 1)});
    return Add(op, Instr::Kind::kSet, code_.sets.size() - 1);
  }
  BuiltinCode copy = {.kernel = std::string(kCopyKernel)};
  copy.buffers = {BufferOf(op, 0), BufferOf(op, 1)};
  copy.head = {DTypeBytes(op.operands[0]->type->dtype), static_cast<int64_t>(src.axes.size())};
  return AddElementwise(op, std::move(copy));
}

Status Compiler::CompileBinary(const ir::Op& op) {
  const ir::Type& type = *op.operands[0]->type;
  BuiltinCode binary = {.kernel = std::string(kBinaryKernel)};
  binary.buffers = {BufferOf(op, 0), BufferOf(op, 1), BufferOf(op, 2)};
  binary.head = {static_cast<int64_t>(type.dtype), BuiltinOp(op.Name("op")),
                 static_cast<int64_t>(ir::ValueAxes(type).size())};
  return AddElementwise(op, std::move(binary));
}

// The extents, then each operand's strides; the grid counts elements.
Status Compiler::AddElementwise(const ir::Op& op, BuiltinCode builtin) {
  std::vector<const ir::Expr*> extents;
  for (const ir::Axis& axis : ir::ValueAxes(*op.operands[0]->type)) {
    HIR_ASSIGN(builtin.slots.emplace_back(), Slot(axis.extent));
    extents.push_back(axis.extent);
  }
  for (const ir::Value* operand : op.operands) {
    for (const ViewAxis& axis : RegionOf(*operand).axes) {
      HIR_ASSIGN(builtin.slots.emplace_back(), Slot(axis.stride));
    }
  }
  HIR_ASSIGN(builtin.grid, ProductSlot(extents));
  return AddBuiltin(op, std::move(builtin));
}

Status Compiler::CompileReduce(const ir::Op& op) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const std::span<const int64_t> reduced = op.Ints("axes");
  const Region& in = RegionOf(*op.operands[0]);
  const Region& out = RegionOf(*op.operands[1]);
  BuiltinCode reduce = {.kernel = std::string(kReduceKernel)};
  reduce.buffers = {BufferOf(op, 0), BufferOf(op, 1)};
  reduce.head = {static_cast<int64_t>(op.operands[0]->type->dtype), BuiltinOp(op.Name("op")),
                 static_cast<int64_t>(out.axes.size()), static_cast<int64_t>(reduced.size())};
  std::vector<const ir::Expr*> slots, extents, in_strides, pieces;
  for (const bool kept : {true, false}) {  // Kept axes first.
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool is_kept = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) == reduced.end();
      if (is_kept != kept) continue;
      extents.push_back(axes[i].extent);
      in_strides.push_back(in.axes[i].stride);
      if (kept) pieces.push_back(axes[i].extent);
    }
  }
  slots.insert(slots.end(), extents.begin(), extents.end());
  slots.insert(slots.end(), in_strides.begin(), in_strides.end());
  for (const ViewAxis& axis : out.axes) slots.push_back(axis.stride);
  for (const ir::Expr* slot : slots) {
    HIR_ASSIGN(reduce.slots.emplace_back(), Slot(slot));
  }
  HIR_ASSIGN(reduce.grid, ProductSlot(pieces));
  return AddBuiltin(op, std::move(reduce));
}

Status Compiler::AddBuiltin(const ir::Op& op, BuiltinCode builtin) {
  builtin.args = code_.num_args;
  code_.num_args += static_cast<int>(builtin.buffers.size() + builtin.head.size() + builtin.slots.size());
  code_.builtins.push_back(std::move(builtin));
  return Add(op, Instr::Kind::kBuiltin, code_.builtins.size() - 1);
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
