#include "tests/property/run_on_ranks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/bind.h"
#include "csrc/ir/print.h"
#include "host_ir/eval/evaluator.h"
#include "host_ir/rank/joined_kernels.h"
#include "tests/property/interpreted_library.h"

namespace hir::testing {
namespace {

using fusion::HostTensor;
using mesh::Range;
constexpr std::byte kPoison{0x7b};

// The code of all kernels of a program.
Result<std::vector<codegen::Artifact>> CompileAll(const host::ProgramPlan& plan, const RankRunOptions& options) {
  std::vector<codegen::Artifact> artifacts;
  for (const codegen::KernelPlan& kernel : plan.kernels) {
    HIR_ASSIGN(artifacts.emplace_back(),
               options.backends != nullptr ? options.compile(kernel) : options.compiler->Compile(kernel));
  }
  return artifacts;
}

Result<std::unique_ptr<device::KernelSource>> LoadAll(std::span<const codegen::Artifact> artifacts) {
  auto joined = std::make_unique<rank::JoinedKernels>();
  for (const codegen::Artifact& artifact : artifacts) {
    HIR_ASSIGN(auto source, codegen::cpu::Load(artifact));
    joined->Add(artifact.kernels, std::move(source));
  }
  return std::unique_ptr<device::KernelSource>(std::move(joined));
}

// Copies the elements of `whole` that `range` has to their places in `part`, a padded block, or back.
void MoveBlock(const HostTensor& whole, const mesh::PartRange& range, std::byte* whole_bytes, std::byte* part,
               bool to_part, std::span<const int64_t> memory_order = {}) {
  const size_t element = static_cast<size_t>(DTypeBytes(whole.dtype));
  const size_t rank = range.valid.size();
  std::vector<int64_t> index(rank, 0);
  for (const Range& valid : range.valid) {
    if (valid.size() == 0) return;
  }
  for (;;) {
    int64_t at = 0, place = 0;
    for (size_t i = 0; i < rank; ++i) {
      at = at * whole.shape[i] + range.valid[i].begin + index[i] * range.valid[i].step;
      const size_t axis = memory_order.empty() ? i : static_cast<size_t>(memory_order[i]);
      place = place * range.block[axis] + index[axis];
    }
    std::byte* element_bytes = whole_bytes + static_cast<size_t>(at) * element;
    std::byte* part_bytes = part + static_cast<size_t>(place) * element;
    std::memcpy(to_part ? part_bytes : element_bytes, to_part ? element_bytes : part_bytes, element);
    size_t axis = rank;
    while (axis > 0 && ++index[axis - 1] == range.valid[axis - 1].size()) index[--axis] = 0;
    if (axis == 0) return;
  }
}

// One rank's memory for a parameter of the program.
struct Shard {
  mesh::PartRange range;  // Of the stored form: stored-once axes have extent 1.
  std::vector<int64_t> memory_order;
  std::vector<std::byte> bytes;
  bool held = false;  // By this rank.
};

Result<Shard> MakeShard(const plan::Boundary& boundary, const HostTensor& stored, int64_t rank) {
  Shard shard;
  shard.memory_order = boundary.memory_order;
  shard.held = boundary.sharding->mesh.PositionOf(rank).has_value();
  if (!shard.held) return shard;
  // An axis that is stored once is whole on every rank that has it.
  mesh::Sharding sharding = *boundary.sharding;
  const std::vector<ir::Axis> axes = ir::ValueAxes(*boundary.global);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) sharding.axes[i] = {};
  }
  shard.range = mesh::ElementsOf(sharding, stored.shape, rank);
  int64_t elements = 1;
  for (const int64_t extent : shard.range.block) elements *= extent;
  shard.bytes.assign(static_cast<size_t>(elements * DTypeBytes(stored.dtype)) + 1,
                     kPoison);  // Never empty.
  return shard;
}

// Everything of one run that is the same for all ranks.
struct Run {
  Run(host::ProgramPlan& the_plan, const RankRunOptions& the_options) : plan(the_plan), options(the_options) {}

  host::ProgramPlan& plan;
  const RankRunOptions& options;
  std::unique_ptr<host::HostProgram> program;
  std::vector<codegen::Artifact> artifacts;
  std::unique_ptr<device::KernelSource> kernels;  // Of CPUs, for all ranks; null: each loads its own.
  fusion::SymbolValues symbols;
  std::vector<HostTensor> inputs;          // Stored form.
  std::vector<HostTensor> outputs;         // Stored form: being gathered, or expected.
  std::vector<std::vector<bool>> written;  // Per output and element; none of what is expected.
  const PartCheck* check = nullptr;        // Of what is expected,
  std::set<size_t> unchecked;              // but for these.
  std::mutex mutex;                        // Guards outputs, written.
};

// The stored form of a whole tensor of the boundary's type.
Result<std::vector<int64_t>> StoredShape(const plan::Boundary& boundary, const fusion::SymbolValues& symbols) {
  HIR_ASSIGN(std::vector<int64_t> shape, fusion::ShapeOf(*boundary.global, symbols));
  const std::vector<ir::Axis> axes = ir::ValueAxes(*boundary.global);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) shape[i] = 1;
  }
  return shape;
}

Status Gather(Run& run, size_t output, const Shard& shard) {
  HostTensor& whole = run.outputs[output];
  HostTensor part = whole;  // What this rank says of its block.
  std::lock_guard lock(run.mutex);
  MoveBlock(whole, shard.range, part.bytes.data(), const_cast<std::byte*>(shard.bytes.data()), false,
            shard.memory_order);
  HostTensor mask = fusion::ZeroTensor(DType::kBool, whole.shape);
  std::vector<std::byte> ones(shard.bytes.size(), std::byte{1});
  MoveBlock(mask, shard.range, mask.bytes.data(), ones.data(), false);
  const size_t element = static_cast<size_t>(DTypeBytes(whole.dtype));
  for (size_t i = 0; i < mask.bytes.size(); ++i) {
    if (mask.bytes[i] == std::byte{0}) continue;
    std::byte* to = whole.bytes.data() + i * element;
    const std::byte* from = part.bytes.data() + i * element;
    if (run.written[output][i] && std::memcmp(to, from, element) != 0) {
      return Internal(base::Cat("output ", output, ": ranks hold different copies of element ", i));
    }
    std::memcpy(to, from, element);
    run.written[output][i] = true;
  }
  return {};
}

// The elements of `whole` that `range` has, as a tensor of its own: without padding, which is nobody's business.
HostTensor PartOf(HostTensor& whole, mesh::PartRange range) {
  std::vector<int64_t> extents;
  for (const Range& valid : range.valid) extents.push_back(valid.size());
  HostTensor part = fusion::ZeroTensor(whole.dtype, extents);
  range.block = std::move(extents);
  MoveBlock(whole, range, whole.bytes.data(), part.bytes.data(), true);
  return part;
}

Status Compare(Run& run, size_t output, Shard& shard) {
  if (run.unchecked.contains(output)) return {};
  const std::lock_guard lock(run.mutex);
  HostTensor& expected = run.outputs[output];
  HostTensor held = expected;
  MoveBlock(expected, shard.range, held.bytes.data(), shard.bytes.data(), false, shard.memory_order);
  const std::string wrong = (*run.check)(output, PartOf(held, shard.range), PartOf(expected, shard.range));
  if (wrong.empty()) return {};
  return Internal(
      base::Cat("output ", output, ": in its block [", base::JoinInts(shard.range.block, ", "), "], ", wrong));
}

int64_t ScalarBits(const HostTensor& tensor) {
  int64_t bits = 0;
  if (IsFloat(tensor.dtype)) {
    const double value = fusion::ToDoubles(tensor)[0];
    std::memcpy(&bits, &value, sizeof bits);
  } else {
    bits = fusion::ToInts(tensor)[0];
  }
  return bits;
}

bool IsInAMesh(const ir::Graph& graph, int64_t rank) {
  return std::ranges::any_of(graph.meshes(),
                             [&](const ir::Mesh& mesh) { return mesh.mesh.PositionOf(rank).has_value(); });
}

// One rank's run: what it is made from, its memory, and what it holds. What is queued ends before the memory does.
class RankRun {
 public:
  RankRun(Run& run, int64_t rank, comm::Communicator& communicator, device::Device& device)
      : run_(run), rank_(rank), communicator_(communicator), device_(device) {}

  // Collective.
  Status Execute() {
    const ir::Graph& graph = run_.program->graph();
    if (!IsInAMesh(graph, rank_)) return {};
    for (int i = 0; i < rank::kStreams; ++i) {
      HIR_ASSIGN(owned_.emplace_back(), device_.CreateStream());
      streams_.push_back(owned_.back().get());
    }
    HIR_ASSIGN(const auto evaluator, Prepare());
    HIR_TRY(MakeShards());
    HIR_TRY(Place());
    std::vector<int64_t> symbols;
    for (std::string_view name : run_.program->symbols()) {
      const auto value = run_.symbols.find(name);
      if (value == run_.symbols.end()) return Internal(base::Cat("symbol ", name, " has no value"));
      symbols.push_back(value->second);
    }
    host::Binding binding;
    HIR_TRY(evaluator->Bind(arguments_, symbols, &binding));
    HIR_TRY(evaluator->Run(binding, {}));
    HIR_TRY(evaluator->Synchronize(std::chrono::seconds(3600)));
    if (run_.options.taken != nullptr) Tell((*run_.options.taken)[static_cast<size_t>(rank_)]);
    for (size_t i = 0; i < run_.outputs.size(); ++i) {
      const std::string_view name = MemoryOf(graph.outputs[i]).name;
      Shard& shard = shards_.find(name)->second;
      if (!shard.held) continue;
      HIR_TRY(TakeBack(name, shard));
      HIR_TRY(run_.written.empty() ? Compare(run_, i, shard) : Gather(run_, i, shard));
    }
    return {};
  }

 private:
  void Tell(RankBytes& taken) const {
    for (size_t i = 0; i < arguments_.size(); ++i)
      (i < run_.inputs.size() ? taken.inputs : taken.outputs) += arguments_[i].buffer.bytes;
    taken.pool = pool_->bytes();
  }

  Result<std::unique_ptr<host::Evaluator>> Prepare() {
    const rank::Backends* const backends = run_.options.backends;
    device::KernelSource* kernels = run_.kernels.get();
    if (backends == nullptr) {
      libraries_ = std::make_unique<InterpretedLibrary>();
    } else {
      HIR_ASSIGN(kernels_, backends->load_kernels(run_.artifacts, device_));
      HIR_ASSIGN(libraries_, backends->make_libraries(device_, 1));
      kernels = kernels_.get();
    }
    pool_ = std::make_unique<host::Pool>(device_);
    return host::Evaluator::Prepare(*run_.program, {.rank = rank_,
                                                    .device = &device_,
                                                    .streams = streams_,
                                                    .kernels = kernels,
                                                    .libraries = libraries_.get(),
                                                    .communicator = &communicator_,
                                                    .pool = pool_.get()});
  }

  // Where it lies: of those that may lie in an input, three programs of four do.
  const ir::Value& MemoryOf(const ir::Output& output) const {
    return output.alias != nullptr && run_.options.seed % 4 != 3 ? *output.alias : *output.value;
  }

  Status MakeShards() {
    const ir::Graph& graph = run_.program->graph();
    arguments_.resize(graph.params.size());
    for (size_t i = 0; i < run_.inputs.size(); ++i) {
      const plan::Boundary& boundary = run_.plan.local.inputs[i];
      if (!boundary.sharding) {
        arguments_[i].scalar_bits = ScalarBits(run_.inputs[i]);
        continue;
      }
      HIR_ASSIGN(Shard shard, MakeShard(boundary, run_.inputs[i], rank_));
      if (shard.held)
        MoveBlock(run_.inputs[i], shard.range, run_.inputs[i].bytes.data(), shard.bytes.data(), true,
                  boundary.memory_order);
      shards_[std::string(graph.params[i]->name)] = std::move(shard);
    }
    for (size_t i = 0; i < run_.outputs.size(); ++i) {
      const std::string name(MemoryOf(graph.outputs[i]).name);
      if (shards_.contains(name)) continue;  // An input, or in its memory, or the same value returned twice.
      HIR_ASSIGN(shards_[name], MakeShard(run_.plan.local.outputs[i], run_.outputs[i], rank_));
    }
    return {};
  }

  // The shards as arguments: as they are, or in the device's memory.
  Status Place() {
    const ir::Graph& graph = run_.program->graph();
    for (size_t i = 0; i < graph.params.size(); ++i) {
      const auto found = shards_.find(graph.params[i]->name);
      if (found == shards_.end() || !found->second.held) continue;
      Shard& shard = found->second;
      arguments_[i].buffer = {shard.bytes.data(), static_cast<int64_t>(shard.bytes.size()) - 1};
      if (run_.options.backends == nullptr) continue;
      HIR_ASSIGN(auto& memory = memory_[found->first], device_.Allocate(static_cast<int64_t>(shard.bytes.size())));
      HIR_TRY(run_.options.backends->copy_from_host(device_, memory->buffer(), shard.bytes));
      arguments_[i].buffer.data = memory->buffer().data;
    }
    for (const ir::Output& output : graph.outputs)
      arguments_[static_cast<size_t>(output.value->index)] = arguments_[static_cast<size_t>(MemoryOf(output).index)];
    return {};
  }

  Status TakeBack(std::string_view name, Shard& shard) {
    const auto memory = memory_.find(name);
    if (memory == memory_.end()) return {};
    return run_.options.backends->copy_to_host(device_, shard.bytes, memory->second->buffer());
  }

  Run& run_;
  const int64_t rank_;
  comm::Communicator& communicator_;
  device::Device& device_;
  std::map<std::string, Shard, std::less<>> shards_;  // By parameter.
  std::map<std::string, std::unique_ptr<device::Allocation>, std::less<>> memory_;
  std::vector<host::Argument> arguments_;
  std::unique_ptr<device::KernelSource> kernels_;
  std::unique_ptr<host::LibrarySource> libraries_;
  std::unique_ptr<host::Pool> pool_;
  std::vector<std::unique_ptr<device::Stream>> owned_;
  std::vector<device::Stream*> streams_;
};

// `expected` null: the outputs are gathered.
Status RunAll(Run& run, std::span<const HostTensor> inputs, const HostTensor* expected) {
  const RankRunOptions& options = run.options;
  HIR_ASSIGN(run.program, host::HostProgram::Load(ir::Print(*run.plan.host)));
  HIR_ASSIGN(run.artifacts, CompileAll(run.plan, options));
  if (options.backends == nullptr) {
    HIR_ASSIGN(run.kernels, LoadAll(run.artifacts));
  }
  HIR_ASSIGN(run.symbols, fusion::BindSymbols(*run.plan.global, inputs));
  for (size_t i = 0; i < inputs.size(); ++i)
    run.inputs.push_back(fusion::Stored(*run.plan.local.inputs[i].global, inputs[i]));
  for (size_t i = 0; i < run.plan.local.outputs.size(); ++i) {
    const plan::Boundary& output = run.plan.local.outputs[i];
    if (expected != nullptr) {
      // What no index reaches may be anything: a stored-once axis without extent has an element in memory.
      if (expected[i].num_elements() == 0) run.unchecked.insert(i);
      run.outputs.push_back(fusion::Stored(*output.global, expected[i]));
      continue;
    }
    HIR_ASSIGN(std::vector<int64_t> shape, StoredShape(output, run.symbols));
    run.outputs.push_back(fusion::ZeroTensor(output.global->dtype, std::move(shape)));
    run.written.emplace_back(static_cast<size_t>(run.outputs.back().num_elements()), false);
  }
  const std::unique_ptr<Ranks> simulated = MakeLocalRanks(options.num_ranks, options.seed, options.random_delay_max);
  Ranks& ranks = options.ranks == nullptr ? *simulated : *options.ranks;
  HIR_CHECK(ranks.size() == options.num_ranks);
  return ranks.Run([&](int64_t rank, comm::Communicator& communicator, device::Device& device) {
    return RankRun(run, rank, communicator, device).Execute();
  });
}

}  // namespace

Status CheckOnRanks(host::ProgramPlan& plan, std::span<const HostTensor> inputs, std::span<const HostTensor> expected,
                    const PartCheck& check, const RankRunOptions& options) {
  HIR_CHECK(expected.size() == plan.local.outputs.size());
  Run run(plan, options);
  run.check = &check;
  return RunAll(run, inputs, expected.data());
}

Result<std::vector<HostTensor>> RunOnRanks(host::ProgramPlan& plan, std::span<const HostTensor> inputs,
                                           const RankRunOptions& options) {
  Run run(plan, options);
  HIR_TRY(RunAll(run, inputs, nullptr));
  std::vector<HostTensor> outputs;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (std::find(run.written[i].begin(), run.written[i].end(), false) != run.written[i].end()) {
      return Internal(base::Cat("output ", i, ": some elements are on no rank"));
    }
    HIR_ASSIGN(const std::vector<int64_t> shape, fusion::ShapeOf(*plan.local.outputs[i].global, run.symbols));
    outputs.push_back(fusion::WrittenOut(run.outputs[i], shape));
  }
  return outputs;
}

}  // namespace hir::testing
