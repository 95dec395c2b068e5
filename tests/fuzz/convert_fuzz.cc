// libFuzzer: any bytes as a message through the converter; what is accepted must print as text that parses to the same.
#include <cstddef>
#include <cstdint>

#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/proto/program_proto.h"
#include "hostir/v1/program.pb.h"
#include "tests/fuzz/corpus.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hostir::v1::Program program;
  if (!program.ParseFromArray(data, static_cast<int>(size))) return 0;
  const hir::ir::OpSet& ops = hir::fuzz::OpSetNamed(program.op_set());
  const auto graph = hir::ir::FromProto(program, ops);
  if (!graph.ok()) return 0;
  const std::string printed = hir::ir::Print(**graph);
  const auto again = hir::ir::Parse(printed, ops);
  HIR_CHECK(again.ok() && hir::ir::Print(**again) == printed);
  return 0;
}
