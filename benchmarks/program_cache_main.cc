// What a program costs that the daemon has planned before: `program_cache WORKER PAIRS` prints JSON
// measurements for bench.py. WORKER is the worker binary, which plans it once. Beside the goal of
// 50 us for finding a plan:
//   - for a run: the program by its id, and its plan for the sizes of the arguments;
//   - for a request to compile: the same, from the program's text as it was sent before. (Another
//     spelling of it is parsed and verified first.) The clients remember a program's id, and ask
//     for this once.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/layernorm_backward.h"
#include "benchmarks/measurement.h"
#include "csrc/base/text.h"
#include "service/engine/check_program.h"
#include "service/engine/program_cache.h"

namespace hir::bench {
namespace {

using service::ProgramCache;
using service::Sizes;
using Found = Result<std::shared_ptr<const service::Program>>;

constexpr int kGoalUs = 50;
constexpr int kCallsEach = 200;  // A measurement is the mean of as many.
constexpr int kOthers = 100;     // Programs in the cache beside the one that is asked for.

struct Case {
  std::string_view name;
  std::string_view text;
  Sizes sizes;
};

constexpr std::string_view kAdd = R"(fusion @add(%x: f32[i0], %y: f32[i0]) {
  %z: f32[i0] = add(%x, %y)
  return %z
}
)";

// An elementwise program of its own text.
std::string Other(int index) {
  return base::Cat("fusion @other(%x: f32[i0]) {\n  %c: f64 = constant() {value=", index,
                   ".0, dtype=f64}\n  %y: f32[i0] = mul(%x, %c)\n  return %y\n}\n");
}

// As the engine finds it for a request to compile.
Found Compile(ProgramCache& cache, const service::Limits& limits, std::string_view text) {
  ::hostir::v1::ProgramSource source;
  source.set_text(std::string(text));
  HIR_ASSIGN(const std::string sent, service::ProgramBytes(source, limits.program_bytes_max));
  if (auto known = cache.FindSent(sent)) return known;
  HIR_ASSIGN(const std::string canonical, service::CheckProgram(source, /*num_devices=*/1, limits.program_bytes_max));
  std::promise<Found> found;
  cache.Get(canonical, source, [&](Found program) { found.set_value(std::move(program)); });
  return found.get_future().get();
}

Found PlanFor(ProgramCache& cache, const std::shared_ptr<const service::Program>& program, const Sizes& sizes) {
  std::promise<Found> found;
  cache.GetFor(program, sizes, [&](Found sized) { found.set_value(std::move(sized)); });
  return found.get_future().get();
}

// As the engine finds it for a run.
Found ForRun(ProgramCache& cache, std::string_view id, const Sizes& sizes) {
  HIR_ASSIGN(const auto program, cache.Find(id));
  HIR_TRY(program->CheckSizes(sizes));
  auto sized = cache.FindFor(program, sizes);
  if (sized == nullptr) return Internal("the plan is not in the cache");
  return sized;
}

template <typename Find>
Result<Measurement> Measure(std::string name, int pairs, ProgramCache& cache, const service::Program& wanted,
                            const Find& find) {
  Measurement row{.name = std::move(name), .unit = "us", .peer = base::Cat("the goal of ", kGoalUs, " us")};
  const int64_t planned = cache.num_planned();
  for (int pair = 0; pair < pairs; ++pair) {
    Status status;
    const double seconds = Seconds([&] {
      for (int i = 0; i < kCallsEach && status.ok(); ++i) {
        const Found found = find();
        status = !found.ok()                             ? found.status()
                 : (*found)->number() == wanted.number() ? Status()
                                                         : Internal("another plan was found");
      }
    });
    HIR_TRY(status);
    row.ours.push_back(seconds * 1e6 / kCallsEach);
    row.theirs.push_back(kGoalUs);
  }
  if (cache.num_planned() != planned) return Internal("a program was planned again");
  return row;
}

Status MeasureAll(const std::string& worker, int pairs) {
  const Case cases[] = {
      {"add", kAdd, {{"i0", 4096}}},
      {"adaptive layer-norm backward", kLayerNormBackward, {{"i0", 56}, {"i1", 1024}, {"i2", 1024}}},
  };
  const service::Limits limits;
  ProgramCache cache({.worker_path = worker}, limits);
  std::vector<std::shared_ptr<const service::Program>> programs, plans;
  for (const Case& what : cases) {  // First, so that the others are used later.
    HIR_ASSIGN(programs.emplace_back(), Compile(cache, limits, what.text));
    HIR_ASSIGN(plans.emplace_back(), PlanFor(cache, programs.back(), what.sizes));
  }
  for (int i = 0; i < kOthers; ++i) {
    const Found other = Compile(cache, limits, Other(i));
    HIR_TRY(other.status());
  }
  std::vector<Measurement> rows;
  for (size_t i = 0; i < std::size(cases); ++i) {
    const Case& what = cases[i];
    const std::string id = programs[i]->id();
    HIR_ASSIGN(Measurement run, Measure(base::Cat("cached program found for a run: ", what.name), pairs, cache,
                                        *plans[i], [&] { return ForRun(cache, id, what.sizes); }));
    HIR_ASSIGN(Measurement compile, Measure(base::Cat("cached program found by its text: ", what.name), pairs, cache,
                                            *programs[i], [&] { return Compile(cache, limits, what.text); }));
    rows.push_back(std::move(run));
    rows.push_back(std::move(compile));
  }
  PrintJson(rows);
  return {};
}

}  // namespace
}  // namespace hir::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s WORKER PAIRS\n", argv[0]);
    return 2;
  }
  spdlog::set_level(spdlog::level::err);  // The cache tells what it plans, on stdout.
  const hir::Status status = hir::bench::MeasureAll(argv[1], std::max(1, std::atoi(argv[2])));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
