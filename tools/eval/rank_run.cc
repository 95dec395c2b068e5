#include "tools/eval/rank_run.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "tools/arrays/made_up.h"
#include "tools/arrays/npy.h"

namespace hir::eval {
namespace {

using base::Cat;

constexpr uint64_t kPoison = 0xff;  // NaN in every float type.

std::vector<bool> StoredOnce(const ir::Type& type) {
  std::vector<bool> once;
  for (const ir::Axis& axis : ir::ValueAxes(type)) once.push_back(axis.kind == ir::AxisKind::kBroadcast);
  return once;
}

bool IsInAMesh(const ir::Graph& graph, int64_t rank) {
  return std::any_of(graph.meshes().begin(), graph.meshes().end(),
                     [&](const ir::Mesh& mesh) { return mesh.mesh.PositionOf(rank).has_value(); });
}

}  // namespace

Status InputsFit(const Options& options, const Planned& planned, int64_t rank) {
  if (!options.random) return {};
  const auto fits = [&](std::string_view name, const ir::Type& type, const mesh::Sharding* sharding,
                        std::span<const int64_t> shape) -> Status {
    const arrays::Part part = sharding == nullptr
                                  ? arrays::Part::All(shape, shape, StoredOnce(type), DTypeBytes(type.dtype))
                                  : arrays::Part::Of(shape, mesh::ElementsOf(*sharding, shape, rank), StoredOnce(type),
                                                     DTypeBytes(type.dtype));
    return arrays::FitsMemory(part.bytes).WithContext(Cat("input %", name));
  };
  if (planned.is_host) {
    for (const ir::Value* param : planned.plan.host->params) {
      if (param->type->kind == ir::TypeKind::kScalar) continue;
      HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*param->type, planned.sizes));
      HIR_TRY(fits(param->name, *param->type, nullptr, shape));
    }
  }
  for (const plan::Boundary& input : planned.plan.local.inputs) {
    if (input.global->kind == ir::TypeKind::kScalar) continue;
    if (!input.sharding->mesh.PositionOf(rank).has_value()) continue;
    HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*input.global, planned.sizes));
    HIR_TRY(fits(input.name, *input.global, &*input.sharding, shape));
  }
  return {};
}

Status RankRun::Prepare() {
  base::Stopwatch watch;
  HIR_ASSIGN(kernels_, kind_.backends.load_kernels(planned_.artifacts, on_.device()));
  HIR_ASSIGN(program_, host::HostProgram::Load(std::move(planned_.plan.host)));
  arguments_.resize(program_->graph().params.size());
  memory_.resize(arguments_.size());
  for (std::string_view symbol : program_->symbols()) {
    const auto found = planned_.sizes.find(symbol);
    if (found == planned_.sizes.end()) return Internal(Cat("no input gives a value for ", symbol));
    symbols_.push_back(found->second);
  }
  if (!IsInAMesh(program_->graph(), ranks_.rank())) return {};
  host::EvaluatorOptions options;
  options.rank = ranks_.rank();
  options.device = &on_.device();
  options.streams = on_.streams();
  options.kernels = kernels_.get();
  options.libraries = on_.libraries();
  options.communicator = on_.communicator();
  options.pool = &pool_;
  options.replay = options_.graph;
  HIR_ASSIGN(evaluator_, host::Evaluator::Prepare(*program_, options));
  if (options_.graph) HIR_TRY(evaluator_->replayable().WithContext("--graph"));
  timing_.prepare_ms = watch.Ms();
  return {};
}

Result<arrays::Part> RankRun::PartOf(const plan::Boundary& boundary, std::span<const int64_t> whole, bool* held) const {
  HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*boundary.global, planned_.sizes));
  *held = HasPart() && boundary.sharding->mesh.PositionOf(ranks_.rank()).has_value();
  if (!*held) return arrays::Part();
  return arrays::Part::Of(whole.empty() ? shape : whole, mesh::ElementsOf(*boundary.sharding, shape, ranks_.rank()),
                          StoredOnce(*boundary.global), DTypeBytes(boundary.global->dtype), boundary.memory_order);
}

Status RankRun::Allocate(size_t param, std::string_view name, const arrays::Part& part) {
  Result<std::unique_ptr<device::Allocation>> memory = on_.device().Allocate(part.bytes);
  if (!memory.ok()) return memory.status().WithContext(Cat("%", name));
  memory_[param] = *std::move(memory);
  arguments_[param].buffer = memory_[param]->buffer();
  return {};
}

Status RankRun::LoadPart(size_t input, std::string_view name, DType dtype, const arrays::Part& part) {
  HIR_TRY(Allocate(input, name, part));
  std::vector<std::byte> staging;
  return kind_.backends.copy_from_host(on_.device(), arguments_[input].buffer,
                                       planned_.inputs.Bytes(input, dtype, part, staging));
}

Status RankRun::LoadOwn() {
  for (size_t i = 0; i < arguments_.size() && HasPart(); ++i) {
    const ir::Value& param = *program_->graph().params[i];
    if (param.type->kind == ir::TypeKind::kScalar) {
      arguments_[i].scalar_bits = planned_.inputs.ScalarBits(i, param.type->dtype);
      continue;
    }
    HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*param.type, planned_.sizes));
    const arrays::Part part = arrays::Part::All(shape, shape, StoredOnce(*param.type), DTypeBytes(param.type->dtype));
    HIR_TRY(LoadPart(i, param.name, param.type->dtype, part));
  }
  return {};
}

Status RankRun::LoadInputs() {
  if (planned_.is_host) return LoadOwn();
  for (size_t i = 0; i < planned_.plan.local.inputs.size(); ++i) {
    const plan::Boundary& input = planned_.plan.local.inputs[i];
    const DType dtype = input.global->dtype;
    if (input.global->kind == ir::TypeKind::kScalar) {
      arguments_[i].scalar_bits = planned_.inputs.ScalarBits(i, dtype);
      continue;
    }
    HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*input.global, planned_.sizes));
    bool held = false;
    HIR_ASSIGN(const arrays::Part part, PartOf(input, planned_.inputs.ArrayShape(i, shape), &held));
    if (held) HIR_TRY(LoadPart(i, input.name, dtype, part));
  }
  for (size_t i = 0; i < planned_.plan.local.outputs.size(); ++i) {
    const auto param = static_cast<size_t>(program_->outputs()[i]);
    if (param < NumInputs() || memory_[param] != nullptr) continue;
    bool held = false;
    HIR_ASSIGN(const arrays::Part part, PartOf(planned_.plan.local.outputs[i], {}, &held));
    if (held) HIR_TRY(Allocate(param, planned_.plan.local.outputs[i].name, part));
  }
  return {};
}

Status RankRun::Poison() {
  for (size_t param = NumInputs(); param < memory_.size(); ++param) {
    if (memory_[param] != nullptr) on_.streams()[0]->Fill(memory_[param]->buffer(), kPoison, 1);
  }
  return Synchronize();
}

Status RankRun::Queue() {
  if (!HasPart()) return {};
  return evaluator_->Run(binding_, {.seq_base = on_.NextSeqBase()});
}

Status RankRun::Synchronize(int64_t runs) { return HasPart() ? evaluator_->Synchronize(WaitFor(runs)) : Status(); }

// The ranks start together, and have run before: otherwise the first communication shows how far they were apart.
Status RankRun::RunMarked() {
  HIR_TRY(ranks_.Exchange("timeline", "").status());
  if (!HasPart()) return {};
  std::vector<host::OpSpan> spans;
  const int64_t seq_base = on_.NextSeqBase();
  HIR_TRY(evaluator_->Run(binding_, {.seq_base = seq_base, .spans = &spans, .wait_timeout = WaitFor(1)}));
  for (const host::OpSpan& span : spans) {
    timeline_.push_back({.rank = ranks_.rank(),
                         .stream = span.stream,
                         .name = host::NameOf(*span.op),
                         .kind = std::string(span.op->info->name),
                         .queued = span.queued,
                         .queued_end = span.queued_end,
                         .began = span.began,
                         .ended = span.ended});
  }
  return {};
}

Status RankRun::RunOnce() {
  HIR_TRY(Poison());
  base::Stopwatch watch;
  if (HasPart()) HIR_TRY(evaluator_->Bind(arguments_, symbols_, &binding_));
  const Status queued = Queue();
  const Status done = Synchronize();  // Also after an error: what was queued before it uses the memory.
  HIR_TRY(queued);
  HIR_TRY(done);
  if (timing_.first_run_ms == 0) timing_.first_run_ms = watch.Ms();
  return {};
}

Memory RankRun::memory() const {
  Memory memory = {.pool_bytes = pool_.bytes()};
  if (on_.communicator() != nullptr) memory.communication_bytes = on_.communicator()->peak_bytes();
  for (const auto& allocation : memory_) memory.shard_bytes += allocation == nullptr ? 0 : allocation->buffer().bytes;
  return memory;
}

std::vector<std::string> RankRun::OutputPaths() const {
  std::vector<std::string> paths;
  for (const plan::Boundary& output : planned_.plan.local.outputs) {
    std::string path = Cat(options_.out, "/", output.name, ".npy");
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
  }
  return paths;
}

Status RankRun::CreateOutputs() {
  if (ranks_.rank() != 0) return {};
  for (const plan::Boundary& output : planned_.plan.local.outputs) {
    HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*output.global, planned_.sizes));
    HIR_TRY(arrays::NpyWriter::Open(Cat(options_.out, "/", output.name, ".npy"), output.global->dtype, shape,
                                    /*create=*/true)
                .status());
  }
  return {};
}

Status RankRun::WriteOutputs() {
  std::vector<std::byte> staging;
  for (size_t i = 0; i < planned_.plan.local.outputs.size(); ++i) {
    const plan::Boundary& output = planned_.plan.local.outputs[i];
    bool held = false;
    HIR_ASSIGN(const arrays::Part part, PartOf(output, {}, &held));
    if (!held) continue;
    const std::vector<int64_t> owners = mesh::Owners(*output.sharding);
    if (std::find(owners.begin(), owners.end(), ranks_.rank()) == owners.end()) continue;
    staging.resize(static_cast<size_t>(part.bytes));
    const device::Buffer buffer = arguments_[static_cast<size_t>(program_->outputs()[i])].buffer;
    HIR_TRY(kind_.backends.copy_to_host(on_.device(), staging, {buffer.data, part.bytes}));
    HIR_ASSIGN(const std::vector<int64_t> shape, ShapeOf(*output.global, planned_.sizes));
    HIR_ASSIGN(arrays::NpyWriter file, arrays::NpyWriter::Open(Cat(options_.out, "/", output.name, ".npy"),
                                                               output.global->dtype, shape, /*create=*/false));
    HIR_TRY(part.ForEachPiece([&](int64_t whole, int64_t at, int64_t bytes) {
      return file.Write(whole, std::span(staging).subspan(static_cast<size_t>(at), static_cast<size_t>(bytes)));
    }));
  }
  return {};
}

}  // namespace hir::eval
