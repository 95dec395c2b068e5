#include "tools/eval/report.h"

#include <cstdio>
#include <numeric>

#include "csrc/base/quartiles.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::eval {
namespace {

using base::Cat;

// Four digits that tell something.
std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

// "1 run", "3 launches"
std::string Counted(int64_t count, std::string_view what) {
  const bool hissing = what.ends_with("ch");
  return Cat(count, " ", what, count == 1 ? "" : hissing ? "es" : "s");
}

std::vector<std::string> Mapped(std::span<const std::string> texts, std::string (*map)(std::string_view)) {
  std::vector<std::string> mapped;
  for (const std::string& text : texts) mapped.push_back(map(text));
  return mapped;
}

std::string EachRank(std::span<const Memory> memory, int64_t Memory::*bytes) {
  std::vector<int64_t> values;
  for (const Memory& of_rank : memory) values.push_back(of_rank.*bytes);
  return Cat("[", base::JoinInts(values, ", "), "]");
}

std::string List(std::span<const double> values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(base::FormatDouble(value));
  return Cat("[", base::Join(texts, ", "), "]");
}

}  // namespace

std::string ReportText(const Report& report, const Options& options) {
  const double compile_ms = std::accumulate(report.compile_ms.begin(), report.compile_ms.end(), 0.0);
  std::string out =
      Cat("@", report.program, " on ", report.ranks, " ", report.device, report.ranks == 1 ? " rank" : " ranks",
          options.overlaps.size() > 1 ? Cat(" (overlap ", report.overlap, ")") : "", ": ",
          Counted(report.launches, "kernel launch"), ", ", Counted(report.library_calls, "library call"), ", ",
          Counted(report.communications, "communication"), "\n");
  base::Append(out, "plan ", Short(report.plan_ms), " ms, compile ", Short(compile_ms), " ms, prepare ",
               Short(report.timing.prepare_ms), " ms, first run ", Short(report.timing.first_run_ms), " ms\n");
  if (report.predicted_ms > 0) base::Append(out, "predicted: ", Short(report.predicted_ms), " ms a run\n");
  if (!report.not_predicted.empty()) base::Append(out, "not predicted: ", report.not_predicted, "\n");
  if (!report.timing.samples_ms.empty()) {
    const base::Quartiles q = base::QuartilesOf(report.timing.samples_ms);
    base::Append(out, Counted(std::ssize(report.timing.samples_ms), "sample"), " of ", Counted(options.batch, "run"),
                 options.graph ? ", replayed from a graph" : "", options.cold_l2 ? ", caches cold" : "", ": median ",
                 Short(q.median), " ms a run (quartiles ", Short(q.low), " ", Short(q.high), "); the host binds in ",
                 Short(report.timing.bind_us), " us and queues in ", Short(report.timing.queue_us), " us\n");
    for (const std::string& graph : report.timing.graphs) base::Append(out, "graph: ", graph, "\n");
  }
  if (!report.outputs.empty()) base::Append(out, "outputs: ", base::Join(report.outputs, " "), "\n");
  return out;
}

std::string ReportJson(const Report& report, const Options& options) {
  std::string out = Cat(
      "{\n  \"program\": ", base::Quoted(report.program), ",\n  \"overlap\": ", base::Quoted(report.overlap),
      ",\n  \"device\": ", base::Quoted(report.device), ",\n  \"model\": ", base::Quoted(report.model),
      ",\n  \"ranks\": ", report.ranks, ",\n  \"launches\": ", report.launches,
      ",\n  \"library_calls\": ", report.library_calls, ",\n  \"communications\": ", report.communications,
      ",\n  \"plan_ms\": ", report.plan_ms, ",\n  \"warm_compiler_ms\": ", report.warm_compiler_ms,
      ",\n  \"compile_ms\": ", List(report.compile_ms), ",\n  \"compile_again_ms\": ", List(report.compile_again_ms),
      ",\n  \"prepare_ms\": ", report.timing.prepare_ms, ",\n  \"first_run_ms\": ", report.timing.first_run_ms,
      ",\n  \"shard_bytes\": ", EachRank(report.memory, &Memory::shard_bytes),
      ",\n  \"pool_bytes\": ", EachRank(report.memory, &Memory::pool_bytes),
      ",\n  \"communication_bytes\": ", EachRank(report.memory, &Memory::communication_bytes));
  if (report.predicted_ms > 0) base::Append(out, ",\n  \"predicted_ms\": ", report.predicted_ms);
  if (!report.timing.samples_ms.empty()) {
    const base::Quartiles q = base::QuartilesOf(report.timing.samples_ms);
    base::Append(out, ",\n  \"batch\": ", options.batch, ",\n  \"cold_l2\": ", options.cold_l2,
                 ",\n  \"graph\": ", options.graph, ",\n  \"median_ms\": ", q.median,
                 ",\n  \"quartiles_ms\": ", List({{q.low, q.high}}),
                 ",\n  \"samples_ms\": ", List(report.timing.samples_ms), ",\n  \"graphs\": [",
                 base::Join(Mapped(report.timing.graphs, &base::Quoted), ", "),
                 "],\n  \"bind_us\": ", report.timing.bind_us, ",\n  \"queue_us\": ", report.timing.queue_us);
  }
  return out + "\n}";
}

}  // namespace hir::eval
