#include "service/rpc/plan_memory.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "host_ir/pool_plan.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// Inputs, outputs, intermediates and what their pool takes: of one rank.
struct Needs {
  int64_t input_bytes = 0, output_bytes = 0, live_bytes = 0, pool_bytes = 0, peak_bytes = 0;
  auto operator<=>(const Needs&) const = default;
};
using ByRank = std::map<int64_t, Needs>;

// a + b. Errors: kInvalidArgument: it does not fit in 63 bits.
Result<int64_t> Sum(int64_t a, int64_t b) {
  if (const std::optional<int64_t> sum = base::CheckedAdd(a, b)) return *sum;
  return InvalidArgument("with these sizes it is more bytes than fit in 63 bits");
}

Status AddShards(const TensorSpec& spec, int64_t Needs::*bytes, ByRank& needs) {
  const int64_t shard = ShardBytes(spec);
  for (const int64_t device : spec.sharding.mesh.devices()) {
    int64_t& sum = needs[device].*bytes;
    HIR_ASSIGN(sum, Sum(sum, shard));
  }
  return {};
}

Status AddInputs(const Program& program, const Sizes& sizes, ByRank& needs) {
  for (int i = 0; i < program.plan().inputs_size(); ++i) {
    const pb::PlanParam& input = program.plan().inputs(i);
    if (input.scalar()) continue;
    std::vector<int64_t> shape;
    for (const std::string& extent : input.shape()) {
      HIR_ASSIGN(shape.emplace_back(), program.Evaluate(extent, sizes));
    }
    HIR_ASSIGN(const TensorSpec spec, program.InputSpec(i, program.inputs()[static_cast<size_t>(i)].dtype, shape));
    HIR_TRY(AddShards(spec, &Needs::input_bytes, needs));
  }
  return {};
}

Status AddOutputs(const Program& program, const Sizes& sizes, ByRank& needs) {
  for (int i = 0; i < program.plan().outputs_size(); ++i) {
    const pb::PlanParam& output = program.plan().outputs(i);
    // One that takes over an input has memory of its own: the input's is free when the run is over.
    if (output.scalar() || output.has_same_as_input() || output.has_same_as_output()) continue;
    HIR_ASSIGN(const std::shared_ptr<const TensorSpec> spec, program.OutputSpec(i, sizes));
    HIR_TRY(AddShards(*spec, &Needs::output_bytes, needs));
  }
  return {};
}

constexpr int64_t kAlignmentMax = int64_t{1} << 30;

host::Clock ClockOf(const google::protobuf::RepeatedPtrField<pb::PoolBuffer::Stretch>& message) {
  host::Clock clock;
  for (const pb::PoolBuffer::Stretch& stretch : message) {
    clock.push_back({.stream = stretch.stream(), .from = stretch.first(), .to = stretch.last()});
  }
  return clock;
}

Status AddPool(const Program& program, const Sizes& sizes, const pb::PoolRecord& record, ByRank& needs) {
  // What a planner says that has gone mad, too.
  const int64_t alignment = program.plan().pool_alignment();
  if (alignment < 1 || alignment > kAlignmentMax) return Internal(base::Cat("a plan aligns by ", alignment, " bytes"));
  std::vector<host::PoolLife> lives;
  std::vector<int64_t> bytes;
  for (const pb::PoolBuffer& buffer : record.buffers()) {
    HIR_ASSIGN(bytes.emplace_back(), program.Evaluate(buffer.bytes(), sizes));
    if (bytes.back() < 0) return Internal(base::Cat("a plan has a buffer of ", bytes.back(), " bytes"));
    lives.push_back({.work = ClockOf(buffer.work()), .after = ClockOf(buffer.after())});
  }
  std::vector<int64_t> offsets(bytes.size());
  HIR_ASSIGN(const host::PoolBytes pool, host::PoolPlan(std::move(lives)).Place(bytes, alignment, offsets));
  for (const int64_t rank : record.ranks()) {
    needs[rank].live_bytes = pool.live;
    needs[rank].pool_bytes = pool.reserved;
  }
  return {};
}

Result<ByRank> NeedsByRank(const Program& program, const Sizes& sizes) {
  ByRank needs;
  HIR_TRY(AddInputs(program, sizes, needs));
  HIR_TRY(AddOutputs(program, sizes, needs));
  for (const pb::PoolRecord& record : program.plan().pools()) {
    HIR_TRY(AddPool(program, sizes, record, needs));
  }
  for (auto& [rank, need] : needs) {
    HIR_ASSIGN(need.peak_bytes, Sum(need.input_bytes, need.output_bytes));
    HIR_ASSIGN(need.peak_bytes, Sum(need.peak_bytes, need.pool_bytes));
  }
  return needs;
}

}  // namespace

void SetMemory(const Program& program, const Sizes& sizes, pb::Explanation* explanation) {
  std::vector<std::string> unknown;
  for (const std::string& symbol : program.Symbols()) {
    if (!sizes.contains(symbol)) unknown.push_back(symbol);
  }
  if (!unknown.empty()) {
    explanation->set_memory_unknown(
        base::Cat("it depends on ", base::Join(unknown, ", "), "; explain with a size for each"));
    return;
  }
  if (program.plan().pools().empty()) {
    explanation->set_memory_unknown("the plan has too many intermediates");
    return;
  }
  const Result<ByRank> needs = NeedsByRank(program, sizes);
  if (!needs.ok()) {
    explanation->set_memory_unknown(std::string(needs.status().message()));
    return;
  }
  std::map<Needs, pb::RankMemory*> alike;
  for (const auto& [rank, need] : *needs) {
    pb::RankMemory*& memory = alike[need];
    if (memory == nullptr) {
      memory = explanation->add_memory();
      memory->set_input_bytes(need.input_bytes);
      memory->set_output_bytes(need.output_bytes);
      memory->set_live_bytes(need.live_bytes);
      memory->set_pool_bytes(need.pool_bytes);
      memory->set_peak_bytes(need.peak_bytes);
    }
    memory->add_ranks(rank);
  }
}

}  // namespace hir::service
