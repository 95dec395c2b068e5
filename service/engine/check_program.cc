#include "service/engine/check_program.h"

#include <memory>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/proto/program_proto.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

Result<std::unique_ptr<ir::Graph>> Read(const pb::ProgramSource& source) {
  switch (source.source_case()) {
    case pb::ProgramSource::kText: return ir::Parse(source.text(), fusion::kFusionOps);
    case pb::ProgramSource::kProgram: return ir::FromProto(source.program(), fusion::kFusionOps);
    case pb::ProgramSource::SOURCE_NOT_SET: break;
  }
  return InvalidArgument("the request has no program");
}

}  // namespace

Result<std::string> ProgramBytes(const pb::ProgramSource& source, int64_t program_bytes_max) {
  const int64_t bytes = static_cast<int64_t>(source.ByteSizeLong());
  if (bytes > program_bytes_max) {
    return ResourceExhausted(
        base::Cat("program_bytes_max = ", program_bytes_max, ": the program has ", bytes, " bytes; split it"));
  }
  return source.SerializeAsString();
}

Result<std::string> CheckProgram(const pb::ProgramSource& source, int64_t num_devices, int64_t program_bytes_max) {
  HIR_ASSIGN(const std::unique_ptr<ir::Graph> graph, Read(source));
  for (const ir::Mesh& mesh : graph->meshes()) {
    for (const int64_t device : mesh.mesh.devices()) {
      if (device < num_devices) continue;
      return InvalidArgument(base::Cat("mesh @", mesh.name, " = ", mesh.mesh.ToString(), " names device ", device,
                                       "; this daemon has devices 0 to ", num_devices - 1));
    }
  }
  // What is inferred is written out, too: a size that is the sum of many, at every tensor that has it.
  std::string text = ir::Print(*graph);
  if (std::ssize(text) > program_bytes_max) {
    return ResourceExhausted(base::Cat("program_bytes_max = ", program_bytes_max,
                                       ": with the type of every tensor the ", "program has ", text.size(),
                                       " bytes; split it, or give its sizes shorter names"));
  }
  return text;
}

}  // namespace hir::service
