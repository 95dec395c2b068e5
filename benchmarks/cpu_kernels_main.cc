// Compiled kernels beside the bandwidth of this machine's memory, as a triad (a = b + s c) on the
// same threads reaches it: `cpu_kernels [PAIRS]` prints JSON measurements for bench.py. A program's
// rate is the bytes that its kernels have to move (each input and output of each kernel once) over
// its time. Also what it takes to compile each program's kernels.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/compiled_program.h"
#include "benchmarks/layernorm_backward.h"
#include "benchmarks/measurement.h"
#include "csrc/base/prng.h"
#include "csrc/base/text.h"

namespace hir::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kTriadElements = 32 * kMiB;  // Of each array: 128 MiB, far more than any cache.

const char* UnitOf(Time time) { return time == Time::kWall ? "GB/s" : "GB/cpu-s"; }

struct Case {
  std::string name;
  std::string text;
  fusion::SymbolValues symbols;
  std::string sampled = {};         // The symbol of the axes of which a part can be checked by itself,
  int64_t sample = 0;               // and how many; or
  fusion::SymbolValues small = {};  // sizes at which the same program is checked as a whole.
  bool reads_alone = false;         // Measured beside reading alone, too.
};

std::string Chain(std::string_view dtype) {
  const std::string type = base::Cat(dtype, "[i0]");
  return base::Cat("fusion @chain(%a: ", type, ", %b: ", type, ", %c: ", type, ") {\n  %t: ", type,
                   " = mul(%a, %b)\n  %u: ", type, " = add(%t, %c)\n  %v: ", type, " = sub(%u, %a)\n  %w: ", type,
                   " = mul(%v, %u)\n  %y: ", type, " = relu(%w)\n  return %y\n}\n");
}

// Rows of 4096, with weight and bias; 16-bit types are computed in f32.
std::string LayerNorm(std::string_view dtype) {
  const bool narrow = dtype != "f32";
  const auto load = [&](std::string_view name, std::string_view shape) {
    return narrow ? base::Cat("  %", name, "f: f32", shape, " = cast(%", name, ") {dtype=f32}\n") : std::string();
  };
  const std::string f = narrow ? "f" : "";
  return base::Cat("fusion @layer_norm(%x: ", dtype, "[i0, 4096], %w: ", dtype, "[4096], %b: ", dtype, "[4096]) {\n",
                   load("x", "[i0, 4096]"), load("w", "[4096]"), load("b", "[4096]"),
                   "  %n: f64 = constant() {value=4096.0, dtype=f64}\n  %eps: f64 = constant() "
                   "{value=1e-05, dtype=f64}\n"
                   "  %s: f32[i0, b] = sum(%x",
                   f,
                   ") {axes=[1], keepdim=true, dtype=f32}\n"
                   "  %mean: f32[i0, b] = div(%s, %n)\n"
                   "  %d: f32[i0, 4096] = sub(%x",
                   f,
                   ", %mean)\n"
                   "  %q: f32[i0, 4096] = mul(%d, %d)\n"
                   "  %qs: f32[i0, b] = sum(%q) {axes=[1], keepdim=true, dtype=f32}\n"
                   "  %var: f32[i0, b] = div(%qs, %n)\n"
                   "  %ve: f32[i0, b] = add(%var, %eps)\n"
                   "  %r: f32[i0, b] = rsqrt(%ve)\n"
                   "  %h: f32[i0, 4096] = mul(%d, %r)\n"
                   "  %hw: f32[i0, 4096] = mul(%h, %w",
                   f,
                   ")\n"
                   "  %y: f32[i0, 4096] = add(%hw, %b",
                   f, ")\n",
                   narrow ? base::Cat("  %z: ", dtype, "[i0, 4096] = cast(%y) {dtype=", dtype, "}\n  return %z\n}\n")
                          : std::string("  return %y\n}\n"));
}

constexpr std::string_view kBiasGelu = R"(fusion @bias_gelu(%x: bf16[i0, 4096], %b: bf16[4096]) {
  %t: bf16[i0, 4096] = add(%x, %b)
  %y: bf16[i0, 4096] = gelu(%t)
  return %y
}
)";
constexpr std::string_view kSoftmax = R"(fusion @softmax(%x: f32[i0, 4096]) {
  %m: f32[i0, b] = max(%x) {axes=[1], keepdim=true, dtype=f32}
  %d: f32[i0, 4096] = sub(%x, %m)
  %e: f32[i0, 4096] = exp(%d)
  %s: f32[i0, b] = sum(%e) {axes=[1], keepdim=true, dtype=f32}
  %y: f32[i0, 4096] = div(%e, %s)
  return %y
}
)";
constexpr std::string_view kSumRows = R"(fusion @sum_rows(%x: f32[i0, i1]) {
  %y: f32[i0, r:i1] = sum(%x) {axes=[1], keepdim=false, dtype=f32}
  return %y
}
)";
constexpr std::string_view kSumColumns = R"(fusion @sum_columns(%x: f32[i0, i1]) {
  %y: f32[r:i0, i1] = sum(%x) {axes=[0], keepdim=false, dtype=f32}
  return %y
}
)";

// All of it is reduced to one number, which all of it reads: it is read twice.
constexpr std::string_view kOverItsNorm = R"(fusion @over_its_norm(%x: f32[i0, 4096]) {
  %q: f32[i0, 4096] = mul(%x, %x)
  %s: f32[r:i0, r:4096] = sum(%q) {axes=[], keepdim=false, dtype=f32}
  %r: f32[] = rsqrt(%s)
  %y: f32[i0, 4096] = mul(%x, %r)
  return %y
}
)";
constexpr std::string_view kTranspose = R"(fusion @transpose(%x: f32[i0, i1], %y: f32[i1, i0]) {
  %t: f32[i1, i0] = permute(%x) {dims=[1, 0]}
  %z: f32[i1, i0] = add(%t, %y)
  return %z
}
)";
constexpr std::string_view kRmsNorm = R"(fusion @rms_norm(%x: f32[i0, 4096], %w: f32[4096]) {
  %n: f64 = constant() {value=4096.0, dtype=f64}
  %eps: f64 = constant() {value=1e-06, dtype=f64}
  %q: f32[i0, 4096] = mul(%x, %x)
  %s: f32[i0, b] = sum(%q) {axes=[1], keepdim=true, dtype=f32}
  %m: f32[i0, b] = div(%s, %n)
  %e: f32[i0, b] = add(%m, %eps)
  %r: f32[i0, b] = rsqrt(%e)
  %h: f32[i0, 4096] = mul(%x, %r)
  %y: f32[i0, 4096] = mul(%h, %w)
  return %y
}
)";

std::vector<Case> Cases() {
  return {
      {"pointwise chain f32", Chain("f32"), {{"i0", 32 * kMiB}}, "i0", 4096},
      {"pointwise chain bf16", Chain("bf16"), {{"i0", 64 * kMiB}}, "i0", 4096},
      {"bias + gelu bf16, rows of 4096", std::string(kBiasGelu), {{"i0", 16384}}, "i0", 2},
      {"layer norm f32, rows of 4096", LayerNorm("f32"), {{"i0", 16384}}, "i0", 2},
      {"layer norm bf16, rows of 4096", LayerNorm("bf16"), {{"i0", 32768}}, "i0", 2},
      {"softmax f32, rows of 4096", std::string(kSoftmax), {{"i0", 16384}}, "i0", 2},
      {.name = "a tensor over its norm f32",
       .text = std::string(kOverItsNorm),
       .symbols = {{"i0", 8192}},
       .small = {{"i0", 70}}},
      {.name = "sum of rows f32 16384 x 4096",
       .text = std::string(kSumRows),
       .symbols = {{"i0", 16384}, {"i1", 4096}},
       .sampled = "i0",
       .sample = 2,
       .reads_alone = true},
      {.name = "sum of columns f32 16384 x 4096",
       .text = std::string(kSumColumns),
       .symbols = {{"i0", 16384}, {"i1", 4096}},
       .sampled = "i1",
       .sample = 2,
       .reads_alone = true},
      {"rms norm f32, rows of 4096", std::string(kRmsNorm), {{"i0", 16384}}, "i0", 2},
      {"add a transpose f32 8192 x 4096", std::string(kTranspose), {{"i0", 8192}, {"i1", 4096}}, "i0", 2},
      {.name = "adaptive layer-norm backward bf16",
       .text = std::string(kLayerNormBackward),
       .symbols = {{"i0", 56}, {"i1", 1024}, {"i2", 1024}},
       .small = {{"i0", 2}, {"i1", 33}, {"i2", 1024}}},
  };
}

// --- the limit ---

// args: a, b, c, elements. Grid items are blocks of elements.
constexpr int64_t kTriadBlock = 65536;
constexpr float kScale = 3.0F;

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2,fma", "default")))
#endif
void TriadLoop(float* __restrict a, const float* __restrict b, const float* __restrict c,
               int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + kScale * c[i];
}

// The same past the caches: a line that is written need not be read first.
void StreamingTriadLoop(float* a, const float* b, const float* c, int64_t count) {
#if defined(__x86_64__)
  const __m128 s = _mm_set1_ps(kScale);
  for (int64_t i = 0; i < count; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(s, _mm_load_ps(c + i))));
  }
  _mm_sfence();
#else
  TriadLoop(a, b, c, count);
#endif
}

template <auto Loop>
void Triad(const int64_t* args, int64_t begin, int64_t end) {
  const int64_t from = begin * kTriadBlock;
  Loop(reinterpret_cast<float*>(args[0]) + from, reinterpret_cast<const float*>(args[1]) + from,
       reinterpret_cast<const float*>(args[2]) + from, std::min(end * kTriadBlock, args[3]) - from);
}

// Of array `a` alone, which stays as it is: sums of numbers that are not negative are not, either.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2,fma", "default")))
#endif
void ReadLoop(float* a, const float* /*b*/, const float* /*c*/, int64_t count) {
  constexpr int kLanes = 64;
  float sums[kLanes] = {};
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int line = 0; line < kLanes; line += 16) __builtin_prefetch(a + i + 256 + line, 0, 3);
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane];
  }
  for (const float sum : sums) {
    if (sum < 0) a[0] = sum;
  }
}

class Limit {
 public:
  static Result<std::unique_ptr<Limit>> Make(Machine& machine, Time time) {
    auto limit = std::make_unique<Limit>();
    limit->stream_ = machine.streams[0];
    base::Prng prng(3);
    for (int i = 0; i < 3; ++i) {
      HIR_ASSIGN(auto array, machine.device->Allocate(kTriadElements * 4));
      auto* values = reinterpret_cast<float*>(array->buffer().data);
      for (int64_t k = 0; k < kTriadElements; ++k) values[k] = static_cast<float>(prng.Unit());
      limit->args_.push_back(reinterpret_cast<int64_t>(values));
      limit->arrays_.push_back(std::move(array));
    }
    limit->args_.push_back(kTriadElements);
    HIR_TRY(limit->ChooseFaster(time));
    return limit;
  }

  Status Run() { return Run(*kernel_); }
  Status RunReading() { return Run(reading_); }
  // Beside the triad, what stores cost that read each line before they write it, and what it is to read alone: on some
  // machines that is less than to read and write, and then no reduction comes to the triad's rate.
  Status MeasureOthers(int pairs, Time time, std::vector<Measurement>& rows) {
    HIR_TRY(MeasureOther(plain_, "triad with plain stores", bytes(), pairs, time, rows));
    return MeasureOther(reading_, "reading alone", bytes_read(), pairs, time, rows);
  }
  double bytes() const { return 3.0 * 4.0 * static_cast<double>(kTriadElements); }
  double bytes_read() const { return bytes() / 3; }
  std::string_view name() const { return kernel_->name(); }

 private:
  Status Run(const device::HostKernel& kernel) {
    stream_->Launch(kernel, args_, kTriadElements / kTriadBlock);
    return stream_->Synchronize(std::chrono::seconds(60));
  }
  Status MeasureOther(const device::HostKernel& other, std::string name, double other_bytes, int pairs, Time time,
                      std::vector<Measurement>& rows) {
    Measurement row{.name = std::move(name), .unit = UnitOf(time), .peer = "streaming triad", .higher_is_better = true};
    for (int i = 0; i < pairs; ++i) {
      for (const device::HostKernel* kernel : {&other, &streaming_}) {
        Status status;
        const double seconds = Seconds([&] { status = Run(*kernel); }, time);
        HIR_TRY(status);
        const double moved = kernel == &other ? other_bytes : bytes();
        (kernel == &other ? row.ours : row.theirs).push_back(moved / seconds / 1e9);
      }
    }
    rows.push_back(std::move(row));
    return {};
  }
  Status ChooseFaster(Time time) {
    constexpr int kRuns = 5;
    double least = 0;
    const device::HostKernel* best = nullptr;
    for (const device::HostKernel* kernel : {&plain_, &streaming_}) {
      kernel_ = kernel;
      for (int i = 0; i < kRuns; ++i) {
        Status status;
        const double seconds = Seconds([&] { status = Run(); }, time);
        HIR_TRY(status);
        if (best == nullptr || seconds < least) {
          least = seconds;
          best = kernel;
        }
      }
      HIR_TRY(Check());
    }
    kernel_ = best;
    return {};
  }
  Status Check() const {
    const float *a = Array(0), *b = Array(1), *c = Array(2);
    for (int64_t i = 0; i < kTriadElements; i += 997) {
      if (std::fabs(a[i] - (b[i] + kScale * c[i])) > 1e-5F) return Internal("the triad is wrong");
    }
    return {};
  }
  const float* Array(size_t i) const { return reinterpret_cast<const float*>(args_[i]); }

  const device::HostKernel plain_{{.name = "triad", .function = Triad<TriadLoop>}};
  const device::HostKernel streaming_{{.name = "streaming triad", .function = Triad<StreamingTriadLoop>}};
  const device::HostKernel reading_{{.name = "reading", .function = Triad<ReadLoop>}};
  const device::HostKernel* kernel_ = nullptr;
  device::Stream* stream_ = nullptr;
  std::vector<std::unique_ptr<device::Allocation>> arrays_;
  std::vector<int64_t> args_;
};

// --- pairs ---

// A row for each of the program's kernels, which take turns: the goal is each kernel's own. And one
// for finding its code in the compiler's memory; and for several, one for all as they are compiled by the service.
Status MeasureCompiling(const std::string& name, const CompiledProgram& program, int pairs, Time time,
                        std::vector<Measurement>& rows) {
  constexpr int kGoalMs = 15;
  const auto num_kernels = static_cast<size_t>(program.num_kernels());
  const std::string unit = time == Time::kWall ? "ms" : "cpu-ms";
  std::vector<Measurement> cold(num_kernels), again(num_kernels);
  Measurement all = {
      .name = base::Cat("all ", num_kernels, " kernels of ", name), .unit = unit, .peer = "one after the other"};
  for (size_t i = 0; i < num_kernels; ++i) {
    const std::string kernel = num_kernels == 1 ? name : base::Cat(name, ", kernel ", i + 1, " of ", num_kernels);
    cold[i] = {
        .name = base::Cat("compiling ", kernel), .unit = unit, .peer = base::Cat("the goal of ", kGoalMs, " ms")};
    again[i] = {.name = base::Cat("again: ", kernel), .unit = unit, .peer = "cold"};
  }
  for (int pair = 0; pair < pairs; ++pair) {
    HIR_ASSIGN(const std::vector<CompiledProgram::CompileTime> times, program.CompileTimes(time));
    HIR_ASSIGN(const double seconds_all, program.SecondsToCompileAll(time));
    all.ours.push_back(seconds_all * 1e3);
    all.theirs.push_back(0);
    for (size_t i = 0; i < num_kernels; ++i) {
      all.theirs.back() += times[i].cold * 1e3;
      cold[i].ours.push_back(times[i].cold * 1e3);
      cold[i].theirs.push_back(kGoalMs);
      again[i].ours.push_back(times[i].again * 1e3);
      again[i].theirs.push_back(times[i].cold * 1e3);
    }
  }
  std::ranges::move(cold, std::back_inserter(rows));
  std::ranges::move(again, std::back_inserter(rows));
  if (num_kernels > 1) rows.push_back(std::move(all));
  return {};
}

Status MeasureCase(const Case& what, int pairs, Time time, Machine& machine, Limit& limit,
                   std::vector<Measurement>& rows) {
  HIR_ASSIGN(const auto program, CompiledProgram::Make(machine, what.text, what.symbols));
  HIR_TRY(program->Run());
  if (!what.small.empty()) {
    HIR_ASSIGN(const auto small, CompiledProgram::Make(machine, what.text, what.small));
    HIR_TRY(small->Run());
    HIR_TRY(small->CheckWhole());
  } else {
    HIR_TRY(program->Check(what.sampled, what.sample));
  }
  const std::string kernels = program->num_kernels() == 1 ? "" : base::Cat(", ", program->num_kernels(), " kernels");
  for (const bool reading : {false, true}) {
    if (reading && !what.reads_alone) continue;
    Measurement row{.name = base::Cat(reading ? "reading: " : "", what.name, kernels),
                    .unit = UnitOf(time),
                    .peer = reading ? "reading alone" : std::string(limit.name()),
                    .higher_is_better = true};
    for (int i = 0; i < pairs; ++i) {
      Status ours, theirs;
      const double seconds = Seconds([&] { ours = program->Run(); }, time);
      const double limit_seconds = Seconds([&] { theirs = reading ? limit.RunReading() : limit.Run(); }, time);
      HIR_TRY(ours);
      HIR_TRY(theirs);
      row.ours.push_back(program->bytes() / seconds / 1e9);
      row.theirs.push_back((reading ? limit.bytes_read() : limit.bytes()) / limit_seconds / 1e9);
    }
    rows.push_back(std::move(row));
  }
  return MeasureCompiling(what.name, *program, pairs, time, rows);
}

Status MeasureAll(int pairs, std::string_view only, Time time) {
  HIR_ASSIGN(const auto machine, Machine::Make());
  HIR_ASSIGN(const auto limit, Limit::Make(*machine, time));
  std::vector<Measurement> rows;
  HIR_TRY(limit->MeasureOthers(pairs, time, rows));
  for (const Case& what : Cases()) {
    if (what.name.find(only) == std::string::npos) continue;
    HIR_TRY(MeasureCase(what, pairs, time, *machine, *limit, rows).WithContext(what.name));
  }
  PrintJson(rows);
  return {};
}

}  // namespace
}  // namespace hir::bench

// `cpu_kernels PAIRS NAME cpu`: the cases whose name holds NAME, by CPU time instead of the clock.
int main(int argc, char** argv) {
  using hir::bench::Time;
  const Time time = argc > 3 && std::string_view(argv[3]) == "cpu" ? Time::kCpu : Time::kWall;
  const int pairs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  const hir::Status status = hir::bench::MeasureAll(pairs, argc > 2 ? argv[2] : "", time);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
