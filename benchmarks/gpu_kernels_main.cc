// Device time of compiled kernels on a GPU, without the evaluator.
//
//   gpu_kernels [--sizes 2048x4104,...] PROGRAM.hir...       a line for each: median, quartiles, GB/s, registers, and
//                                                            how far the values are from those at unaligned addresses
//   gpu_kernels --sweep [--launch N] [--top N] [--log FILE]  other parameters of the schedule than its heuristics
//       [--processors N,...] [--sizes ...] PROGRAM.hir...    choose, fastest first; * is the heuristics' own
//   gpu_kernels --registers [--sizes ...] PROGRAM.hir...     registers and spills of each kernel; needs no GPU
//   gpu_kernels --text [--sizes ...] PROGRAM.hir...          its CUDA C++; needs no GPU
//
// Every sample: 256 MiB are written, an event, the program's launches, an event. --sizes replaces the extents of the
// program's first parameter wherever they stand. --processors: plans as for so many multiprocessors, which decides into
// how many parts reductions are cut.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "benchmarks/gpu_bench.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

constexpr int kSamples = 50;
constexpr int kSweepSamples = 25;
constexpr int kThreadsOfMultiprocessor = 2048;
constexpr int64_t kReadAll = int64_t{1} << 40;
constexpr int64_t kReadSome = int64_t{1} << 18;

struct Options {
  bool text = false, registers = false, sweep = false;
  size_t launch = 0;  // Which one is swept.
  size_t top = 6;
  std::vector<std::string> sizes;
  std::vector<int> processors;
  std::string log;
  std::vector<std::string> programs;
};

std::vector<std::string> Split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

// The program with the extents of its first parameter replaced.
std::string WithSizes(const std::string& text, const std::string& sizes) {
  if (sizes.empty()) return text;
  std::smatch shape;
  if (!std::regex_search(text, shape, std::regex("\\[([0-9, ]+)\\]"))) return text;
  const std::vector<std::string> before = Split(shape[1], ','), after = Split(sizes, 'x');
  std::map<std::string, std::string> replaced;
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i)
    replaced[std::to_string(std::stoll(before[i]))] = after[i];
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto is_word = [](char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string word = text.substr(i, std::max<size_t>(end - i, 1));
    out += replaced.contains(word) ? replaced[word] : word;
    i += word.size();
  }
  return out;
}

Result<host::ProgramPlan> PlanText(const std::string& text, const Target& target) {
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  return host::PlanProgram(std::move(graph), {.num_devices = 1, .target = target, .sizes = {}});
}

Result<std::vector<Artifact>> CompileAll(Compiler& compiler, const host::ProgramPlan& plan,
                                         std::span<const Tuning> tunings = {}) {
  std::vector<Artifact> artifacts;
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    HIR_ASSIGN(Artifact artifact, compiler.Compile(plan.kernels[k], k == 0 ? tunings : std::span<const Tuning>()));
    artifacts.push_back(std::move(artifact));
  }
  return artifacts;
}

std::string KernelsText(const host::ProgramPlan& plan, std::span<const Artifact> artifacts) {
  std::string out;
  for (size_t k = 0; k < artifacts.size(); ++k) {
    const auto code = Unpack(artifacts[k].bytes);
    if (!code.ok()) continue;
    for (size_t i = 0; i < code->kernels.size(); ++i) {
      base::Append(out, out.empty() ? "" : "; ", plan.kernels[k].schedule, " T", code->kernels[i].threads, " ",
                   code->registers[i], " registers");
      if (code->spill_bytes[i] > 0) base::Append(out, " ", code->spill_bytes[i], " B spilled");
    }
  }
  return out;
}

void Report(const std::string& name, const Status& status) {
  std::printf("%-36s %s\n", name.c_str(), status.ToString().c_str());
}

Status PrintText(const host::ProgramPlan& plan) {
  for (const KernelPlan& kernel : plan.kernels) {
    HIR_ASSIGN(const std::string own, EmitKernels(kernel));
    std::puts(own.c_str());
  }
  return {};
}

Status PrintRegisters(const std::string& name, const host::ProgramPlan& plan) {
  Compiler compiler({});
  HIR_ASSIGN(const std::vector<Artifact> artifacts, CompileAll(compiler, plan));
  std::printf("%-36s %s\n", name.c_str(), KernelsText(plan, artifacts).c_str());
  return {};
}

Status Measure(const std::string& name, device::Device& device, const host::ProgramPlan& plan) {
  Compiler compiler({});
  const auto before = std::chrono::steady_clock::now();
  HIR_ASSIGN(const std::vector<Artifact> artifacts, CompileAll(compiler, plan));
  const std::chrono::duration<double, std::milli> compiling = std::chrono::steady_clock::now() - before;
  Times times, first;
  GpuBench::Outputs outputs[2];
  int64_t bytes = 0;
  for (const bool shifted : {false, true}) {
    GpuBench bench(device, plan, shifted);
    HIR_TRY(bench.Start());
    HIR_TRY(bench.Load(artifacts));
    HIR_TRY(bench.Run());
    HIR_ASSIGN(outputs[shifted ? 1 : 0], bench.Read(kReadAll));
    if (shifted) continue;
    bytes = bench.bytes();
    HIR_ASSIGN(times, bench.Time(kSamples));
    if (bench.HasSecondLaunches()) {
      HIR_ASSIGN(first, bench.Time(kSamples, true));
    }
  }
  std::printf("%-36s %8.4f ms (%.4f to %.4f), %6.0f GB/s, difference %.1e, %s, %.0f ms to compile", name.c_str(),
              times.median_ms, times.low_ms, times.high_ms, static_cast<double>(bytes) / times.median_ms / 1e6,
              LargestError(outputs[0], outputs[1]), KernelsText(plan, artifacts).c_str(), compiling.count());
  if (first.median_ms > 0) std::printf(", first launch alone %.4f ms", first.median_ms);
  std::puts("");
  return {};
}

// --- the sweep -------------------------------------------------------------------------------------------------------

struct Candidate {
  int processors = 0;
  Tuning tuning;
  std::vector<Artifact> artifacts;
  int registers = 0, spill_bytes = 0, ctas = 0;
  bool is_own = false;
  Times times;
  double error = 0;
};

void AddRows(const Tuning& own, std::vector<Tuning>& out) {
  const auto add = [&](int threads, int rows, int unroll, int held, int stream, int keep) {
    std::set<int> caps;
    for (const int resident : {1024, 1536, kThreadsOfMultiprocessor})
      caps.insert(std::max(resident / (threads * rows), 1));
    if (threads * rows <= 128) caps = {1, 8, 12, 16};
    for (const int cap : caps) {
      Tuning tuning;
      tuning.threads = threads * rows;
      tuning.rows = rows;
      tuning.unroll = unroll;
      tuning.ctas_per_sm = cap;
      tuning.held = held;
      tuning.stream = stream;
      tuning.keep = keep;
      out.push_back(tuning);
    }
  };
  // Held in registers: as many threads as leave few of them idle in the last vector.
  for (int per_thread = 1; per_thread <= 16; ++per_thread) {
    const auto threads =
        static_cast<int>((own.vectors + int64_t{32} * per_thread - 1) / (int64_t{32} * per_thread) * 32);
    if (threads > 1024 || (per_thread > 8 && threads > 256)) continue;
    if (per_thread > 1 && own.vectors <= threads) continue;
    for (const int rows : {1, 2, 4, 8}) {
      if (rows > 1 && (own.vectors > 256 || threads * rows > 512)) continue;
      add(threads, rows, 0, 1, -1, -1);
      if (per_thread <= 2) add(threads, rows, 0, 1, 1, -1);
    }
  }
  if (own.vectors <= 64) return;
  for (const int threads : {128, 256, 384, 512, 768, 1024}) {
    if (threads > own.vectors + 31) continue;
    for (const int unroll : {1, 2, 4, 8}) {
      if (int64_t{threads} * unroll > own.vectors + threads) continue;
      for (const int stream : {-1, 1}) {
        for (const int keep : {-1, 1}) add(threads, 1, unroll, -1, stream, keep);
      }
    }
  }
}

void AddColumns(const Tuning&, std::vector<Tuning>& out) {
  for (const int width : {8, 16, 32, 64}) {
    for (const int threads : {128, 256, 512, 1024}) {
      for (const int unroll : {1, 2, 4, 8}) {
        for (const int resident : {1024, kThreadsOfMultiprocessor}) {
          Tuning tuning;
          tuning.width = width;
          tuning.threads = threads;
          tuning.unroll = unroll;
          tuning.ctas_per_sm = std::max(resident / threads, 1);
          out.push_back(tuning);
        }
      }
    }
  }
}

void AddPointwise(std::vector<Tuning>& out) {
  for (const int threads : {64, 128, 256, 512}) {
    for (const int unroll : {1, 2, 4}) {
      Tuning tuning;
      tuning.threads = threads;
      tuning.unroll = unroll;
      out.push_back(tuning);
    }
  }
}

std::vector<Tuning> TuningsLike(const Tuning& own) {
  std::vector<Tuning> out;
  if (own.schedule == "rows") AddRows(own, out);
  if (own.schedule == "columns") AddColumns(own, out);
  if (own.schedule == "pointwise") AddPointwise(out);
  if (own.schedule == "transposed") {
    for (const int cap : {1, 2, 3, 4}) {
      Tuning tuning;
      tuning.ctas_per_sm = cap;
      out.push_back(tuning);
    }
  }
  return out;
}

Result<std::vector<Candidate>> CandidatesOf(const host::ProgramPlan& plan, const Options& options, int processors) {
  if (plan.kernels.empty()) return InvalidArgument("a program without kernels");
  HIR_ASSIGN(const Source own, EmitCuda(plan.kernels[0]));
  if (options.launch >= own.tunings.size())
    return InvalidArgument(Cat("launch ", options.launch, " of ", own.tunings.size()));
  std::vector<Tuning> tunings = TuningsLike(own.tunings[options.launch]);
  tunings.insert(tunings.begin(), Tuning());
  std::vector<Candidate> candidates;
  std::set<std::string> texts;
  for (const Tuning& tuning : tunings) {
    std::vector<Tuning> all(options.launch + 1);
    all[options.launch] = tuning;
    HIR_ASSIGN(const Source source, EmitCuda(plan.kernels[0], {}, all));
    if (!texts.insert(base::Join(source.parts, "")).second) continue;
    Candidate candidate;
    candidate.processors = processors;
    candidate.is_own = tuning == Tuning();
    candidate.tuning = tuning;
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

void CompileCandidates(const host::ProgramPlan& plan, const Options& options, std::vector<Candidate>& candidates) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < candidates.size(); i = next++) {
      Candidate& candidate = candidates[i];
      std::vector<Tuning> all(options.launch + 1);
      all[options.launch] = candidate.tuning;
      Compiler compiler({});
      auto artifacts = CompileAll(compiler, plan, all);
      if (!artifacts.ok()) continue;
      const auto code = Unpack((*artifacts)[0].bytes);
      if (!code.ok()) continue;
      candidate.artifacts = std::move(*artifacts);
      candidate.registers = code->registers[options.launch];
      candidate.spill_bytes = code->spill_bytes[options.launch];
      const auto source = EmitCuda(plan.kernels[0], {}, all);
      if (source.ok()) candidate.tuning = source->tunings[options.launch];
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1u); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

std::string CandidateText(const Candidate& candidate, double best) {
  const Tuning& t = candidate.tuning;
  char line[256];
  std::snprintf(line, sizeof line,
                "  %c %8.4f ms (%.4f to %.4f) %5.2f  P%d T%-4d rows %d width %-2d U%-2d MB%-2d %s %s %s "
                "%3d registers %3d B spilled  difference %.1e",
                candidate.is_own ? '*' : ' ', candidate.times.median_ms, candidate.times.low_ms,
                candidate.times.high_ms, best / candidate.times.median_ms, candidate.processors, t.threads, t.rows,
                t.schedule == "columns" ? t.width : 0, t.unroll, t.ctas_per_sm, t.held > 0 ? "held " : "again",
                t.stream > 0 ? ".cs" : "   ", t.keep > 0 ? "keep" : "    ", candidate.registers, candidate.spill_bytes,
                candidate.error);
  return line;
}

Status Sweep(const std::string& name, device::Device* device, const std::string& text, const Target& target,
             const Options& options) {
  std::vector<Candidate> all;
  const auto before = std::chrono::steady_clock::now();
  std::string schedule;
  for (const int processors : options.processors.empty() ? std::vector{target.multiprocessors} : options.processors) {
    Target own = target;
    own.multiprocessors = processors;
    HIR_ASSIGN(const host::ProgramPlan plan, PlanText(text, own));
    HIR_ASSIGN(std::vector<Candidate> candidates, CandidatesOf(plan, options, processors));
    CompileCandidates(plan, options, candidates);
    if (device == nullptr) {
      std::ranges::move(candidates, std::back_inserter(all));
      continue;
    }
    GpuBench bench(*device, plan, false);
    HIR_TRY(bench.Start());
    std::set<std::string> seen;
    std::optional<GpuBench::Outputs> want;  // Of this plan's own choice, the first.
    for (Candidate& candidate : candidates) {
      if (candidate.artifacts.empty() || !seen.insert(candidate.artifacts[0].bytes).second) continue;
      HIR_TRY(bench.Load(candidate.artifacts));
      HIR_TRY(bench.Run());
      HIR_ASSIGN(GpuBench::Outputs outputs, bench.Read(kReadSome));
      HIR_ASSIGN(candidate.times, bench.Time(kSweepSamples));
      if (!want) want = outputs;
      candidate.error = LargestError(outputs, *want);
      schedule = candidate.tuning.schedule;
      candidate.artifacts.clear();
      all.push_back(std::move(candidate));
    }
  }
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.times.median_ms; });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
  std::FILE* log = options.log.empty() ? nullptr : std::fopen(options.log.c_str(), "a");
  const std::string head =
      Cat(name, " ", schedule, ": ", all.size(), " candidates in ", static_cast<int>(seconds.count() * 1000), " ms");
  std::puts(head.c_str());
  if (log != nullptr) std::fprintf(log, "%s\n", head.c_str());
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string line = CandidateText(all[i], all[0].times.median_ms);
    if (i < options.top || all[i].is_own) std::puts(line.c_str());
    if (log != nullptr) std::fprintf(log, "%s\n", line.c_str());
  }
  if (log != nullptr) std::fclose(log);
  return {};
}

Result<Options> Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (arg == "--text") {
      options.text = true;
    } else if (arg == "--registers") {
      options.registers = true;
    } else if (arg == "--sweep") {
      options.sweep = true;
    } else if (arg == "--launch") {
      options.launch = static_cast<size_t>(base::ParseInt(value()).value_or(0));
    } else if (arg == "--top") {
      options.top = static_cast<size_t>(base::ParseInt(value()).value_or(6));
    } else if (arg == "--sizes") {
      options.sizes = Split(value(), ',');
    } else if (arg == "--processors") {
      for (const std::string& number : Split(value(), ','))
        options.processors.push_back(static_cast<int>(base::ParseInt(number).value_or(132)));
    } else if (arg == "--log") {
      options.log = value();
    } else if (arg.starts_with("--")) {
      return InvalidArgument(Cat("no option ", arg));
    } else {
      options.programs.push_back(arg);
    }
  }
  if (options.sizes.empty()) options.sizes.emplace_back();
  return options;
}

int Main(int argc, char** argv) {
  const auto options = Parse(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.status().ToString().c_str());
    return 2;
  }
  Target target = kHopper;
  std::unique_ptr<device::Device> device;
  if (!options->text && !options->registers) {
    auto opened = device::OpenCudaDevice({});
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
      return 1;
    }
    device = std::move(*opened);
    const auto facts = device::FactsOf(*device);
    if (!facts.ok()) return 1;
    target = {.kind = Target::Kind::kGpu,
              .architecture = facts->architecture,
              .multiprocessors = facts->multiprocessors,
              .shared_bytes = facts->shared_bytes_per_block};
  }
  int failures = 0;
  for (const std::string& path : options->programs) {
    std::ifstream file(path);
    std::stringstream stream;
    stream << file.rdbuf();
    for (const std::string& sizes : options->sizes) {
      const std::string text = WithSizes(stream.str(), sizes);
      const std::string name = Cat(std::filesystem::path(path).stem().string(), sizes.empty() ? "" : " ", sizes);
      const Status status = [&]() -> Status {
        if (options->sweep) return Sweep(name, options->registers ? nullptr : device.get(), text, target, *options);
        HIR_ASSIGN(const host::ProgramPlan plan, PlanText(text, target));
        if (options->text) return PrintText(plan);
        if (options->registers) return PrintRegisters(name, plan);
        return Measure(name, *device, plan);
      }();
      if (!status.ok()) Report(name, status), ++failures;
      std::fflush(stdout);
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hir::codegen::gpu

int main(int argc, char** argv) { return hir::codegen::gpu::Main(argc, argv); }
