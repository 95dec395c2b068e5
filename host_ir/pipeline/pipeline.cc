#include "host_ir/pipeline/pipeline.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/check_program.h"
#include "csrc/fusion/passes/passes.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/pass.h"
#include "host_ir/lower/overlap.h"
#include "host_ir/lower/segmentation.h"
#include "host_ir/passes/passes.h"
#include "host_ir/pipeline/group_passes.h"
#include "host_ir/pipeline/memory_orders.h"
#include "host_ir/pipeline/pin_sizes.h"

namespace hir::host {
namespace {

using base::Cat;

Status CheckDevices(const ir::Graph& program, int64_t num_devices) {
  for (const ir::Mesh& mesh : program.meshes()) {
    for (int64_t device : mesh.mesh.devices()) {
      if (device < num_devices) continue;
      return InvalidArgument(Cat("mesh ", mesh.mesh.ToString(), " names device ", device, "; this service has ",
                                 num_devices, " device", num_devices == 1 ? "" : "s", ", numbered from 0"));
    }
  }
  return {};
}

// Stages 1 and 2.
Status ToLocal(std::unique_ptr<ir::Graph> program, const plan::LocalizeOptions& options, const PlanOptions& planning,
               ProgramPlan& plan) {
  const codegen::Target& target = planning.target;
  const auto dumped = [&planning](std::string_view stage) -> ir::PassOptions {
    return {.dump = ir::DumpFromEnvironment(stage), .without = planning.without};
  };
  plan.global = std::move(program);
  ir::Graph& global = *plan.global;
  std::vector<std::string> names;  // As they are returned: of equal values the passes keep one.
  for (const ir::Output& output : global.outputs) names.emplace_back(output.value->name);
  HIR_ASSIGN(const MemoryOrders orders, MemoryOrdersOf(global));
  // 1. The global program: simplified, sharded, reshardings apart.
  if (target.kind == codegen::Target::Kind::kGpu) {
    const char* const pass = target.cudnn ? "decompose_attention_beyond_cudnn" : "decompose_attention";
    HIR_TRY(ir::RunPasses(global, fusion::kFusionPasses, pass, dumped("fusion")));
  }
  HIR_TRY(ir::RunPasses(global, fusion::kFusionPasses, fusion::kSimplify, dumped("fusion")));
  HIR_TRY(ir::RunPasses(global, fusion::kFusionPasses, fusion::kShard, dumped("presegment")));
  // 2. One rank's program.
  HIR_ASSIGN(plan.local, plan::Localize(global, options));
  for (size_t i = 0; i < names.size(); ++i) plan.local.outputs[i].name = std::move(names[i]);
  return LayOut(orders, plan.local);
}

// HOSTIR_DUMP=segments,kernels
void DumpPlan(const ProgramPlan& plan) {
  if (ir::DumpFromEnvironment("segments")) std::fputs(DescribeSegments(plan).c_str(), stderr);
  if (!ir::DumpFromEnvironment("kernels")) return;
  for (const codegen::KernelPlan& kernel : plan.kernels) {
    for (size_t i = 0; i < kernel.launches.size(); ++i) {
      const std::string text = Cat("// ", kernel.launches[i].kernel, "\n", codegen::Print(*kernel.nests[i]));
      std::fputs(text.c_str(), stderr);
    }
  }
}

// The least time of a part on a link between nodes.
constexpr double kLeastMessages = 16;
constexpr double kLeastSeconds = 4e-3;

std::string Names(std::span<ir::Value* const> values) {
  std::vector<std::string_view> names;
  for (const ir::Value* value : values) names.push_back(value->name);
  return base::Join(names, ", ");
}

}  // namespace

std::string_view OverlapChoiceName(OverlapChoice choice) {
  switch (choice) {
    case OverlapChoice::kChosen: return "chosen";
    case OverlapChoice::kNever: return "never";
    case OverlapChoice::kAlways: return "always";
  }
  return "";
}

plan::OverlapLimits OverlapLimitsOf(const codegen::Target& target, const plan::Links& links) {
  using Least = plan::OverlapLimits::Least;
  plan::OverlapLimits limits = {.links = links};
  // Fewer are gathered sooner than they go round: each step has its start, and results to put together.
  limits.within.attended = Least{.bytes = int64_t{2} << 20};
  const bool is_gpu = target.kind == codegen::Target::Kind::kGpu;
  if (is_gpu) {
    // A part of fewer rows reads the weights once more for nothing; a sum of fewer terms is over before its exchange,
    // and then takes a pass over memory that the library's does not.
    limits.within = {.exchanged = Least{.bytes = int64_t{4} << 20, .rows = 256},
                     .scattered = Least{.bytes = int64_t{4} << 20, .rows = 512, .terms = 1024},
                     .summed = Least{.bytes = int64_t{8} << 20, .rows = 1024, .terms = 4096},
                     .attended = Least{.bytes = int64_t{16} << 20}};
  }
  if (links.of_node.size() > 1) {
    // A part's bytes take the link many times as long as a message does.
    double bytes = 0;
    for (const plan::Links::Node& link : links.of_node)
      bytes = std::max(bytes, std::max(kLeastMessages * link.message_seconds, kLeastSeconds) * link.bytes_per_second);
    // Sums are not exchanged to be made behind: the communicator makes them while terms arrive, without a pass over
    // memory of its own (benchmarks/cluster_overlap.py).
    limits.between.exchanged = Least{.bytes = static_cast<int64_t>(std::min(bytes, 0x1p62)), .rows = is_gpu ? 256 : 64};
    limits.between.attended = Least{.bytes = limits.between.exchanged->bytes};
  }
  return limits;
}

Result<ProgramPlan> PlanProgram(std::unique_ptr<ir::Graph> program, const PlanOptions& options) {
  HIR_TRY(fusion::CheckUserProgram(*program));
  HIR_TRY(CheckDevices(*program, options.num_devices));
  for (const std::string_view name : ir::PassNames(options.without))
    HIR_TRY(ir::CheckPassName(name, OptionalPasses()).WithContext("without"));
  Segmentation segmentation;
  if (options.segmentation) {
    segmentation = *options.segmentation;
  } else {
    HIR_ASSIGN(segmentation, SegmentationNamed(program->segmentation));
  }
  std::unique_ptr<ir::Graph> as_written = options.sizes.empty() ? nullptr : ir::Clone(*program);
  ProgramPlan plan;
  plan.least_shared = LeastShared(*program);
  codegen::Sizes small;
  for (const auto& [symbol, least] : plan.least_shared) {
    const auto known = options.sizes.find(symbol);
    if (known != options.sizes.end() && known->second > 0 && known->second < least) small.insert(*known);
  }
  if (!small.empty()) {
    Result<std::unique_ptr<ir::Graph>> pinned = PinSizes(*program, small);
    if (pinned.ok()) {  // Else a guard says what does not fit, when it is run.
      program = std::move(*pinned);
      plan.pinned = std::move(small);
    }
  }
  plan::OverlapLimits overlap;
  if (options.overlap == OverlapChoice::kChosen) overlap = OverlapLimitsOf(options.target, options.links);
  if (options.overlap == OverlapChoice::kAlways) overlap = plan::OverlapLimits::Unlimited();
  plan::LocalizeOptions localize = {.sizes = options.sizes,
                                    .cost = {.links = options.links},
                                    .resharding_bytes_max = options.resharding_bytes_max,
                                    .overlap = overlap};
  Status localized = ToLocal(std::move(program), localize, options, plan);
  if (localized.code() == Code::kUnimplemented && as_written != nullptr) {  // An uneven shard.
    HIR_ASSIGN(program, PinSizes(*as_written, options.sizes));
    localize.sizes = {};
    localized = ToLocal(std::move(program), localize, options, plan);
    plan.pinned = options.sizes;
  }
  HIR_TRY(localized);
  // 3. Segments: first what runs in one loop on the host, then, there and outside, what one kernel holds.
  plan.segmented = std::make_unique<Segmented>();
  plan.segmented->graph = plan.local.graph.get();
  HIR_TRY(FormStreamLoops(*plan.segmented, {options.sizes}, plan.local.communications, plan.local.evenness));
  HIR_TRY(RunGroupPasses(*plan.segmented, kCutIntoGroups,
                         {.target = options.target,
                          .sizes = options.sizes,
                          .segmentation = std::move(segmentation),
                          .without = options.without}));
  // 4, 5. Kernels, and the host program.
  HIR_ASSIGN(Lowered lowered,
             Lower(*plan.segmented,
                   {.target = options.target, .sizes = options.sizes, .streams = options.streams, .overlap = overlap}));
  if (options.overlap != OverlapChoice::kNever) {
    plan.notes = DescribeOverlaps(*plan.segmented, overlap);
    plan.notes.insert(plan.notes.end(), plan.local.notes.begin(), plan.local.notes.end());
  }
  plan.segments = std::move(lowered.segments);
  plan.kernels = std::move(lowered.kernels);
  plan.host = std::move(lowered.program);
  DumpPlan(plan);
  // 6. Streams, events, deallocations.
  HIR_TRY(FinishProgram(*plan.host));
  return plan;
}

std::vector<QueuedCommunication> CommunicationsInQueueOrder(const ProgramPlan& plan) {
  std::unordered_map<const ir::Op*, const plan::Communication*> of_op;  // Lookups only.
  for (const plan::Communication& communication : plan.local.communications)
    of_op.emplace(communication.op, &communication);
  std::vector<QueuedCommunication> queued;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const LoweredSegment& segment = plan.segments[i];
    if (segment.kind != SegmentKind::kCommunication) continue;
    const auto found = of_op.find(segment.group->ops[0]);
    HIR_CHECK(found != of_op.end());  // Nothing but Localize makes communications.
    queued.push_back({found->second, i, segment.first_seq, segment.launches});
  }
  return queued;
}

std::string DescribeSegments(const ProgramPlan& plan) {
  std::string out;
  for (const LoweredSegment& segment : plan.segments) {
    const segment::Group& group = *segment.group;
    if (segment.loop != nullptr) base::Append(out, segment.loop->name, segment.in_rest ? " rest: " : ": ");
    base::Append(out, segment.name, ": ", SegmentKindName(segment.kind), segment.schedule.empty() ? "" : " ",
                 segment.schedule, ": ", base::Join(OpsOf(segment), ", "), " (", Names(group.inputs), " -> ",
                 Names(group.outputs), ")\n");
  }
  return out;
}

std::vector<std::string> OpsOf(const LoweredSegment& segment) {
  std::vector<std::string> ops;
  for (const ir::Op* op : segment.group->ops) {
    std::vector<std::string_view> results;
    for (const ir::Value* result : op->results) results.push_back(result->name);
    ops.push_back(Cat(base::Join(results, ", "), " = ", op->info->name));
  }
  return ops;
}

}  // namespace hir::host
