// The command line of hostir-eval.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::eval {

inline constexpr int64_t kSamplesMax = 4096;  // Their times must fit one value of a rendezvous.
inline constexpr int64_t kFlushBytes = int64_t{256} << 20;

struct Options {
  bool help = false;
  std::vector<std::string> programs;
  std::string in;                        // Folder of the inputs; empty: none are read.
  std::string out;                       // Folder for the outputs; empty: none are written.
  std::optional<int64_t> random;         // Seed of inputs made up.
  std::map<std::string, int64_t> sizes;  // Of inputs made up.
  std::string device = "cpu";
  std::string comm = "";  // Empty: the device's own.
  int64_t threads = 1;
  int64_t repeat = 0;
  int64_t batch = 1;
  int64_t warmup = 3;
  bool cold_l2 = false;
  bool graph = false;
  bool warm_compiler = false;
  bool compile_again = false;
  bool tf32 = false;
  bool nvlink_multicast = false;
  bool peer_memory = true;
  std::string without;  // Passes of the pipeline, "take_out_views,forward"; empty: none.
  std::vector<host::OverlapChoice> overlaps = {host::OverlapChoice::kChosen};  // A plan of each program for each.
  bool explain = false;
  std::string json;
  std::string rates;      // File of what predictions are made from; empty: none are made.
  std::string calibrate;  // File to write such to, instead of running a program.
  std::string timeline;   // File of one more run's; empty: none.
  int64_t timeout_s = 120;
};

// "chosen"

// `arguments`: without the program's name. Errors: kInvalidArgument naming the option and what it takes.
Result<Options> ParseOptions(std::span<const char* const> arguments);

// What --help prints.
std::string HelpText();

}  // namespace hir::eval
