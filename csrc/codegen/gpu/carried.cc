// Rows in order, with sums over them: the backward pass of a normalisation. A CTA goes through the rows of its part;
// each thread has the same columns in every row, whose sums over rows stay in its registers. What is reduced over the
// columns of a row is reduced by the whole CTA, with one barrier a phase (shared memory alternates from row to row).
// At the end the sums are the part's partial result; the plan's second launch adds up the parts.
//
// Bytes: inputs and outputs once, and the partial results. A row at a time is little in flight, so rows ahead are
// loaded before they are needed:
//   short rows (below 4 KiB a tensor): 3 rows ahead, copied to shared memory; each thread copies and reads its own
//     vectors, so the ring needs no barrier. 128 threads, 5 CTAs a multiprocessor: 60 KiB in flight with two tensors.
//   long rows: the next row, in registers. 512 threads, 2 CTAs: 32 KiB ahead of the 32 KiB being used.
// Factors that are the same in all rows of the innermost loop are taken out of the sums over them: the weight and bias
// sums of a layer norm's backward pass are made of two sums instead of four.
//
// All CTAs are resident at once (the plan made as many parts), or the last ones would run alone.
#include <algorithm>
#include <functional>

#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

constexpr int64_t kUnknown = 1024;
constexpr int64_t kShortRow = 256;  // Vectors of 16 bytes.
constexpr int kStages = 4;
constexpr size_t kTermsMax = 4;
constexpr int64_t kRingBytesMax = 40 << 10;  // Of a CTA; 48 KiB are static.

class CarriedEmitter {
 public:
  CarriedEmitter(Emitter& em, const Region& region, const Schedule& s)
      : em_(em), region_(region), s_(s), in_registers_(s.held) {}

  const ir::Expr* Run() {
    em_.SetVector(-1, 1);
    const ir::Expr* parts = em_.TripsOf(region_.grid);
    em_.Line("const ix item = (ix)unit;");
    em_.Open();
    em_.Decode(region_.grid, "item");
    if (in_registers_) {
      StartColumns();
      CollectRing();
      CollectBases();
      if (s_.unroll == 1) em_.SetInnerRows(region_.serial.back().variable);
      em_.Line("int parity = 0;");
      if (!ring_.empty()) StartAhead();
    } else if (HasReductions()) {
      em_.Line("int parity = 0;");
    }
    Serial(0);
    const std::string body = em_.Close();
    em_.Line("{\n", body, "}");
    return parts;
  }

 private:
  struct Sum {
    const Carried* carried;
    const Phase* phase;
    std::string array;
  };
  // A product: of what is the same in all rows of the innermost loop, and of what is not.
  struct Term {
    std::vector<const fusion::Element*> slow, fast;
  };
  // The sum over rows of the product of some values, of which several reductions may be made.
  struct Base {
    std::vector<const fusion::Element*> factors;
    const Phase* phase;
    std::string array;
  };

  // A body as a sum of terms, where that takes something out of the loop over rows; else as one term. What is not a
  // sum or product of such parts stays whole, so that nothing cancels that did not before.
  std::vector<Term> TermsOf(const fusion::Element* body) {
    std::vector<Term> terms = SplitOf(body);
    const bool ok = std::ranges::all_of(terms, [](const Term& term) { return !term.fast.empty(); });
    if (!ok || terms.size() > kTermsMax) return {{{}, {body}}};
    for (Term& term : terms)
      std::ranges::sort(term.fast, {}, [](const fusion::Element* e) { return e->id; });
    return terms;
  }
  std::vector<Term> SplitOf(const fusion::Element* body) {
    using fusion::Prim;
    if (!em_.DependsOn(body, std::span(region_.serial).last(1))) return {{{body}, {}}};
    const std::vector<Term> whole = {{{}, {body}}};
    if (body->kind != fusion::Element::Kind::kPrim || body->dtype != DType::kFloat32) return whole;
    if (body->prim != Prim::kAdd && body->prim != Prim::kMul) return whole;
    const std::vector<Term> a = SplitOf(body->args[0]), b = SplitOf(body->args[1]);
    if (a.size() * b.size() > kTermsMax) return whole;
    std::vector<Term> terms;
    if (body->prim == Prim::kAdd) {
      terms = a;
      terms.insert(terms.end(), b.begin(), b.end());
    } else {
      for (const Term& x : a) {
        for (const Term& y : b) {
          Term& term = terms.emplace_back(x);
          term.slow.insert(term.slow.end(), y.slow.begin(), y.slow.end());
          term.fast.insert(term.fast.end(), y.fast.begin(), y.fast.end());
        }
      }
    }
    const bool pays =
        std::ranges::any_of(terms, [](const Term& term) { return !term.slow.empty(); });
    return pays ? terms : whole;
  }

  // Finds what to add up in each row.
  void CollectBases() {
    for (const Phase& phase : region_.phases) {
      for (const Carried& carried : phase.carried) {
        if (carried.accumulator.kind != fusion::ReduceKind::kSum ||
            carried.accumulator.dtype != DType::kFloat32)
          continue;
        std::vector<Term>& terms = terms_[&carried] = TermsOf(carried.accumulator.body);
        for (const Term& term : terms) {
          const auto known = std::ranges::find_if(bases_, [&](const Base& base) {
            return base.phase == &phase && base.factors == term.fast;
          });
          if (known == bases_.end()) bases_.push_back({term.fast, &phase, em_.NewName("base")});
        }
      }
    }
  }
  const Base& BaseOf(const Term& term, const Phase& phase) const {
    return *std::ranges::find_if(bases_, [&](const Base& base) {
      return base.phase == &phase && base.factors == term.fast;
    });
  }

  // Behind the rows of the innermost loop: every sum from what was added up.
  void AddTerms() {
    for (const Phase& phase : region_.phases) {
      for (const Carried& carried : phase.carried) {
        const auto terms = terms_.find(&carried);
        if (terms == terms_.end()) continue;
        Each([&] {
          em_.Lanes([&] {
            const std::string lane = s_.lanes > 1 ? "[e]" : "[0]";
            for (const Term& term : terms->second) {
              std::vector<std::string> factors;
              for (const fusion::Element* factor : term.slow) factors.push_back(em_.Value(factor));
              factors.push_back(Cat(At(BaseOf(term, phase).array), lane));
              em_.Line(At(arrays_.at(&carried)), lane, " += ", base::Join(factors, " * "), ";");
            }
          });
        });
      }
    }
  }

  bool HasReductions() const {
    return std::ranges::any_of(region_.phases,
                               [](const Phase& phase) { return !phase.accumulators.empty(); });
  }

  // The columns of a phase's loops, in the order of vectors.
  std::vector<Loop> ColumnsOf(const Phase& phase) const { return WithLast(phase.loops, s_.vector); }

  // All phases that loop have the columns; so a thread's are found once.
  void StartColumns() {
    em_.SetVector(s_.vector, s_.lanes);
    for (const Phase& phase : region_.phases) {
      if (!phase.loops.empty()) columns_ = ColumnsOf(phase);
    }
    const ir::Expr* count = em_.TripsOf(columns_);
    em_.Require(Cat(em_.SymbolText(count), " <= ", int64_t{s_.threads} * s_.unroll));
    em_.Require(Cat(em_.SymbolText(count), " > 0"));
    em_.Line("const ix n = ", em_.Expr(count), ";");
    if (s_.unroll > 1) return;
    em_.Line("const bool own = t < n;\nconst ix k = own ? t : 0;");
    em_.Decode(columns_, "k");
  }

  // body() once for each vector of this thread, as scopes; `guarded`: where it exists.
  void Each(const std::function<void()>& body) {
    em_.Open();
    if (s_.unroll == 1) {
      body();
      const std::string code = em_.Close();
      em_.Line("if (own) {\n", code, "}");
      return;
    }
    const std::string k = em_.NewName("k");
    em_.Decode(columns_, k);
    body();
    const std::string code = em_.Close();
    em_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll, "; ++u) {\nconst ix ", k,
             " = t + u * ", s_.threads, ";\nif (", k, " < n) {\n", code, "}\n}");
  }
  std::string At(const std::string& array) const {
    return Cat(array, s_.unroll > 1 ? "[u]" : "[0]");
  }

  // The vectors that every row has anew.
  void CollectRing() {
    std::vector<const fusion::Element*> roots;
    for (const Phase& phase : region_.phases) {
      if (phase.loops.empty()) continue;
      for (const fusion::Element* root : RootsOf(phase)) roots.push_back(root);
    }
    const std::span<const Loop> rows = std::span(region_.serial).last(1);
    int64_t bytes = 0;
    for (const Emitter::Access& access : em_.VectorLoads(roots)) {
      if (access.guard != 0 || em_.BytesOf(access) % 16 != 0 || !em_.Varies(access, rows)) continue;
      ring_.emplace_back(access, em_.NewName("c"));
      bytes += em_.BytesOf(access);
    }
    stages_ = 1;
    if (s_.width < kShortRow && bytes > 0) {
      stages_ = static_cast<int>(
          std::min<int64_t>(kStages, kRingBytesMax / (bytes * s_.threads * s_.unroll)));
      if (stages_ < 3) stages_ = 1;
    }
    for (const Emitter::Access& access : em_.ScalarLoads(roots, rows, columns_)) {
      const int64_t size = DTypeBytes(access.load->dtype);
      if (stages_ > 1 && size != 4) continue;  // Others are read when needed.
      const std::string name = em_.NewName("scalar");
      scalars_.emplace_back(access, name);
      if (stages_ > 1) {
        em_.Line("SHARED u32 ring_", name, "[", stages_, "][", s_.threads / 32 * size / 4, "];");
      } else {
        em_.Line(TypeText(access.load->dtype), " next_", name, ";");
      }
    }
    for (const auto& [access, name] : ring_) {
      em_.Line("Pk<", em_.BytesOf(access), "> ", name, "[", s_.unroll, "];");
      if (stages_ > 1) {
        em_.Line("SHARED uint4 ring_", name, "[", stages_, "][", em_.BytesOf(access) / 16, "][",
                 s_.threads * s_.unroll, "];");
      } else {
        em_.Line("Pk<", em_.BytesOf(access), "> next_", name, "[", s_.unroll, "];");
      }
    }
  }

  // Variables of the row that is loaded now, ahead of the one that is computed.
  std::string AheadOf(size_t loop) const { return Cat("ahead", region_.serial[loop].variable); }
  void DefineAhead(size_t loops) {
    for (size_t i = 0; i < loops; ++i) em_.Define(region_.serial[i].variable, AheadOf(i));
  }
  // To the first trip of loop `i` from here on, or to the next one.
  std::string Advance(size_t i, bool first) {
    const Loop& loop = region_.serial[i];
    const auto bound = [&](const ir::Expr* expr,
                           const std::function<std::string(const std::string&)>& use) {
      const Emitter::Definitions before = em_.GetDefinitions();
      em_.Open();
      DefineAhead(i);
      const std::string text = em_.Expr(em_.Import(expr));
      const std::string code = em_.Close();
      em_.SetDefinitions(before);
      return Cat("{\n", code, use(text), "\n}\n");
    };
    const std::string at = AheadOf(i);
    const std::string start =
        bound(loop.begin, [&](const std::string& begin) { return Cat(at, " = ", begin, ";"); });
    const std::string test = bound(
        loop.end, [&](const std::string& end) { return Cat("over = ", at, " >= ", end, ";"); });
    const std::string step = first ? start : Cat("++", at, ";\n");
    if (i == 0) return Cat("{\nbool over;\n", step, test, "more = !over;\n}\n");
    return Cat("{\nbool over;\n", step, test, "while (more && over) {\n", Advance(i - 1, false),
               "if (more) {\n", start, test, "}\n}\n}\n");
  }

  void StartAhead() {
    em_.Line("bool more = true;");
    for (size_t i = 0; i < region_.serial.size(); ++i) em_.Line("ix ", AheadOf(i), " = 0;");
    for (size_t i = 0; i < region_.serial.size(); ++i) em_.Line(Advance(i, true));
    if (stages_ > 1) em_.Line("int stage = 0, stage_ahead = 0;");
    em_.Open();
    Fetch();
    const std::string fetch = em_.Close();
    em_.Line("#pragma unroll 1\nfor (int i = 0; i < ", std::max(stages_ - 1, 1), "; ++i) {\n",
             fetch, "}");
  }

  // Starts loading the row ahead, and goes on to the next.
  void Fetch() {
    const Emitter::Definitions before = em_.GetDefinitions();
    em_.Open();
    DefineAhead(region_.serial.size());
    Each([&] {
      for (const auto& [access, name] : ring_) {
        if (stages_ == 1) {
          em_.Line(At(Cat("next_", name)), " = ", em_.LoadText(access, false), ";");
          continue;
        }
        const std::string from = em_.NewName("from");
        em_.Line("const char* ", from, " = (const char*)(", em_.LoadAddress(access), ");");
        for (int part = 0; part < em_.BytesOf(access) / 16; ++part) {
          em_.Line("copy16(&ring_", name, "[stage_ahead][", part, "][t + ",
                   s_.unroll > 1 ? "u" : "0", " * ", s_.threads, "], ", from, " + ", part * 16,
                   ");");
        }
      }
    });
    for (const auto& [access, name] : scalars_) {
      if (stages_ == 1) {
        em_.Line("next_", name, " = ", em_.ScalarText(access), ";");
      } else {
        const int64_t size = DTypeBytes(access.load->dtype);
        // A lane for its warp: copies from one address by all lanes of it take 32 turns.
        em_.Line("if ((t & 31) == 0) copy_small<", size, ">(&ring_", name,
                 "[stage_ahead][t / 32 * ", size / 4, "], ", em_.LoadAddress(access), ");");
      }
    }
    const std::string load = em_.Close();
    em_.SetDefinitions(before);
    em_.Line("if (more) {\n", load, Advance(region_.serial.size() - 1, false), "}");
    if (stages_ > 1)
      em_.Line("copies_end();\nif (++stage_ahead == ", stages_, ") stage_ahead = 0;");
  }

  // The row that is computed now, from where it was loaded to; and the next one.
  void Take() {
    if (ring_.empty()) return;
    if (stages_ > 1) {
      em_.Line("copies_wait<", stages_ - 2, ">();");
      if (!scalars_.empty()) em_.Line("warp_sync();");
      Each([&] {
        for (const auto& [access, name] : ring_) {
          for (int part = 0; part < em_.BytesOf(access) / 16; ++part) {
            em_.Line("{ const Pk<16> p = ldv<16>(&ring_", name, "[stage][", part, "][t + ",
                     s_.unroll > 1 ? "u" : "0", " * ", s_.threads,
                     "]); for (int i = 0; i < 4; ++i) ", At(name), ".w[", part * 4,
                     " + i] = p.w[i]; }");
          }
        }
      });
      for (const auto& [access, name] : scalars_) {
        const int64_t size = DTypeBytes(access.load->dtype);
        em_.Line("const ", TypeText(access.load->dtype), " ", name, " = ld_",
                 Suffix(access.load->dtype), "((const ", MemoryText(access.load->dtype), "*)&ring_",
                 name, "[stage][t / 32 * ", size / 4, "]);");
        em_.SetScalar(access, name);
      }
      em_.Line("if (++stage == ", stages_, ") stage = 0;");
    } else {
      for (const auto& [access, name] : scalars_) {
        em_.Line("const ", TypeText(access.load->dtype), " ", name, " = next_", name, ";");
        em_.SetScalar(access, name);
      }
      for (const auto& [access, name] : ring_) {
        em_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll, "; ++u) ", name, "[u] = next_",
                 name, "[u];");
      }
    }
    Fetch();
  }

  void Serial(size_t i) {
    if (i == region_.serial.size()) {
      em_.SetRowScope();
      if (in_registers_) Take();
      for (const Phase& phase : region_.phases) Row(phase);
      em_.Line("parity ^= 1;");
      return;
    }
    std::vector<Sum> sums;
    for (const Phase& phase : region_.phases) {
      for (const Carried& carried : phase.carried) {
        if (carried.depth != static_cast<int>(i)) continue;
        sums.push_back({&carried, &phase, em_.NewName("sum")});
        arrays_[&carried] = sums.back().array;
      }
    }
    for (const Sum& sum : sums) StartSum(sum);
    const bool innermost = in_registers_ && i + 1 == region_.serial.size();
    if (innermost) {
      for (const Base& base : bases_) StartArray("float", base.array, "0.0f");
    }
    const Loop& loop = region_.serial[i];
    const std::string at = Cat("row", loop.variable);
    const std::string begin = em_.Expr(em_.Import(loop.begin)),
                      end = em_.Expr(em_.Import(loop.end));
    em_.Open();
    em_.Define(loop.variable, at);
    Serial(i + 1);
    const std::string body = em_.Close();
    em_.Line("for (ix ", at, " = ", begin, "; ", at, " < ", end, "; ++", at, ") {\n", body, "}");
    if (innermost) AddTerms();
    for (const Sum& sum : sums) EndSum(sum);
  }

  // Of one row with any number of columns, which a thread meets in the same order every time.
  void EachOfAny(const Phase& phase, const std::function<void()>& body) {
    const std::vector<Loop> loops = ColumnsOf(phase);
    const std::string count = em_.Expr(em_.TripsOf(loops));
    const std::string k = em_.NewName("k");
    em_.Open();
    em_.Decode(loops, k);
    body();
    const std::string code = em_.Close();
    em_.Line("for (ix ", k, " = t; ", k, " < ", count, "; ", k, " += ", s_.threads, ") {\n", code,
             "}");
  }

  void StartArray(std::string_view type, const std::string& array, const std::string& value) {
    em_.Line(type, " ", array, "[", s_.unroll, "][", s_.lanes, "];");
    em_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll,
             "; ++u)\n#pragma unroll\nfor (int e = 0; e < ", s_.lanes, "; ++e) ", array,
             "[u][e] = ", value, ";");
  }

  void StartSum(const Sum& sum) {
    const Accumulator& a = sum.carried->accumulator;
    const std::string neutral = NeutralText(a.kind, a.dtype);
    if (in_registers_) {
      StartArray(TypeText(a.dtype), sum.array, neutral);
      return;
    }
    EachOfAny(*sum.phase, [&] {
      em_.Line("st_", Suffix(a.dtype), "(", em_.AddressOf(sum.carried->tensor, sum.carried->index),
               ", ", neutral, ");");
    });
  }

  void EndSum(const Sum& sum) {
    if (!in_registers_) return;
    const Accumulator& a = sum.carried->accumulator;
    Each([&] {
      const std::string address = em_.AddressOf(sum.carried->tensor, sum.carried->index);
      const Store as_store = {sum.carried->tensor, sum.carried->index, nullptr};
      if (s_.lanes > 1 && em_.IsVectorStore(as_store)) {
        em_.Line("stv(", address, ", put_", Suffix(a.dtype), "(", At(sum.array), "));");
      } else {
        em_.Line("for (int e = 0; e < ", s_.lanes, "; ++e) st_", Suffix(a.dtype), "(", address,
                 " + e, ", At(sum.array), "[e]);");
      }
    });
  }

  void Row(const Phase& phase) {
    if (phase.loops.empty()) {
      const int vector = em_.vector(), lanes = em_.lanes();
      em_.SetVector(-1, 1);
      em_.Open();
      em_.Body({}, {}, phase.stores);
      const std::string body = em_.Close();
      em_.Line("if (t == 0) {\n", body, "}");
      em_.SetVector(vector, lanes);
      return;
    }
    std::vector<Accumulator> all = phase.accumulators;
    std::vector<std::string> names;
    for (const Accumulator& accumulator : phase.accumulators) {
      names.push_back(em_.NewName("acc"));
      em_.Line(TypeText(accumulator.dtype), " ", names.back(), " = ",
               NeutralText(accumulator.kind, accumulator.dtype), ";");
    }
    const size_t reduced = names.size();
    if (in_registers_) {
      std::vector<Emitter::Product> products;
      for (const Base& base : bases_) {
        if (base.phase != &phase) continue;
        products.push_back({Cat(At(base.array), "[", s_.lanes > 1 ? "e" : "0", "]"), base.factors});
      }
      for (const Carried& carried : phase.carried) {
        if (terms_.contains(&carried)) continue;
        all.push_back(carried.accumulator);
        names.push_back(Cat(At(arrays_.at(&carried)), "[", s_.lanes > 1 ? "e" : "0", "]"));
      }
      Each([&] {
        for (const auto& [access, name] : ring_) em_.SetPack(access, At(name));
        em_.Body(all, names, phase.stores, products);
        em_.ForgetPacks();
      });
    } else {
      EachOfAny(phase, [&] {
        em_.Body(all, names, phase.stores);
        for (const Carried& carried : phase.carried) {
          const Accumulator& a = carried.accumulator;
          const std::string value = em_.Value(a.body);
          const std::string at = em_.NewName("at");
          em_.Line("const auto ", at, " = ", em_.AddressOf(carried.tensor, carried.index), ";");
          em_.Line("st_", Suffix(a.dtype), "(", at, ", ", ReduceName(a.kind), "::of(ld_",
                   Suffix(a.dtype), "(", at, "), ", value, "));");
        }
      });
    }
    if (reduced == 0) return;
    const int warps = s_.threads / 32;
    for (size_t k = 0; k < reduced; ++k)
      em_.Line(names[k], " = across<", ReduceName(all[k].kind), ", 32>(", names[k], ");");
    if (warps > 1) {
      const std::string parts = em_.NewName("part");
      for (size_t k = 0; k < reduced; ++k) {
        em_.Line("SHARED ", TypeText(all[k].dtype), " ", parts, "_", k, "[2][", warps, "];");
        em_.Line("if ((t & 31) == 0) ", parts, "_", k, "[parity][t / 32] = ", names[k], ";");
      }
      em_.Line("sync();");
      for (size_t k = 0; k < reduced; ++k) {
        em_.Line(names[k], " = collect<", ReduceName(all[k].kind), ", ", warps, ">(", parts, "_", k,
                 "[parity], ", NeutralText(all[k].kind, all[k].dtype), ");");
      }
    }
    for (size_t k = 0; k < reduced; ++k) em_.SetResult(all[k].value, names[k], false);
    if (in_registers_) em_.KeepPacks(ring_, s_.unroll);
  }

  Emitter& em_;
  const Region& region_;
  const Schedule& s_;
  const bool in_registers_;
  std::vector<Loop> columns_;
  std::vector<std::pair<Emitter::Access, std::string>> ring_;  // Vectors that every row has anew,
  std::vector<std::pair<Emitter::Access, std::string>> scalars_;  // and numbers.
  int stages_ = 1;
  std::map<const Carried*, std::string> arrays_;
  std::map<const Carried*, std::vector<Term>> terms_;  // Of sums that are made of bases.
  std::vector<Base> bases_;
};

}  // namespace

void ChooseCarried(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kCarried;
  int64_t nv = 1;
  bool same = true;  // Every phase that loops has the columns, in one order.
  std::vector<Loop> columns;
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    nv = SizeOf(em.TripsOf(phase.loops), plan.sizes, kUnknown / s.lanes);
    const std::vector<Loop> own = WithLast(phase.loops, s.vector);
    if (!columns.empty()) {
      same = same && std::ranges::equal(own, columns, {}, &Loop::variable, &Loop::variable);
    }
    columns = own;
  }
  s.threads = static_cast<int>(std::clamp<int64_t>((nv + 31) / 32 * 32, 32, 512));
  s.unroll = static_cast<int>(std::max<int64_t>(1, (nv + s.threads - 1) / s.threads));
  s.width = static_cast<int>(std::min<int64_t>(nv, 1 << 20));
  s.held = same && s.unroll <= 4 && !columns.empty();
  if (!s.held) s.unroll = 1;
  s.ctas_per_sm = std::clamp(nv < kShortRow ? 640 / s.threads : 1024 / s.threads, 1, 16);
  s.items_per_cta = 1;
}

const ir::Expr* EmitCarried(Emitter& em, const Region& region, const Schedule& s) {
  return CarriedEmitter(em, region, s).Run();
}

}  // namespace hir::codegen::gpu
