#include "tests/property/generator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "csrc/base/text.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/print.h"

namespace hir::testing {

using fusion::FusionOp;

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 0x1p-9;  // Two roundings may fall apart by one unit.
    case DType::kBFloat16: return 0x1p-6;
    case DType::kFloat32: return 0x1p-19;  // Math functions of several units of error.
    case DType::kFloat64: return 0x1p-44;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: return 0;
  }
  return 0;
}

Generator::Generator(uint64_t seed, const GeneratorOptions& options)
    : seed_(seed),
      options_(options),
      rng_(seed * 0x9e3779b97f4a7c15 + 1),
      dealer_(seed),
      graph_(std::make_unique<ir::Graph>(fusion::kFusionOps, base::Cat("seed_", seed))),
      builder_(*graph_) {
  if (options_.mesh_shape.empty()) return;
  int64_t count = 1;
  for (const int64_t extent : options_.mesh_shape) count *= extent;
  std::vector<int64_t> devices;
  for (int64_t i = 0; i < count; ++i) devices.push_back(i);
  mesh_ = graph_->AddMesh(*mesh::DeviceMesh::Make(options_.mesh_shape, devices));
}

std::vector<int64_t> Generator::ShapeOf(const ir::Value* value) const { return *fusion::ShapeOf(*value->type, sizes_); }

int64_t Generator::ElementsOf(const ir::Value* value) const {
  int64_t count = 1;
  for (const int64_t extent : ShapeOf(value)) count *= extent;
  return count;
}

DType Generator::RandomDType() {
  if (Chance(30)) return forced_;
  return kAllDTypes[rng_.Below(std::ssize(kAllDTypes))];
}

DType Generator::RandomFloat() {
  if (IsFloat(forced_) && Chance(50)) return forced_;
  return OneOf<DType>({DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat32, DType::kFloat64});
}

const ir::Expr* Generator::ExtentOfSize(int64_t size) {
  if (Chance(50)) return graph_->exprs().Const(size);
  for (const auto& [name, value] : sizes_) {
    if (value == size && Chance(50)) return graph_->Resolve(graph_->exprs().Symbol(name));
  }
  const std::string name = base::Cat("i", num_symbols_++);
  sizes_[name] = size;
  return graph_->exprs().Symbol(name);
}

const ir::Expr* Generator::KnownExtent(int64_t limit) {
  const int64_t size =
      options_.zero_extents && rng_.OneIn(25) ? 0 : rng_.Between(1, std::max<int64_t>(std::min<int64_t>(limit, 8), 1));
  // An axis drawn for an input may have become another one since: then no input binds its symbol.
  const auto is_bound = [&](std::string_view name) {
    return std::ranges::any_of(graph_->params, [&](const ir::Value* param) {
      return std::ranges::any_of(param->type->axes, [&](const ir::Axis& axis) {
        return axis.extent->kind == ir::ExprKind::kSymbol && axis.extent->symbol == name;
      });
    });
  };
  for (const auto& [name, value] : sizes_) {
    if (value != size || !Chance(30) || !is_bound(name)) continue;
    return graph_->Resolve(graph_->exprs().Symbol(name));
  }
  return graph_->exprs().Const(size);
}

const ir::Expr* Generator::RandomExtent(int64_t limit) {
  if (options_.zero_extents && rng_.OneIn(25)) return ExtentOfSize(0);
  if (mesh_ != nullptr && limit >= 4 && Chance(60)) {
    const int64_t even = 4 * rng_.Between(1, std::min<int64_t>(limit / 4, 3));
    return ExtentOfSize(options_.uneven ? even + rng_.Between(-1, 1) : even);
  }
  return ExtentOfSize(rng_.Between(1, std::max<int64_t>(std::min<int64_t>(limit, 9), 1)));
}

std::vector<ir::Axis> Generator::RandomAxes() {
  const auto rank = static_cast<size_t>(OneOf<int64_t>({0, 1, 1, 2, 2, 2, 3, 3, 4, 5}));
  std::vector<ir::Axis> axes;
  int64_t room = options_.elements_max;
  for (size_t i = 0; i < rank; ++i) {
    const ir::Expr* extent = RandomExtent(std::max<int64_t>(room / 2, 1));
    room /= std::max<int64_t>(*fusion::ValueOf(extent, sizes_), 1);
    const bool broadcast = rng_.OneIn(10);
    axes.push_back({broadcast ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration, extent});
    // Nothing is stored of an extent 0, not even once.
    if (*fusion::ValueOf(extent, sizes_) == 0) axes.back().kind = ir::AxisKind::kIteration;
  }
  return axes;
}

Item Generator::NewParam(DType dtype, const std::vector<ir::Axis>& axes, Draw draw) {
  ir::Value* value = graph_->AddParam(base::Cat("x", graph_->params.size()), graph_->Tensor(dtype, axes));
  std::vector<int64_t> stored = ShapeOf(value);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) stored[i] = 1;
  }
  fusion::HostTensor tensor = fusion::ZeroTensor(dtype, stored);
  std::vector<double> elements(static_cast<size_t>(tensor.num_elements()));
  for (double& x : elements) {
    switch (draw) {
      case Draw::kSigned:
        x = IsFloat(dtype) ? static_cast<double>(rng_.Between(-16, 16)) / 8 : static_cast<double>(rng_.Between(-5, 5));
        break;
      case Draw::kNonzero: x = OneOf<double>({-2, -1, 1, 2}) * (IsFloat(dtype) ? 0.5 : 1); break;
      case Draw::kExponent: x = static_cast<double>(rng_.Between(0, 3)); break;
    }
    if (dtype == DType::kBool) x = x > 0 ? 1 : 0;
  }
  inputs_.push_back(fusion::WrittenOut(fusion::TensorOf(dtype, stored, elements), ShapeOf(value)));
  if (mesh_ != nullptr) Annotate(*value);
  pool_.push_back({value, IsFloat(dtype) ? 2.0 : 5.0, 0});
  return pool_.back();
}

Item Generator::NewConstant(DType dtype, double value) {
  const std::string_view name = DTypeName(dtype);
  return {Emit("constant", {}, {{"value", value}, {"dtype", name}}), std::fabs(value), 0};
}

Item Generator::NewScalar(DType dtype, double value) {
  if (Chance(60)) return NewConstant(dtype, value);
  ir::Value* param = graph_->AddParam(base::Cat("s", graph_->params.size()), graph_->Scalar(dtype));
  inputs_.push_back(fusion::TensorOf(dtype, {}, std::vector<double>{value}));
  return {param, std::fabs(value), 0};
}

Item Generator::Pick(const Accept& accept, DType dtype) {
  std::vector<const Item*> fit;
  for (const Item& item : pool_) {
    const bool usable = item.bound <= 4096 && item.error <= 0.1 * std::max(item.bound, 1.0);
    if (usable && ElementsOf(item.value) <= options_.elements_max && accept(item)) fit.push_back(&item);
  }
  if (fit.empty() || rng_.OneIn(8)) return NewParam(dtype, RandomAxes());
  // The younger half more often, so that programs get deep.
  const int64_t n = std::ssize(fit);
  return *fit[static_cast<size_t>(Chance(60) ? rng_.Between(n / 2, n - 1) : rng_.Below(n))];
}

Item Generator::PickNumber() {
  const DType dtype = RandomDType();
  return Pick([](const Item& x) { return x.dtype() != DType::kBool; }, dtype == DType::kBool ? RandomFloat() : dtype);
}

ir::Value* Generator::Emit(std::string_view name, std::vector<ir::Value*> operands, std::vector<ir::Attr> attrs) {
  const Result<ir::Op*> op = builder_.Add({.name = name, .operands = operands, .attrs = attrs});
  if (!op.ok()) {
    std::fprintf(stderr, "seed %llu: %s\n%s\n", static_cast<unsigned long long>(seed_), op.status().ToString().c_str(),
                 ir::Print(*graph_).c_str());
    std::abort();
  }
  return (*op)->results[0];
}

Item Generator::Add(ir::Value* value, double bound, double error) {
  const DType dtype = value->type->dtype;
  const double compute = Epsilon(ComputeDType(dtype)) * std::max(bound, 1.0);
  return AddExact(value, bound, error + Epsilon(dtype) * bound + compute * (IsFloat(dtype) ? 1 : 0));
}

Item Generator::AddExact(ir::Value* value, double bound, double error) {
  if (mesh_ != nullptr) Annotate(*value);
  const DType dtype = value->type->dtype;
  if (DTypeBytes(dtype) == 1) bound = static_cast<double>(LimitsOf(dtype).greatest + (dtype == DType::kInt8 ? 1 : 0));
  const Item item = {value, bound, error};
  if (value->type->kind == ir::TypeKind::kTensor) pool_.push_back(item);
  return item;
}

// A mesh on a third of the values, sharded where the sizes allow it, or anywhere; some of what the mesh divides is
// dealt in turns.
void Generator::Annotate(ir::Value& value) {
  if (!rng_.OneIn(3) || value.type->kind != ir::TypeKind::kTensor || value.layout != nullptr) return;
  const std::vector<ir::Axis> axes = AxesOf(&value);
  const std::vector<int64_t> shape = ShapeOf(&value);
  std::vector<fusion::Types> splits(axes.size());
  for (const mesh::ParallelType type : mesh::kMeshTypes) {
    if (!mesh_->mesh.Has(type) || axes.empty() || !Chance(70)) continue;
    const auto axis = static_cast<size_t>(rng_.Below(std::ssize(axes)));
    const bool divides = shape[axis] > 0 && shape[axis] % mesh_->mesh.Size(type) == 0;
    fusion::Types& split = splits[axis];
    const bool may_split = options_.uneven ? !split.is_dealt() : divides && split.empty();
    if (!may_split || axes[axis].kind != ir::AxisKind::kIteration) continue;
    split.push_back(type);
    if (divides && split.size() == 1 && dealer_.OneIn(3)) split.dealt = mesh_->mesh.Size(type);
  }
  value.layout = fusion::LayoutFor(*graph_, *value.type, fusion::FromValueTypes(*value.type, mesh_, splits));
}

void Generator::Step(FusionOp op) {
  if (op == FusionOp::kCast) return Cast();
  if (op == FusionOp::kConstant) return Constants();
  if (op == FusionOp::kFull) return Full();
  if (op == FusionOp::kIota) return Iota();
  if (op == FusionOp::kExtent || op == FusionOp::kSize) return Sizes(op);
  if (op == FusionOp::kMean || op == FusionOp::kVar || op == FusionOp::kVarSum)
    return Moments(fusion::kFusionOps.ops[static_cast<size_t>(op)].name);
  if (op == FusionOp::kAny || op == FusionOp::kAll) return AnyAll(fusion::kFusionOps.ops[static_cast<size_t>(op)].name);
  if (op == FusionOp::kUniform || op == FusionOp::kNormal) return Random(op == FusionOp::kUniform);
  if (op == FusionOp::kMatmul) return Matmul();
  if (op == FusionOp::kLinear) return Linear();
  if (fusion::IsAttention(op)) return Attention(op);
  if (fusion::IsGrouped(op)) return Grouped(op);
  if (fusion::IsReduction(op)) return Reduce(fusion::kFusionOps.ops[static_cast<size_t>(op)].name);
  if (fusion::IsPointwise(op)) return Pointwise(op);
  Move(op);
}

GeneratedProgram Generator::Run() {
  std::vector<FusionOp> ops;
  std::vector<FusionOp> movers;
  for (int i = 0; i < fusion::kNumFusionOps; ++i) {
    const auto op = static_cast<FusionOp>(i);
    if (fusion::IsPlanned(op)) continue;
    ops.push_back(op);
    if (!fusion::IsPointwise(op)) movers.push_back(op);
  }
  // Each op and each type comes first in some seed, whatever chance does.
  const auto n = static_cast<uint64_t>(ops.size());
  forced_ = kAllDTypes[(seed_ / 3) % std::size(kAllDTypes)];
  const FusionOp first = ops[seed_ % n];
  NewParam(forced_, RandomAxes());
  const int64_t steps = rng_.Between(options_.num_ops_min, options_.num_ops_max);
  const int64_t forced_at = rng_.Below(steps);
  for (int64_t i = 0; i < steps; ++i) {
    if (i != forced_at && rng_.OneIn(8)) {
      if (rng_.OneIn(3)) {
        ProductOfTurnedAxes();
      } else if (rng_.OneIn(4)) {
        JoinedGroups();
      } else if (mesh_ != nullptr && rng_.OneIn(2)) {
        SumsOverRanks();
      } else {
        AcrossABoundary();
      }
    } else {
      Step(i == forced_at ? first : OneOf(Chance(45) ? movers : ops));
    }
  }
  GeneratedProgram program;
  Finish(program);
  return program;
}

void Generator::Finish(GeneratedProgram& program) {
  std::vector<bool> read(graph_->values().size());
  ir::ForEachOp(graph_->body, [&](const ir::Op* op) {
    for (const ir::Value* operand : op->operands) read[static_cast<size_t>(operand->id)] = true;
  });
  const int64_t one_in = OneOf<int64_t>({2, 6, 6});
  std::vector<const Item*> ends;
  for (const Item& item : pool_) {
    const bool end = !read[static_cast<size_t>(item.value->id)] && item.value->def != nullptr;
    if (end || rng_.OneIn(one_in)) ends.push_back(&item);  // A value may be output and read, an input may be an output.
  }
  const size_t most = OneOf<size_t>({4, 4, 4, 12});
  while (ends.size() > most) ends.erase(ends.begin() + rng_.Below(std::ssize(ends)));
  if (ends.empty()) ends.push_back(&pool_.back());
  for (const Item* item : ends) {
    graph_->outputs.push_back({item->value, nullptr});
    program.tolerances.push_back(item->error);
  }
  for (ir::Output& output : graph_->outputs) {
    if (output.value->def != nullptr && rng_.OneIn(4)) output.alias = InputForOutput(output.value);
  }
  if (rng_.OneIn(2)) OrderMemory();
  program.seed = seed_;
  program.graph = std::move(graph_);
  program.sizes = std::move(sizes_);
  program.inputs = std::move(inputs_);
}

void Generator::OrderMemory() {
  const auto order = [this](ir::Value& value) {
    std::vector<int64_t> places;
    for (int64_t axis = 0; axis < std::ssize(AxesOf(&value)); ++axis)
      places.insert(places.begin() + rng_.Between(0, axis), axis);
    value.stride_order = graph_->Copy(places);
  };
  for (ir::Value* param : graph_->params) {
    if (ir::IsTensor(*param) && rng_.OneIn(3)) order(*param);
  }
  for (const ir::Output& output : graph_->outputs) {
    const bool replaces = std::ranges::any_of(graph_->outputs, [&](const ir::Output& other) {
      return other.value == output.value && other.alias != nullptr;  // It lies as what it replaces.
    });
    if (!replaces && output.value->def != nullptr && ir::IsTensor(*output.value) && rng_.OneIn(3)) order(*output.value);
  }
}

GeneratedProgram Generate(uint64_t seed, const GeneratorOptions& options) { return Generator(seed, options).Run(); }

std::string GeneratedProgram::Describe() const {
  std::string text = base::Cat("seed ", seed, "; sizes");
  for (const auto& [name, value] : sizes) base::Append(text, " ", name, "=", value);
  return base::Cat(text, "\n", ir::Print(*graph));
}

std::set<std::string> OpsOf(const ir::Graph& graph) {
  std::set<std::string> names;
  ir::ForEachOp(graph.body, [&](const ir::Op* op) { names.emplace(op->info->name); });
  return names;
}

std::set<std::string> DTypesOf(const ir::Graph& graph) {
  std::set<std::string> names;
  const auto add = [&](const ir::Value* value) {
    if (value->type->kind == ir::TypeKind::kTensor) names.emplace(DTypeName(value->type->dtype));
  };
  for (const ir::Value* param : graph.params) add(param);
  ir::ForEachOp(graph.body, [&](const ir::Op* op) { add(op->results[0]); });
  return names;
}

std::string Difference(const fusion::HostTensor& got, const fusion::HostTensor& want, double tolerance) {
  const auto shape = [](const fusion::HostTensor& t) {
    return base::Cat(DTypeName(t.dtype), "[", base::JoinInts(t.shape, ", "), "]");
  };
  if (got.dtype != want.dtype || got.shape != want.shape) return base::Cat("got ", shape(got), ", want ", shape(want));
  if (!IsFloat(got.dtype)) {
    const std::vector<int64_t> a = fusion::ToInts(got), b = fusion::ToInts(want);
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) return base::Cat("element ", i, " of ", shape(want), " is ", a[i], ", want ", b[i]);
    }
    return {};
  }
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || std::fabs(a[i] - b[i]) <= tolerance;
    if (!same) {
      return base::Cat("element ", i, " of ", shape(want), " is ", a[i], ", want ", b[i], " within ", tolerance);
    }
  }
  return {};
}

}  // namespace hir::testing
