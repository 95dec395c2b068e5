#include "tests/property/run_on_ranks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/bind.h"
#include "csrc/ir/print.h"
#include "host_ir/eval/evaluator.h"
#include "tests/property/interpreted_library.h"

namespace hir::testing {
namespace {

using fusion::HostTensor;
using mesh::Range;
constexpr std::byte kPoison{0x7b};
constexpr int kStreams = 2;

// The kernels of all plans of one program, by name.
class Kernels final : public device::KernelSource {
 public:
  static Result<std::unique_ptr<Kernels>> Make(const host::ProgramPlan& plan,
                                               codegen::cpu::Compiler& compiler) {
    auto kernels = std::make_unique<Kernels>();
    for (const codegen::KernelPlan& kernel : plan.kernels) {
      HIR_ASSIGN(const codegen::Artifact artifact, compiler.Compile(kernel));
      HIR_ASSIGN(auto source, codegen::cpu::Load(artifact));
      for (const std::string& name : artifact.kernels) kernels->by_name_[name] = source.get();
      kernels->sources_.push_back(std::move(source));
    }
    return kernels;
  }
  Result<const device::Kernel*> Get(std::string_view name) override {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return Status(Code::kNotFound, base::Cat("no kernel ", name));
    return found->second->Get(name);
  }

 private:
  std::vector<std::unique_ptr<device::KernelSource>> sources_;
  std::map<std::string, device::KernelSource*, std::less<>> by_name_;
};

// Copies the elements of `whole` that `range` has to their places in `part`, a padded block, or back.
void MoveBlock(const HostTensor& whole, const mesh::PartRange& range, std::byte* whole_bytes,
               std::byte* part, bool to_part) {
  const size_t element = static_cast<size_t>(DTypeBytes(whole.dtype));
  const size_t rank = range.valid.size();
  std::vector<int64_t> index(rank, 0);
  for (const Range& valid : range.valid) {
    if (valid.size() == 0) return;
  }
  for (;;) {
    int64_t at = 0, place = 0;
    for (size_t i = 0; i < rank; ++i) {
      at = at * whole.shape[i] + range.valid[i].begin + index[i];
      place = place * range.block[i] + index[i];
    }
    std::byte* element_bytes = whole_bytes + static_cast<size_t>(at) * element;
    std::byte* part_bytes = part + static_cast<size_t>(place) * element;
    std::memcpy(to_part ? part_bytes : element_bytes, to_part ? element_bytes : part_bytes,
                element);
    size_t axis = rank;
    while (axis > 0 && ++index[axis - 1] == range.valid[axis - 1].size()) index[--axis] = 0;
    if (axis == 0) return;
  }
}

// One rank's memory for a parameter of the program.
struct Shard {
  mesh::PartRange range;  // Of the stored form: stored-once axes have extent 1.
  std::vector<std::byte> bytes;
  bool held = false;  // By this rank.
};

Result<Shard> MakeShard(const plan::Boundary& boundary, const HostTensor& stored, int64_t rank) {
  Shard shard;
  shard.held = boundary.sharding->mesh.PositionOf(rank).has_value();
  if (!shard.held) return shard;
  // An axis that is stored once is whole on every rank that has it.
  mesh::Sharding sharding = *boundary.sharding;
  const std::vector<ir::Axis> axes = ir::ValueAxes(*boundary.global);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].kind == ir::AxisKind::kBroadcast) sharding.axes[i].clear();
  }
  shard.range = mesh::PartRangeOf(sharding, stored.shape, rank);
  int64_t elements = 1;
  for (const int64_t extent : shard.range.block) elements *= extent;
  shard.bytes.assign(static_cast<size_t>(elements * DTypeBytes(stored.dtype)) + 1,
                     kPoison);  // Never empty.
  return shard;
}

// Everything of one run that is the same for all ranks.
struct Run {
  host::ProgramPlan& plan;
  const RankRunOptions& options;
  std::unique_ptr<host::HostProgram> program;
  std::unique_ptr<Kernels> kernels;
  fusion::SymbolValues symbols;
  std::vector<HostTensor> inputs;          // Stored form.
  std::vector<HostTensor> outputs;         // Stored form, being gathered.
  std::vector<std::vector<bool>> written;  // Per output and element.
  std::mutex mutex;                        // Guards outputs, written.
};

// The stored form of a whole tensor of the boundary's type.
Result<std::vector<int64_t>> StoredShape(const plan::Boundary& boundary,
                                         const fusion::SymbolValues& symbols) {
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
  MoveBlock(whole, shard.range, part.bytes.data(), const_cast<std::byte*>(shard.bytes.data()),
            false);
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

Status RunRank(Run& run, int64_t rank, comm::Communicator& communicator, device::Device& device) {
  std::vector<std::unique_ptr<device::Stream>> owned;
  std::vector<device::Stream*> streams;
  for (int i = 0; i < kStreams; ++i) {
    HIR_ASSIGN(auto stream, device.CreateStream());
    streams.push_back(stream.get());
    owned.push_back(std::move(stream));
  }
  host::Pool pool(device);
  InterpretedLibrary library;
  HIR_ASSIGN(auto evaluator, host::Evaluator::Prepare(*run.program, {.rank = rank,
                                                                     .device = &device,
                                                                     .streams = streams,
                                                                     .kernels = run.kernels.get(),
                                                                     .libraries = &library,
                                                                     .communicator = &communicator,
                                                                     .pool = &pool}));
  const ir::Graph& graph = run.program->graph();
  std::map<std::string, Shard, std::less<>> shards;
  std::vector<host::Argument> arguments(graph.params.size());
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    const plan::Boundary& boundary = run.plan.local.inputs[i];
    if (!boundary.sharding) {
      arguments[i].scalar_bits = ScalarBits(run.inputs[i]);
      continue;
    }
    HIR_ASSIGN(Shard shard, MakeShard(boundary, run.inputs[i], rank));
    if (shard.held)
      MoveBlock(run.inputs[i], shard.range, run.inputs[i].bytes.data(), shard.bytes.data(), true);
    shards[std::string(graph.params[i]->name)] = std::move(shard);
  }
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const std::string name(graph.outputs[i].value->name);
    if (shards.contains(name)) continue;  // An input, or the same value returned twice.
    HIR_ASSIGN(shards[name], MakeShard(run.plan.local.outputs[i], run.outputs[i], rank));
  }
  for (size_t i = 0; i < graph.params.size(); ++i) {
    const auto found = shards.find(graph.params[i]->name);
    if (found == shards.end() || !found->second.held) continue;
    arguments[i].buffer = {found->second.bytes.data(),
                           static_cast<int64_t>(found->second.bytes.size()) - 1};
  }
  std::vector<int64_t> symbols;
  for (std::string_view name : run.program->symbols()) {
    const auto value = run.symbols.find(name);
    if (value == run.symbols.end()) return Internal(base::Cat("symbol ", name, " has no value"));
    symbols.push_back(value->second);
  }
  host::Binding binding;
  HIR_TRY(evaluator->Bind(arguments, symbols, &binding));
  HIR_TRY(evaluator->Run(binding, {}));
  HIR_TRY(evaluator->Synchronize(std::chrono::seconds(3600)));
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const Shard& shard = shards.find(graph.outputs[i].value->name)->second;
    if (shard.held) HIR_TRY(Gather(run, i, shard));
  }
  return {};
}

}  // namespace

Result<std::vector<HostTensor>> RunOnRanks(host::ProgramPlan& plan,
                                           std::span<const HostTensor> inputs,
                                           const RankRunOptions& options) {
  Run run{.plan = plan,
          .options = options,
          .program = {},
          .kernels = {},
          .symbols = {},
          .inputs = {},
          .outputs = {},
          .written = {},
          .mutex = {}};
  HIR_ASSIGN(run.program, host::HostProgram::Load(ir::Print(*plan.host)));
  HIR_ASSIGN(run.kernels, Kernels::Make(plan, *options.compiler));
  HIR_ASSIGN(run.symbols, fusion::BindSymbols(*plan.global, inputs));
  for (size_t i = 0; i < inputs.size(); ++i)
    run.inputs.push_back(fusion::Stored(*plan.local.inputs[i].global, inputs[i]));
  for (const plan::Boundary& output : plan.local.outputs) {
    HIR_ASSIGN(std::vector<int64_t> shape, StoredShape(output, run.symbols));
    run.outputs.push_back(fusion::ZeroTensor(output.global->dtype, std::move(shape)));
    run.written.emplace_back(static_cast<size_t>(run.outputs.back().num_elements()), false);
  }
  const std::unique_ptr<Ranks> simulated =
      MakeLocalRanks(options.num_ranks, options.seed, options.random_delay_max);
  Ranks& ranks = options.ranks == nullptr ? *simulated : *options.ranks;
  HIR_CHECK(ranks.size() == options.num_ranks);
  HIR_TRY(ranks.Run([&](int64_t rank, comm::Communicator& communicator, device::Device& device) {
    return RunRank(run, rank, communicator, device);
  }));
  std::vector<HostTensor> outputs;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (std::find(run.written[i].begin(), run.written[i].end(), false) != run.written[i].end()) {
      return Internal(base::Cat("output ", i, ": some elements are on no rank"));
    }
    HIR_ASSIGN(const std::vector<int64_t> shape,
               fusion::ShapeOf(*plan.local.outputs[i].global, run.symbols));
    outputs.push_back(fusion::WrittenOut(run.outputs[i], shape));
  }
  return outputs;
}

}  // namespace hir::testing
