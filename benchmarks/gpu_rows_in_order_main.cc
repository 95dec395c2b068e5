// Other parameters for kernels that go through rows in order than their heuristics choose:
//
//   gpu_rows_in_order [--top N] [--threads 128,...] [--resident 640,...] [--sizes 2048x65536,...] PROGRAM.hir...
//       times on a GPU, fastest first; * is the heuristics' own. --resident: threads of a multiprocessor
//   gpu_rows_in_order --registers ... PROGRAM.hir...    registers and spills; needs no GPU
//
// Every sample: 256 MiB are written, an event, the launches, an event. Values are compared with those at unaligned
// addresses, which take the path for any size. --sizes: extents for the first two that the program's text names.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "benchmarks/gpu_bench.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::gpu {
namespace {

using Staging = RowsInOrder::Staging;

constexpr int kSamples = 30;
constexpr int64_t kCompared = int64_t{1} << 20;  // Bytes of an output.

struct Variant {
  RowsInOrder tried;
  Target target;
  std::optional<host::ProgramPlan> plan;
  std::vector<Artifact> artifacts;
  std::string text;
  Code code;
  Times all, first;
  double error = 0;
  std::string failure;
};

Result<host::ProgramPlan> PlanOf(const std::string& text, const Target& target) {
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  return host::PlanProgram(std::move(graph), {.num_devices = 1, .target = target, .sizes = {}});
}

struct Options {
  bool registers = false;
  size_t top = 12;
  std::vector<std::string> sizes = {""};
  std::vector<int> threads = {128, 256, 512};
  std::vector<int> resident = {512, 640, 768, 1024};  // Threads of a multiprocessor.
  std::vector<std::string> programs;
};

std::vector<RowsInOrder> Tried(const Options& options) {
  std::vector<RowsInOrder> tried = {{}};
  for (const int threads : options.threads) {
    for (const int resident : options.resident) {
      if (resident % threads != 0) continue;
      const auto add = [&](Staging staging, int stages, int repack, int strided = 2) {
        tried.push_back({.staging = staging,
                         .stages = stages,
                         .threads = threads,
                         .ctas_per_sm = resident / threads,
                         .strided = strided,
                         .repack = repack});
      };
      for (const int repack : {2, 1}) add(Staging::kRegisters, 2, repack);
      add(Staging::kRegisters, 2, 2, 1);
      for (const Staging staging : {Staging::kCopies, Staging::kBulk}) {
        for (const int stages : {2, 3, 4, 6}) add(staging, stages, 2);
        add(staging, 3, 1);
        add(staging, 3, 2, 1);
      }
    }
  }
  return tried;
}

// Plans and compiles; those whose text is another's are left out.
std::vector<Variant> Compiled(const std::string& text, const Target& target, const Options& options) {
  std::vector<Variant> variants;
  for (const RowsInOrder& tried : Tried(options)) {
    Variant& variant = variants.emplace_back();
    variant.tried = tried;
    variant.target = target;
    variant.target.rows_in_order = tried;
  }
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::set<std::string> texts;
  const auto work = [&] {
    for (size_t i = next++; i < variants.size(); i = next++) {
      Variant& variant = variants[i];
      const auto fail = [&](const Status& status) { variant.failure = status.ToString(); };
      auto plan = PlanOf(text, variant.target);
      if (!plan.ok()) {
        fail(plan.status());
        continue;
      }
      for (const KernelPlan& kernel : plan->kernels) {
        const auto source = EmitCuda(kernel);
        if (!source.ok()) continue;
        for (const std::string& part : source->parts) variant.text += part;
      }
      {
        const std::lock_guard lock(mutex);
        if (i > 0 && !texts.insert(variant.text).second) continue;
      }
      Compiler compiler({});
      for (const KernelPlan& kernel : plan->kernels) {
        auto artifact = compiler.Compile(kernel);
        if (!artifact.ok()) {
          fail(artifact.status());
          break;
        }
        if (auto code = Unpack(artifact->bytes); variant.artifacts.empty() && code.ok())
          variant.code = std::move(*code);
        variant.artifacts.push_back(std::move(*artifact));
      }
      variant.plan = std::move(*plan);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1u); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::erase_if(variants, [](const Variant& v) { return !v.plan && v.failure.empty(); });
  return variants;
}

// The outputs in the order of the plan's launches.
Result<std::vector<std::vector<std::byte>>> OutputsOf(GpuBench& bench, const host::ProgramPlan& plan,
                                                      std::vector<DType>& dtypes) {
  HIR_TRY(bench.Run());
  HIR_ASSIGN(GpuBench::Outputs read, bench.Read(kCompared));
  std::vector<std::vector<std::byte>> outputs;
  dtypes.clear();
  for (const KernelPlan& kernel : plan.kernels) {
    for (const codegen::Launch& launch : kernel.launches) {
      for (const ir::Value* output : launch.outputs) {
        if (!read.contains(output)) continue;
        outputs.push_back(std::move(read.at(output)));
        dtypes.push_back(output->type->dtype);
        read.erase(output);
      }
    }
  }
  return outputs;
}

Status Measure(device::Device& device, Variant& variant, std::vector<std::vector<std::byte>>& wanted) {
  if (!variant.failure.empty()) return {};
  const auto outputs_of = [&](bool shifted, bool timed) -> Result<std::vector<std::vector<std::byte>>> {
    GpuBench bench(device, *variant.plan, shifted);
    HIR_TRY(bench.Start());
    HIR_TRY(bench.Load(variant.artifacts));
    std::vector<DType> dtypes;
    HIR_ASSIGN(auto outputs, OutputsOf(bench, *variant.plan, dtypes));
    if (timed) {
      HIR_ASSIGN(variant.all, bench.Time(kSamples));
      HIR_ASSIGN(variant.first, bench.Time(kSamples, true));
    }
    return outputs;
  };
  if (wanted.empty()) {
    HIR_ASSIGN(wanted, outputs_of(true, false));
  }
  HIR_ASSIGN(const auto outputs, outputs_of(false, true));
  std::vector<DType> dtypes;
  size_t k = 0;
  GpuBench::Outputs got, want;
  for (const KernelPlan& kernel : variant.plan->kernels) {
    for (const codegen::Launch& launch : kernel.launches) {
      for (const ir::Value* output : launch.outputs) {
        if (got.contains(output)) continue;
        got[output] = outputs[k];
        want[output] = wanted[k];
        ++k;
      }
    }
  }
  variant.error = LargestError(got, want);
  return {};
}

std::string_view NameOf(Staging staging) {
  switch (staging) {
    case Staging::kChosen: return "chosen";
    case Staging::kRegisters: return "registers";
    case Staging::kCopies: return "copies";
    case Staging::kBulk: return "bulk";
  }
  return "";
}

void Print(const Variant& v, bool own) {
  if (!v.failure.empty()) {
    std::printf("  %-9s %d stages T%d x %d: %s\n", std::string(NameOf(v.tried.staging)).c_str(), v.tried.stages,
                v.tried.threads, v.tried.ctas_per_sm, v.failure.c_str());
    return;
  }
  std::string kernels;
  for (size_t i = 0; i < v.code.kernels.size(); ++i) {
    base::Append(kernels, i > 0 ? " | " : "", "T", v.code.kernels[i].threads, " ", v.code.registers[i], " registers, ",
                 v.code.spill_bytes[i], " spilled, ", v.code.kernels[i].shared_bytes, " B dynamic");
  }
  std::printf(
      "%c %.4f ms (%.4f to %.4f), first launch %.4f, difference %.1e  %-9s %d stages T%-3d x %-2d "
      "%s  "
      "%s\n",
      own ? '*' : ' ', v.all.median_ms, v.all.low_ms, v.all.high_ms, v.first.median_ms, v.error,
      std::string(NameOf(v.tried.staging)).c_str(), v.tried.stages, v.tried.threads, v.tried.ctas_per_sm,
      v.tried.repack == 1    ? "packed "
      : v.tried.strided == 1 ? "strided"
                             : "       ",
      kernels.c_str());
}

// The program with the numbers of its first parameter's shape, wherever they stand, replaced.
std::string WithSizes(std::string text, const std::string& sizes) {
  const size_t open = text.find('['), close = text.find(']', open);
  if (sizes.empty() || close == std::string::npos) return text;
  std::stringstream before(text.substr(open + 1, close - open - 1)), after(sizes);
  std::vector<std::pair<std::string, std::string>> replaced;
  std::string from, to;
  while (std::getline(before, from, ',') && std::getline(after, to, 'x'))
    replaced.emplace_back(from.substr(from.find_first_not_of(' ')), to);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' || text[end] == '.'))
      ++end;
    const std::string word = text.substr(i, std::max<size_t>(end - i, 1));
    const auto known = std::ranges::find(replaced, word, &std::pair<std::string, std::string>::first);
    const bool extent = known != replaced.end();
    const bool number = word == (extent ? known->first + ".0" : std::string());
    out += extent && !number ? known->second : word;
    i += word.size();
  }
  return out;
}

int Main(int argc, char** argv) {
  Options options;
  const auto numbers = [](const std::string& text) {
    std::vector<int> out;
    std::stringstream all(text);
    for (std::string one; std::getline(all, one, ',');)
      out.push_back(static_cast<int>(base::ParseInt(one).value_or(0)));
    return out;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--registers") {
      options.registers = true;
      continue;
    }
    if (!arg.starts_with("--")) {
      options.programs.push_back(arg);
      continue;
    }
    ++i;
    if (arg == "--top") {
      options.top = static_cast<size_t>(base::ParseInt(value).value_or(12));
    } else if (arg == "--threads") {
      options.threads = numbers(value);
    } else if (arg == "--resident") {
      options.resident = numbers(value);
    } else if (arg == "--sizes") {
      std::stringstream all(value);
      options.sizes.clear();
      for (std::string one; std::getline(all, one, ',');) options.sizes.push_back(one);
    } else {
      std::fprintf(stderr, "no option %s\n", arg.c_str());
      return 2;
    }
  }
  Target target = kHopper;
  std::unique_ptr<device::Device> device;
  if (!options.registers) {
    auto opened = device::OpenCudaDevice({});
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
      return 1;
    }
    device = std::move(*opened);
    const auto facts = device::FactsOf(*device);
    if (!facts.ok()) return 1;
    target.architecture = facts->architecture;
    target.multiprocessors = facts->multiprocessors;
    target.shared_bytes = facts->shared_bytes_per_block;
  }
  bool failed = options.programs.empty();
  for (const std::string& program : options.programs) {
    std::ifstream file(program);
    std::stringstream read;
    read << file.rdbuf();
    for (const std::string& size : options.sizes) {
      std::vector<Variant> variants = Compiled(WithSizes(read.str(), size), target, options);
      std::printf("%s %s: %zu variants\n", std::filesystem::path(program).stem().c_str(), size.c_str(),
                  variants.size());
      std::vector<std::vector<std::byte>> wanted;
      for (Variant& variant : variants) {
        if (device == nullptr) continue;
        if (const Status status = Measure(*device, variant, wanted); !status.ok()) variant.failure = status.ToString();
      }
      std::vector<const Variant*> sorted;
      for (const Variant& variant : variants) sorted.push_back(&variant);
      std::ranges::stable_sort(sorted, {},
                               [](const Variant* v) { return v->failure.empty() ? v->all.median_ms : 1e9; });
      for (size_t i = 0; i < sorted.size(); ++i) {
        const bool own = sorted[i]->tried == RowsInOrder();
        if (i < options.top || own || options.registers || !sorted[i]->failure.empty()) Print(*sorted[i], own);
        failed = failed || !sorted[i]->failure.empty() || !(sorted[i]->error < 1e-2);
      }
      std::fflush(stdout);
    }
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace hir::codegen::gpu

int main(int argc, char** argv) { return hir::codegen::gpu::Main(argc, argv); }
