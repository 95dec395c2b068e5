// hostir: the command line of the service.
#include <cstdio>
#include <span>
#include <string>

#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/outcome.h"

namespace hir::cli {
namespace {

struct Command {
  const char* name;
  Outcome (*run)(const Options& options);
};
constexpr Command kCommands[] = {
    {"run", &RunProgram}, {"explain", &ExplainProgram}, {"status", &ShowStatus},
    {"top", &ShowTop},    {"bench", &BenchProgram},     {"completion", &PrintCompletion},
};

int Main(std::span<const char* const> arguments) {
  const Result<Parsed> parsed = ParseCommandLine(arguments);
  if (!parsed.ok()) {
    std::fprintf(stderr, "hostir: %s\n", parsed.status().ToString().c_str());
    return service::kExitUsage;
  }
  if (parsed->answer.has_value()) {
    std::fputs(parsed->answer->c_str(), stdout);
    return service::kExitDone;
  }
  for (const Command& command : kCommands) {
    if (parsed->options.command != command.name) continue;
    const Outcome outcome = command.run(parsed->options);
    if (outcome.ok()) return service::kExitDone;
    std::fflush(stdout);
    std::fprintf(stderr, "hostir: %s\n", outcome.status.ToString().c_str());
    return outcome.code;
  }
  return service::kExitUsage;  // The parser knows the same commands.
}

}  // namespace
}  // namespace hir::cli

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<size_t>(argc));
  return hir::cli::Main(arguments.subspan(1));
}
