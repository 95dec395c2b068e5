// hostir: the command line of the service.
#include <csignal>
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
    {"run", &RunProgram},
    {"replay", &ReplayRun},
    {"explain", &ExplainProgram},
    {"diff", &ComparePlans},
    {"status", &ShowStatus},
    {"health", &CheckHealth},
    {"top", &ShowTop},
    {"dump", &DumpEvents},
    {"drain", &DrainNode},
    {"undrain", &UndrainNode},
    {"bench", &BenchProgram},
    {"certs", &MakeCertificates},
    {"completion", &PrintCompletion},
};

int Failed(const Outcome& outcome) {
  std::fflush(stdout);
  std::fprintf(stderr, "hostir: %s\n", outcome.status.ToString().c_str());
  return outcome.code;
}

int Main(std::span<const char* const> arguments) {
  const Result<Parsed> parsed = ParseCommandLine(arguments);
  if (!parsed.ok()) return Failed(Usage(parsed.status()));
  Outcome outcome;
  if (parsed->answer.has_value()) std::fputs(parsed->answer->c_str(), stdout);
  for (const Command& command : kCommands) {
    if (parsed->options.command == command.name) outcome = command.run(parsed->options);
  }
  if (outcome.ok()) outcome = FlushOutput();
  return outcome.ok() ? service::kExitDone : Failed(outcome);
}

}  // namespace
}  // namespace hir::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is an error like a full disk.
  const std::span<const char* const> arguments(argv, static_cast<size_t>(argc));
  return hir::cli::Main(arguments.subspan(1));
}
