#include "tools/eval/planned.h"

#include <chrono>
#include <utility>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"

namespace hir::eval {
namespace {

using base::Cat;

// FNV-1a: the ranks are not each other's enemies.
class Digest {
 public:
  void Add(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    value_ = (value_ ^ 0xff) * 0x100000001b3;  // Where one text ends.
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

std::vector<InputType> TypesOf(const ir::Graph& graph) {
  std::vector<InputType> types;
  for (const ir::Value* param : graph.params) types.push_back({std::string(param->name), param->type});
  return types;
}

std::vector<InputType> TypesOf(std::span<const plan::Boundary> inputs) {
  std::vector<InputType> types;
  for (const plan::Boundary& input : inputs) types.push_back({input.name, input.global});
  return types;
}

std::string ConditionOf(const ir::Guard& guard) {
  const bool equal = guard.kind == ir::Guard::Kind::kEqual;
  return Cat(ir::ToString(guard.left), equal ? " == " : " <= ", ir::ToString(guard.right));
}

Status CheckGuards(const ir::Graph& program, const Sizes& sizes) {
  for (const ir::Guard& guard : program.guards) {
    HIR_ASSIGN(const int64_t left, ValueOf(guard.left, sizes));
    HIR_ASSIGN(const int64_t right, ValueOf(guard.right, sizes));
    if (guard.kind == ir::Guard::Kind::kEqual ? left == right : left <= right) continue;
    return InvalidArgument(Cat(ConditionOf(guard), " does not hold: ", left, " and ", right, " (", guard.reason, ")"));
  }
  return {};
}

// As if every product of f32 were written with {precision=tf32}.
void AllowTf32(ir::Graph& graph) {
  ir::ForEachOp(graph.body, [](ir::Op* op) {
    if (!fusion::IsProduct(fusion::CodeOf(*op)) || op->results[0]->type->dtype != DType::kFloat32) return;
    for (ir::Attr& attr : op->attrs) {
      if (attr.name == "precision") attr.value = fusion::kTf32;
    }
  });
}

void Count(Planned& planned) {
  for (const host::LoweredSegment& segment : planned.plan.segments) {
    switch (segment.kind) {
      case host::SegmentKind::kKernel: planned.launches += segment.launches; break;
      case host::SegmentKind::kLibrary: planned.library_calls += segment.launches; break;
      case host::SegmentKind::kCommunication: planned.communications += segment.launches; break;
      case host::SegmentKind::kView:
      case host::SegmentKind::kLoop: break;
    }
  }
}

}  // namespace

Result<Planned> Plan(const Options& options, host::OverlapChoice overlap, std::string_view text, int64_t num_ranks,
                     const codegen::Target& target) {
  base::Stopwatch watch;
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, ir::Parse(text, fusion::kFusionOps));
  if (options.tf32) AllowTf32(*graph);
  HIR_ASSIGN(Inputs inputs, Inputs::Open(TypesOf(*graph), options));
  HIR_ASSIGN(Sizes sizes, inputs.BindSizes(TypesOf(*graph)));
  std::string name(graph->name());
  HIR_ASSIGN(host::ProgramPlan plan, host::PlanProgram(std::move(graph), {.num_devices = num_ranks,
                                                                          .target = target,
                                                                          .sizes = {sizes.begin(), sizes.end()},
                                                                          .overlap = overlap,
                                                                          .without = options.without}));
  // Planning may have found sizes equal.
  HIR_ASSIGN(sizes, inputs.BindSizes(TypesOf(plan.local.inputs)));
  HIR_TRY(CheckGuards(*plan.host, sizes));
  Planned planned = {
      .name = std::move(name), .plan = std::move(plan), .inputs = std::move(inputs), .sizes = std::move(sizes)};
  planned.plan_ms = watch.Ms();
  Count(planned);
  return planned;
}

Result<Planned> LoadHost(const Options& options, std::string_view text, int64_t num_ranks) {
  if (!options.random || !options.out.empty()) {
    return InvalidArgument(
        "a host program's arrays are each rank's own, and no file's: --random SEED makes them up; "
        "there is no --out");
  }
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, ir::Parse(text, host::kHostOps));
  for (const ir::Mesh& mesh : graph->meshes()) {
    for (const int64_t device : mesh.mesh.devices()) {
      if (device >= num_ranks)
        return InvalidArgument(Cat("mesh ", mesh.mesh.ToString(), " names device ", device, "; this run has ",
                                   num_ranks, num_ranks == 1 ? " rank" : " ranks"));
    }
  }
  HIR_ASSIGN(Inputs inputs, Inputs::Open(TypesOf(*graph), options));
  HIR_ASSIGN(Sizes sizes, inputs.BindSizes(TypesOf(*graph)));
  Planned planned = {.name = std::string(graph->name()),
                     .plan = {},
                     .inputs = std::move(inputs),
                     .sizes = std::move(sizes),
                     .is_host = true};
  ir::ForEachOp(graph->body, [&](const ir::Op* op) {
    planned.communications += host::CodeOf(*op) == host::HostOp::kCommunication;
    planned.library_calls += host::IsLibraryCall(host::CodeOf(*op));
  });
  planned.plan.host = std::move(graph);
  return planned;
}

uint64_t DigestOf(const Planned& planned) {
  Digest digest;
  digest.Add(ir::Print(*planned.plan.host));
  for (const codegen::KernelPlan& kernel : planned.plan.kernels) {
    for (const auto& nest : kernel.nests) digest.Add(codegen::Print(*nest));
  }
  for (const auto& [name, value] : planned.sizes) digest.Add(Cat(name, "=", value));
  return digest.value();
}

std::string Explain(const Planned& planned) {
  std::string out = Cat("segments:\n", host::DescribeSegments(planned.plan));
  out += "communications:\n";
  for (const host::QueuedCommunication& queued : host::CommunicationsInQueueOrder(planned.plan)) {
    const plan::Communication& communication = *queued.communication;
    base::Append(out, "  ", communication.type, " #", queued.first, " of ", communication.tensor, ": ",
                 communication.reason, "; ", ir::ToString(communication.bytes), " bytes; teams");
    for (const std::vector<int64_t>& team : communication.teams)
      base::Append(out, " [", base::JoinInts(team, ", "), "]");
    out += "\n";
  }
  for (const std::string& note : planned.plan.notes) base::Append(out, "  ", note, "\n");
  out += "guards:\n";
  for (const ir::Guard& guard : planned.plan.host->guards)
    base::Append(out, "  ", ConditionOf(guard), ": ", guard.reason, "\n");
  base::Append(out, "host program:\n", ir::Print(*planned.plan.host));
  return out;
}

Status Compile(const Options& options, const rank::Backends& backends, Planned& planned) {
  if (options.warm_compiler && backends.warm_compiler) {
    base::Stopwatch watch;
    HIR_TRY(backends.warm_compiler());
    planned.warm_compiler_ms = watch.Ms();
  }
  const rank::CompileKernels compile = backends.make_compiler();
  for (const codegen::KernelPlan& kernel : planned.plan.kernels) {
    base::Stopwatch watch;
    HIR_ASSIGN(planned.artifacts.emplace_back(), compile(kernel));
    planned.compile_ms.push_back(watch.Ms());
  }
  if (!options.compile_again) return {};
  const rank::CompileKernels again = backends.make_compiler();
  for (const codegen::KernelPlan& kernel : planned.plan.kernels) {
    base::Stopwatch watch;
    HIR_TRY(again(kernel).status());
    planned.compile_again_ms.push_back(watch.Ms());
  }
  return {};
}

}  // namespace hir::eval
