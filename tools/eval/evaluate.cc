#include "tools/eval/evaluate.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>

#include "csrc/base/quartiles.h"
#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/predict/predict.h"
#include "tools/eval/calibrate.h"
#include "tools/eval/rank_run.h"
#include "tools/eval/ranks.h"
#include "tools/eval/report.h"
#include "tools/transform.h"

namespace hir::eval {
namespace {

using base::Cat;

// How it ended: a status, and the exit code for one that is not OK.
struct Outcome {
  Status status = {};
  int code = 0;
};

Result<std::string> ReadText(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.str().empty()) return Status(Code::kNotFound, Cat("cannot read ", path));
  return text.str();
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  return file.flush() ? Status() : Unavailable(Cat("cannot write ", path));
}

// What is run: a file's program, or one that is timed to calibrate.
struct Source {
  std::string name;
  std::string text;
};

Result<std::vector<Source>> ReadSources(const Options& options) {
  std::vector<Source> sources;
  for (const std::string& path : options.programs) {
    HIR_ASSIGN(std::string text, ReadText(path));
    sources.push_back({path, std::move(text)});
  }
  return sources;
}

// A program, planned one way.
struct Variant {
  Planned planned;
  host::OverlapChoice overlap = host::OverlapChoice::kChosen;
  Result<host::Prediction> predicted = Status(Code::kFailedPrecondition, "no --rates");
};

Result<Planned> PlanSource(const Options& options, const Source& source, host::OverlapChoice overlap,
                           const Ranks& ranks, const codegen::Target& target) {
  const bool is_host = &tools::OpSetOf(source.text) == &host::kHostOps;
  Result<Planned> planned = is_host ? LoadHost(options, source.text, ranks.size())
                                    : Plan(options, overlap, source.text, ranks.size(), target);
  if (!planned.ok() && planned.status().code() != Code::kNotFound) return planned.status().WithContext(source.name);
  return planned;
}

// Those of each program.
using Variants = std::vector<std::vector<Variant>>;
Result<Variants> PlanAll(const Options& options, std::span<const Source> sources, const Ranks& ranks,
                         const codegen::Target& target) {
  Variants variants(sources.size());
  std::optional<host::Rates> rates;
  if (!options.rates.empty()) {
    HIR_ASSIGN(const std::string text, ReadText(options.rates));
    Result<host::Rates> parsed = host::ParseRates(text);
    if (!parsed.ok()) return parsed.status().WithContext(options.rates);
    rates = *std::move(parsed);
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    for (const host::OverlapChoice overlap : options.overlaps) {
      HIR_ASSIGN(Planned planned, PlanSource(options, sources[i], overlap, ranks, target));
      Variant& variant = variants[i].emplace_back(std::move(planned), overlap);
      const Sizes& sizes = variant.planned.sizes;
      if (rates) variant.predicted = host::Predict(*variant.planned.plan.host, {sizes.begin(), sizes.end()}, *rates);
    }
  }
  return variants;
}

// Ranks that run different plans would wait for each other for ever.
Status ComparePlans(const Variants& variants, Ranks& ranks) {
  std::string mine;
  for (const std::vector<Variant>& of_program : variants) {
    for (const Variant& variant : of_program) base::Append(mine, mine.empty() ? "" : " ", DigestOf(variant.planned));
  }
  HIR_ASSIGN(const std::vector<std::string> digests, ranks.Exchange("compare plans", mine));
  for (size_t peer = 1; peer < digests.size(); ++peer) {
    if (digests[peer] == digests[0]) continue;
    return {Code::kFailedPrecondition,
            Cat("ranks 0 and ", peer, " made different plans (digests ", digests[0], " and ", digests[peer],
                "): they must read the same program and inputs, and be of the same build")};
  }
  return {};
}

// Of each sample the slowest rank's time.
Result<std::vector<double>> SlowestSamples(const Timing& timing, Ranks& ranks) {
  const std::string mine(reinterpret_cast<const char*>(timing.samples_ms.data()),
                         timing.samples_ms.size() * sizeof(double));
  HIR_ASSIGN(const std::vector<std::string> all, ranks.Exchange("compare times", mine));
  std::vector<double> slowest(timing.samples_ms.size());
  for (const std::string& theirs : all) {
    if (theirs.size() != mine.size()) return Internal("ranks took different numbers of samples");
    for (size_t i = 0; i < slowest.size(); ++i) {
      double value = 0;
      std::memcpy(&value, theirs.data() + i * sizeof(value), sizeof(value));
      slowest[i] = std::max(slowest[i], value);
    }
  }
  return slowest;
}

Result<std::vector<Memory>> MemoryOfEach(const Memory& mine, Ranks& ranks) {
  static_assert(std::is_trivially_copyable_v<Memory>);
  HIR_ASSIGN(const std::vector<std::string> all,
             ranks.Exchange("compare memory", {reinterpret_cast<const char*>(&mine), sizeof(mine)}));
  std::vector<Memory> memory(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != sizeof(mine)) return Internal("ranks are of different builds");
    std::memcpy(&memory[rank], all[rank].data(), sizeof(mine));
  }
  return memory;
}

// Lines of text, in pieces that an exchange carries.
Result<std::vector<std::string>> ExchangeLong(std::string_view what, std::string_view mine, Ranks& ranks) {
  constexpr size_t kPiece = 48 * 1024;
  std::vector<std::string> all(static_cast<size_t>(ranks.size()));
  for (bool more = true; more;) {
    HIR_ASSIGN(const std::vector<std::string> pieces, ranks.Exchange(what, mine.substr(0, kPiece)));
    mine.remove_prefix(std::min(mine.size(), kPiece));
    more = false;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      all[rank] += pieces[rank];
      more |= !pieces[rank].empty();
    }
  }
  return all;
}

std::string ToText(const std::vector<base::TraceSpan>& spans) {
  std::string text;
  for (const base::TraceSpan& span : spans)
    base::Append(text, span.stream, " ", span.queued.count(), " ", span.queued_end.count(), " ", span.began.count(),
                 " ", span.ended.count(), " ", span.kind, " ", span.name, "\n");
  return text;
}

void FromText(const std::string& text, int64_t rank, std::vector<base::TraceSpan>& spans) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    base::TraceSpan span = {.rank = rank};
    int64_t times[4] = {};
    fields >> span.stream >> times[0] >> times[1] >> times[2] >> times[3] >> span.kind >> std::ws;
    std::getline(fields, span.name);
    span.queued = base::Nanos(times[0]);
    span.queued_end = base::Nanos(times[1]);
    span.began = base::Nanos(times[2]);
    span.ended = base::Nanos(times[3]);
    spans.push_back(std::move(span));
  }
}

Status WriteTimeline(const Options& options, const Planned& planned, const RankRun& run, Ranks& ranks) {
  HIR_ASSIGN(const std::vector<std::string> all, ExchangeLong("timeline of ranks", ToText(run.timeline()), ranks));
  if (ranks.rank() != 0) return {};
  std::vector<base::TraceSpan> spans;
  for (size_t rank = 0; rank < all.size(); ++rank) FromText(all[rank], static_cast<int64_t>(rank), spans);
  return WriteText(options.timeline, base::TraceJson(planned.name, spans));
}

// From a plan to a run that went well. Where one rank fails, all end: none is left to wait in a communication.
Status Start(const Options& options, Ranks& ranks, RankRun& run, Planned& planned, const rank::Backends& backends) {
  HIR_TRY(ranks.Agree("compile", Compile(options, backends, planned)));
  HIR_TRY(ranks.Agree("prepare", run.Prepare()));
  HIR_TRY(ranks.Agree("load inputs", run.LoadInputs()));
  return ranks.Agree("run", run.RunOnce());
}

// Runs of one program: what drifts meanwhile is in the samples of all.
Status Measure(const Options& options, Ranks& ranks, std::deque<RankRun>& runs) {
  for (RankRun& run : runs) HIR_TRY(ranks.Agree("prepare to measure", run.PrepareMeasure(), run.RunsQueued()));
  const int64_t turns = runs.size() > 1 ? options.repeat : 1;
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (RankRun& run : runs) HIR_TRY(ranks.Agree("measure", run.Measure(options.repeat / turns), run.RunsQueued()));
  }
  return {};
}

// What is of one run alone.
Status Finish(const Options& options, Ranks& ranks, RankRun& run, const Planned& planned) {
  if (!options.out.empty()) {
    if (options.repeat > 0) HIR_TRY(ranks.Agree("run again", run.RunOnce()));
    HIR_TRY(ranks.Agree("create outputs", run.CreateOutputs()));
    HIR_TRY(ranks.Agree("write outputs", run.WriteOutputs()));
  }
  if (options.timeline.empty()) return {};
  HIR_TRY(ranks.Agree("run for the timeline", run.RunMarked()));
  return ranks.Agree("write the timeline", WriteTimeline(options, planned, run, ranks));
}

void Tell(const Outcome& outcome, const Ranks& ranks) {
  if (!outcome.status.ok() && ranks.Speaks())
    std::fprintf(stderr, "hostir-eval: %s\n", outcome.status.ToString().c_str());
}

// Without a destructor: kernels and communications may still be queued, here or in MPI, and use what would be freed.
[[noreturn]] void EndAtOnce(const Outcome& outcome, Ranks& ranks) {
  Tell(outcome, ranks);
  std::fflush(nullptr);
  ranks.Part();
  std::_Exit(outcome.code);
}

Result<Report> ReportOf(const Options& options, const Variant& variant, const RankRun& run, std::string_view model,
                        Ranks& ranks) {
  const Planned& planned = variant.planned;
  Report report = {.program = planned.name,
                   .overlap = std::string(host::OverlapChoiceName(variant.overlap)),
                   .device = options.device,
                   .model = std::string(model),
                   .ranks = ranks.size(),
                   .launches = planned.launches,
                   .library_calls = planned.library_calls,
                   .communications = planned.communications,
                   .plan_ms = planned.plan_ms,
                   .warm_compiler_ms = planned.warm_compiler_ms,
                   .compile_ms = planned.compile_ms,
                   .compile_again_ms = planned.compile_again_ms,
                   .timing = run.timing(),
                   .memory = {}};
  if (variant.predicted.ok()) report.predicted_ms = variant.predicted->seconds * 1e3;
  if (!variant.predicted.ok() && !options.rates.empty()) report.not_predicted = variant.predicted.status().ToString();
  if (!options.out.empty()) report.outputs = run.OutputPaths();
  HIR_ASSIGN(report.timing.samples_ms, SlowestSamples(run.timing(), ranks));
  HIR_ASSIGN(report.memory, MemoryOfEach(run.memory(), ranks));
  return report;
}

// Runs the plans of one program, and reports them. Errors end the process.
Status EvaluateProgram(const Options& options, std::vector<Variant>& variants, std::string_view model,
                       const DeviceKind& kind, RankDevice& on, Ranks& ranks, std::vector<Report>& reports) {
  std::deque<RankRun> runs;
  for (Variant& variant : variants) {
    RankRun& run = runs.emplace_back(options, ranks, kind, on, variant.planned);
    if (Status status = Start(options, ranks, run, variant.planned, kind.backends); !status.ok())
      EndAtOnce({status, kExitFailed}, ranks);
  }
  Status status = options.repeat == 0 ? Status() : Measure(options, ranks, runs);
  if (status.ok()) status = Finish(options, ranks, runs.front(), variants.front().planned);
  if (!status.ok()) EndAtOnce({status, kExitFailed}, ranks);
  for (size_t i = 0; i < variants.size(); ++i) {
    HIR_ASSIGN(reports.emplace_back(), ReportOf(options, variants[i], runs[i], model, ranks));
    if (ranks.rank() != 0 || !options.calibrate.empty()) continue;
    std::fputs(ReportText(reports.back(), options).c_str(), stdout);
    std::fflush(stdout);
  }
  return {};
}

// Rank 0's: the figures of all programs, or what they say of the device.
Status WriteFiles(const Options& options, std::span<const Report> reports, std::span<const Probe> probes,
                  const codegen::Target& target) {
  if (!options.calibrate.empty()) {
    std::vector<double> seconds;
    for (const Report& report : reports) seconds.push_back(base::QuartilesOf(report.timing.samples_ms).median / 1e3);
    const std::string device = reports[0].model.empty() ? options.device : reports[0].model;
    HIR_TRY(WriteText(options.calibrate, host::ToText(RatesOf(probes, seconds, device, reports[0].ranks, target))));
  }
  if (options.json.empty()) return {};
  std::vector<std::string> json;
  for (const Report& report : reports) json.push_back(ReportJson(report, options));
  return WriteText(options.json, (json.size() == 1 ? json[0] : Cat("[", base::Join(json, ",\n"), "]")) + "\n");
}

Outcome EvaluateOn(const Options& options, const DeviceKind& kind, Ranks& ranks) {
  const Result<rank::DeviceFacts> facts = kind.backends.facts_of(ranks.node_rank());
  if (Status status = ranks.Agree("find the device", facts.status()); !status.ok()) return {status, kExitFailed};
  std::vector<Probe> probes;
  if (!options.calibrate.empty()) probes = ProbesFor(facts->target, ranks.size());
  Result<std::vector<Source>> sources = ReadSources(options);
  for (const Probe& probe : probes) sources->push_back({probe.name, probe.text});
  Result<Variants> variants =
      sources.ok() ? PlanAll(options, *sources, ranks, facts->target) : Result<Variants>(sources.status());
  if (Status status = ranks.Agree("plan", variants.status()); !status.ok()) {
    const int code = status.code() == Code::kNotFound           ? kExitUsage
                     : status.code() == Code::kDeadlineExceeded ? kExitFailed
                                                                : kExitRefused;
    return {status, code};
  }
  if (Status status = ComparePlans(*variants, ranks); !status.ok()) return {status, kExitFailed};
  Status fit;
  for (const std::vector<Variant>& of_program : *variants) {
    for (const Variant& variant : of_program) {
      if (options.explain && ranks.rank() == 0) std::fputs(Explain(variant.planned).c_str(), stdout);
      if (fit.ok()) fit = InputsFit(options, variant.planned, ranks.rank());
    }
  }
  if (Status status = ranks.Agree("make up inputs", fit); !status.ok()) return {status, kExitRefused};
  RankDevice on;
  Status status = ranks.Agree("open the device", on.Open(options, ranks, kind.backends));
  if (status.ok()) status = ranks.Agree("connect", on.Connect(options, ranks, kind.backends));
  if (!status.ok()) EndAtOnce({status, kExitFailed}, ranks);
  std::vector<Report> reports;
  for (size_t i = 0; i < variants->size(); ++i) {
    if (!probes.empty() && ranks.rank() == 0)
      std::fprintf(stderr, "%zu of %zu: %s\n", i + 1, probes.size(), probes[i].name.c_str());
    status = EvaluateProgram(options, (*variants)[i], facts->model, kind, on, ranks, reports);
    if (!status.ok()) return {status, kExitFailed};
  }
  if (ranks.rank() != 0) return {};
  return {WriteFiles(options, reports, probes, facts->target), kExitUsage};
}

}  // namespace

int Evaluate(const Options& options, const DeviceKind& kind) {
  Result<Ranks> ranks = Ranks::Find(std::chrono::seconds(options.timeout_s));
  if (!ranks.ok()) {
    std::fprintf(stderr, "hostir-eval: %s\n", ranks.status().ToString().c_str());
    return kExitFailed;
  }
  const Outcome outcome = EvaluateOn(options, kind, *ranks);
  if (outcome.status.ok()) return 0;
  Tell(outcome, *ranks);
  return outcome.code;
}

}  // namespace hir::eval
