// libFuzzer: any bytes through the parser; what is accepted must print as text that prints the same again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "tests/fuzz/corpus.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const hir::ir::OpSet& ops = hir::fuzz::OpSetOf(text);
  const auto graph = hir::ir::Parse(text, ops);
  if (!graph.ok()) return 0;
  const std::string printed = hir::ir::Print(**graph);
  const auto again = hir::ir::Parse(printed, ops);
  HIR_CHECK(again.ok() && hir::ir::Print(**again) == printed);
  return 0;
}
