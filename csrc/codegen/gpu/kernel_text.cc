// The text of a plan: for each kernel its arguments, a function for the sizes and addresses its schedule is made for,
// one for all others, and the choice between them.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/prelude.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;

namespace {

constexpr int kSharedThreads = 256;               // Of kernels with several regions.
constexpr int64_t kNarrowMax = int64_t{1} << 30;  // Elements that 32-bit indices reach, with room for sums.

const ir::Expr* Emit(Emitter& em, const LoopNest& nest, const Region& region, const Schedule& schedule) {
  switch (schedule.kind) {
    case Schedule::Kind::kPointwise: return EmitPointwise(em, region, schedule);
    case Schedule::Kind::kRows: return EmitRows(em, region, schedule);
    case Schedule::Kind::kColumns: return EmitColumns(em, region, schedule);
    case Schedule::Kind::kTransposed: return EmitTransposed(em, nest, region, schedule);
    case Schedule::Kind::kTiled: return EmitTiled(em, region, schedule);
    case Schedule::Kind::kCarried: return EmitCarried(em, region, schedule);
  }
  return em.pool.Const(0);
}

// One of several regions of a kernel: they have a number of threads in common.
Schedule Shared(Schedule s) {
  if (s.kind == Schedule::Kind::kTransposed || s.kind == Schedule::Kind::kTiled) {
    s.kind = Schedule::Kind::kPointwise;
    s.vector = s.across;
    s.lanes = 1;
    s.unroll = 4;
  }
  if (s.kind == Schedule::Kind::kColumns) {
    s.width = std::min(s.width, kSharedThreads);
    s.unroll = s.held ? 1 : s.unroll;
    s.held = false;
  }
  if (s.kind == Schedule::Kind::kCarried) {
    s.held = false;
    s.unroll = 1;
    s.lanes = 1;
  }
  if (s.kind == Schedule::Kind::kRows) {
    // Short rows have as many threads as they want; of long ones none is held.
    const int width = s.threads / s.rows;
    const bool is_short = width < kSharedThreads && kSharedThreads % width == 0;
    s.rows = is_short ? kSharedThreads / width : 1;
    s.held = s.held && is_short;
    s.early = false;
    s.unroll = s.held ? s.unroll : std::min(s.unroll, 2);
  }
  s.threads = kSharedThreads;
  s.ctas_per_sm = s.kind == Schedule::Kind::kColumns && s.lanes > 1 ? 4 : 1;
  s.is_exact = false;
  const int64_t vectors = int64_t{s.threads} * s.unroll * s.lanes;
  s.items_per_cta = s.kind == Schedule::Kind::kPointwise ? vectors
                    : s.kind == Schedule::Kind::kColumns ? int64_t{s.width} * s.lanes
                                                         : s.rows;
  return s;
}

bool IsFast(const LoopNest& nest) {
  bool fast = true;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != Tensor::Role::kInput)
      fast = fast && (tensor.dtype == DType::kFloat16 || tensor.dtype == DType::kBFloat16);
  }
  return fast;
}

// Requires that indices fit 32 bits; false when they do not.
bool Narrow(Emitter& em, const LoopNest& nest) {
  ir::ExprPool& pool = em.pool;
  std::vector<const ir::Expr*> counts;
  for (const Tensor& tensor : nest.tensors) {
    const ir::Expr* count = pool.Const(1);
    for (const ir::Axis& axis : ir::ValueAxes(*tensor.value->type)) count = pool.Mul(count, pool.Import(axis.extent));
    counts.push_back(count);
  }
  for (const Region& region : nest.regions) {
    const ir::Expr* count = GridOf(pool, region);
    for (const Phase& phase : region.phases) counts.push_back(em.indices.TripsOf(phase.loops));
    counts.push_back(count);
  }
  for (const ir::Expr* count : counts) {
    std::vector<std::string_view> symbols;
    ir::CollectSymbols(count, symbols);
    if (std::ranges::any_of(symbols, [](std::string_view s) { return VariableOf(s) >= 0; })) continue;
    const auto is_passed = [&](std::string_view s) { return std::ranges::find(nest.symbols, s) != nest.symbols.end(); };
    if (!std::ranges::all_of(symbols, is_passed)) return false;  // Nothing to test it by.
    if (count->IsConst()) {
      if (count->value > kNarrowMax) return false;
    } else {
      em.conditions.Require(Cat(em.arguments.SymbolText(count), " <= ", kNarrowMax));
    }
  }
  return !pool.overflowed();
}

// The compiler unrolls loops of unknown length by four. Where only addresses can lead to the code, few launches run
// it, and every kernel pays for its compilation: a fifth to a third less without.
std::string Rolled(std::string_view body) {
  std::string text;
  bool is_told = false;  // By the line above.
  while (!body.empty()) {
    const size_t end = std::min(body.find('\n'), body.size() - 1);
    const std::string_view line = body.substr(0, end + 1);
    if (line.starts_with("for (") && !is_told) text += "#pragma unroll 1\n";
    is_told = line.starts_with("#pragma unroll");
    text += line;
    body.remove_prefix(end + 1);
  }
  return text;
}

struct Function {
  std::string body;
  std::vector<std::string> conditions;
};

Result<Function> EmitFunction(const LoopNest& nest, const Sizes& sizes, std::span<const Schedule> schedules,
                              bool fast_path) {
  Emitter::Options options = {.narrow = false, .fast = IsFast(nest), .sizes = &sizes};
  const bool is_constant = nest.symbols.empty();  // Constants: 32 bits need no condition.
  if (fast_path || is_constant) {
    Emitter probe(nest, options);
    options.narrow = Narrow(probe, nest);
  }
  Emitter em(nest, options);
  if (options.narrow) Narrow(em, nest);
  std::vector<std::string> bodies, units;
  for (size_t r = 0; r < nest.regions.size(); ++r) {
    em.StartRegion(nest.regions[r]);
    em.code.Open();
    const ir::Expr* count = Emit(em, nest, nest.regions[r], schedules[r]);
    bodies.push_back(em.code.Close());
    em.vector.Clear();
    units.push_back(em.indices.Text(count));
  }
  HIR_TRY(em.code.status());
  HIR_TRY(em.pool.status().WithContext("index arithmetic of a kernel"));
  if (bodies.size() == 1 && schedules[0].is_exact) {
    em.code.Line("const i64 unit = CTA;\n", bodies[0]);
  } else {
    std::string inside = "i64 unit = at;\n", tail;
    for (size_t r = 0; r < bodies.size(); ++r) {
      Append(inside, "if (unit < ", units[r], ") {\n", bodies[r], "} else {\nunit -= ", units[r], ";\n");
      tail += "}\n";
    }
    em.code.Line("const i64 units = (i64)", base::Join(units, " + (i64)"), ";");
    em.code.Line("for (i64 at = CTA; at < units; at += CTAS) {\n", inside, tail, "sync();\n}");
  }
  Function function;
  function.conditions = {em.conditions.texts().begin(), em.conditions.texts().end()};
  function.body = em.code.Close();
  if (!fast_path && is_constant) function.body = Rolled(function.body);
  return function;
}

std::string ArgsText(const LoopNest& nest) {
  std::string text = "struct Args {\n";
  for (size_t i = 0; i < nest.tensors.size(); ++i) {
    const bool is_input = nest.tensors[i].role == Tensor::Role::kInput;
    Append(text, is_input ? "const " : "", MemoryText(nest.tensors[i].dtype), "* t", i, ";\n");
  }
  for (size_t i = 0; i < nest.symbols.size(); ++i) Append(text, "i64 s", i, ";\n");
  for (size_t i = 0; i < nest.scalars.size(); ++i)
    Append(text, IsFloat(nest.scalars[i]->type->dtype) ? "double x" : "i64 x", i, ";\n");
  return text + "};\n";
}

struct Kernel {
  std::string text;
  KernelInfo info;
  int cap = 1;
  Tuning tuning;
};

// Whether all CTAs run at once, at most 2048 threads a multiprocessor; not when a size is a symbol: every schedule
// would have twice as many texts.
bool IsOneWave(const KernelPlan& plan, const LoopNest& nest, const KernelInfo& info) {
  int64_t items = 0;
  for (const Region& region : nest.regions) {
    Emitter em(nest, {});
    em.StartRegion(region);
    const int64_t own = SizeOf(GridOf(em.pool, region), {}, -1);
    if (own < 0) return false;
    items += own;
  }
  return items / info.items_per_cta < plan.target.multiprocessors * (kThreadsOfMultiprocessor / info.threads);
}

Result<Kernel> EmitKernel(const KernelPlan& plan, size_t index, int cap, const Tuning& tuning) {
  const LoopNest& nest = *plan.nests[index];
  std::vector<Schedule> schedules, any;
  for (const Region& region : nest.regions) {
    Emitter em(nest, {.sizes = &plan.sizes});
    em.StartRegion(region);
    Schedule schedule = Choose(em, nest, region, plan);
    if (nest.regions.size() > 1) {
      schedule = Shared(schedule);
      // One region stages its rows: a CTA has shared memory for no more.
      schedule.is_staged = schedule.is_staged && std::ranges::none_of(schedules, &Schedule::is_staged);
    } else {
      Tune(schedule, tuning);
    }
    schedules.push_back(schedule);
    any.push_back(AnySize(schedule));
  }
  Kernel kernel;
  if (schedules.empty()) return Internal("a kernel without regions");
  kernel.info.threads = schedules[0].threads;
  kernel.info.items_per_cta = schedules[0].items_per_cta;
  for (const Schedule& schedule : schedules)
    kernel.info.items_per_cta = std::min(kernel.info.items_per_cta, schedule.items_per_cta);
  // As many CTAs as units, where that is known: a row of few columns is a unit that is not full.
  using Kind = Schedule::Kind;
  const bool is_cut = schedules[0].kind == Kind::kColumns || schedules[0].kind == Kind::kTiled || schedules[0].in_rows;
  if (nest.regions.size() > 1 || is_cut) {
    int64_t items = 0, units = 0;
    for (size_t r = 0; r < nest.regions.size(); ++r) {
      Emitter em(nest, {.sizes = &plan.sizes});
      em.StartRegion(nest.regions[r]);
      em.code.Open();
      const ir::Expr* count = Emit(em, nest, nest.regions[r], schedules[r]);
      const ir::Expr* own = GridOf(em.pool, nest.regions[r]);
      const int64_t known = SizeOf(count, plan.sizes, -1), known_items = SizeOf(own, plan.sizes, -1);
      units = known < 0 || units < 0 ? -1 : units + known;
      items += known_items;
    }
    if (units > 0) kernel.info.items_per_cta = std::max<int64_t>(1, items / units);
  }
  kernel.info.shared_bytes = schedules.size() == 1 ? schedules[0].shared_bytes : 0;
  // A second launch hides behind the end of the first, and waits before it reads. A small kernel behind whatever comes
  // before it: that takes 2 us off each of a chain. In a large one every CTA would wait anew: 22 % of bias + gelu.
  const bool is_small = IsOneWave(plan, nest, kernel.info);
  kernel.info.dependent = index > 0 || is_small;
  kernel.info.num_slots = static_cast<int>(nest.tensors.size() + nest.symbols.size() + nest.scalars.size());
  kernel.cap = cap > 0 ? cap : schedules[0].ctas_per_sm;
  kernel.tuning = TuningOf(schedules[0]);
  HIR_ASSIGN(const Function fast, EmitFunction(nest, plan.sizes, schedules, true));
  Append(kernel.text, "namespace n", index, " {\n", ArgsText(nest), "DEV void run(const Args& a) {\n", fast.body,
         "}\n");
  if (!fast.conditions.empty()) {
    HIR_ASSIGN(const Function other, EmitFunction(nest, plan.sizes, any, false));
    Append(kernel.text, "ANY void run_any(const Args& a) {\n", other.body, "}\n");
  }
  Append(kernel.text, "KERNEL(k", index, ", ", kernel.info.threads, ", ", kernel.cap, ") {\n");
  // The last of a plan lets go of the next plan's kernel at once, before it waits itself: that one waits for the end of
  // this, in slots that this no longer needs. The second launch of a plan is let go at the end, which was measured.
  if (is_small && index + 1 == plan.nests.size()) kernel.text += "start_next();\n";
  if (kernel.info.dependent) kernel.text += "after_previous();\n";
  if (fast.conditions.empty()) {
    kernel.text += "run(a);\n";
  } else {
    Append(kernel.text, "if (", base::Join(fast.conditions, " &&\n    "), ") {\nrun(a);\n} else {\nrun_any(a);\n}\n");
  }
  if (index + 1 < plan.nests.size()) kernel.text += "start_next();\n";
  kernel.text += "}\n}\n";
  return kernel;
}

}  // namespace

Result<Source> EmitCuda(const KernelPlan& plan, std::span<const int> caps, std::span<const Tuning> tunings) {
  Source source;
  source.prelude = Cat(kIntrinsics, kPrelude);
  for (size_t i = 0; i < plan.nests.size(); ++i) {
    HIR_ASSIGN(Kernel kernel,
               EmitKernel(plan, i, i < caps.size() ? caps[i] : 0, i < tunings.size() ? tunings[i] : Tuning()));
    source.parts.push_back(std::move(kernel.text));
    source.kernels.push_back(kernel.info);
    source.caps.push_back(kernel.cap);
    source.tunings.push_back(std::move(kernel.tuning));
  }
  return source;
}

}  // namespace hir::codegen::gpu
