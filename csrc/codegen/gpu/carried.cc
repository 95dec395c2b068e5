// Rows in order, with sums over them: the backward pass of a normalisation. A CTA goes through the rows of its part;
// each thread has the same columns in every row, whose sums over rows stay in its registers. What is reduced over the
// columns of a row is reduced by the whole CTA, with one barrier a phase (shared memory alternates from row to row).
// At the end the sums are the part's partial result; the plan's second launch adds up the parts.
//
// Bytes: inputs and outputs once, and the partial results. A row at a time is little in flight, so rows ahead are
// loaded before they are needed, to shared memory:
//   rows below 4 KiB a tensor: each thread copies and reads its own vectors, so the ring needs no barrier. 40 KiB in
//     flight a multiprocessor: with two tensors of 2 KiB 128 threads, 5 CTAs, 2 rows (measured on an H200: 4 rows 3 %
//     slower, and so 6 CTAs or 4).
//   longer ones that a CTA's threads hold in a vector each: the next row, in registers. With two tensors of 8 KiB 512
//     threads, 2 CTAs: 32 KiB ahead of 32 KiB in use (RMS norm backward 16384x4096 0.1058 ms; rings 0.1079 to 0.1082).
//   the longest: whole rows by one thread and the copy engine, 3 rows, refilled behind the barrier of the row's
//     reduction: 512 threads, 1 CTA, 96 to 192 KiB. Before compute capability 9.0 in registers, too.
// What follows from a row once its sums are known is computed from the same registers: nothing is read twice.
//
// Factors that are the same in all rows of the innermost loop are taken out of the sums over them: the weight and bias
// sums of a layer norm's backward pass are made of two sums instead of four.
//
// All CTAs are resident at once (the plan made as many parts), or the last ones would run alone.
#include <algorithm>
#include <bit>
#include <functional>

#include "csrc/codegen/gpu/factors.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"
#include "csrc/codegen/terms.h"
#include "csrc/codegen/walks.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

constexpr int64_t kUnknownCarried = 1024;
constexpr int kBulkStages = 3;
constexpr int64_t kBytesAhead = 40 << 10;  // Of a multiprocessor, by copies; more is slower.
constexpr int64_t kCopiedRow = 256;        // Vectors of 16 bytes.
constexpr int kVectorsMax = 4;             // That a thread holds of a row.
constexpr int kThreadsMax = 512;
static_assert(kVectorsMax * kThreadsMax == kVectorsOfRowHeld);  // As costs take it.
constexpr int64_t kStaticBytesMax = 44 << 10;                   // Of a CTA's ring; 48 KiB are static in all.
constexpr int64_t kOtherBytes = 2 << 10;                        // Of a CTA, beside its ring.
constexpr int kSumsMax = 16;                                    // Of warps, that each thread adds up alone.

std::vector<Loop> ColumnsOf(const Region& region, const Schedule& s) {
  std::vector<Loop> columns;
  for (const Phase& phase : region.phases) {
    if (!phase.loops.empty()) columns = WithLast(phase.loops, s.vector);
  }
  return columns;
}

// The vectors that every row has anew.
std::vector<Access> RingOf(Emitter& em, const Region& region, const std::vector<const fusion::Element*>& roots) {
  std::vector<Access> ring;
  for (const Access& access : em.loads.Vectors(roots)) {
    if (access.guard == 0 && em.places.BytesOf(access) % 16 == 0 &&
        em.places.Varies(access, std::span(region.serial).last(1)))
      ring.push_back(access);
  }
  return ring;
}

class CarriedEmitter {
 public:
  CarriedEmitter(Emitter& em, const Region& region, const Schedule& s)
      : em_(em),
        code_(em.code),
        region_(region),
        s_(s),
        in_registers_(s.held),
        columns_(ColumnsOf(region, s)),
        factors_(em.dependences, em.elements, std::span(region.serial).last(1), columns_) {}

  const ir::Expr* Run() {
    em_.vector.Clear();
    const ir::Expr* parts = em_.indices.TripsOf(region_.grid);
    code_.Line("const ix item = (ix)unit;");
    code_.Open();
    em_.indices.Decode(region_.grid, "item");
    if (in_registers_) {
      StartColumns();
      CollectRing();
      CollectBases();
      if (s_.unroll == 1) em_.values.SetInnerRows(region_.serial.back().variable);
      code_.Line("int parity = 0;");
      if (!ring_.empty()) StartAhead();
    } else if (HasReductions()) {
      code_.Line("int parity = 0;");
    }
    Serial(0);
    const std::string body = code_.Close();
    code_.Line("{\n", body, "}");
    return parts;
  }

 private:
  struct Sum {
    const Carried* carried;
    const Phase* phase;
    std::string array;
  };
  // What a sum over rows is made of: the sum of `product`, times `slow`, which is the same in all rows of the
  // innermost loop.
  struct Part {
    std::vector<const fusion::Element*> slow;
    const fusion::Element* product = nullptr;
  };
  // The sum over rows of the product of some values, of which several reductions may be made.
  struct Base {
    const fusion::Element* product;
    const Phase* phase;
    std::string array;
  };

  std::vector<Part> PartsOf(const fusion::Element* body) {
    const auto is_fast = [&](const fusion::Element* e) {
      return em_.dependences.DependsOn(e, std::span(region_.serial).last(1));
    };
    std::vector<Part> parts;
    for (const Term& term : TermsOf(body, is_fast)) parts.push_back({term.slow, factors_.Product(term.fast)});
    return parts;
  }

  // Finds what to add up in each row.
  void CollectBases() {
    for (const Phase& phase : region_.phases) {
      for (const Carried& carried : phase.carried) {
        if (carried.accumulator.kind != fusion::ReduceKind::kSum || carried.accumulator.dtype != DType::kFloat32)
          continue;
        std::vector<Part>& parts = parts_[&carried] = PartsOf(carried.accumulator.body);
        for (const Part& term : parts) {
          const auto known = std::ranges::find_if(
              bases_, [&](const Base& base) { return base.phase == &phase && base.product == term.product; });
          if (known == bases_.end()) bases_.push_back({term.product, &phase, code_.NewName("base")});
        }
      }
    }
  }
  const Base& BaseOf(const Part& term, const Phase& phase) const {
    return *std::ranges::find_if(
        bases_, [&](const Base& base) { return base.phase == &phase && base.product == term.product; });
  }

  // Behind the rows of the innermost loop: every sum from what was added up.
  void AddTerms() {
    for (const Phase& phase : region_.phases) {
      for (const Carried& carried : phase.carried) {
        const auto parts = parts_.find(&carried);
        if (parts == parts_.end()) continue;
        Each([&] {
          SetFixed();
          em_.lanes.Each([&] {
            const std::string lane = s_.lanes > 1 ? "[e]" : "[0]";
            for (const Part& term : parts->second) {
              std::vector<std::string> factors;
              for (const fusion::Element* factor : term.slow) factors.push_back(em_.values.Text(factor));
              factors.push_back(Cat(At(BaseOf(term, phase).array), lane));
              code_.Line(At(arrays_.at(&carried)), lane, " += ", base::Join(factors, " * "), ";");
            }
          });
          em_.loaded.ForgetPacks();
        });
      }
    }
  }

  bool HasReductions() const {
    return std::ranges::any_of(region_.phases, [](const Phase& phase) { return !phase.accumulators.empty(); });
  }

  // All phases that loop have the columns; so a thread's are found once.
  void StartColumns() {
    em_.vector.Set(s_.vector, s_.lanes);
    const ir::Expr* count = em_.indices.TripsOf(columns_);
    em_.conditions.Require(Cat(em_.arguments.SymbolText(count), " <= ", int64_t{s_.threads} * s_.unroll));
    em_.conditions.Require(Cat(em_.arguments.SymbolText(count), " > 0"));
    code_.Line("const ix n = ", em_.indices.Text(count), ";");
    all_own_ = count->IsConst(int64_t{s_.threads} * s_.unroll);
    if (s_.unroll > 1) return;
    if (!all_own_) code_.Line("const bool own = t < n;");
    code_.Line("const ix k = ", all_own_ ? "t" : "own ? t : 0", ";");
    em_.indices.Decode(columns_, "k");
  }

  // body() once for each vector of this thread, as scopes; `guarded`: where it exists.
  void Each(const std::function<void()>& body) {
    code_.Open();
    if (s_.unroll == 1) {
      body();
      const std::string code = code_.Close();
      code_.Line(all_own_ ? "{\n" : "if (own) {\n", code, "}");
      return;
    }
    const std::string k = code_.NewName("k");
    em_.indices.Decode(columns_, k);
    body();
    const std::string code = code_.Close();
    code_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll, "; ++u) {\nconst ix ", k, " = t + u * ", s_.threads,
               ";\n", all_own_ ? "{" : Cat("if (", k, " < n) {"), "\n", code, "}\n}");
  }
  std::string At(const std::string& array) const { return Cat(array, s_.unroll > 1 ? "[u]" : "[0]"); }

  // The vectors and numbers that every row has anew.
  void CollectRing() {
    std::vector<const fusion::Element*> roots;
    for (const Phase& phase : region_.phases) {
      if (phase.loops.empty()) continue;
      for (const fusion::Element* root : RootsOf(phase)) roots.push_back(root);
    }
    const std::span<const Loop> rows = std::span(region_.serial).last(1);
    for (const Access& access : RingOf(em_, region_, roots)) ring_.emplace_back(access, code_.NewName("c"));
    for (const Access& access : em_.loads.Scalars(roots, rows, columns_)) {
      const int64_t size = DTypeBytes(access.load->dtype);
      if (IsAhead() && size != 4) continue;  // Others are read when needed.
      const std::string name = code_.NewName("scalar");
      scalars_.emplace_back(access, name);
      if (IsAhead()) {
        code_.Line("SHARED u32 ring_", name, "[", s_.stages, "][", s_.threads / 32 * size / 4, "];");
      } else {
        code_.Line(TypeText(access.load->dtype), " next_", name, ";");
      }
    }
    const int vectors = s_.threads * s_.unroll;
    if (IsAhead()) {
      const int chunks = ChunksOfRow();
      if (s_.staging == Staging::kBulk) {
        code_.Line("DYNAMIC(ring);\nSHARED u64 full[", s_.stages, "];");
      } else {
        code_.Line("SHARED uint4 ring[", s_.stages * chunks * vectors, "];");
      }
    }
    for (const auto& [access, name] : ring_) {
      code_.Line("Pk<", em_.places.BytesOf(access), "> ", name, "[", s_.unroll, "];");
      if (!IsAhead()) code_.Line("Pk<", em_.places.BytesOf(access), "> next_", name, "[", s_.unroll, "];");
    }
  }
  // Vectors that are the same in all rows of the innermost loop, of threads that have several: loaded in front of it,
  // within the first `depth` loops. One vector is in front of the rows anyhow.
  void StartFixed(size_t depth) {
    if (s_.unroll == 1 || s_.lanes == 1) return;
    std::vector<const fusion::Element*> roots;
    for (const Phase& phase : region_.phases) {
      if (phase.loops.empty()) continue;
      for (const fusion::Element* root : RootsOf(phase)) roots.push_back(root);
    }
    std::vector<std::pair<Access, std::string>> own;
    for (const Access& access : em_.loads.Vectors(roots)) {
      const std::span<const Loop> serial(region_.serial);
      const bool by_last = depth > 0 && em_.places.Varies(access, serial.subspan(depth - 1, 1));
      if (access.guard != 0 || em_.places.Varies(access, serial.subspan(depth)) || (depth > 0 && !by_last)) continue;
      own.emplace_back(access, code_.NewName("c"));
      code_.Line("Pk<", em_.places.BytesOf(access), "> ", own.back().second, "[", s_.unroll, "];");
    }
    if (own.empty()) return;
    Each([&] {
      for (const auto& [access, name] : own)
        code_.Line(At(name), " = ", em_.values.LoadText(access, Values::Reading::kPlain), ";");
    });
    for (auto& each : own) {
      std::erase_if(fixed_, [&](const auto& old) { return old.first.load == each.first.load; });
      fixed_.push_back(std::move(each));
    }
  }
  void SetFixed() {
    for (const auto& [access, name] : fixed_) em_.loaded.SetPack(access, At(name));
  }

  bool IsAhead() const { return s_.staging != Staging::kRegisters && !ring_.empty(); }
  // Chunks of 16 bytes that a vector of every tensor in the ring has.
  int ChunksOfRow() const {
    int chunks = 0;
    for (const auto& [access, name] : ring_) chunks += em_.places.BytesOf(access) / 16;
    return chunks;
  }
  // Where the vectors of a tensor begin in a stage: row by row as in memory for bulk copies, else a plane for each
  // chunk of a vector, in which neighbours are neighbours.
  std::string ChunkAt(int before, int chunks, int chunk, const std::string& vector) const {
    const int vectors = s_.threads * s_.unroll;
    if (s_.staging == Staging::kBulk) {
      return Cat("ring + stage * ", ChunksOfRow() * vectors, " + ", before * vectors, " + (", vector, ")",
                 chunks > 1 ? Cat(" * ", chunks, " + ", chunk) : "");
    }
    return Cat("ring + stage * ", ChunksOfRow() * vectors, " + ", (before + chunk) * vectors, " + (", vector, ")");
  }
  std::string OwnVector() const { return s_.unroll > 1 ? Cat("t + u * ", s_.threads) : std::string("t"); }

  // Variables of the row that is loaded now, ahead of the one that is computed, and where their loops end. There is
  // such a row while the innermost one is below its end.
  std::string AheadOf(size_t loop) const { return Cat("ahead", region_.serial[loop].variable); }
  std::string EndOf(size_t loop) const { return Cat("end", region_.serial[loop].variable); }
  void DefineAhead(size_t loops) {
    for (size_t i = 0; i < loops; ++i) code_.Define(region_.serial[i].variable, AheadOf(i));
  }
  std::string IsThere() const {
    const size_t last = region_.serial.size() - 1;
    return Cat(AheadOf(last), " < ", EndOf(last));
  }
  std::string StepOf(size_t i) {
    const ir::Expr* step = region_.serial[i].step;
    return step == nullptr ? std::string("1") : em_.indices.Text(em_.pool.Import(step));
  }
  // To the first trip of loop `i`.
  std::string First(size_t i) {
    const Loop& loop = region_.serial[i];
    const Scopes::Definitions before = code_.definitions();
    code_.Open();
    DefineAhead(i);
    const std::string begin = em_.indices.Text(em_.pool.Import(loop.begin)),
                      end = em_.indices.Text(em_.pool.Import(loop.end));
    code_.Line(AheadOf(i), " = ", begin, ";\n", EndOf(i), " = ", end, ";");
    const std::string code = code_.Close();
    code_.SetDefinitions(before);
    return Cat("{\n", code, "}\n");
  }
  // Past trips of the loops around `i` in which it has none left.
  std::string Skip(size_t i) {
    if (i == 0) return {};
    return Cat("while (", AheadOf(i), " >= ", EndOf(i), ") {\n++", AheadOf(i - 1), ";\n", Skip(i - 1), "if (",
               AheadOf(i - 1), " >= ", EndOf(i - 1), ") break;\n", First(i), "}\n");
  }

  void StartAhead() {
    for (size_t i = 0; i < region_.serial.size(); ++i) code_.Line("ix ", AheadOf(i), " = 0, ", EndOf(i), " = 0;");
    code_.Line(First(0));
    for (size_t i = 1; i < region_.serial.size(); ++i) {
      code_.Line("if (", AheadOf(i - 1), " < ", EndOf(i - 1), ") {\n", First(i), Skip(i), "}");
    }
    if (!IsAhead()) {
      Fetch();
      return;
    }
    code_.Line("int stage = 0;");
    if (s_.staging == Staging::kBulk) {
      code_.Line("u32 phase = 0;\nif (t == 0) {\nfor (int i = 0; i < ", s_.stages,
                 "; ++i) bulk_start(full + i);\nbulk_started();\n}\nsync();");
    }
    code_.Open();
    Fetch();
    const std::string fetch = code_.Close();
    code_.Line("#pragma unroll 1\nfor (; stage < ", s_.stages, "; ++stage) {\n", fetch, "}\nstage = 0;");
  }

  // Starts loading the row ahead, and goes on to the next.
  void Fetch() {
    const Scopes::Definitions before = code_.definitions();
    code_.Open();
    DefineAhead(region_.serial.size());
    if (!IsAhead()) {
      Each([&] {
        for (const auto& [access, name] : ring_)
          code_.Line(At(Cat("next_", name)), " = ", em_.values.LoadText(access, Values::Reading::kPlain), ";");
      });
    } else if (s_.staging == Staging::kCopies) {
      Each([&] {
        int first = 0;
        for (const auto& [access, name] : ring_) {
          const int chunks = em_.places.BytesOf(access) / 16;
          const std::string from = code_.NewName("from");
          code_.Line("const char* ", from, " = (const char*)(", em_.values.LoadAddress(access), ");");
          for (int chunk = 0; chunk < chunks; ++chunk) {
            code_.Line("copy16(", ChunkAt(first, chunks, chunk, OwnVector()), ", ", from, " + ", chunk * 16, ");");
          }
          first += chunks;
        }
      });
    } else {
      // One thread for all: whole rows.
      code_.Open();
      em_.indices.Decode(columns_, "0");
      code_.Line("bulk_expect(full + stage, (u32)n * ", ChunksOfRow() * 16, ");");
      int first = 0;
      for (const auto& [access, name] : ring_) {
        const int chunks = em_.places.BytesOf(access) / 16;
        code_.Line("bulk_copy(", ChunkAt(first, chunks, 0, "0"), ", ", em_.values.LoadAddress(access), ", (u32)n * ",
                   chunks * 16, ", full + stage);");
        first += chunks;
      }
      const std::string copies = code_.Close();
      code_.Line("if (t == 0) {\n", copies, "}");
    }
    for (const auto& [access, name] : scalars_) {
      if (!IsAhead()) {
        code_.Line("next_", name, " = ", em_.values.ScalarText(access), ";");
      } else {
        const int64_t size = DTypeBytes(access.load->dtype);
        // A lane for its warp: copies from one address by all lanes of it take 32 turns.
        code_.Line("if ((t & 31) == 0) copy_small<", size, ">(&ring_", name, "[stage][t / 32 * ", size / 4, "], ",
                   em_.values.LoadAddress(access), ");");
      }
    }
    const std::string load = code_.Close();
    code_.SetDefinitions(before);
    const size_t last = region_.serial.size() - 1;
    code_.Line("if (", IsThere(), ") {\n", load, AheadOf(last), " += ", StepOf(last), ";\n", Skip(last), "}");
    if (HasCopies()) code_.Line("copies_end();");
  }
  bool HasCopies() const { return IsAhead() && (s_.staging == Staging::kCopies || !scalars_.empty()); }

  // The row that is computed now, from where it was loaded to. The ring's stage is free once every reader is past it:
  // its own thread for vectors, the warp for numbers; the whole CTA for bulk copies, see Refill.
  void Take() {
    if (ring_.empty()) return;
    if (!IsAhead()) {
      for (const auto& [access, name] : scalars_) {
        code_.Line("const ", TypeText(access.load->dtype), " ", name, " = next_", name, ";");
        em_.loaded.SetScalar(access.load, name);
      }
      for (const auto& [access, name] : ring_) {
        code_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll, "; ++u) ", name, "[u] = next_", name, "[u];");
      }
      Fetch();
      return;
    }
    if (HasCopies()) code_.Line("copies_wait<", s_.stages - 1, ">();");
    if (!scalars_.empty()) code_.Line("warp_sync();");
    for (const auto& [access, name] : scalars_) {
      const int64_t size = DTypeBytes(access.load->dtype);
      code_.Line("const ", TypeText(access.load->dtype), " ", name, " = ld_", Suffix(access.load->dtype), "((const ",
                 MemoryText(access.load->dtype), "*)&ring_", name, "[stage][t / 32 * ", size / 4, "]);");
      em_.loaded.SetScalar(access.load, name);
    }
    if (s_.staging == Staging::kBulk) code_.Line("bulk_wait(full + stage, phase);");
    Each([&] {
      int first = 0;
      for (const auto& [access, name] : ring_) {
        const int chunks = em_.places.BytesOf(access) / 16;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          code_.Line("{ const Pk<16> p = ldv<16>(", ChunkAt(first, chunks, chunk, OwnVector()),
                     "); for (int i = 0; i < 4; ++i) ", At(name), ".w[", chunk * 4, " + i] = p.w[i]; }");
        }
        first += chunks;
      }
    });
    refill_due_ = true;
    if (s_.staging == Staging::kCopies) {
      if (!scalars_.empty()) code_.Line("warp_sync();");
      Refill();
    }
  }
  // Loads into the stage that was read, once: behind a barrier of all that read it.
  void Refill() {
    if (!refill_due_) return;
    refill_due_ = false;
    Fetch();
    code_.Line("if (++stage == ", s_.stages, ") {\nstage = 0;", s_.staging == Staging::kBulk ? "\nphase ^= 1;" : "",
               "\n}");
  }

  void Serial(size_t i) {
    if (i == region_.serial.size()) {
      code_.SetRowScope();
      if (in_registers_) Take();
      for (const Phase& phase : region_.phases) Row(phase);
      if (refill_due_) {
        code_.Line("sync();");
        Refill();
      }
      if (in_registers_ || HasReductions()) code_.Line("parity ^= 1;");
      return;
    }
    std::vector<Sum> sums;
    for (const Phase& phase : region_.phases) {
      for (const Carried& carried : phase.carried) {
        if (carried.depth != static_cast<int>(i)) continue;
        sums.push_back({&carried, &phase, code_.NewName("sum")});
        arrays_[&carried] = sums.back().array;
      }
    }
    if (in_registers_) StartFixed(i);
    for (const Sum& sum : sums) StartSum(sum);
    const bool innermost = in_registers_ && i + 1 == region_.serial.size();
    if (innermost) {
      for (const Base& base : bases_) StartArray("float", base.array, "0.0f");
    }
    const Loop& loop = region_.serial[i];
    const std::string at = Cat("row", loop.variable);
    const std::string begin = em_.indices.Text(em_.pool.Import(loop.begin)),
                      end = em_.indices.Text(em_.pool.Import(loop.end)), step = StepOf(i);
    code_.Open();
    code_.Define(loop.variable, at);
    Serial(i + 1);
    const std::string body = code_.Close();
    code_.Line("for (ix ", at, " = ", begin, "; ", at, " < ", end, "; ", at, " += ", step, ") {\n", body, "}");
    if (innermost) AddTerms();
    for (const Sum& sum : sums) EndSum(sum);
  }

  // Of one row with any number of columns, which a thread meets in the same order every time.
  void EachOfAny(const Phase& phase, const std::function<void()>& body) {
    const std::vector<Loop> loops = WithLast(phase.loops, s_.vector);
    const std::string count = em_.indices.Text(em_.indices.TripsOf(loops));
    const std::string k = code_.NewName("k");
    code_.Open();
    em_.indices.Decode(loops, k);
    body();
    const std::string code = code_.Close();
    code_.Line("for (ix ", k, " = t; ", k, " < ", count, "; ", k, " += ", s_.threads, ") {\n", code, "}");
  }

  void StartArray(std::string_view type, const std::string& array, const std::string& value) {
    code_.Line(type, " ", array, "[", s_.unroll, "][", s_.lanes, "];");
    code_.Line("#pragma unroll\nfor (int u = 0; u < ", s_.unroll, "; ++u)\n#pragma unroll\nfor (int e = 0; e < ",
               s_.lanes, "; ++e) ", array, "[u][e] = ", value, ";");
  }

  void StartSum(const Sum& sum) {
    const Accumulator& a = sum.carried->accumulator;
    const std::string neutral = NeutralText(a.kind, a.dtype);
    if (in_registers_) {
      StartArray(TypeText(a.dtype), sum.array, neutral);
      return;
    }
    EachOfAny(*sum.phase, [&] {
      code_.Line("st_", Suffix(a.dtype), "(", em_.stores.AddressOf(sum.carried->tensor, sum.carried->index), ", ",
                 neutral, ");");
    });
  }

  void EndSum(const Sum& sum) {
    if (!in_registers_) return;
    const Accumulator& a = sum.carried->accumulator;
    Each([&] {
      const Store as_store = {sum.carried->tensor, sum.carried->index, nullptr};
      if (s_.lanes > 1 && em_.places.IsVectorStore(as_store)) {
        code_.Line("stv(", em_.stores.AddressOf(sum.carried->tensor, sum.carried->index), ", put_", Suffix(a.dtype),
                   "(", At(sum.array), "));");
        return;
      }
      // The sums lie in the order of the program's axes, vectors along those of memory.
      em_.lanes.Each([&] {
        code_.Line("st_", Suffix(a.dtype), "(", em_.stores.AddressOf(sum.carried->tensor, sum.carried->index), ", ",
                   At(sum.array), "[", s_.lanes > 1 ? "e" : "0", "]);");
      });
    });
  }

  void OncePerRow(const Phase& phase) {
    const int vector = em_.vector.variable(), lanes = em_.vector.lanes();
    em_.vector.Clear();
    code_.Open();
    em_.lanes.Body({}, {}, phase.stores);
    const std::string body = code_.Close();
    code_.Line("if (t == 0) {\n", body, "}");
    em_.vector.Set(vector, lanes);
  }

  // Sums over rows in memory: each is read, added to and written back.
  void AddInMemory(const Phase& phase) {
    for (const Carried& carried : phase.carried) {
      const Accumulator& a = carried.accumulator;
      const std::string value = em_.values.Text(a.body);
      const std::string at = code_.NewName("at");
      code_.Line("const auto ", at, " = ", em_.stores.AddressOf(carried.tensor, carried.index), ";");
      code_.Line("st_", Suffix(a.dtype), "(", at, ", ", InfoOf(a.kind).c_name, "::of(ld_", Suffix(a.dtype), "(", at,
                 "), ", value, "));");
    }
  }

  void Row(const Phase& phase) {
    if (phase.loops.empty()) return OncePerRow(phase);
    std::vector<Accumulator> all = phase.accumulators;
    std::vector<Store> stores = phase.stores;
    // What is the same in all columns is multiplied with the sum instead.
    std::vector<const fusion::Element*> of_row(all.size(), nullptr);
    if (in_registers_) {
      for (size_t k = 0; k < all.size(); ++k) {
        if (!IsSum(all[k])) continue;
        const Factors::Split split = factors_.SplitRow(all[k].body);
        all[k].body = split.rest;
        of_row[k] = split.of_row;
      }
      for (Store& store : stores) store.value = factors_.Ordered(store.value);
    }
    std::vector<std::string> names;
    for (const Accumulator& accumulator : all) {
      names.push_back(code_.NewName("acc"));
      code_.Line(TypeText(accumulator.dtype), " ", names.back(), " = ",
                 NeutralText(accumulator.kind, accumulator.dtype), ";");
    }
    const size_t reduced = names.size();
    if (in_registers_) {
      std::vector<Lanes::Product> products;
      for (const Base& base : bases_) {
        if (base.phase != &phase) continue;
        products.push_back({Cat(At(base.array), "[", s_.lanes > 1 ? "e" : "0", "]"), {base.product}});
      }
      for (const Carried& carried : phase.carried) {
        if (parts_.contains(&carried)) continue;
        all.push_back(carried.accumulator);
        names.push_back(Cat(At(arrays_.at(&carried)), "[", s_.lanes > 1 ? "e" : "0", "]"));
      }
      Each([&] {
        for (const auto& [access, name] : ring_) em_.loaded.SetPack(access, At(name));
        SetFixed();
        em_.lanes.Body(all, names, stores, products);
        em_.loaded.ForgetPacks();
      });
    } else {
      EachOfAny(phase, [&] {
        em_.lanes.Body(all, names, stores);
        AddInMemory(phase);
      });
    }
    if (reduced == 0) return;
    Collect(std::span(all).first(reduced), std::span(names).first(reduced));
    for (size_t k = 0; k < reduced; ++k) {
      if (of_row[k] != nullptr) {
        const std::string factor = em_.values.Text(of_row[k]);
        code_.Line(names[k], " *= ", factor, ";");
      }
      em_.dependences.SetResult(all[k].value, names[k], false);
    }
  }

  static bool IsSum(const Accumulator& a) { return a.kind == fusion::ReduceKind::kSum && a.dtype == DType::kFloat32; }

  // The CTA's results of what each thread has in `names`, in all threads: one barrier.
  void Collect(std::span<const Accumulator> all, std::span<const std::string> names) {
    const int warps = s_.threads / 32;
    const int count = static_cast<int>(names.size());
    if (warps > 1 && count <= 2 && warps * count <= kSumsMax && std::ranges::all_of(all, IsSum)) {
      const std::string parts = code_.NewName("part"), own = code_.NewName("own"), sums = code_.NewName("sums");
      code_.Line("SHARED uint4 ", parts, "[2][", (warps * count + 3) / 4, "];");
      if (count == 2) {
        code_.Line("const float ", own, " = across_halves(", names[0], ", ", names[1], ");");
        code_.Line("if ((t & 15) == 0) ((float*)", parts, "[parity])[t / 16] = ", own, ";");
      } else {
        code_.Line("const float ", own, " = across<Sum, 32>(", names[0], ");");
        code_.Line("if ((t & 31) == 0) ((float*)", parts, "[parity])[t / 32] = ", own, ";");
      }
      code_.Line("sync();");
      if (s_.staging == Staging::kBulk) Refill();
      code_.Line("float ", sums, "[", count, "];\ncollect_sums<", warps, ", ", count, ">((const float*)", parts,
                 "[parity], ", sums, ");");
      for (int k = 0; k < count; ++k) code_.Line(names[static_cast<size_t>(k)], " = ", sums, "[", k, "];");
      return;
    }
    for (size_t k = 0; k < names.size(); ++k)
      code_.Line(names[k], " = across<", InfoOf(all[k].kind).c_name, ", 32>(", names[k], ");");
    if (warps == 1) return;
    const std::string parts = code_.NewName("part");
    for (size_t k = 0; k < names.size(); ++k) {
      code_.Line("SHARED ", TypeText(all[k].dtype), " ", parts, "_", k, "[2][", warps, "];");
      code_.Line("if ((t & 31) == 0) ", parts, "_", k, "[parity][t / 32] = ", names[k], ";");
    }
    code_.Line("sync();");
    if (s_.staging == Staging::kBulk) Refill();
    for (size_t k = 0; k < names.size(); ++k) {
      code_.Line(names[k], " = collect<", InfoOf(all[k].kind).c_name, ", ", warps, ">(", parts, "_", k, "[parity], ",
                 NeutralText(all[k].kind, all[k].dtype), ");");
    }
  }

  Emitter& em_;
  Scopes& code_;
  const Region& region_;
  const Schedule& s_;
  const bool in_registers_;
  const std::vector<Loop> columns_;  // In the order of vectors; of all phases that loop, where held.
  Factors factors_;
  std::vector<std::pair<Access, std::string>> ring_;     // Vectors that every row has anew,
  std::vector<std::pair<Access, std::string>> scalars_;  // and numbers.
  std::vector<std::pair<Access, std::string>> fixed_;    // See StartFixed.
  bool all_own_ = false;                                 // No thread is without a vector.
  bool refill_due_ = false;                              // The stage has been read.
  std::map<const Carried*, std::string> arrays_;
  std::map<const Carried*, std::vector<Part>> parts_;  // Of sums that are made of bases.
  std::vector<Base> bases_;
};

}  // namespace

namespace {

// How rows of `row` vectors are loaded ahead; of symbols: the longest that its text is for. `is_flat`: columns are one
// loop.
void ChooseStaging(const Target& target, int64_t row_bytes, int64_t row, bool is_flat, Schedule& s) {
  const bool has_bulk = target.architecture >= 90;
  s.staging = row < kCopiedRow                                   ? Staging::kCopies
              : has_bulk && (s.unroll > 1 || s.ctas_per_sm == 1) ? Staging::kBulk
                                                                 : Staging::kRegisters;
  if (row_bytes == 0 || (s.staging == Staging::kBulk && (!is_flat || !has_bulk))) s.staging = Staging::kRegisters;
  const int64_t of_copies =
      (kBytesAhead + s.ctas_per_sm * row_bytes - 1) / std::max<int64_t>(s.ctas_per_sm * row_bytes, 1);
  s.stages = s.staging == Staging::kBulk ? kBulkStages : static_cast<int>(std::clamp<int64_t>(of_copies, 2, 4));
  const int64_t bytes_max =
      s.staging == Staging::kBulk ? target.shared_bytes / s.ctas_per_sm - kOtherBytes : kStaticBytesMax;
  if (s.staging != Staging::kRegisters) {
    s.stages = static_cast<int>(std::min<int64_t>(s.stages, bytes_max / row_bytes));
    if (s.stages < 2) s.staging = Staging::kRegisters;
  }
  if (s.staging == Staging::kBulk) s.shared_bytes = s.stages * row_bytes;
}

}  // namespace

void ChooseCarried(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kCarried;
  int64_t nv = 1;
  bool same = true;  // Every phase that loops has the columns, in one order.
  std::vector<Loop> columns;
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    nv = SizeOf(em.indices.TripsOf(phase.loops), plan.sizes, kUnknownCarried / s.lanes);
    const std::vector<Loop> own = WithLast(phase.loops, s.vector);
    if (!columns.empty()) {
      same = same && std::ranges::equal(own, columns, {}, &Loop::variable, &Loop::variable);
    }
    columns = own;
  }
  std::vector<const fusion::Element*> roots;
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    for (const fusion::Element* root : RootsOf(phase)) roots.push_back(root);
  }
  int64_t chunks = 0;  // Of 16 bytes, in a vector of each tensor of a row.
  for (const Access& access : RingOf(em, region, roots)) chunks += em.places.BytesOf(access) / 16;
  // As many CTAs as the plan made parts, all resident; their threads by what registers that leaves. Where the code
  // serves many sizes there are few numbers of CTAs, threads and vectors: each is compiled once.
  const bool is_constant = IsConstant(em.indices.TripsOf(columns)) && IsConstant(em.indices.TripsOf(region.grid));
  const int64_t parts = SizeOf(em.indices.TripsOf(region.grid), plan.sizes, -1);
  const int64_t processors = std::max(plan.target.multiprocessors, 1);
  const int64_t length = nv * s.lanes;
  const auto by_length =
      std::ranges::find_if(kBlocksOfRowsOfAnySize, [&](const BlocksOfRow& row) { return length >= row.elements; });
  s.ctas_per_sm = is_constant ? static_cast<int>(std::clamp<int64_t>((parts + processors - 1) / processors, 1, 16))
                              : static_cast<int>(by_length->blocks);
  const int64_t threads_max = s.ctas_per_sm <= 2    ? kThreadsMax
                              : s.ctas_per_sm <= 4  ? 256
                              : s.ctas_per_sm <= 5  ? 128
                              : s.ctas_per_sm <= 10 ? 64
                                                    : 32;
  const auto round = [&](int64_t count, int64_t unit) {
    return is_constant ? (count + unit - 1) / unit * unit
                       : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  };
  s.threads = static_cast<int>(std::clamp<int64_t>(round(std::max<int64_t>(nv, 1), 32), 32, threads_max));
  s.unroll = static_cast<int>(round(std::max<int64_t>(1, (nv + s.threads - 1) / s.threads), 1));
  s.width = static_cast<int>(std::min<int64_t>(nv, 1 << 20));
  s.held = same && s.unroll <= kVectorsMax && !columns.empty();
  s.items_per_cta = 1;
  if (!s.held) {
    s.unroll = 1;
    s.threads = std::max(s.threads, 128);
    return;
  }
  ChooseStaging(plan.target, chunks * 16 * s.threads * s.unroll, is_constant ? nv : int64_t{s.threads} * s.unroll,
                columns.size() == 1, s);
}

const ir::Expr* EmitCarried(Emitter& em, const Region& region, const Schedule& s) {
  return CarriedEmitter(em, region, s).Run();
}

}  // namespace hir::codegen::gpu
