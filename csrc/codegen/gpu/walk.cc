// The loop over the vectors of a phase.
#include <algorithm>
#include <functional>

#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

std::vector<Loop> WithLast(std::vector<Loop> loops, int variable) {
  const auto at = std::ranges::find(loops, variable, &Loop::variable);
  if (at != loops.end()) std::rotate(at, at + 1, loops.end());
  return loops;
}

void LoadWithRows(Emitter& em, const Region& region) {
  constexpr size_t kMost = 8;  // Each is a register.
  std::vector<const fusion::Element*> roots;
  std::vector<Loop> columns;
  for (const Phase& phase : region.phases) {
    const std::vector<const fusion::Element*> own = RootsOf(phase);
    roots.insert(roots.end(), own.begin(), own.end());
    columns.insert(columns.end(), phase.loops.begin(), phase.loops.end());
  }
  const std::vector<Access> loads = em.loads.Scalars(roots, region.grid, columns);
  if (loads.size() > kMost) return;
  for (const Access& access : loads) em.values.Text(access.load);
}

int LoopingPhases(const Region& region) {
  return static_cast<int>(
      std::ranges::count_if(region.phases, [](const Phase& phase) { return !phase.loops.empty(); }));
}

bool HasNested(const Region& region) {
  return std::ranges::any_of(region.phases, [](const Phase& phase) { return !phase.nested.empty(); });
}

std::vector<const fusion::Element*> RootsOf(const Phase& phase) {
  std::vector<const fusion::Element*> roots;
  for (const Accumulator& accumulator : phase.accumulators) roots.push_back(accumulator.body);
  for (const Carried& carried : phase.carried) roots.push_back(carried.accumulator.body);
  for (const Nested& nested : phase.nested) roots.push_back(nested.accumulator.body);
  for (const Store& store : phase.stores) roots.push_back(store.value);
  return roots;
}

namespace {

// The text of one step of a walk: its loads in vectors, then its stages over them.
class Step {
 public:
  Step(Emitter& em, const Walk& walk, std::span<const Loop> loops, Held* held)
      : em_(em),
        walk_(walk),
        loops_(loops),
        held_(held),
        in_arrays_(walk.unroll > 1 || held != nullptr || walk.reading == Values::Reading::kFirst) {}

  // Gives each load an array: one of `held` that has it, or a new one, which then is `held`'s, too.
  void Declare(const std::vector<Access>& loads);
  // The same for loads of one element each, where there are no vectors.
  void DeclareScalars(const std::vector<Access>& loads);
  void Emit(std::span<const Stage> stages);

 private:
  using Arrays = std::vector<std::pair<Access, std::string>>;

  // Adds `access` to `arrays`, and to `missing`, unless it is among `held`; and to that, if there is one.
  void Declare(const Access& access, Arrays& arrays, Arrays& missing, Arrays* held);
  void DeclareArray(const Access& access, const std::string& name);
  void EmitLoads();
  void LoadMissing();
  // The scope of one vector of the step, with its variables; `inside` fills it.
  void EmitEach(const std::function<void()>& inside);

  Emitter& em_;
  const Walk& walk_;
  std::span<const Loop> loops_;
  Held* held_;
  bool in_arrays_;
  std::string first_;
  Arrays arrays_, scalars_;
  Arrays missing_, missing_scalars_;  // Those that nothing has loaded yet.
};

void Step::DeclareArray(const Access& access, const std::string& name) {
  const std::string type =
      em_.vector.lanes() > 1 ? Cat("Pk<", em_.places.BytesOf(access), ">") : std::string(TypeText(access.load->dtype));
  em_.code.Line(type, " ", name, "[", walk_.unroll, "];");
}

void Step::Declare(const Access& access, Arrays& arrays, Arrays& missing, Arrays* held) {
  if (held != nullptr) {
    const auto known = std::ranges::find(*held, access, &std::pair<Access, std::string>::first);
    if (known != held->end()) {
      arrays.push_back(*known);
      return;
    }
  }
  arrays.emplace_back(access, em_.code.NewName("c"));
  missing.push_back(arrays.back());
  if (held == nullptr) return;
  held->push_back(arrays.back());
  DeclareArray(access, arrays.back().second);
}

void Step::Declare(const std::vector<Access>& loads) {
  for (const Access& access : loads) Declare(access, arrays_, missing_, held_ == nullptr ? nullptr : &held_->arrays);
}

void Step::DeclareScalars(const std::vector<Access>& loads) {
  for (const Access& access : loads)
    Declare(access, scalars_, missing_scalars_, held_ == nullptr ? nullptr : &held_->scalars);
}

void Step::EmitEach(const std::function<void()>& inside) {
  const std::string k = em_.code.NewName("k");
  em_.code.Open();  // for u
  em_.code.Open();  // if (k < count)
  em_.indices.Decode(loops_, k);
  inside();
  const std::string guarded = em_.code.Close();
  const std::string before = em_.code.Close();
  const std::string at = walk_.unroll > 1 ? Cat(first_, " + u * ", walk_.step) : first_;
  em_.code.Line(walk_.unroll > 1 ? Cat(walk_.rolled ? "#pragma unroll 1\n" : "#pragma unroll\n", "for (int u = 0; u < ",
                                       walk_.unroll, "; ++u) {\n")
                                 : "{\n",
                "const ix ", k, " = ", at, ";\n", before,
                walk_.is_exact ? std::string() : Cat("if (", k, " < ", walk_.count, ") "), "{\n", guarded, "}\n}");
}

void Step::LoadMissing() {
  for (const auto& [access, name] : missing_)
    em_.code.Line(name, walk_.unroll > 1 ? "[u] = " : "[0] = ", em_.values.LoadText(access, walk_.reading), ";");
  for (const auto& [access, name] : missing_scalars_)
    em_.code.Line(name, walk_.unroll > 1 ? "[u] = " : "[0] = ", em_.values.ScalarText(access), ";");
}

void Step::EmitLoads() {
  if (held_ == nullptr) {
    for (const Arrays* missing : {&missing_, &missing_scalars_})
      for (const auto& [access, name] : *missing) DeclareArray(access, name);
  }
  if (walk_.unroll == 1 || walk_.rolled || walk_.is_exact) {
    EmitEach([this] { LoadMissing(); });
    return;
  }
  // Beyond the end the last vector is loaded again: a load under a condition of its own is issued after the first use
  // of the one before, which costs a memory latency each (softmax 16384 x 4104: 20 %).
  em_.code.Open();  // if there is any vector
  em_.code.Open();  // for u
  const std::string k = em_.code.NewName("k");
  em_.indices.Decode(loops_, k);
  LoadMissing();
  const std::string inner = em_.code.Close();
  em_.code.Line("#pragma unroll\nfor (int u = 0; u < ", walk_.unroll, "; ++u) {\nconst ix ", k, " = mini<ix>(", first_,
                " + u * ", walk_.step, ", ", walk_.count, " - 1);\n", inner, "}");
  const std::string any = em_.code.Close();
  em_.code.Line(walk_.is_whole ? Cat("if (", walk_.count, " > 0) ") : std::string(), "{\n", any, "}");
}

void Step::Emit(std::span<const Stage> stages) {
  if (!walk_.is_whole) em_.code.Open();  // The loop over steps of `unroll` vectors.
  first_ = walk_.is_whole ? walk_.start : em_.code.NewName("k");
  if ((in_arrays_ && !missing_.empty()) || !missing_scalars_.empty()) EmitLoads();
  for (const Stage& stage : stages) {
    EmitEach([&] {
      if (in_arrays_) {
        for (const auto& [access, name] : arrays_)
          em_.loaded.SetPack(access, Cat(name, walk_.unroll > 1 ? "[u]" : "[0]"));
      }
      for (const auto& [access, name] : scalars_)
        em_.loaded.SetScalar(access.load, Cat(name, walk_.unroll > 1 ? "[u]" : "[0]"));
      stage.body();
      em_.loaded.ForgetPacks();
      if (!scalars_.empty()) em_.loaded.ForgetScalars();
    });
    if (stage.after) stage.after();
  }
  if (walk_.is_whole) return;
  const std::string inner = em_.code.Close();
  if (walk_.is_single) {  // The compiler does not see that, and would unroll a loop.
    em_.code.Line("const ix ", first_, " = ", walk_.start, ";\nif (", first_, " < ", walk_.count, ") {\n", inner, "}");
    return;
  }
  em_.code.Line("for (ix ", first_, " = ", walk_.start, "; ", first_, " < ", walk_.count, "; ", first_,
                " += ", walk_.step * walk_.unroll, ") {\n", inner, "}");
}

// Loads of one element that vary with the walk's loops and with `outer`: not what all rows read alike.
std::vector<Access> ScalarsOf(Emitter& em, const std::vector<const fusion::Element*>& roots,
                              std::span<const Loop> loops, std::span<const Loop> outer) {
  std::vector<Access> scalars = em.loads.Scalars(roots, outer, {});
  std::erase_if(scalars, [&](const Access& access) { return !em.dependences.VariesWith(access.load, loops); });
  return scalars;
}

}  // namespace

void EmitStages(Emitter& em, const Walk& walk, std::span<const Loop> loops, std::span<const Loop> outer,
                const std::vector<const fusion::Element*>& roots, Held* held, std::span<const Stage> stages) {
  // Loads that are shared by few threads come first; what all rows read alike is in cache, and is read when used.
  std::vector<Access> loads;
  if (em.vector.lanes() > 1) {
    for (const Access& access : em.loads.Vectors(roots)) {
      if (walk.early || em.places.Varies(access, outer)) loads.push_back(access);
    }
  }
  Step step(em, walk, loops, held);
  step.Declare(loads);
  if (em.vector.lanes() == 1 && (held != nullptr || (walk.ahead && walk.unroll > 1)))
    step.DeclareScalars(ScalarsOf(em, roots, loops, outer));
  step.Emit(stages);
}

const ir::Expr* FirstVector(Emitter& em, const Loop& loop, const Schedule& s) {
  ir::ExprPool& pool = em.pool;
  const ir::Expr* begin = pool.Import(loop.begin);
  if (em.vector.skew() == nullptr || loop.variable != s.vector) return begin;
  const ir::Expr* lanes = pool.Const(s.lanes);
  const ir::Expr* beyond = pool.Mod(pool.Add(em.vector.skew(), begin), lanes);
  return pool.Add(begin, pool.Mod(pool.Sub(lanes, beyond), lanes));
}

void EmitRest(Emitter& em, const Loop& loop, const Schedule& s, const std::string& thread, const std::string& condition,
              const std::function<void()>& body) {
  ir::ExprPool& pool = em.pool;
  const ir::Expr *begin = pool.Import(loop.begin), *end = pool.Import(loop.end), *first = FirstVector(em, loop, s);
  const ir::Expr* none = pool.Const(0);
  const ir::Expr* before = pool.Min(pool.Sub(first, begin), pool.Max(pool.Sub(end, begin), none));
  const ir::Expr* trips = pool.Max(pool.Sub(end, first), none);
  const ir::Expr* behind = pool.Mod(trips, pool.Const(s.lanes));
  const ir::Expr* count = pool.Add(before, behind);
  if (count->IsConst(0)) return;
  em.vector.Clear();
  const std::string at = em.code.NewName("r");
  std::string place = Cat(em.indices.Text(pool.Sub(pool.Add(first, trips), behind)), " + ", thread);
  if (!before->IsConst(0)) {
    const std::string head = em.indices.Text(before);
    place = Cat(thread, " < ", head, " ? ", em.indices.Text(begin), " + ", thread, " : ", place, " - ", head);
  }
  const std::string number = em.indices.Text(count);
  em.code.Open();
  em.code.Define(loop.variable, at);
  body();
  const std::string inside = em.code.Close();
  em.code.Line("const ix ", at, " = ", place, ";\nif (", condition, " && ", thread, " < ", number, ") {\n", inside,
               "}");
}

void KeepPacks(Scopes& code, std::span<const std::pair<Access, std::string>> arrays, int count) {
  for (const auto& [access, name] : arrays)
    code.Line("#pragma unroll\nfor (int u = 0; u < ", count, "; ++u) keep(", name, "[u]);");
}

void EmitWalk(Emitter& em, const Walk& walk, std::span<const Loop> loops, std::span<const Loop> outer,
              const std::vector<const fusion::Element*>& roots, Held* held, const std::function<void()>& body) {
  const Stage stage = {body, nullptr};
  EmitStages(em, walk, loops, outer, roots, held, std::span(&stage, 1));
}

}  // namespace hir::codegen::gpu
