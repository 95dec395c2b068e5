// What hostir-eval says of a run: for people and as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/eval/options.h"
#include "tools/eval/planned.h"
#include "tools/eval/rank_run.h"

namespace hir::eval {

struct Report {
  std::string program;
  std::string overlap;  // "chosen"
  std::string device;   // "cuda"
  std::string model;    // "NVIDIA H200"; empty when nobody knows.
  int64_t ranks = 1;
  int64_t launches = 0, library_calls = 0, communications = 0;
  double plan_ms = 0;
  double warm_compiler_ms = 0;     // 0: it was not asked for.
  std::vector<double> compile_ms;  // One a kernel plan.
  std::vector<double> compile_again_ms;
  Timing timing;               // Of rank 0; samples_ms: of each sample the slowest rank's.
  std::vector<Memory> memory;  // Of each rank.
  double predicted_ms = 0;     // 0: there were no rates, or not_predicted says why.
  std::string not_predicted = {};
  std::vector<std::string> outputs = {};
};

std::string ReportText(const Report& report, const Options& options);
std::string ReportJson(const Report& report, const Options& options);

}  // namespace hir::eval
