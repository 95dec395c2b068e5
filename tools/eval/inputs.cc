#include "tools/eval/inputs.h"

#include <bit>
#include <cstring>
#include <utility>

#include "csrc/base/text.h"
#include "tools/arrays/made_up.h"

namespace hir::eval {
namespace {

using base::Cat;

// "i0 = 8, i1 = 3"
std::string Text(const Sizes& sizes) {
  std::string out;
  for (const auto& [name, value] : sizes) base::Append(out, out.empty() ? "" : ", ", name, " = ", value);
  return out.empty() ? "no sizes" : out;
}

// Errors of one input start with its name.
std::string NameOf(const InputType& input) { return Cat("input %", input.name); }

Status CheckFile(const InputType& input, const arrays::NpyFile& file) {
  const bool scalar = input.type->kind == ir::TypeKind::kScalar;
  const arrays::NpyHeader& header = file.header();
  if (!arrays::Holds(header.descr, input.type->dtype)) {
    return InvalidArgument(Cat(NameOf(input), ": ", file.path(), " holds ", header.descr, "; the program wants ",
                               DTypeName(input.type->dtype)));
  }
  const size_t axes = scalar ? 0 : ir::ValueAxes(*input.type).size();
  if (header.shape.size() != axes) {
    return InvalidArgument(Cat(NameOf(input), ": ", file.path(), " has ", header.shape.size(),
                               header.shape.size() == 1 ? " axis" : " axes", "; the program wants ",
                               scalar ? "a number, an array without axes" : ir::ToString(*input.type)));
  }
  return {};
}

}  // namespace

Result<int64_t> ValueOf(const ir::Expr* expr, const Sizes& sizes) {
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(expr, symbols);
  for (std::string_view symbol : symbols) {
    if (!sizes.contains(symbol)) return InvalidArgument(Cat("nothing gives a value for the size ", symbol));
  }
  return ir::Evaluate(expr,
                      [&](std::string_view symbol) -> std::optional<int64_t> { return sizes.find(symbol)->second; });
}

Result<std::vector<int64_t>> ShapeOf(const ir::Type& tensor, const Sizes& sizes) {
  std::vector<int64_t> shape;
  for (const ir::Axis& axis : ir::ValueAxes(tensor)) {
    HIR_ASSIGN(shape.emplace_back(), ValueOf(axis.extent, sizes));
  }
  return shape;
}

Result<Inputs> Inputs::Open(std::span<const InputType> types, const Options& options) {
  Inputs inputs(options.random, options.sizes);
  if (options.random) return inputs;
  if (!types.empty() && options.in.empty()) {
    return InvalidArgument(Cat("the program has ", types.size(), types.size() == 1 ? " input" : " inputs",
                               ": say where they are (--in DIR), or have them made up (--random SEED)"));
  }
  for (const InputType& input : types) {
    HIR_ASSIGN(arrays::NpyFile file, arrays::NpyFile::Open(Cat(options.in, "/", input.name, ".npy")));
    HIR_TRY(CheckFile(input, file));
    inputs.files_.push_back(std::move(file));
  }
  return inputs;
}

Result<Sizes> Inputs::BindSizes(std::span<const InputType> types) const {
  Sizes sizes = given_;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (types[i].type->kind == ir::TypeKind::kScalar) continue;
    const std::vector<ir::Axis> axes = ir::ValueAxes(*types[i].type);
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const int64_t extent = files_[i].header().shape[axis];
      if (axes[axis].kind == ir::AxisKind::kBroadcast && extent == 1) continue;  // One element for all.
      if (axes[axis].extent->kind == ir::ExprKind::kSymbol) sizes.emplace(axes[axis].extent->symbol, extent);
    }
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].type->kind == ir::TypeKind::kScalar) continue;
    const Result<std::vector<int64_t>> wanted = ShapeOf(*types[i].type, sizes);
    if (!wanted.ok()) {
      return wanted.status().WithContext(
          Cat(NameOf(types[i]), ": ", ir::ToString(*types[i].type), files_.empty() ? " (--size)" : ""));
    }
    if (files_.empty()) {
      // Of the whole only that its bytes can be counted: which part a rank makes up the plan says.
      std::vector<bool> once;
      for (const ir::Axis& axis : ir::ValueAxes(*types[i].type)) once.push_back(axis.kind == ir::AxisKind::kBroadcast);
      const Result<int64_t> bytes = arrays::BytesOf(*wanted, once, types[i].type->dtype);
      if (!bytes.ok()) return bytes.status().WithContext(NameOf(types[i]));
      continue;
    }
    for (size_t axis = 0; axis < wanted->size(); ++axis) {
      const ir::Axis declared = ir::ValueAxes(*types[i].type)[axis];
      const int64_t extent = files_[i].header().shape[axis];
      if (extent == (*wanted)[axis] || (extent == 1 && declared.kind == ir::AxisKind::kBroadcast)) continue;
      return InvalidArgument(
          Cat(NameOf(types[i]), ": axis ", axis, " of ", files_[i].path(), " has extent ", extent,
              "; the program wants ", ir::ToString(declared.extent),
              declared.extent->IsConst() ? "" : Cat(" = ", (*wanted)[axis], " (", Text(sizes), ")")));
    }
  }
  return sizes;
}

std::vector<int64_t> Inputs::ArrayShape(size_t index, const std::vector<int64_t>& shape) const {
  return files_.empty() ? shape : files_[index].header().shape;
}

std::span<const std::byte> Inputs::Bytes(size_t index, DType dtype, const arrays::Part& part,
                                         std::vector<std::byte>& staging) const {
  const arrays::Part read = part.FirstOfStoredOnce();
  const auto bytes = static_cast<size_t>(part.bytes);
  if (!files_.empty() && read.IsOnePiece()) return {files_[index].data() + read.whole_offset, bytes};
  staging.resize(bytes);
  (void)read
      .ForEachPiece([&](int64_t whole, int64_t at, int64_t piece) {
        if (!files_.empty()) {
          std::memcpy(staging.data() + at, files_[index].data() + whole, static_cast<size_t>(piece));
          return Status();
        }
        arrays::MakeUp(dtype, arrays::SeedOf(*seed_, index), whole / part.element_bytes, piece / part.element_bytes,
                       staging.data() + at);
        return Status();
      })
      .ok();
  return staging;
}

int64_t Inputs::ScalarBits(size_t index, DType dtype) const {
  if (files_.empty()) return IsFloat(dtype) ? std::bit_cast<int64_t>(1.0) : 1;
  const std::byte* from = files_[index].data();
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, from, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kBool: return read(uint8_t{}) != 0;
    case DType::kUInt8: return read(uint8_t{});
    case DType::kInt8: return read(int8_t{});
    case DType::kInt32: return read(int32_t{});
    case DType::kInt64: return read(int64_t{});
    case DType::kFloat16: return std::bit_cast<int64_t>(double{Float16ToFloat(read(uint16_t{}))});
    case DType::kBFloat16: return std::bit_cast<int64_t>(double{BFloat16ToFloat(read(uint16_t{}))});
    case DType::kFloat32: return std::bit_cast<int64_t>(double{read(float{})});
    case DType::kFloat64: return std::bit_cast<int64_t>(read(double{}));
  }
  return 0;
}

}  // namespace hir::eval
