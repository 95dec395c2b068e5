// The loop over the vectors of a phase.
#include <algorithm>
#include <functional>

#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

std::vector<Loop> WithLast(std::vector<Loop> loops, int variable) {
  const auto at = std::ranges::find(loops, variable, &Loop::variable);
  if (at != loops.end()) std::rotate(at, at + 1, loops.end());
  return loops;
}

int LoopingPhases(const Region& region) {
  return static_cast<int>(
      std::ranges::count_if(region.phases, [](const Phase& phase) { return !phase.loops.empty(); }));
}

std::vector<const fusion::Element*> RootsOf(const Phase& phase) {
  std::vector<const fusion::Element*> roots;
  for (const Accumulator& accumulator : phase.accumulators) roots.push_back(accumulator.body);
  for (const Carried& carried : phase.carried) roots.push_back(carried.accumulator.body);
  for (const Store& store : phase.stores) roots.push_back(store.value);
  return roots;
}

void EmitStages(Emitter& em, const Walk& walk, std::span<const Loop> loops, std::span<const Loop> outer,
                const std::vector<const fusion::Element*>& roots, Held* held, std::span<const Stage> stages) {
  // Loads that are shared by few threads come first; what all rows read alike is in cache, and is read when used.
  std::vector<Access> loads;
  if (em.vector.lanes() > 1) {
    for (const Access& access : em.loads.Vectors(roots)) {
      if (walk.early || em.places.Varies(access, outer)) loads.push_back(access);
    }
  }
  std::vector<Access> missing;
  std::vector<std::pair<Access, std::string>> arrays;
  for (const Access& access : loads) {
    const auto same = [&](const auto& entry) { return entry.first == access; };
    if (held != nullptr) {
      const auto known = std::ranges::find_if(held->arrays, same);
      if (known != held->arrays.end()) {
        arrays.push_back(*known);
        continue;
      }
    }
    missing.push_back(access);
    arrays.emplace_back(access, em.code.NewName("c"));
    if (held != nullptr) {
      held->arrays.push_back(arrays.back());
      em.code.Line("Pk<", em.places.BytesOf(access), "> ", arrays.back().second, "[", walk.unroll, "];");
    }
  }
  const bool in_arrays = walk.unroll > 1 || held != nullptr || walk.reading == Values::Reading::kFirst;
  const auto name_of = [&](const Access& access) {
    return std::ranges::find_if(arrays, [&](const auto& entry) { return entry.first == access; })->second;
  };
  if (!walk.is_whole) em.code.Open();  // The loop over steps of `unroll` vectors.
  const std::string first = walk.is_whole ? walk.start : em.code.NewName("k");
  // The scope of one vector of the step, with its variables; `inside` fills it.
  const auto each = [&](const std::function<void()>& inside) {
    const std::string k = em.code.NewName("k");
    em.code.Open();  // for u
    em.code.Open();  // if (k < count)
    em.indices.Decode(loops, k);
    inside();
    const std::string guarded = em.code.Close();
    const std::string before = em.code.Close();
    const std::string at = walk.unroll > 1 ? Cat(first, " + u * ", walk.step) : first;
    em.code.Line(walk.unroll > 1 ? Cat(walk.rolled ? "#pragma unroll 1\n" : "#pragma unroll\n", "for (int u = 0; u < ",
                                       walk.unroll, "; ++u) {\n")
                                 : "{\n",
                 "const ix ", k, " = ", at, ";\n", before,
                 walk.is_exact ? std::string() : Cat("if (", k, " < ", walk.count, ") "), "{\n", guarded, "}\n}");
  };
  if (in_arrays && !missing.empty()) {
    for (const Access& access : missing) {
      if (held == nullptr)
        em.code.Line("Pk<", em.places.BytesOf(access), "> ", name_of(access), "[", walk.unroll, "];");
    }
    const auto load = [&] {
      for (const Access& access : missing) {
        em.code.Line(name_of(access), walk.unroll > 1 ? "[u] = " : "[0] = ", em.values.LoadText(access, walk.reading),
                     ";");
      }
    };
    if (walk.unroll > 1 && !walk.rolled && !walk.is_exact) {
      // Beyond the end the last vector is loaded again: a load under a condition of its own is issued after the first
      // use of the one before, which costs a memory latency each (softmax 16384 x 4104: 20 %).
      em.code.Open();  // if there is any vector
      em.code.Open();  // for u
      const std::string k = em.code.NewName("k");
      em.indices.Decode(loops, k);
      load();
      const std::string inner = em.code.Close();
      em.code.Line("#pragma unroll\nfor (int u = 0; u < ", walk.unroll, "; ++u) {\nconst ix ", k, " = mini<ix>(", first,
                   " + u * ", walk.step, ", ", walk.count, " - 1);\n", inner, "}");
      const std::string any = em.code.Close();
      em.code.Line(walk.is_whole ? Cat("if (", walk.count, " > 0) ") : std::string(), "{\n", any, "}");
    } else {
      each(load);
    }
  }
  for (const Stage& stage : stages) {
    each([&] {
      if (in_arrays) {
        for (const auto& [access, name] : arrays) em.loaded.SetPack(access, Cat(name, walk.unroll > 1 ? "[u]" : "[0]"));
      }
      stage.body();
      em.loaded.ForgetPacks();
    });
    if (stage.after) stage.after();
  }
  if (walk.is_whole) return;
  const std::string inner = em.code.Close();
  if (walk.is_single) {  // The compiler does not see that, and would unroll a loop.
    em.code.Line("const ix ", first, " = ", walk.start, ";\nif (", first, " < ", walk.count, ") {\n", inner, "}");
    return;
  }
  em.code.Line("for (ix ", first, " = ", walk.start, "; ", first, " < ", walk.count, "; ", first,
               " += ", walk.step * walk.unroll, ") {\n", inner, "}");
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
