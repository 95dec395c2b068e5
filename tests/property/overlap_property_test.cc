// Goal: a product beside its communication, in parts, computes what it does as a whole. Method: random tensor-parallel
// programs of one to three products on 2 to 4 ranks, along either dimension of a mesh, go through the whole pipeline
// with everything taken apart that can be, and run on simulated ranks (with random delays) and over UCX. Values are
// small whole numbers, so that every order of additions gives the same bits; they are compared with the interpreter's.
// HOSTIR_SEEDS=N runs N programs.
#include <gtest/gtest.h>

#include <iostream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "multidevice/comm/ucx/ucx.h"
#include "tests/property/run_on_ranks.h"
#include "tests/property/sharded_programs.h"

namespace hir::testing {
namespace {

using base::Cat;
using fusion::HostTensor;

// A program and the shapes of its inputs.
struct Made {
  std::string text;
  int64_t num_ranks = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::vector<int64_t>> shapes = {};
};

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  Made Make() {
    const bool square = random_.OneIn(4);
    ranks_ = square ? 2 : random_.Between(2, 4);
    dim_ = square && random_.OneIn(2) ? "mesh_y" : "mesh_x";
    made_.num_ranks = square ? 4 : ranks_;
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < made_.num_ranks; ++rank) all.push_back(rank);
    const std::string mesh = square ? "[[0, 1], [2, 3]]" : Cat("[", base::JoinInts(all, ", "), "]");
    const int64_t form = random_.Below(4);
    made_.dtype = form == 3 ? DType::kFloat32
                            : std::array{DType::kFloat32, DType::kBFloat16, DType::kFloat16}[random_.Next() % 3];
    rows_ = ranks_ * random_.Between(1, 5);
    front_ = random_.OneIn(3) ? "1, " : "";
    inner_ = ranks_ * random_.Between(1, 6);
    columns_ = ranks_ * random_.Between(1, 6);
    switch (form) {
      case 0: Gather(); break;
      case 1: Sum(true); break;
      case 2: Sum(false); break;
      default: Layer(); break;
    }
    made_.text = Cat("mesh @m = ", mesh, "\nfusion @f(", base::Join(params_, ", "), ") {\n", body_, "}\n");
    return std::move(made_);
  }

 private:
  std::string Type(std::string_view shape) const { return Cat(DTypeName(made_.dtype), "[", shape, "]"); }
  // {mesh=@m, shard(...)}; of a negative axis replicated.
  std::string On(int axis) const {
    return Cat(" {mesh=@m", axis < 0 ? "" : Cat(", shard(", axis, ", ", dim_, ")"), "}");
  }
  void Param(std::string_view name, std::vector<int64_t> shape, int axis) {
    params_.push_back(Cat("%", name, ": ", Type(base::JoinInts(shape, ", ")), On(axis)));
    made_.shapes.push_back(std::move(shape));
  }
  std::vector<int64_t> Rows(int64_t columns) const {
    return front_.empty() ? std::vector<int64_t>{rows_, columns} : std::vector<int64_t>{1, rows_, columns};
  }
  int RowAxis() const { return front_.empty() ? 0 : 1; }
  std::string RowsOf(int64_t columns) const { return Cat(front_, rows_, ", ", columns); }
  void Line(std::string_view text) { base::Append(body_, "  ", text, "\n"); }
  // %to = the product, of whichever kind, behind what may become its epilogue.
  void Product(std::string_view rows, std::string_view weights, std::string_view to, int64_t contracted,
               int64_t columns, int axis) {
    Line(Cat("%", to, ": ", Type(Cat(RowsOf(columns), ", r:", contracted)), On(axis), " = matmul(%", rows, ", %",
             weights, ")"));
  }

  // Several products may read what is gathered.
  void Gather() {
    Param("x", Rows(inner_), RowAxis());
    const int64_t count = random_.Between(1, 3);
    for (int64_t i = 0; i < count; ++i) Param(Cat("w", i), {inner_, columns_}, 1);
    const bool biased = random_.OneIn(2);
    if (biased) Param("b", {columns_}, 0);
    Line(Cat("%g: ", Type(RowsOf(inner_)), On(-1), " = set(%x)"));
    std::vector<std::string> returned;
    for (int64_t i = 0; i < count; ++i) {
      Product("g", Cat("w", i), Cat("p", i), inner_, columns_, RowAxis() + 1);
      std::string last = Cat("p", i);
      if (biased) Line(Cat("%a", i, " = add(%", last, ", %b)"));
      if (biased) last = Cat("a", i);
      if (random_.OneIn(2)) Line(Cat("%r", i, " = relu(%", last, ")")), last = Cat("r", i);
      returned.push_back(Cat("%", last));
    }
    Line(Cat("return ", base::Join(returned, ", ")));
  }

  void Sum(bool scattered) {
    Param("x", Rows(inner_), RowAxis() + 1);
    Param("w", {inner_, columns_}, 0);
    const bool residual = random_.OneIn(2);
    const int axis = scattered ? RowAxis() : -1;
    if (residual) Param("z", Rows(columns_), axis);
    Product("x", "w", "p", inner_, columns_, axis);
    if (residual) Line("%a = add(%p, %z)");
    Line(residual ? "return %a" : "return %p");
  }

  // A sequence-parallel layer: gathered, two products, summed and scattered.
  void Layer() {
    Param("x", Rows(inner_), RowAxis());
    Param("v", {inner_, columns_}, 1);
    Param("w", {columns_, inner_}, 0);
    Line(Cat("%g: ", Type(RowsOf(inner_)), On(-1), " = set(%x)"));
    Product("g", "v", "p", inner_, columns_, RowAxis() + 1);
    Line("%h = relu(%p)");
    Product("h", "w", "q", columns_, inner_, RowAxis());
    Line("%y = add(%q, %x)");
    Line("return %y");
  }

  base::Prng random_;
  Made made_;
  int64_t ranks_ = 0, rows_ = 0, inner_ = 0, columns_ = 0;
  std::string dim_, front_, body_;
  std::vector<std::string> params_;
};

std::vector<HostTensor> InputsOf(const Made& made, uint64_t seed) {
  base::Prng random(seed);
  std::vector<HostTensor> inputs;
  for (const std::vector<int64_t>& shape : made.shapes) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    std::vector<double> values(static_cast<size_t>(elements));
    for (double& value : values) value = static_cast<double>(random.Between(-1, 1));
    inputs.push_back(fusion::TensorOf(made.dtype, shape, values));
  }
  return inputs;
}

// `all_ranks`: of UCX; null: simulated ones.
void RunSeeds(uint64_t count, const std::function<Ranks*(int64_t num_ranks)>& ranks) {
  codegen::cpu::Compiler compiler({});
  const Seeds seeds = SeedsFromEnvironment({.first = 40000, .count = count});
  int64_t products = 0, parts = 0, shifts = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const Made made = Maker(seed).Make();
    SCOPED_TRACE(Cat("HOSTIR_SEED=", seed, "\n", made.text));
    auto graph = ir::Parse(made.text, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    const std::vector<HostTensor> inputs = InputsOf(made, seed);
    const auto expected = fusion::Interpret(**graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    auto plan =
        host::PlanProgram(*std::move(graph), {.num_devices = made.num_ranks, .overlap = host::OverlapChoice::kAlways});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    for (const host::LoweredSegment& segment : plan->segments) {
      if (segment.kind == host::SegmentKind::kLibrary) ++products;
      if (segment.kind == host::SegmentKind::kLibrary && segment.launches > 1) ++parts;
      if (segment.kind == host::SegmentKind::kCommunication && !segment.schedule.empty()) shifts += segment.launches;
    }
    const auto outputs =
        RunOnRanks(*plan, inputs,
                   {.num_ranks = made.num_ranks, .seed = seed, .ranks = ranks(made.num_ranks), .compiler = &compiler});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (size_t i = 0; i < expected->size(); ++i) ASSERT_EQ(Difference((*outputs)[i], (*expected)[i], 0), "") << i;
  }
  std::cout << seeds.count << " programs equal, seeds from " << seeds.first << ": " << parts << " of " << products
            << " products in parts, " << shifts << " shifts\n";
  EXPECT_GT(parts, products / 2);
}

TEST(OverlapProperty, EqualsTheWholeProgram) {
  RunSeeds(120, [](int64_t) { return nullptr; });
}

TEST(OverlapProperty, EqualsTheWholeProgramOverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  std::map<int64_t, std::unique_ptr<Ranks>> made;
  RunSeeds(40, [&](int64_t num_ranks) {
    std::unique_ptr<Ranks>& ranks = made[num_ranks];
    if (ranks == nullptr) ranks = *MakeUcxRanks(num_ranks);
    return ranks.get();
  });
}

}  // namespace
}  // namespace hir::testing
