#include "host_ir/rank/cuda/activations.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/codegen.h"
#include "csrc/codegen/disk_cache.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/device/cuda/cuda_device.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::rank {
namespace {

namespace gpu = codegen::gpu;

// The plan points into the graph.
struct Planned {
  std::unique_ptr<ir::Graph> graph;
  codegen::KernelPlan plan;
};

Result<Planned> Plan(codegen::library::Epilogue epilogue, DType dtype, const codegen::Target& target) {
  const std::string program =
      base::Cat("fusion @activation(%x: ", DTypeName(dtype),
                "[i0]) {\n  %y = ", codegen::library::EpilogueName(epilogue), "(%x)\n  return %y\n}\n");
  Planned planned;
  HIR_ASSIGN(planned.graph, ir::Parse(program, fusion::kFusionOps));
  const segment::Group group = segment::MakeGroup(*planned.graph, {planned.graph->body.first});
  HIR_ASSIGN(planned.plan, codegen::Plan(group.View(*planned.graph), "activation", target, {}));
  return planned;
}

}  // namespace

Result<Activation> MakeActivation(codegen::library::Epilogue epilogue, DType dtype, device::Device& device) {
  HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device));
  const codegen::Target target = {.kind = codegen::Target::Kind::kGpu,
                                  .architecture = facts.architecture,
                                  .multiprocessors = facts.multiprocessors,
                                  .shared_bytes = facts.shared_bytes_per_block};
  HIR_ASSIGN(Planned made, Plan(epilogue, dtype, target));
  gpu::Compiler compiler({.cache_directory = codegen::DefaultCacheDirectory()});
  HIR_ASSIGN(const codegen::Artifact artifact, compiler.Compile(made.plan));
  HIR_ASSIGN(std::shared_ptr<device::KernelSource> source, gpu::Load(artifact, device));
  const codegen::Launch& launch = made.plan.launches.at(0);
  HIR_ASSIGN(const device::Kernel* kernel, source->Get(launch.kernel));
  const auto planned = std::make_shared<const Planned>(std::move(made));
  return Activation([=, loaded = source](device::Buffer buffer, device::Stream& stream) -> Status {
    const codegen::Launch& how = planned->plan.launches[0];
    const int64_t elements = buffer.bytes / DTypeBytes(dtype);
    const auto value = [&](const ir::Expr* expr) {
      return ir::Evaluate(expr, [&](std::string_view) { return std::optional(elements); });
    };
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.data));
    std::vector<int64_t> args = {address, address};
    for (const ir::Expr* extent : how.extents) {
      HIR_ASSIGN(args.emplace_back(), value(extent));
    }
    HIR_ASSIGN(const int64_t grid, value(how.grid));
    stream.Launch(*kernel, args, grid);
    return {};
  });
}

}  // namespace hir::rank
