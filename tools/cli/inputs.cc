#include "tools/cli/inputs.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/ir/graph.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "service/convert/tensor.h"
#include "tools/arrays/made_up.h"
#include "tools/arrays/part.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using arrays::Part;
using base::Cat;

constexpr size_t kSizeCharacters = 64;  // Of a name in an error.

std::string NameOf(const pb::PlanParam& param) { return Cat("input %", param.name()); }

std::vector<bool> StoredOnce(const pb::PlanParam& param) {
  return {param.stored_once().begin(), param.stored_once().end()};
}

// "i0 = 8, i1 = 3"
std::string Text(const std::map<std::string, int64_t, std::less<>>& sizes) {
  std::string out;
  for (const auto& [name, value] : sizes) base::Append(out, out.empty() ? "" : ", ", name, " = ", value);
  return out.empty() ? "no sizes" : out;
}

}  // namespace

Result<ProgramInputs> ProgramInputs::Open(const Params& params, const Options& options) {
  ProgramInputs inputs;
  inputs.params_ = params;
  inputs.seed_ = options.random;
  inputs.sizes_.insert(options.sizes.begin(), options.sizes.end());
  for (const pb::PlanParam& param : params) {  // As the daemon says.
    const std::vector<int64_t> order(param.memory_order().begin(), param.memory_order().end());
    const auto axes = static_cast<size_t>(param.shape_size());
    HIR_TRY(service::CheckMemoryOrder(order, axes).WithContext(NameOf(param)));
    if (param.stored_once_size() == param.shape_size()) continue;
    return Status(Code::kInternal, Cat(NameOf(param), " has ", param.stored_once_size(), " flags for ", axes, " axes"));
  }
  if (!options.random) {
    if (!params.empty() && options.in.empty()) {
      return InvalidArgument(Cat("the program has ", params.size(), params.size() == 1 ? " input" : " inputs",
                                 ": say where they are (--in DIR), or have them made up (--random SEED)"));
    }
    for (const pb::PlanParam& param : params) {
      HIR_ASSIGN(arrays::NpyFile file, arrays::NpyFile::Open(Cat(options.in, "/", param.name(), ".npy")));
      inputs.files_.push_back(std::move(file));
      HIR_TRY(inputs.CheckFile(static_cast<int>(inputs.files_.size()) - 1));
    }
    inputs.BindSizes();
  }
  if (options.random) HIR_TRY(inputs.CheckSizeNames());
  for (int i = 0; i < params.size(); ++i) {
    HIR_ASSIGN(const std::vector<int64_t> shape, inputs.ShapeOf(i));
    if (!options.random || params[i].scalar()) continue;
    HIR_ASSIGN(const DType dtype, service::FromProto(params[i].dtype()));
    const Result<int64_t> bytes = arrays::BytesOf(shape, StoredOnce(params[i]), dtype);
    if (!bytes.ok()) return bytes.status().WithContext(NameOf(params[i]));
    HIR_TRY(arrays::FitsMemory(*bytes).WithContext(NameOf(params[i])));
  }
  return inputs;
}

Status ProgramInputs::CheckFile(int index) const {
  const pb::PlanParam& param = params_[index];
  const arrays::NpyFile& file = files_[static_cast<size_t>(index)];
  HIR_ASSIGN(const DType dtype, service::FromProto(param.dtype()));
  if (!arrays::Holds(file.header().descr, dtype)) {
    return InvalidArgument(Cat(NameOf(param), ": ", file.path(), " holds ", file.header().descr, "; the program wants ",
                               DTypeName(dtype)));
  }
  const size_t axes = static_cast<size_t>(param.shape_size());
  if (file.header().shape.size() != axes) {
    return InvalidArgument(Cat(NameOf(param), ": ", file.path(), " has ", file.header().shape.size(),
                               file.header().shape.size() == 1 ? " axis" : " axes", "; the program wants ",
                               param.scalar() ? "a number, an array without axes" : std::string_view(param.type())));
  }
  return {};
}

// Whether all sizes that are given are those of an input.
Status ProgramInputs::CheckSizeNames() const {
  std::set<std::string_view> symbols;
  ir::Graph graph(host::kHostOps, "sizes");  // For its pool of expressions alone.
  for (const pb::PlanParam& param : params_) {
    for (const std::string& extent : param.shape()) {
      HIR_ASSIGN(const ir::Expr* expr, ir::ParseExtent(extent, graph, {}));
      std::vector<std::string_view> named;
      ir::CollectSymbols(expr, named);
      symbols.insert(named.begin(), named.end());
    }
  }
  for (const auto& [name, value] : sizes_) {
    if (symbols.contains(name)) continue;
    return InvalidArgument(Cat("the program has no size ", name.substr(0, kSizeCharacters), "; its sizes are ",
                               symbols.empty() ? "constants" : base::Join(symbols, ", ")));
  }
  return {};
}

// What the shapes of files say about sizes. Where they disagree ShapeOf says so.
void ProgramInputs::BindSizes() {
  for (int i = 0; i < params_.size(); ++i) {
    for (int axis = 0; axis < params_[i].shape_size(); ++axis) {
      const int64_t extent = files_[static_cast<size_t>(i)].header().shape[static_cast<size_t>(axis)];
      if (params_[i].stored_once(axis) && extent == 1) continue;  // One element for all.
      if (ir::IsSymbolName(params_[i].shape(axis))) sizes_.emplace(params_[i].shape(axis), extent);
    }
  }
}

Result<std::vector<int64_t>> ProgramInputs::ShapeOf(int index) const {
  const pb::PlanParam& param = params_[index];
  ir::Graph graph(host::kHostOps, "sizes");  // For its pool of expressions alone.
  std::vector<int64_t> shape;
  for (int axis = 0; axis < param.shape_size(); ++axis) {
    HIR_ASSIGN(const ir::Expr* expr, ir::ParseExtent(param.shape(axis), graph, {}));
    std::string_view missing;
    const Result<int64_t> value = ir::Evaluate(expr, [&](std::string_view symbol) -> std::optional<int64_t> {
      const auto found = sizes_.find(symbol);
      if (found != sizes_.end()) return found->second;
      missing = symbol;
      return std::nullopt;
    });
    if (!missing.empty()) {
      return InvalidArgument(Cat(NameOf(param), ": ", param.type(), ": nothing gives a value for the size ", missing,
                                 seed_ ? Cat(" (--size ", missing, "=N)") : ""));
    }
    HIR_TRY(value.status().WithContext(NameOf(param)));
    shape.push_back(*value);
    if (files_.empty()) continue;
    const arrays::NpyFile& file = files_[static_cast<size_t>(index)];
    const int64_t extent = file.header().shape[static_cast<size_t>(axis)];
    if (extent == *value || (extent == 1 && param.stored_once(axis))) continue;
    return InvalidArgument(Cat(NameOf(param), ": axis ", axis, " of ", file.path(), " has extent ", extent,
                               "; the program wants ", param.shape(axis),
                               expr->IsConst() ? "" : Cat(" = ", *value, " (", Text(sizes_), ")")));
  }
  return shape;
}

int64_t ProgramInputs::total_bytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < params_.size(); ++i) {
    if (params_[i].scalar()) continue;
    const Result<std::vector<int64_t>> shape = ShapeOf(i);
    const Result<DType> dtype = service::FromProto(params_[i].dtype());
    if (shape.ok() && dtype.ok()) bytes += Part::All(*shape, *shape, StoredOnce(params_[i]), DTypeBytes(*dtype)).bytes;
  }
  return bytes;
}

Result<InputBytes> ProgramInputs::Read(int index) const {
  const pb::PlanParam& param = params_[index];
  HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(index));
  HIR_ASSIGN(const DType dtype, service::FromProto(param.dtype()));
  const std::vector<bool> once = StoredOnce(param);
  const std::vector<int64_t>& stored = files_.empty() ? shape : files_[static_cast<size_t>(index)].header().shape;
  const std::vector<int64_t> order(param.memory_order().begin(), param.memory_order().end());
  const Part part = Part::All(stored, shape, once, DTypeBytes(dtype), order);
  InputBytes input;
  input.header.set_dtype(param.dtype());
  input.header.mutable_shape()->Add(shape.begin(), shape.end());
  for (const bool flag : once) input.header.add_sent_once(flag);
  *input.header.mutable_memory_order() = param.memory_order();
  const Part read = part.FirstOfStoredOnce();
  // Of an array without elements nothing travels, also where an axis that is stored once has none.
  const bool is_empty = std::ranges::find(shape, 0) != shape.end();
  const auto bytes = static_cast<size_t>(is_empty ? 0 : part.bytes);
  if (!files_.empty() && (read.IsOnePiece() || bytes == 0)) {
    input.bytes = {files_[static_cast<size_t>(index)].data() + read.whole_offset, bytes};
    return input;
  }
  input.staging.resize(bytes);
  HIR_TRY(read.ForEachPiece([&](int64_t whole, int64_t at, int64_t piece) {
    std::byte* to = input.staging.data() + at;
    if (!files_.empty()) {
      std::memcpy(to, files_[static_cast<size_t>(index)].data() + whole, static_cast<size_t>(piece));
    } else {
      arrays::MakeUp(dtype, arrays::SeedOf(*seed_, static_cast<size_t>(index)), whole / part.element_bytes,
                     piece / part.element_bytes, to);
    }
    return Status();
  }));
  input.bytes = input.staging;
  return input;
}

pb::RunArg ProgramInputs::Number(int index) const {
  pb::RunArg argument;
  const DType dtype = *service::FromProto(params_[index].dtype());  // Checked by Open.
  const std::byte* from = files_.empty() ? nullptr : files_[static_cast<size_t>(index)].data();
  const auto read = [&]<typename T>(T value) {
    if (from != nullptr) std::memcpy(&value, from, sizeof(value));
    return value;
  };
  // Made up: 1.
  switch (dtype) {
    case DType::kBool: argument.set_bool_value(read(uint8_t{1}) != 0); break;
    case DType::kUInt8: argument.set_int_value(read(uint8_t{1})); break;
    case DType::kInt8: argument.set_int_value(read(int8_t{1})); break;
    case DType::kInt32: argument.set_int_value(read(int32_t{1})); break;
    case DType::kInt64: argument.set_int_value(read(int64_t{1})); break;
    case DType::kFloat16: argument.set_float_value(Float16ToFloat(read(FloatToFloat16(1.0F)))); break;
    case DType::kBFloat16: argument.set_float_value(BFloat16ToFloat(read(FloatToBFloat16(1.0F)))); break;
    case DType::kFloat32: argument.set_float_value(read(1.0F)); break;
    case DType::kFloat64: argument.set_float_value(read(1.0)); break;
  }
  return argument;
}

}  // namespace hir::cli
