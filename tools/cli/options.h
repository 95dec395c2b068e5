// The command line of hostir.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace hir::cli {

inline constexpr int64_t kRepeatMax = 1000000;

struct Options {
  std::string command;  // "run"
  std::string program;  // Path of the program, "-": standard input; of a recording the folder.
  std::string address;
  std::string node;           // Of drain.
  std::string ca, cert, key;  // Paths: TLS.
  std::string devices;
  std::string in;
  std::string out;
  std::optional<int64_t> random;         // Seed of inputs made up.
  std::map<std::string, int64_t> sizes;  // "i0": 128
  int64_t timeout_s = 0;                 // Of one run; 0: the daemon's run_timeout_ms.
  double tolerance = 1e-2;               // Of a replay's outputs, of their largest element.
  std::string timeline;                  // Path of the run's timeline.
  std::string other;                     // Of diff: path of the second program.
  std::string svg;                       // Path of the picture.
  bool reply = false;                    // `program` is what a daemon answered to Explain.
  bool json = false;
  bool once = false;
  bool progress = false;  // Also where stderr is no terminal.
  double interval_s = 1.0;
  int64_t repeat = 100;
  int64_t warmup = 3;
  std::string shell;
  std::string folder;                // Of certificates.
  std::vector<std::string> servers;  // Names and addresses of the daemon.
  std::vector<std::string> nodes;    // Of the nodes of a cluster.
  std::vector<std::string> clients;
  int64_t days = 30;
};

// What became of a command line: options, or a text that answers it (--help, --version).
struct Parsed {
  Options options;
  std::optional<std::string> answer;
};

// `arguments`: without the program's name. Errors: kInvalidArgument naming what is wrong, the nearest word there is,
// and where the help is.
Result<Parsed> ParseCommandLine(std::span<const char* const> arguments);

// The parser's description of itself, for completion.
struct OptionWords {
  std::string name;                  // "--devices"
  std::string value;                 // "DIR"; empty: a flag without one.
  std::vector<std::string> choices;  // What the value can be; empty: anything.
  bool repeats = false;              // May be given more than once.
  std::string what;
};
struct CommandWords {
  std::string name;
  std::string what;
  bool takes_program = false;
  std::vector<std::string> choices;  // Of its argument; empty: it has none, or a program.
  std::vector<OptionWords> options;
};
std::vector<CommandWords> DescribeCommands();

}  // namespace hir::cli
