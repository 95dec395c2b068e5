// How long NVRTC takes for each kernel, and for what: `compile_times [--arch 90] [--repeat 3] [--text DIR]
// [PROGRAM.hir...]`, by default all of benchmarks/gpu/programs. Needs no GPU. For each kernel: the text's emission;
// then a compilation's wall time (the least of the repetitions), its parts (front end, optimizer, assembler), the same
// without the path for any size, and without the fast one; the cap on registers asked for and kept, registers, spills;
// then the time under other options. Then what a plan of several kernels costs through Compiler, as a first run does.
// `--text DIR` writes what is compiled.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::codegen::gpu {
namespace {

namespace fs = std::filesystem;
using base::Cat;

struct Options {
  int architecture = 90;
  int repeat = 3;
  std::string text_directory;
  std::vector<fs::path> programs;
};

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

double Milliseconds(const std::function<void()>& body) {
  const auto before = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
}

struct Times {
  double all = 0;
  double parts[3] = {};  // Front end, optimizer, assembler, as NVRTC says.
};

// The least of `repeat` compilations; nothing where these options are refused.
std::optional<Times> TimesOf(const std::string& text, const Options& options, const std::vector<std::string>& more) {
  std::optional<Times> least;
  const fs::path csv = fs::temp_directory_path() / Cat("compile_times.", getpid(), ".csv");
  std::vector<std::string> all = more;
  all.push_back(Cat("--time=", csv.string()));
  for (int i = 0; i < options.repeat; ++i) {
    Times times;
    bool ok = true;
    times.all = Milliseconds([&] { ok = CompileCuda(text, options.architecture, all).ok(); });
    if (!ok) return std::nullopt;
    std::istringstream lines(ReadFile(csv));  // "file, phase, ms, unit" below a line of names.
    fs::remove(csv);
    std::string line;
    for (int row = -1; std::getline(lines, line) && row < 3; ++row) {
      if (row < 0) continue;
      const size_t unit = line.rfind(','), number = line.rfind(',', unit - 1);
      times.parts[row] = std::strtod(line.c_str() + number + 1, nullptr);
    }
    if (!least || times.all < least->all) least = times;
  }
  return least;
}

std::string Without(std::string text, std::string_view call) {
  const size_t at = text.find(call);
  return at == std::string::npos ? text : text.erase(at, call.size());
}

struct Total {
  std::vector<double> kernels;
  std::vector<double> plans;
};

const std::vector<std::vector<std::string>> kVariants = {
    {"--split-compile=0"}, {"--split-compile=4"}, {"-Ofc=min"}, {"-Ofc=mid"}, {"-Ofc=max"}, {"--ptxas-options=-O2"},
};

Status Measure(const fs::path& path, const Options& options, Total& total) {
  const std::string program = ReadFile(path);
  HIR_ASSIGN(auto graph, ir::Parse(program.substr(0, program.find("\n// ----")), fusion::kFusionOps));
  Target target = kHopper;
  target.architecture = options.architecture;
  HIR_ASSIGN(const host::ProgramPlan plan,
             host::PlanProgram(std::move(graph), {.num_devices = 1, .target = target, .sizes = {}}));
  for (const KernelPlan& kernel : plan.kernels) {
    Source source;
    Status status;
    const double emitted = Milliseconds([&] {
      auto made = EmitCuda(kernel);
      status = made.ok() ? Status() : made.status();
      if (made.ok()) source = std::move(*made);
    });
    HIR_TRY(status);
    Compiler compiler({.architecture = options.architecture, .cache_directory = {}});
    double compiled = 0;
    Code code;
    for (int i = 0; i < options.repeat; ++i) {
      Compiler fresh({.architecture = options.architecture, .cache_directory = {}});
      const double ms = Milliseconds([&] {
        const auto artifact = fresh.Compile(kernel);
        status = artifact.ok() ? Status() : artifact.status();
        if (artifact.ok()) code = *Unpack(artifact->bytes);
      });
      HIR_TRY(status);
      compiled = i == 0 ? ms : std::min(ms, compiled);
    }
    total.plans.push_back(compiled);
    for (size_t i = 0; i < source.parts.size(); ++i) {
      const std::string text = source.prelude + source.parts[i];
      const std::string name = Cat(path.stem().string(), ".", kernel.launches[i].kernel);
      if (!options.text_directory.empty()) std::ofstream(fs::path(options.text_directory) / (name + ".cu")) << text;
      const auto times = TimesOf(text, options, {});
      if (!times) return CompileCuda(text, options.architecture).status();
      total.kernels.push_back(times->all);
      const auto fast = TimesOf(Without(text, "run_any(a);"), options, {});
      const auto any = TimesOf(Without(text, "\nrun(a);"), options, {});
      std::printf(
          "%-34s %-20s %5.2f %7.1f = %5.0f %5.0f %5.0f  fast %6.1f any %6.1f  cap %2d->%2d regs "
          "%3d spill %d |",
          name.c_str(), kernel.schedule.substr(0, 20).c_str(), emitted, times->all, times->parts[0], times->parts[1],
          times->parts[2], fast ? fast->all : 0, any ? any->all : 0, source.caps[i], code.caps[i], code.registers[i],
          code.spill_bytes[i]);
      for (const auto& variant : kVariants) {
        const auto other = TimesOf(text, options, variant);
        std::printf(" %6.1f", other ? other->all : -1.0);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
    if (source.parts.size() > 1) std::printf("  the plan of %zu kernels: %.1f ms\n", source.parts.size(), compiled);
  }
  return {};
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--arch" && i + 1 < argc) {
      options.architecture = std::atoi(argv[++i]);
    } else if (arg == "--repeat" && i + 1 < argc) {
      options.repeat = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--text" && i + 1 < argc) {
      options.text_directory = argv[++i];
    } else {
      options.programs.emplace_back(arg);
    }
  }
  if (options.programs.empty()) {
    for (const auto& entry : fs::directory_iterator("benchmarks/gpu/programs"))
      if (entry.path().extension() == ".hir") options.programs.push_back(entry.path());
    std::ranges::sort(options.programs);
  }
  const std::string empty = "extern \"C\" __global__ void k(float* a) { a[threadIdx.x] += 1.0f; }\n";
  const double loaded = Milliseconds([] { (void)NvrtcVersion(); });
  const double first = Milliseconds([&] { (void)CompileCuda(empty, options.architecture); });
  const auto next = TimesOf(empty, options, {});
  if (!next) {
    std::fprintf(stderr, "%s\n", CompileCuda(empty, options.architecture).status().ToString().c_str());
    return 1;
  }
  std::printf(
      "NVRTC loads in %.1f ms, its first kernel (empty) takes %.1f, the next %.1f = %.0f %.0f "
      "%.0f\n",
      loaded, first, next->all, next->parts[0], next->parts[1], next->parts[2]);
  std::string header = "kernel: ms to emit, to compile = front end, optimizer, assembler; one path alone;";
  for (const auto& variant : kVariants) header += Cat(" ", variant[0]);
  std::puts(header.c_str());
  Total total;
  int failed = 0;
  for (const fs::path& path : options.programs) {
    if (const Status status = Measure(path, options, total); !status.ok()) {
      std::printf("%s: %s\n", path.stem().c_str(), status.ToString().c_str());
      ++failed;
    }
  }
  if (!total.kernels.empty()) {
    std::printf(
        "median %.1f ms a kernel, most %.1f; a plan, with what is compiled again: median %.1f, "
        "most %.1f\n",
        Median(total.kernels), *std::ranges::max_element(total.kernels), Median(total.plans),
        *std::ranges::max_element(total.plans));
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace hir::codegen::gpu

int main(int argc, char** argv) { return hir::codegen::gpu::Main(argc, argv); }
