// Goal: NVRTC compiles every kernel of the golden programs and of the benchmarks for sm_80 and sm_90, the fast path
// without spilling; artifacts survive packing; both caches give what was compiled, and damage is compiled again.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/csrc/codegen/cache_directory.h"
#include "tests/csrc/codegen/every_pointwise.h"

namespace hir::codegen::gpu {
namespace {

namespace fs = std::filesystem;
using base::Cat;

#define SKIP_WITHOUT_NVRTC() \
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status().ToString()

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::vector<fs::path> Programs() {
  std::vector<fs::path> paths;
  for (const char* directory : {"tests/golden/programs", "tests/golden/kernels", "benchmarks/gpu/programs"}) {
    EXPECT_TRUE(fs::exists(directory)) << directory;
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".hir") paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

Result<host::ProgramPlan> PlanFile(const fs::path& path, Target target) {
  const std::string text = ReadFile(path);
  HIR_ASSIGN(auto graph, ir::Parse(text.substr(0, text.find("\n// ----")), fusion::kFusionOps));
  int64_t devices = 1;
  for (const ir::Mesh& mesh : graph->meshes()) {
    for (const int64_t device : mesh.mesh.devices()) devices = std::max(devices, device + 1);
  }
  return host::PlanProgram(std::move(graph), {.num_devices = devices, .target = target, .sizes = {}});
}

TEST(Cubins, OfEveryProgram) {
  SKIP_WITHOUT_NVRTC();
  ASSERT_FALSE(Programs().empty());
  std::vector<double> times;
  for (const int architecture : {80, 90}) {
    Compiler compiler({.architecture = architecture, .cache_directory = {}});
    for (const fs::path& path : Programs()) {
      SCOPED_TRACE(path.string());
      Target target = kHopper;
      target.architecture = architecture;
      const auto plan = PlanFile(path, target);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      for (const KernelPlan& kernel : plan->kernels) {
        const auto before = std::chrono::steady_clock::now();
        const auto artifact = compiler.Compile(kernel);
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count());
        ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
        const auto code = Unpack(artifact->bytes);
        ASSERT_TRUE(code.ok());
        EXPECT_EQ(code->architecture, architecture);
        ASSERT_EQ(code->kernels.size(), artifact->kernels.size());
        for (size_t i = 0; i < code->kernels.size(); ++i) {
          EXPECT_EQ(code->cubins[i].substr(1, 3), "ELF");
          EXPECT_EQ(code->spill_bytes[i], 0) << artifact->kernels[i];
          std::printf("sm_%d %-40s %-8s %4d threads, %lld items a CTA, %3d registers\n", architecture,
                      path.stem().c_str(), artifact->kernels[i].c_str(), code->kernels[i].threads,
                      static_cast<long long>(code->kernels[i].items_per_cta), code->registers[i]);
        }
      }
    }
  }
  std::ranges::sort(times);
  if (!times.empty()) std::printf("compilation of a plan: median %.1f ms\n", times[times.size() / 2]);
}

// A program of one group, and its plans for sizes.
class Planned {
 public:
  explicit Planned(std::string_view program) : graph_(*ir::Parse(program, fusion::kFusionOps)) {
    std::vector<ir::Op*> ops;
    ir::ForEachOp(graph_->body, [&](ir::Op* op) { ops.push_back(op); });
    group_ = segment::MakeGroup(*graph_, ops);
  }
  KernelPlan For(const Sizes& sizes) const { return *Plan(group_.View(*graph_), "k", kHopper, sizes); }

 private:
  const std::unique_ptr<ir::Graph> graph_;
  segment::Group group_;
};

constexpr std::string_view kSmall = "fusion @f(%x: f32[i0]) {\n  %a = exp(%x)\n  return %a\n}";

TEST(Cubins, OfEveryPointwiseOp) {
  SKIP_WITHOUT_NVRTC();
  Compiler compiler({.architecture = 90, .cache_directory = {}});
  for (const PointwiseProgram& program : EveryPointwiseOp("f32", "i64")) {
    auto graph = ir::Parse(program.text, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    const auto plan = host::PlanProgram(std::move(*graph), {.num_devices = 1, .target = kHopper, .sizes = {}});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    for (const KernelPlan& kernel : plan->kernels) {
      const auto artifact = compiler.Compile(kernel);
      EXPECT_TRUE(artifact.ok()) << artifact.status().ToString() << program.text;
    }
  }
}

TEST(Cubins, NeedACompilerThatCanBeLoadedBeforehand) {
  SKIP_WITHOUT_NVRTC();
  const Status warmed = WarmCompiler();
  EXPECT_TRUE(warmed.ok()) << warmed.ToString();
}

TEST(Cubins, AreKeptInMemoryAndOnDisk) {
  SKIP_WITHOUT_NVRTC();
  const Planned program(kSmall);
  const KernelPlan plan = program.For({});
  const CacheDirectory directory;
  Compiler first({.cache_directory = directory.path()});
  const auto compiled = first.Compile(plan);
  ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
  ASSERT_TRUE(first.Compile(plan).ok());
  EXPECT_EQ(first.num_compiled(), 1);
  EXPECT_EQ(first.num_from_disk(), 0);

  Compiler second({.cache_directory = directory.path()});
  const auto before = std::chrono::steady_clock::now();
  const auto again = second.Compile(plan);
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - before;
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->bytes, compiled->bytes);
  EXPECT_EQ(second.num_compiled(), 0);
  EXPECT_EQ(second.num_from_disk(), 1);
  std::printf("from disk: %.2f ms\n", ms.count());

  Compiler other({.architecture = 80, .cache_directory = directory.path()});
  KernelPlan older = plan;
  older.target.architecture = 80;
  ASSERT_TRUE(other.Compile(older).ok());
  EXPECT_EQ(other.num_compiled(), 1);

  // Damage in any place is noticed.
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    std::string bytes = ReadFile(entry.path());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  Compiler third({.cache_directory = directory.path()});
  const auto mended = third.Compile(plan);
  ASSERT_TRUE(mended.ok());
  EXPECT_EQ(third.num_compiled(), 1);
}

TEST(Cubins, OfEqualKernelsAreMadeOnce) {
  SKIP_WITHOUT_NVRTC();
  const Planned program(R"(fusion @few_rows(%x: bf16[i0, i1]) {
  %f = cast(%x) {dtype=f32}
  %s = sum(%f) {axes=[1], keepdim=false, dtype=null}
  return %s
})");
  const KernelPlan middling = program.For({{"i0", 8}, {"i1", 1 << 17}}),  // Vectors are as wide.
      long_rows = program.For({{"i0", 128}, {"i1", 1 << 22}});
  const auto first = EmitCuda(middling), second = EmitCuda(long_rows);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(first->parts.size(), 2u);
  ASSERT_NE(first->parts[0], second->parts[0]);  // Other loops over a row's parts,
  ASSERT_EQ(first->parts[1], second->parts[1]);  // and the same sums of them.
  Compiler compiler({.cache_directory = {}});
  ASSERT_TRUE(compiler.Compile(middling).ok());
  EXPECT_EQ(compiler.num_compiled(), 2);
  ASSERT_TRUE(compiler.Compile(long_rows).ok());
  EXPECT_EQ(compiler.num_compiled(), 3);
}

TEST(Artifacts, SayHowTheirKernelsRun) {
  SKIP_WITHOUT_NVRTC();
  const Planned program(kSmall);
  Compiler compiler({.cache_directory = {}});
  const auto artifact = compiler.Compile(program.For({}));
  ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
  const auto notes = NotesOf(*artifact);
  ASSERT_TRUE(notes.ok());
  ASSERT_EQ(notes->size(), 1u);
  const auto code = Unpack(artifact->bytes);
  EXPECT_TRUE((*notes)[0].starts_with(Cat("k: pointwise, ", code->kernels[0].threads, " threads, vectors of 4")))
      << (*notes)[0];
  EXPECT_NE((*notes)[0].find(Cat("; ", code->registers[0], " registers a thread")), std::string::npos) << (*notes)[0];
  EXPECT_FALSE(NotesOf({.bytes = "none", .kernels = {"k"}}).ok());
}

TEST(Artifacts, RefuseOtherBytes) {
  EXPECT_EQ(Unpack("").status().code(), hir::Code::kInvalidArgument);
  EXPECT_EQ(Unpack("hostir-cpu-1\n").status().code(), hir::Code::kInvalidArgument);
  EXPECT_TRUE(Unpack("hostir-gpu-3\n90\n0\n").ok());
  EXPECT_EQ(Unpack("hostir-gpu-3\n90\n0\nmore").status().code(), hir::Code::kInvalidArgument);
  EXPECT_EQ(Unpack("hostir-gpu-3\n90\n1\n0\n").status().code(), hir::Code::kInvalidArgument);
  EXPECT_EQ(Unpack("hostir-gpu-1\n90\n0\n").status().code(), hir::Code::kInvalidArgument);
}

}  // namespace
}  // namespace hir::codegen::gpu
