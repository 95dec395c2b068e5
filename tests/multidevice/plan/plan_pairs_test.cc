// Every pair of ways to lie, by brute force: {replicated, split along axes, partial} before and after, on meshes of one
// to three dimensions and between meshes, of up to three axes, for sizes that divide, leave one over, are smaller than
// the mesh, or are zero. Each plan is followed element range by element range (CheckPlan). Prints how many pairs held.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "csrc/base/text.h"
#include "multidevice/plan/check_plan.h"
#include "multidevice/plan/resharding.h"
#include "tests/multidevice/plan/resharding_pairs.h"

namespace hir::plan {
namespace {

using base::Cat;
using mesh::DeviceMesh;
using mesh::ParallelType;
using mesh::Sharding;

// Every sharding of a tensor of `rank` axes over `mesh`; with `partial` also those that hold partial results.
std::vector<Sharding> AllShardings(const DeviceMesh& mesh, size_t rank, bool partial) {
  std::vector<Sharding> found;
  std::vector<ParallelType> order(std::begin(mesh::kMeshTypes), std::end(mesh::kMeshTypes));
  do {
    std::vector<Sharding> some = {Sharding::Replicated(mesh, rank)};
    for (const ParallelType type : order) {
      if (mesh.Size(type) == 1) continue;
      const size_t count = some.size();
      for (size_t i = 0; i < count; ++i) {
        for (size_t axis = 0; axis < rank; ++axis) {
          some.push_back(some[i]);
          some.back().axes[axis].push_back(type);
        }
        if (!partial) continue;
        some.push_back(some[i]);
        some.back().partial.push_back(type);
        std::ranges::sort(some.back().partial);
      }
    }
    for (Sharding& one : some) {
      if (std::ranges::find(found, one) == found.end()) found.push_back(std::move(one));
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return found;
}

// Those of `shardings` with elements dealt in turns along some of the axes that one dimension splits.
std::vector<Sharding> Dealt(const std::vector<Sharding>& shardings) {
  std::vector<Sharding> found;
  for (const Sharding& sharding : shardings) {
    std::vector<Sharding> some = {sharding};
    for (size_t axis = 0; axis < sharding.axes.size(); ++axis) {
      if (sharding.axes[axis].size() != 1) continue;
      const size_t count = some.size();
      for (size_t i = 0; i < count; ++i) {
        some.push_back(some[i]);
        some.back().axes[axis].dealt = sharding.Ways(axis);
      }
    }
    found.insert(found.end(), some.begin() + 1, some.end());
  }
  return found;
}

struct Tally {
  int pairs = 0;
  std::map<std::string, int, std::less<>> steps;

  std::string Describe() const {
    std::string text = Cat(pairs, " pairs;");
    for (const auto& [name, n] : steps) base::Append(text, " ", name, " ", n);
    return text;
  }
};

void Check(const Sharding& from, const Sharding& to, const std::vector<int64_t>& extents, Tally& tally) {
  const TensorSize size = TensorSize::Of(extents, 4);
  const Result<Plan> plan = PlanResharding(from, to, size);
  const std::string what = Cat(from.ToString(), " on ", from.mesh.ToString(), " to ", to.ToString(), " on ",
                               to.mesh.ToString(), ", extents [", base::JoinInts(extents, ", "), "]");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString() << "\n" << what;
  std::string steps;
  for (const Step& step : (*plan).steps)
    base::Append(steps, "\n  ", StepName(step.kind), " ", step.after.ToString(), " on ", step.after.mesh.ToString());
  const Status status = CheckPlan(from, to, extents, {}, *plan);
  ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << what << steps;
  ++tally.pairs;
  const Sharding* at = &from;
  for (const Step& step : (*plan).steps) {
    ++tally.steps[std::string(StepName(step.kind))];
    for (const auto& team : TeamsOf(step, *at)) ASSERT_GE(team.size(), 2u) << what << steps;
    at = &step.after;
  }
}

void CheckAll(const DeviceMesh& from, const DeviceMesh& to, size_t rank, Tally& tally) {
  const std::vector<Sharding> before = AllShardings(from, rank, true);
  const std::vector<Sharding> after = AllShardings(to, rank, false);
  for (const auto& extents : SizesAround(rank, std::max(from.num_devices(), to.num_devices()))) {
    for (const Sharding& a : before) {
      for (const Sharding& b : after) {
        Check(a, b, extents, tally);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

DeviceMesh Make(std::vector<int64_t> shape, std::vector<int64_t> devices) {
  return *DeviceMesh::Make(std::move(shape), std::move(devices));
}

TEST(PlanPairs, OneMesh) {
  const DeviceMesh meshes[] = {Make({2}, {0, 1}), Make({3}, {2, 0, 1}), Make({4}, {3, 1, 0, 2}),
                               Make({2, 2}, {2, 0, 3, 1}), Make({2, 3}, {0, 1, 2, 3, 4, 5})};
  for (const DeviceMesh& mesh : meshes) {
    Tally tally;
    for (const size_t rank : {1, 2, 3}) CheckAll(mesh, mesh, rank, tally);
    std::cout << mesh.ToString() << ": " << tally.Describe() << "\n";
    if (HasFatalFailure()) return;
  }
}

TEST(PlanPairs, ThreeDimensions) {
  const DeviceMesh mesh = Make({2, 2, 2}, {7, 1, 2, 3, 4, 5, 6, 0});
  Tally tally;
  for (const size_t rank : {1, 2}) {
    for (const Sharding& a : AllShardings(mesh, rank, true)) {
      for (const Sharding& b : AllShardings(mesh, rank, false)) {
        Check(a, b, std::vector<int64_t>(rank, 17), tally);
        if (HasFatalFailure()) return;
      }
    }
  }
  std::cout << mesh.ToString() << ": " << tally.Describe() << "\n";
}

TEST(PlanPairs, AcrossMeshes) {
  const DeviceMesh meshes[] = {Make({1}, {3}),
                               Make({2}, {0, 1}),
                               Make({2}, {1, 0}),
                               Make({2}, {2, 3}),
                               Make({3}, {4, 0, 2}),
                               Make({4}, {3, 1, 0, 2}),
                               Make({4}, {4, 5, 6, 7}),
                               Make({2, 2}, {0, 1, 2, 3}),
                               Make({2, 2}, {2, 5, 0, 6}),
                               Make({2, 3}, {0, 1, 2, 3, 4, 5})};
  Tally tally;
  for (const DeviceMesh& from : meshes) {
    for (const DeviceMesh& to : meshes) {
      if (from == to) continue;
      CheckAll(from, to, 1, tally);
      // Of two axes one size: both uneven.
      for (const Sharding& a : AllShardings(from, 2, true)) {
        for (const Sharding& b : AllShardings(to, 2, false)) Check(a, b, {9, 7}, tally);
      }
      if (HasFatalFailure()) return;
    }
  }
  std::cout << "between meshes: " << tally.Describe() << "\n";
  for (const char* type : {"Gather", "Allgather", "Scatter", "Reduce", "Allreduce", "ReduceScatter", "Broadcast",
                           "SendRecv", "AllToAll", "CollectivePermute"}) {
    EXPECT_GT(tally.steps[type], 0) << "no pair needs a " << type;
  }
}

std::vector<std::string> StepsOf(const Sharding& from, const Sharding& to, const std::vector<int64_t>& extents,
                                 const CostModel& cost = {}) {
  std::vector<std::string> names;
  const Result<Plan> plan = PlanResharding(from, to, TensorSize::Of(extents, 4), cost);
  EXPECT_TRUE(plan.ok());
  for (const Step& step : (*plan).steps) names.emplace_back(StepName(step.kind));
  return names;
}

Sharding Split(DeviceMesh mesh, std::vector<mesh::AxisSplit> axes, std::vector<ParallelType> partial = {}) {
  return {std::move(mesh), std::move(axes), std::move(partial)};
}

// One row of the table each: how the tensor lies before and after, and the one communication between.
TEST(PlanPairs, EachKindOfCommunication) {
  using Names = std::vector<std::string>;
  const ParallelType x = ParallelType::kMeshX, y = ParallelType::kMeshY;
  const DeviceMesh a = Make({2}, {0, 1}), b = Make({2}, {2, 3}), swapped = Make({2}, {1, 0});
  const DeviceMesh first = Make({1}, {0}), other = Make({1}, {2});
  const std::vector<int64_t> rows = {1 << 20};
  EXPECT_EQ(StepsOf(Split(a, {{}}), Split(b, {{}}), {1024}), Names{"Broadcast"});
  EXPECT_EQ(StepsOf(Split(a, {{x}}), Split(a, {{}}), rows), Names{"Allgather"});
  EXPECT_EQ(StepsOf(Split(a, {{x}}), Split(first, {{}}), rows), Names{"Gather"});
  EXPECT_EQ(StepsOf(Split(a, {{x}}), Split(other, {{}}), rows), Names{"Gather"});
  EXPECT_EQ(StepsOf(Split(first, {{}}), Split(a, {{x}}), rows), Names{"Scatter"});
  EXPECT_EQ(StepsOf(Split(other, {{}}), Split(a, {{x}}), rows), Names{"Scatter"});
  EXPECT_EQ(StepsOf(Split(a, {{x}}), Split(b, {{x}}), rows), Names{"SendRecv"});
  EXPECT_EQ(StepsOf(Split(a, {{x}}), Split(swapped, {{x}}), rows), Names{"CollectivePermute"});
  EXPECT_EQ(StepsOf(Split(a, {{x}, {}}), Split(a, {{}, {x}}), {1024, 1024}), Names{"AllToAll"});
  EXPECT_EQ(StepsOf(Split(a, {{}}, {x}), Split(a, {{}}), rows), Names{"Allreduce"});
  EXPECT_EQ(StepsOf(Split(a, {{}}, {x}), Split(first, {{}}), rows), Names{"Reduce"});
  EXPECT_EQ(StepsOf(Split(a, {{}}, {x}), Split(a, {{x}}), rows), Names{"ReduceScatter"});
  // Two dimensions: a Gather of all four blocks at once; blocks that change devices go straight there.
  const DeviceMesh square = Make({2, 2}, {0, 1, 2, 3});
  EXPECT_EQ(StepsOf(Split(square, {{y}, {x}}), Split(Make({1}, {5}), {{}, {}}), {512, 512}), Names{"Gather"});
  EXPECT_EQ(StepsOf(Split(square, {{x}, {y}}), Split(square, {{y}, {x}}), {512, 512}), Names{"CollectivePermute"});
  EXPECT_EQ(StepsOf(Split(square, {{y, x}}), Split(square, {{x, y}}), rows), Names{"CollectivePermute"});
}

// Elements dealt in turns: among themselves, and with everything else.
TEST(PlanPairs, DealtInTurns) {
  const DeviceMesh meshes[] = {Make({2}, {0, 1}),
                               Make({3}, {2, 0, 1}),
                               Make({4}, {3, 1, 0, 2}),
                               Make({2, 2}, {2, 0, 3, 1}),
                               Make({2, 3}, {0, 1, 2, 3, 4, 5}),
                               Make({2}, {3, 6})};
  Tally tally;
  for (const DeviceMesh& from : meshes) {
    for (const DeviceMesh& to : meshes) {
      for (const size_t rank : {1, 2}) {
        if (rank == 2 && !(from == to)) continue;
        const std::vector<Sharding> a = AllShardings(from, rank, true);
        const std::vector<Sharding> b = AllShardings(to, rank, false);
        for (const int64_t extent : {12, 36, 48, 0}) {
          std::vector<int64_t> extents(rank, 12);
          extents[0] = extent;
          for (const Sharding& one : Dealt(a)) {
            for (const Sharding& other : b) Check(one, other, extents, tally);
            for (const Sharding& other : Dealt(b)) Check(one, other, extents, tally);
          }
          for (const Sharding& one : a) {
            for (const Sharding& other : Dealt(b)) Check(one, other, extents, tally);
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  std::cout << "dealt in turns: " << tally.Describe() << "\n";
}

TEST(PlanPairs, StepsOfDealtAxes) {
  using Names = std::vector<std::string>;
  const ParallelType x = ParallelType::kMeshX;
  const DeviceMesh a = Make({4}, {0, 1, 2, 3}), b = Make({4}, {4, 5, 6, 7});
  const Sharding whole = Split(a, {{}, {}}), rows = Split(a, {{x}, {}});
  const Sharding columns = Split(a, {{}, {x}});
  Sharding dealt = rows, far = Split(b, {{x}, {}});
  dealt.axes[0].dealt = far.axes[0].dealt = 4;
  const std::vector<int64_t> size = {1024, 1024};
  EXPECT_EQ(StepsOf(whole, dealt, size), (Names{"reorder", "slice"}));
  EXPECT_EQ(StepsOf(dealt, whole, size), (Names{"Allgather", "reorder"}));
  EXPECT_EQ(StepsOf(dealt, rows, size), Names{"AllToAll"});
  EXPECT_EQ(StepsOf(rows, dealt, size), Names{"AllToAll"});
  EXPECT_EQ(StepsOf(dealt, columns, size), (Names{"AllToAll", "reorder"}));
  EXPECT_EQ(StepsOf(columns, dealt, size), (Names{"reorder", "AllToAll"}));
  EXPECT_EQ(StepsOf(dealt, dealt, size), Names{});
  EXPECT_EQ(StepsOf(dealt, far, size), Names{"SendRecv"});
  // A block of 5 rows holds no whole turns of 4.
  EXPECT_EQ(StepsOf(dealt, rows, {20, 1024}), (Names{"Allgather", "reorder", "slice"}));
  // No rank holds the whole tensor: three parts, while one is unpacked.
  const Result<Plan> plan = PlanResharding(dealt, rows, TensorSize::Of(size, 4), {}, 2 << 20);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_LE((*plan).peak_bytes, 2 << 20);
  EXPECT_EQ((*plan).bytes, 1024 * 256 * 3);
}

TEST(PlanPairs, WrongPlansOfDealtAxesAreRefused) {
  const ParallelType x = ParallelType::kMeshX;
  const DeviceMesh a = Make({2}, {0, 1});
  const Sharding rows = Split(a, {{x}}), whole = Split(a, {{}});
  Sharding dealt = rows, ordered = whole;
  dealt.axes[0].dealt = ordered.axes[0].dealt = 2;
  const auto check = [&](const Sharding& from, const Sharding& to, Step step, int64_t extent) {
    return CheckPlan(from, to, std::vector<int64_t>{extent}, {}, {.steps = {std::move(step)}}).ToString();
  };
  const auto exchange = [&](const Sharding& after) {
    return Step{.kind = StepKind::kAllToAll, .type = x, .axis = 0, .to_axis = 0, .after = after};
  };
  EXPECT_EQ(check(dealt, rows, exchange(rows), 8), "OK");
  EXPECT_EQ(check(rows, dealt, exchange(dealt), 8), "OK");
  EXPECT_EQ(check(dealt, ordered, {.kind = StepKind::kAllgather, .type = x, .after = ordered}, 8), "OK");
  EXPECT_NE(check(dealt, rows, exchange(rows), 6), "OK");
  EXPECT_NE(check(rows, rows, exchange(rows), 8), "OK");
  EXPECT_NE(check(dealt, rows, {.kind = StepKind::kRelabel, .after = rows}, 8), "OK");
  EXPECT_NE(check(dealt, rows, {.kind = StepKind::kReorder, .after = rows}, 8), "OK");
  EXPECT_NE(check(dealt, whole, {.kind = StepKind::kAllgather, .type = x, .after = whole}, 8), "OK");
  EXPECT_NE(check(whole, dealt, {.kind = StepKind::kSlice, .type = x, .after = dealt}, 8), "OK");
}

TEST(PlanPairs, SizesDecide) {
  const ParallelType x = ParallelType::kMeshX;
  const DeviceMesh a = Make({4}, {0, 1, 2, 3}), b = Make({4}, {4, 5, 6, 7});
  const Sharding from = Split(a, {{x}}), to = Split(b, {{}});
  // Few bytes: fewest steps. Many: each block crosses once, and is spread where it arrives.
  EXPECT_LE(StepsOf(from, to, {64}).size(), 2u);
  EXPECT_EQ(StepsOf(from, to, {1 << 24}), (std::vector<std::string>{"SendRecv", "Allgather"}));
}

// Which dimensions are added up, in order.
std::vector<ParallelType> SumsOf(const Sharding& from, const Plan& plan) {
  std::vector<ParallelType> sums;
  const Sharding* at = &from;
  for (const Step& step : plan.steps) {
    for (const ParallelType type : at->partial) {
      if (std::ranges::count(step.after.partial, type) == 0) sums.push_back(type);
    }
    at = &step.after;
  }
  return sums;
}

double SecondsOf(const Sharding& from, const Plan& plan, const TensorSize& size, const CostModel& cost) {
  double seconds = 0;
  const Sharding* at = &from;
  for (const Step& step : plan.steps) {
    seconds += CostOf(step, *at, size, cost).seconds;
    at = &step.after;
  }
  return seconds;
}

// A link of 1 Gbit/s and 100 us for each node.
CostModel OnNodes(std::vector<int64_t> node_of) {
  const auto nodes = static_cast<size_t>(std::ranges::max(node_of)) + 1;
  return {.links = {.node_of = std::move(node_of), .of_node = std::vector<Links::Node>(nodes, {1e-4, 1.25e8})}};
}

TEST(PlanPairs, OnSeveralNodes) {
  const DeviceMesh a = Make({2, 2}, {0, 1, 2, 3}), b = Make({2, 2}, {4, 5, 6, 7}),
                   c = Make({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}), d = Make({4}, {3, 1, 0, 2}),
                   e = Make({2, 3}, {0, 1, 2, 3, 4, 5});
  const std::pair<DeviceMesh, DeviceMesh> pairs[] = {{a, a}, {a, b}, {b, a}, {c, c}, {d, d}, {d, b}, {e, e}};
  const std::vector<int64_t> nodes[] = {
      {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 0, 1, 1, 1, 2, 2}};
  int plans = 0, others = 0;
  double bytes = 0, without = 0;
  for (const auto& [from, to] : pairs) {
    const size_t rank = from.shape().size() == 3 ? 1 : 2;
    for (const std::vector<int64_t>& node_of : nodes) {
      const CostModel cost = OnNodes(node_of);
      for (const Sharding& before : AllShardings(from, rank, true)) {
        for (const Sharding& after : AllShardings(to, rank, false)) {
          const std::vector<int64_t> extents(rank, 1200);
          const TensorSize size = TensorSize::Of(extents, 4);
          const Result<Plan> plan = PlanResharding(before, after, size, cost);
          const Result<Plan> reference = PlanResharding(before, after, size);
          ASSERT_TRUE(plan.ok() && reference.ok());
          const std::string text = Cat(before.ToString(), " on ", from.ToString(), " to ", after.ToString(), " on ",
                                       to.ToString(), ", nodes ", base::JoinInts(node_of, ", "));
          const Status status = CheckPlan(before, after, extents, {}, *plan);
          ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << text;
          ASSERT_EQ(SumsOf(before, *plan), SumsOf(before, *reference)) << text;
          ASSERT_LE((*plan).seconds, SecondsOf(before, *reference, size, cost) * (1 + 1e-9)) << text;
          ++plans;
          const Sharding* at = &before;
          for (const Step& step : (*reference).steps) {
            without += CostOf(step, *at, size, cost).node_bytes;
            at = &step.after;
          }
          bytes += (*plan).node_bytes;
          others += StepsOf(before, after, extents) != StepsOf(before, after, extents, cost) ? 1 : 0;
        }
      }
    }
  }
  std::cout << "on several nodes: " << plans << " plans, " << others << " of other steps than on one; of the bytes "
            << "between nodes " << bytes / without << " is left\n";
  EXPECT_GT(others, 0);
  EXPECT_LT(bytes, without);
}

TEST(PlanPairs, RanksOfANodeSendEachAShare) {
  using Names = std::vector<std::string>;
  const ParallelType x = ParallelType::kMeshX, y = ParallelType::kMeshY;
  const DeviceMesh mesh = Make({2, 2}, {0, 1, 2, 3});
  const CostModel cost = OnNodes({0, 0, 1, 1});  // y goes between nodes.
  const Sharding whole = Split(mesh, {{}, {}});
  const std::vector<int64_t> extents = {1024, 1024};
  EXPECT_EQ(StepsOf(Split(mesh, {{}, {}}, {x, y}), whole, extents), (Names{"Allreduce", "Allreduce"}));
  EXPECT_EQ(StepsOf(Split(mesh, {{}, {}}, {x, y}), whole, extents, cost),
            (Names{"ReduceScatter", "Allreduce", "Allgather"}));
  EXPECT_EQ(StepsOf(Split(mesh, {{}, {}}, {y}), whole, extents, cost), (Names{"slice", "Allreduce", "Allgather"}));
  EXPECT_EQ(StepsOf(Split(mesh, {{y}, {}}), whole, extents, cost), (Names{"slice", "Allgather", "Allgather"}));
  // Sums along the inner dimension are first, also where that has more ranks.
  const DeviceMesh wide = Make({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(StepsOf(Split(wide, {{}, {}}, {x, y}), Split(wide, {{}, {}}), extents, OnNodes({0, 0, 0, 0, 1, 1, 1, 1})),
            (Names{"ReduceScatter", "Allreduce", "Allgather"}));
  // A message between nodes takes as long as some KiB: of few bytes one is best. So is a mesh of one node.
  EXPECT_EQ(StepsOf(Split(mesh, {{y}, {}}), whole, {8, 8}, cost), (Names{"Allgather"}));
  EXPECT_EQ(StepsOf(Split(mesh, {{y}, {}}), whole, extents, OnNodes({0, 0, 0, 0})), (Names{"Allgather"}));
  // Bytes of a link: of an allgather of 4 MiB, two ranks of a node send a quarter each.
  const Result<Plan> plan = PlanResharding(Split(mesh, {{y}, {}}), whole, TensorSize::Of(extents, 4), cost);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan).node_bytes, 2 << 20);
}

TEST(PlanPairs, PeakBytesAreBounded) {
  const ParallelType x = ParallelType::kMeshX, y = ParallelType::kMeshY;
  const DeviceMesh mesh = Make({2, 2}, {0, 1, 2, 3});
  const Sharding from = Split(mesh, {{}, {}}, {x, y}), to = Split(mesh, {{y}, {x}});
  const TensorSize size = TensorSize::Of({64, 64}, 4);
  const Result<Plan> free = PlanResharding(from, to, size);
  ASSERT_TRUE(free.ok());
  const Result<Plan> bounded = PlanResharding(from, to, size, {}, (*free).peak_bytes);
  ASSERT_TRUE(bounded.ok());
  EXPECT_LE((*bounded).peak_bytes, (*free).peak_bytes);
  const Status refused = PlanResharding(from, to, size, {}, 1000).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.message().find("resharding_bytes_max = 1000 bytes"), std::string::npos) << refused.ToString();
  // Where a bound leaves another way, it is taken.
  int tighter = 0;
  for (const Sharding& a : AllShardings(mesh, 2, true)) {
    for (const Sharding& b : AllShardings(mesh, 2, false)) {
      const Result<Plan> any = PlanResharding(a, b, size);
      ASSERT_TRUE(any.ok());
      if ((*any).steps.empty()) continue;
      const Result<Plan> less = PlanResharding(a, b, size, {}, (*any).peak_bytes - 1);
      if (!less.ok()) continue;
      ++tighter;
      EXPECT_LT((*less).peak_bytes, (*any).peak_bytes);
      EXPECT_TRUE(CheckPlan(a, b, std::vector<int64_t>{64, 64}, {}, *less).ok());
    }
  }
  EXPECT_GT(tighter, 0);
}

// A plan that is wrong is found out.
TEST(PlanPairs, WrongPlansAreRefused) {
  const ParallelType x = ParallelType::kMeshX;
  const DeviceMesh a = Make({2}, {0, 1}), b = Make({2}, {2, 3});
  const Sharding split = Split(a, {{x}}), whole = Split(a, {{}}), partial = Split(a, {{}}, {x});
  const std::vector<int64_t> extents = {5};
  const auto check = [&](const Sharding& from, const Sharding& to, Step step) {
    return CheckPlan(from, to, extents, {}, {.steps = {std::move(step)}}).ToString();
  };
  EXPECT_NE(check(split, whole, {.kind = StepKind::kRelabel, .after = whole}), "OK");
  EXPECT_NE(check(partial, whole, {.kind = StepKind::kRelabel, .after = whole}), "OK");
  EXPECT_NE(check(whole, whole, {.kind = StepKind::kAllreduce, .type = x, .after = whole}), "OK");
  EXPECT_NE(check(split, Split(b, {{x}}),
                  {.kind = StepKind::kSendRecv, .after = Split(b, {{x}}), .from = Make({2}, {1, 0}), .to = b}),
            "OK");
  EXPECT_NE(check(split, Split(Make({1}, {0}), {{}}),
                  {.kind = StepKind::kGather,
                   .after = Split(Make({1}, {0}), {{}}),
                   .from = Make({2}, {1, 0}),
                   .to = Make({1}, {0}),
                   .chunks = {2}}),
            "OK");
}

}  // namespace
}  // namespace hir::plan
