// Elections on a virtual clock: nodes that stop, die, are cut off from etcd or from each other, and an etcd that goes
// and comes back. No two heads act, and no order is carried out twice.
#include "service/member/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "service/cluster/term_fence.h"
#include "tests/from_environment.h"
#include "tests/service/member/simulated_etcd.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::SimulatedEtcd;
using testing::SimulatedKv;

constexpr base::Nanos kTick = milliseconds(50);

ElectionOptions OptionsOf(int64_t node, int64_t size) {
  ElectionOptions options = {.cluster = "test", .size = size, .listen = base::Cat("unix:/client", node)};
  options.self.set_address(base::Cat("unix:/node", node));
  return options;
}

struct ElectionTest : ::testing::Test {
  base::Prng prng{1};
  SimulatedEtcd etcd;
  SimulatedKv kv{etcd, prng, [] {}};
  std::vector<std::unique_ptr<Election>> nodes;
  Election& Add(int64_t size) {
    nodes.push_back(std::make_unique<Election>(OptionsOf(std::ssize(nodes), size), kv, etcd));
    return *nodes.back();
  }
};

TEST_F(ElectionTest, TheFirstWhoStandsHeads) {
  Election& a = Add(2);
  Election& b = Add(2);
  ASSERT_TRUE(a.Look(false).ok());
  EXPECT_FALSE(a.view().heads);
  ASSERT_TRUE(b.Look(true).ok());
  EXPECT_EQ(a.view().own, 0);
  EXPECT_EQ(b.view().own, 1);
  EXPECT_TRUE(b.view().heads);
  EXPECT_EQ(b.view().term, 1);
  ASSERT_EQ(b.view().nodes.size(), 2U);
  EXPECT_EQ(b.view().nodes[0].address(), "unix:/node0");
  ASSERT_TRUE(a.Look(true).ok());
  EXPECT_FALSE(a.view().heads);
  EXPECT_EQ(a.view().head->listen(), "unix:/client1");
}

TEST_F(ElectionTest, ANumberIsForGood) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add(3).Look(false).ok());
  etcd.Pass(seconds(60));
  Election again(OptionsOf(1, 3), kv, etcd);
  ASSERT_TRUE(again.Look(false).ok());
  EXPECT_EQ(again.view().own, 1);
}

TEST_F(ElectionTest, ItIsAwayForLongerThanItsLeaseAndAnotherIsElected) {
  Election& a = Add(2);
  Election& b = Add(2);
  ASSERT_TRUE(a.Look(true).ok() && b.Look(true).ok());
  a.Keep("names/x", "1");
  ASSERT_TRUE(a.Look(true).ok());
  etcd.Pass(milliseconds(5001));
  ASSERT_TRUE(b.Look(true).ok());
  EXPECT_TRUE(b.view().heads);
  EXPECT_EQ(b.view().term, 2);
  ASSERT_EQ(b.view().kept.size(), 1U);
  EXPECT_EQ(b.view().kept[0].key, "/hostir/test/state/names/x");
  EXPECT_TRUE(a.view().heads);  // It has not looked.
  a.Keep("names/x", "2");
  ASSERT_TRUE(a.Look(true).ok());
  EXPECT_FALSE(a.view().heads);
  EXPECT_TRUE(a.was_deposed());
  EXPECT_EQ(etcd.List("/hostir/test/state/")[0].value, "1");
  etcd.Pass(milliseconds(5001));
  ASSERT_TRUE(a.Look(true).ok());
  EXPECT_FALSE(a.view().heads);  // Whoever served clients has not ended that.
  a.Yielded();
  ASSERT_TRUE(a.Look(true).ok());
  EXPECT_TRUE(a.view().heads);
  EXPECT_EQ(a.view().term, 3);
}

TEST_F(ElectionTest, WhileNobodyElseIsElectedItStaysTheHead) {
  Election& a = Add(2);
  Election& b = Add(2);
  ASSERT_TRUE(a.Look(true).ok() && b.Look(false).ok());
  etcd.SetUp(false);
  for (int i = 0; i < 100; ++i) {
    etcd.Pass(seconds(1));
    EXPECT_EQ(a.Look(true).code(), Code::kUnavailable);
    EXPECT_TRUE(a.view().heads);
  }
  etcd.SetUp(true);
  etcd.Pass(seconds(10));           // All leases end before anybody looks.
  ASSERT_TRUE(b.Look(false).ok());  // It hears the head.
  ASSERT_TRUE(a.Look(true).ok());
  EXPECT_TRUE(a.view().heads);
  EXPECT_EQ(a.view().term, 1);
  EXPECT_EQ(etcd.List("/hostir/test/lead/head").size(), 1U);
}

// One is elected, and asked to end, between what another sees and what it then does.
TEST_F(ElectionTest, NoTermIsAnothersToo) {
  Election& first = Add(2);
  std::function<void()> meanwhile = [] {};
  int requests = 0;
  SimulatedKv slow(etcd, prng, [&] { requests > 0 && --requests == 0 ? meanwhile() : void(); });
  Election second(OptionsOf(1, 2), slow, etcd);
  ASSERT_TRUE(first.Look(true).ok() && second.Look(false).ok());
  first.Leave();
  meanwhile = [&] {
    ASSERT_TRUE(first.Look(true).ok());
    ASSERT_EQ(first.view().term, 2);
    first.Leave();
  };
  requests = 2;  // It has looked who heads, and is about to.
  ASSERT_TRUE(second.Look(true).ok());
  EXPECT_TRUE(second.view().heads);
  EXPECT_EQ(second.view().term, 3);
}

TEST_F(ElectionTest, WhoDoesNotBelongIsTold) {
  ASSERT_TRUE(Add(2).Look(false).ok());
  Election other(OptionsOf(7, 3), kv, etcd);
  EXPECT_THAT(other.Look(false).ToString(), HasSubstr("the cluster test has 2 nodes, and --cluster-size is 3"));
  ASSERT_TRUE(Add(2).Look(false).ok());
  const Status third = Add(2).Look(false);
  EXPECT_EQ(third.code(), Code::kFailedPrecondition);
  EXPECT_THAT(third.ToString(), HasSubstr("has its 2 nodes: unix:/node0, unix:/node1"));
  ASSERT_TRUE(*etcd.Commit({.when = {}, .puts = {{"/hostir/test/lead/head", "no JSON"}}}));
  EXPECT_THAT(nodes[0]->Look(false).ToString(), HasSubstr("which no node of hostir wrote"));
}

// --- a cluster, and what may go wrong -----------------------------------------------------------------------------

// A node: its part in the election, the heads that it hears, and, while it heads, the orders that it gives.
class Cluster {
 public:
  Cluster(int64_t size, uint64_t seed) : prng_(seed) {
    for (int64_t i = 0; i < size; ++i) {
      Node& node = *nodes_.emplace_back(std::make_unique<Node>());
      node.kv = std::make_unique<SimulatedKv>(etcd_, prng_, [this, i] { Between(i); });
      node.reaches.assign(static_cast<size_t>(size), true);
      node.election = std::make_unique<Election>(OptionsOf(i, size), *node.kv, etcd_);
    }
  }

  void Trouble(base::Nanos time) { Pass(time, true); }
  // Everything works again.
  void Rest(base::Nanos time) {
    etcd_.SetUp(true);
    for (auto& node : nodes_) {
      node->is_stopped = false;
      node->kv->Cut(false);
      node->kv->Lose(0);
      node->reaches.assign(nodes_.size(), true);
    }
    Pass(time, false);
  }
  std::string wrong() const { return wrong_; }
  int64_t num_completed() const { return num_completed_; }
  int64_t num_heads() const {
    return std::ranges::count_if(nodes_, [](const auto& node) { return node->election->view().heads; });
  }
  int64_t term() const { return newest_; }

 private:
  struct Node {
    std::unique_ptr<SimulatedKv> kv;
    std::unique_ptr<Election> election;
    TermFence fence;
    std::vector<bool> reaches;  // By node: whether what it says arrives.
    bool is_stopped = false;
    bool is_looking = false;
    bool is_registered = false;  // Else it hears nobody: it does not know which terms are over.
    // While it heads: its term, and its numbers with the nodes that it has joined.
    int64_t serves = 0;
    std::map<size_t, int64_t> links;
    int64_t heard_from = -1;  // Who heads it.
    int64_t last_term = 0;    // Of orders that it has carried out, as the next.
    std::set<std::pair<int64_t, int64_t>> done;
  };

  void Fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = base::Cat(what, " at ", etcd_.Now().count() / 1000000, " ms");
  }
  // Others are faster than a request.
  void Between(int64_t node) {
    if (depth_ > 1 || !prng_.OneIn(4)) return;
    const int64_t other = prng_.Below(std::ssize(nodes_));
    if (other != node) Act(static_cast<size_t>(other));
    if (!troubled_ || !prng_.OneIn(400)) return;
    // It stops here, for longer than its lease.
    for (const base::Nanos end = etcd_.Now() + seconds(prng_.Between(3, 16)); etcd_.Now() < end;) {
      etcd_.Pass(kTick);
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (prng_.OneIn(3)) Act(i);
      }
    }
  }

  void Pass(base::Nanos time, bool faults) {
    troubled_ = faults;
    for (const base::Nanos end = etcd_.Now() + time; etcd_.Now() < end;) {
      etcd_.Pass(kTick);
      if (faults) Fault();
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (prng_.OneIn(3)) Act(i);
      }
    }
  }

  void Fault() {
    if (!prng_.OneIn(12)) return;
    const auto any = static_cast<size_t>(prng_.Below(std::ssize(nodes_)));
    Node& node = *nodes_[any];
    switch (prng_.Below(8)) {
      case 0: etcd_.SetUp(!etcd_.is_up()); break;
      case 1: node.kv->Cut(!node.kv->is_cut()); break;
      case 2: node.kv->Lose(prng_.OneIn(2) ? 0 : 200); break;
      case 3: node.is_stopped = !node.is_stopped; break;
      case 4: node.reaches[static_cast<size_t>(prng_.Below(std::ssize(nodes_)))].flip(); break;
      case 5:  // Cut off from all.
        for (size_t i = 0; i < nodes_.size(); ++i) {
          if (i != any) node.reaches[i] = nodes_[i]->reaches[any] = false;
        }
        break;
      case 6:
        for (size_t i = 0; i < nodes_.size(); ++i) node.reaches[i] = nodes_[i]->reaches[any] = true;
        break;
      default:  // It dies, or is asked to end, and starts again with nothing.
        if (prng_.OneIn(2)) node.election->Leave();
        node.election =
            std::make_unique<Election>(OptionsOf(static_cast<int64_t>(any), std::ssize(nodes_)), *node.kv, etcd_);
        node.fence = {};
        for (auto& other : nodes_) other->links.erase(any);
        node.links.clear();
        node.serves = 0;
        node.is_registered = false;
    }
  }

  // In whatever order: what it does and what it knows are other threads.
  void Act(size_t i) {
    Node& node = *nodes_[i];
    if (node.is_stopped || node.is_looking) return;
    ++depth_;
    if (prng_.OneIn(2)) Head(i);
    node.is_looking = true;
    const bool stands = node.serves == 0 && !node.fence.hears_any();
    const Status looked = node.election->Look(stands);
    node.is_looking = false;
    if (looked.ok()) node.is_registered = true;
    if (node.fence.Raise(node.election->view().term)) node.fence.End();
    if (node.election->was_deposed()) node.election->Yielded();
    Head(i);
    --depth_;
  }

  void Head(size_t i) {
    Node& node = *nodes_[i];
    const Election::View& view = node.election->view();
    const int64_t term = view.heads ? view.term : 0;
    if (node.serves != 0 && node.serves != term) {  // It ends; its links do, where that is heard.
      for (const auto& [other, number] : node.links) {
        if (node.reaches[other] && nodes_[other]->fence.Hears(number)) nodes_[other]->fence.End();
      }
      node.links.clear();
      node.serves = 0;
      return;
    }
    if (term == 0) return;
    if (node.serves == 0) {
      const auto [holder, is_new] = heads_.emplace(term, i);
      if (!is_new && (holder->second != i)) Fail(base::Cat("term ", term, " has two heads"));
      newest_ = std::max(newest_, term);
      node.serves = term;
    }
    // A link that nothing passes is lost on the other side.
    for (size_t other = 0; other < nodes_.size(); ++other) {
      Node& its = *nodes_[other];
      const auto link = node.links.find(other);
      const bool passes = (other == i || node.reaches[other]) && !its.is_stopped && its.is_registered;
      if (link != node.links.end() && !passes && prng_.OneIn(4)) {
        if (its.fence.Hears(link->second)) its.fence.End();
        node.links.erase(link);
      } else if (passes && (link == node.links.end() || !its.fence.Hears(link->second))) {
        const Result<int64_t> joined = its.fence.Join(term, base::Cat("node ", i));
        if (joined.ok()) {
          node.links[other] = *joined;
        } else {
          node.links.erase(other);
          if (prng_.OneIn(2)) node.election->Depose();
        }
      }
    }
    Order(node, term);
  }

  // One for all nodes, each of which carries it out if it hears this head.
  void Order(Node& node, int64_t term) {
    const std::pair<int64_t, int64_t> order(term, ++last_order_);
    size_t done = 0;
    for (const auto& [other, number] : node.links) {
      Node& its = *nodes_[other];
      const bool arrives = &its == &node || node.reaches[other];
      if (!arrives || its.is_stopped || !its.fence.Hears(number)) continue;
      if (term < its.last_term) Fail(base::Cat("an order of term ", term, " after one of term ", its.last_term));
      its.last_term = term;
      if (!its.done.insert(order).second) Fail("an order was carried out twice");
      ++done;
    }
    if (done < nodes_.size()) return;
    if (term < last_completed_) Fail(base::Cat("term ", term, " acts after term ", last_completed_));
    last_completed_ = term;
    ++num_completed_;
  }

  base::Prng prng_;
  SimulatedEtcd etcd_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<int64_t, size_t> heads_;  // By term.
  int64_t newest_ = 0;
  int64_t last_order_ = 0;
  int64_t last_completed_ = 0;
  int64_t num_completed_ = 0;
  int depth_ = 0;
  bool troubled_ = false;
  std::string wrong_;
};

// HOSTIR_SEEDS clusters, from HOSTIR_SEED on.
TEST(ElectionPropertyTest, NoTwoHeadsActWhateverGoesWrong) {
  const auto first = static_cast<uint64_t>(testing::FromEnvironment("HOSTIR_SEED", 1));
  const auto count = static_cast<uint64_t>(testing::FromEnvironment("HOSTIR_SEEDS", 300));
  int64_t terms = 0, completed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    base::Prng prng(seed);
    Cluster cluster(prng.Between(2, 5), seed);
    cluster.Rest(seconds(5));
    ASSERT_EQ(cluster.num_heads(), 1) << "seed " << seed;
    for (int times = 0; times < 4; ++times) {
      cluster.Trouble(seconds(prng.Between(5, 40)));
      ASSERT_EQ(cluster.wrong(), "") << "seed " << seed;
      const int64_t before = cluster.num_completed();
      cluster.Rest(seconds(10));  // A head is replaced within that.
      ASSERT_EQ(cluster.wrong(), "") << "seed " << seed;
      ASSERT_EQ(cluster.num_heads(), 1) << "seed " << seed;
      ASSERT_GT(cluster.num_completed(), before) << "seed " << seed;
    }
    terms += cluster.term();
    completed += cluster.num_completed();
  }
  std::printf("%llu clusters, %lld terms, %lld orders of all nodes\n", static_cast<unsigned long long>(count),
              static_cast<long long>(terms), static_cast<long long>(completed));
  EXPECT_GT(terms, static_cast<int64_t>(count));  // Heads did change.
}

}  // namespace
}  // namespace hir::service
