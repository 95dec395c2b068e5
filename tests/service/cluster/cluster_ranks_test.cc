// Goal: the ranks of several nodes are one mesh: every call ends in time, with the first cause of what went wrong; no
// order is carried out twice, or of a generation that has ended; and the cost of a run grows with the nodes alone.
// Method: nodes simulated on a virtual clock, with faults by seed.
#include "service/cluster/cluster_ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "service/os/shared_memory.h"
#include "tests/from_environment.h"
#include "tests/service/cluster/simulated_nodes.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::NetworkModel;
using testing::SimulatedNodes;

struct Mesh {
  Mesh(int64_t nodes, int64_t ranks_of_each, NetworkModel model, uint64_t seed, bool on_devices = false) {
    auto made = std::make_unique<SimulatedNodes>(nodes, ranks_of_each, model, seed);
    network = made.get();
    ClusterOptions options = {.nodes = {}, .on_devices = on_devices};
    for (int64_t node = 0; node < nodes; ++node) options.nodes.push_back({ranks_of_each, network->IncarnationOf(node)});
    ranks = std::make_unique<ClusterRanks>(std::move(options), std::move(made));
  }
  // One run on all ranks.
  Status Run(base::Nanos timeout = seconds(5)) {
    std::vector<std::vector<RankMessage>> messages(static_cast<size_t>(ranks->size()));
    for (auto& of_rank : messages) of_rank.emplace_back().message.mutable_execute()->set_run(++run);
    return ranks->Call(std::move(messages), {timeout, "run_timeout_ms"}, "a run", Ranks::Waits::kEachOther);
  }
  // Shards of `bytes`, one for each node's first rank, to them or back.
  Status Transfer(bool to_nodes, int64_t bytes, base::Nanos timeout) {
    std::vector<std::vector<RankMessage>> messages(static_cast<size_t>(ranks->size()));
    std::vector<SharedMemory> memory;
    for (int64_t node = 0; node < network->size(); ++node) {
      memory.push_back(*SharedMemory::Create(bytes));
      RankMessage& message = messages[static_cast<size_t>(node * ranks->size() / network->size())].emplace_back();
      pb::DeviceShard& shard =
          *(to_nodes ? message.message.mutable_bind()->add_shards() : message.message.mutable_fetch()->add_shards());
      shard.set_id(node + 1);
      shard.set_bytes(bytes);
      shard.set_has_memory(true);
      message.fds.push_back(memory.back().fd());
    }
    return ranks->Call(std::move(messages), {timeout, "run_timeout_ms"}, "a transfer", Ranks::Waits::kNobody);
  }
  void Rest(base::Nanos time) {
    const base::Nanos until = network->Now() + time;
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (network->Now() < until) (void)ranks->Watch(-1, until - network->Now(), lock);
  }
  SimulatedNodes* network;
  std::unique_ptr<ClusterRanks> ranks;
  int64_t run = 0;
};

TEST(ClusterRanks, RunsOnAllNodes) {
  Mesh mesh(3, 4, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_EQ(mesh.ranks->size(), 12);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(mesh.Run().ok());
  EXPECT_EQ(mesh.network->num_orders(), 30);
  EXPECT_EQ(mesh.network->wrong(), "");
}

// Tickets for a shard on each node; what became of them.
struct Asked {
  Asked(Mesh& mesh, int64_t first_shard) {
    std::vector<Ticket> tickets;
    for (int64_t rank = 0; rank < mesh.ranks->size(); ++rank)
      tickets.push_back({.secret = "s", .writes = true, .rank = rank, .shards = {first_shard + rank}, .bytes = 8});
    mesh.ranks->Ask(std::move(tickets), [this](Result<std::unique_ptr<Grant>> granted) {
      ++told;
      status = granted.status();
      if (granted.ok()) grant = *std::move(granted);
    });
  }
  int told = 0;
  Status status;
  std::unique_ptr<Grant> grant;
};

TEST(ClusterRanksTickets, AreGrantedByAllNodesOrByNone) {
  Mesh mesh(3, 2, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  Asked asked(mesh, 1);
  EXPECT_EQ(asked.told, 0);
  mesh.Rest(milliseconds(1));
  ASSERT_EQ(asked.told, 1);
  ASSERT_TRUE(asked.status.ok());
  EXPECT_TRUE(asked.grant->failure().ok());
  for (int64_t node = 0; node < 3; ++node) EXPECT_EQ(mesh.network->num_grants(node), 1);
  asked.grant = nullptr;
  mesh.Rest(milliseconds(1));
  for (int64_t node = 0; node < 3; ++node) EXPECT_EQ(mesh.network->num_grants(node), 0);
  mesh.network->RefuseGrants(1, ResourceExhausted("it is full"));
  Asked refused(mesh, 7);
  mesh.Rest(milliseconds(1));
  EXPECT_EQ(refused.told, 1);
  EXPECT_EQ(refused.status.ToString(), "RESOURCE_EXHAUSTED: it is full");
  mesh.Rest(milliseconds(1));
  for (int64_t node = 0; node < 3; ++node) EXPECT_EQ(mesh.network->num_grants(node), 0);
}

// Also while a run is under way: no put waits for it.
TEST(ClusterRanksTickets, AreGrantedWhileARunIsUnderWay) {
  NetworkModel model;
  model.run = seconds(1);
  Mesh mesh(2, 1, model, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  Asked asked(mesh, 1);
  base::Nanos told_after = {};
  const base::Nanos began = mesh.network->Now();
  mesh.ranks->OnWait([&]() -> Result<base::Nanos> {
    if (asked.told > 0 && told_after == base::Nanos()) told_after = mesh.network->Now() - began;
    return mesh.network->Now() + milliseconds(1);
  });
  ASSERT_TRUE(mesh.Run().ok());
  EXPECT_EQ(asked.told, 1);
  EXPECT_LT(told_after, milliseconds(10));
  EXPECT_GT(mesh.network->Now() - began, seconds(1));
}

TEST(ClusterRanksTickets, WithoutAMeshAreRefused) {
  Mesh mesh(2, 1, {}, 1);
  Asked asked(mesh, 1);
  mesh.Rest(milliseconds(1));
  EXPECT_EQ(asked.told, 1);
  EXPECT_EQ(asked.status.code(), Code::kUnavailable);
  Mesh gpus(2, 1, {}, 1, /*on_devices=*/true);
  Asked by_head(gpus, 1);
  EXPECT_EQ(by_head.told, 1);
  EXPECT_EQ(by_head.status.code(), Code::kFailedPrecondition);
}

// Bytes written while the mesh starts would be lost with what a restarted node had before.
TEST(ClusterRanksTickets, WhileTheMeshStartsAreRefused) {
  std::unique_ptr<Asked> asked;
  Mesh mesh(2, 1, {}, 1);
  mesh.ranks->OnWait([&]() -> Result<base::Nanos> {
    if (asked == nullptr) asked = std::make_unique<Asked>(mesh, 1);
    return mesh.network->Now() + microseconds(10);
  });
  ASSERT_TRUE(mesh.ranks->Start().ok());
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(asked->told, 1);
  EXPECT_EQ(asked->status.ToString(), "UNAVAILABLE: the mesh is being restarted");
  for (int64_t node = 0; node < 2; ++node) EXPECT_EQ(mesh.network->num_grants(node), 0);
}

// They go by the new link of a node before the head hears that the old one was lost.
TEST(ClusterRanksTickets, AreRevokedWhereTheLinkWasLostForAMoment) {
  Mesh mesh(2, 1, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  mesh.network->CutOffForAMoment(1);
  Asked asked(mesh, 1);
  mesh.Rest(milliseconds(1));
  EXPECT_EQ(asked.told, 1);
  EXPECT_EQ(asked.status.code(), Code::kUnavailable);
  mesh.Rest(milliseconds(1));
  for (int64_t node = 0; node < 2; ++node) EXPECT_EQ(mesh.network->num_grants(node), 0) << node;
}

// Whatever happens to nodes and links, who asks is told once, and nothing is left granted of what has ended.
TEST(ClusterRanksTickets, WhateverHappensToNodesAreAnsweredOnce) {
  int64_t granted = 0, refused = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    NetworkModel model;
    model.faults = 20;
    Mesh mesh(3, 2, model, seed);
    std::vector<std::unique_ptr<Asked>> all;
    for (int i = 0; i < 40; ++i) {
      if (!mesh.ranks->healthy()) (void)mesh.ranks->Start();
      all.push_back(std::make_unique<Asked>(mesh, 1 + 6 * i));
      if (mesh.ranks->healthy() && i % 3 == 0) (void)mesh.Run();
      mesh.Rest(milliseconds(1));
      if (i % 2 == 0) all.back()->grant = nullptr;
    }
    mesh.Rest(seconds(20));
    for (const auto& asked : all) {
      ASSERT_EQ(asked->told, 1) << "seed " << seed;
      ++(asked->status.ok() ? granted : refused);
      if (asked->grant != nullptr && !asked->grant->failure().ok()) ++lost;
      asked->grant = nullptr;
    }
    mesh.Rest(seconds(20));
    for (int64_t node = 0; node < 3; ++node) ASSERT_EQ(mesh.network->num_grants(node), 0) << "seed " << seed;
  }
  std::cout << granted << " granted, " << refused << " refused, " << lost << " lost later" << std::endl;
  EXPECT_GT(granted, 0);
  EXPECT_GT(refused, 0);
  EXPECT_GT(lost, 0);
}

TEST(ClusterRanks, WhoHasNothingToDoIsNotAsked) {
  Mesh mesh(3, 2, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  std::vector<std::vector<RankMessage>> messages(6);
  messages[3].emplace_back().message.mutable_release()->add_shards(7);
  ASSERT_TRUE(mesh.ranks->Call(std::move(messages), {seconds(1), ""}, "a release", Ranks::Waits::kNobody).ok());
  EXPECT_EQ(mesh.network->num_orders(), 1);
}

// Plans are large: one that all ranks of a node are sent, with shards of their own before and a run behind, goes there
// once.
TEST(ClusterRanks, WhatIsTheSameForAllIsSaidOnce) {
  Mesh mesh(2, 4, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  std::vector<std::vector<RankMessage>> messages(8);
  for (size_t rank = 0; rank < 8; ++rank) {
    messages[rank].emplace_back().message.mutable_load()->set_program(1);
    messages[rank].emplace_back().message.mutable_bind()->add_shards()->set_id(static_cast<int64_t>(rank) + 1);
    messages[rank].emplace_back().message.mutable_execute()->set_run(1);
  }
  ASSERT_TRUE(mesh.ranks->Call(std::move(messages), {seconds(1), ""}, "a run", Ranks::Waits::kEachOther).ok());
  EXPECT_EQ(mesh.network->num_parts(), 2 * (1 + 4 + 1));
}

// A put and a get of 8 MiB at each node, which take a minute, where the limit is a tenth of that: slow is not stuck.
// Little is on its way at any time, so that a sign of life gets through in two seconds.
TEST(ClusterRanks, ASlowLinkTakesItsTime) {
  Mesh mesh(2, 2, {.bytes_per_s = 125'000}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  for (const bool to_nodes : {true, false}) {
    const base::Nanos began = mesh.network->Now();
    const Status status = mesh.Transfer(to_nodes, 8 << 20, seconds(6));
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_GT(mesh.network->Now() - began, seconds(60));
  }
  EXPECT_LE(mesh.network->most_on_the_way(), 128 << 10);
  EXPECT_TRUE(mesh.Run().ok());
  EXPECT_EQ(mesh.network->wrong(), "");
}

// Ranks that wait for each other begin when those can whose bytes took longest, and not before: in a collective the
// others would give up.
TEST(ClusterRanks, OrdersWaitForTheBytesOfAll) {
  Mesh mesh(3, 1, {.bytes_per_s = 125'000}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  for (const auto waits : {Ranks::Waits::kEachOther, Ranks::Waits::kNobody}) {
    const SharedMemory memory = *SharedMemory::Create(4 << 20);
    std::vector<std::vector<RankMessage>> messages(3);
    RankMessage& bind = messages[1].emplace_back();
    pb::DeviceShard& shard = *bind.message.mutable_bind()->add_shards();
    shard.set_id(waits == Ranks::Waits::kEachOther ? 1 : 2);
    shard.set_bytes(memory.bytes());
    shard.set_has_memory(true);
    bind.fds.push_back(memory.fd());
    for (auto& of_rank : messages) of_rank.emplace_back().message.mutable_execute()->set_run(1);
    const Status status = mesh.ranks->Call(std::move(messages), {seconds(5), "run_timeout_ms"}, "a run", waits);
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (waits == Ranks::Waits::kEachOther) {
      EXPECT_LE(mesh.network->arrival_skew(), milliseconds(1500));  // What is on the way.
    } else {
      EXPECT_GT(mesh.network->arrival_skew(), seconds(30));
    }
  }
  EXPECT_EQ(mesh.network->wrong(), "");
}

TEST(ClusterRanks, AFastLinkIsKeptBusy) {
  constexpr std::pair<int64_t, int64_t> kLinks[] = {{125000000, 50}, {125000000, 500}, {1250000000, 500}};
  for (const auto& [bytes_per_s, latency] : kLinks) {
    Mesh mesh(1, 1, {.latency = microseconds(latency), .bytes_per_s = bytes_per_s}, 1);
    ASSERT_TRUE(mesh.ranks->Start().ok());
    for (const bool to_nodes : {true, false}) {
      const base::Nanos began = mesh.network->Now();
      ASSERT_TRUE(mesh.Transfer(to_nodes, 64 << 20, seconds(600)).ok());
      const double took = std::chrono::duration<double>(mesh.network->Now() - began).count();
      const double used = (64 << 20) / took / static_cast<double>(bytes_per_s);
      std::cout << bytes_per_s * 8 / 1'000'000 << " Mbit/s, " << 2 * latency << " us there and back: " << used * 100
                << " % used, " << mesh.network->most_on_the_way() / 1024 << " KiB on the way\n";
      EXPECT_GT(used, 0.9);
    }
    EXPECT_LE(mesh.network->most_on_the_way(), BulkWindow::kMost);
  }
}

TEST(ClusterRanks, WhoTakesNoMoreBytesIsNamed) {
  Mesh mesh(2, 1, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  mesh.network->TakeNoBytes(1);
  EXPECT_EQ(
      mesh.Transfer(true, 8 << 20, seconds(6)).ToString(),
      "DEADLINE_EXCEEDED: a transfer took longer than run_timeout_ms = 6000 ms: node 1 takes no more bytes: look at "
      "its link; the mesh is being restarted");
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_TRUE(mesh.Run().ok());  // Of what was to follow nothing is sent.
}

TEST(ClusterRanks, WhatIsReleasedIsToldAgainWhereTheLinkDropsAtOnce) {
  Mesh mesh(2, 1, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  ASSERT_TRUE(mesh.Transfer(true, 100, seconds(5)).ok());  // Shards 1 and 2.
  const auto starts = [&] {
    for (int i = 0; i < 20 && !mesh.ranks->healthy(); ++i) {
      if (!mesh.ranks->Start().ok()) mesh.Rest(seconds(1));
    }
    return mesh.ranks->healthy();
  };
  mesh.network->CutOff(1);
  ASSERT_FALSE(mesh.Run(seconds(10)).ok());
  ASSERT_TRUE(starts());
  ASSERT_FALSE(mesh.ranks->WhyAbsent(1).ok());
  std::vector<std::vector<RankMessage>> messages(2);
  for (auto& of_rank : messages) of_rank.emplace_back().message.mutable_release()->add_shards(2);
  ASSERT_TRUE(mesh.ranks->Call(std::move(messages), {seconds(1), ""}, "a release", Ranks::Waits::kNobody).ok());
  mesh.network->LoseAtRemember(1);
  for (int i = 0; i < 20 && !mesh.network->dropped(1).contains(2); ++i) {
    mesh.Rest(seconds(1));
    ASSERT_TRUE(starts());
  }
  EXPECT_TRUE(mesh.network->dropped(1).contains(2));
}

// A node that has gone mad: nothing that it says ends the head, and when it is sane the mesh serves.
TEST(ClusterRanks, WhateverANodeSaysTheHeadGoesOn) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Prng prng(seed);
    Mesh mesh(3, 2, {}, seed);
    int64_t shard = 0;
    const auto number = [&] {
      const int64_t kSome[] = {0, 1, 2, 3, 5, -1, 1000, INT64_MAX, INT64_MIN, mesh.ranks->generation(), shard++ % 50};
      return kSome[prng.Below(std::ssize(kSome))];
    };
    const auto error = [&](pb::Error* said) {
      said->set_code(static_cast<int32_t>(number()));
      said->set_message("mad");
    };
    for (int i = 0; i < 100; ++i) {
      for (int64_t left = prng.Below(6); left > 0; --left) {
        pb::FromNode message;
        switch (prng.Below(11)) {
          case 0: {
            pb::Joined& joined = *message.mutable_joined();
            joined.set_incarnation(prng.OneIn(2) ? mesh.network->IncarnationOf(2) : "other");
            for (int64_t shards = prng.Below(5); shards > 0; --shards) joined.add_shards(number());
            break;
          }
          case 1: {
            message.mutable_started()->set_generation(number());
            if (prng.OneIn(2)) error(message.mutable_started()->mutable_error());
            for (int64_t pids = prng.Below(9); pids > 0; --pids) message.mutable_started()->add_pids(number());
            break;
          }
          case 2:
          case 3: {
            pb::Answer& answer = *message.mutable_answer();
            answer.set_seq(prng.OneIn(2) ? prng.Below(3 * i + 3) : number());
            answer.set_ended(prng.OneIn(4));
            if (prng.OneIn(2)) error(answer.mutable_error());
            for (int64_t measured = prng.Below(9); measured > 0; --measured) answer.add_measured();
            break;
          }
          case 4: message.mutable_published()->set_key(base::Cat(number())); break;
          case 5: message.mutable_wanted()->set_key(base::Cat(number())); break;
          case 6: {
            pb::ShardBytes& bytes = *message.mutable_bytes();
            bytes.set_shard(number());
            bytes.set_total(number());
            bytes.set_offset(number());
            bytes.set_data(std::string(static_cast<size_t>(prng.Below(2000)), 'x'));
            bytes.set_asks(prng.OneIn(2));
            break;
          }
          case 7: message.mutable_late()->set_seq(number()); break;
          case 8: {
            message.mutable_ended()->set_generation(number());
            if (prng.OneIn(2)) error(message.mutable_ended()->mutable_cause());
            break;
          }
          case 9: {
            message.mutable_usage()->set_generation(number());
            message.mutable_usage()->set_num_threads(number());
            for (int64_t ranks = prng.Below(9); ranks > 0; --ranks) message.mutable_usage()->add_cpu_ms(number());
            for (int64_t ranks = prng.Below(9); ranks > 0; --ranks)
              message.mutable_usage()->add_resident_bytes(number());
            break;
          }
          default:
            if (prng.OneIn(2)) message.mutable_taken();
        }
        mesh.network->Inject(2, std::move(message));
      }
      if (!mesh.ranks->healthy()) {
        (void)mesh.ranks->Start();
      } else if (prng.OneIn(2)) {
        (void)mesh.Run();
      } else {
        (void)mesh.Transfer(prng.OneIn(2), 1 + prng.Below(1 << 18), seconds(5));
      }
      if (mesh.ranks->healthy()) mesh.ranks->Renew();
    }
    mesh.Rest(seconds(1));
    bool is_right = false;
    for (int i = 0; i < 20 && !is_right; ++i) {
      if (!mesh.ranks->healthy() && !mesh.ranks->Start().ok()) continue;
      is_right = mesh.Run().ok() && mesh.Transfer(false, 1000, seconds(5)).ok();
    }
    EXPECT_TRUE(is_right) << mesh.ranks->failure().ToString();
  }
}

// HOSTIR_SEEDS meshes, from HOSTIR_SEED on.
TEST(ClusterRanks, WhateverFailsTheNextRunIsRight) {
  const auto count = static_cast<uint64_t>(testing::FromEnvironment("HOSTIR_SEEDS", 1000));
  const auto first = static_cast<uint64_t>(testing::FromEnvironment("HOSTIR_SEED", 1));
  int64_t runs = 0, failed = 0, faults = 0, kept = 0, gone = 0, partial = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    base::Prng prng(seed);
    Mesh mesh(1 + prng.Below(5), 1 + prng.Below(3), {.faults = 1 + prng.Below(60)}, seed);
    // The incarnations of the nodes when they last had a part.
    std::vector<std::string> served;
    for (int64_t node = 0; node < mesh.network->size(); ++node) served.push_back(mesh.network->IncarnationOf(node));
    for (int i = 0; i < 20; ++i) {
      const bool starts = !mesh.ranks->healthy();
      for (int starts = 0; !mesh.ranks->healthy(); ++starts) {
        ASSERT_LT(starts, 200) << mesh.ranks->failure().ToString();
        const base::Nanos began = mesh.network->Now();
        const Status started = mesh.ranks->Start();
        ASSERT_LE(mesh.network->Now() - began, seconds(10 + 2) + milliseconds(300));
        ASSERT_EQ(started.ok(), mesh.ranks->healthy());
        if (!started.ok()) mesh.Rest(seconds(1));
      }
      const int64_t ranks_of_each = mesh.ranks->size() / mesh.network->size();
      for (int64_t rank = 0; rank < mesh.ranks->size() && starts && i > 0; ++rank) {
        const int64_t node = rank / ranks_of_each;
        if (!mesh.ranks->WhyAbsent(rank).ok()) continue;  // What it keeps nobody knows.
        const bool is_same = served[static_cast<size_t>(node)] == mesh.network->IncarnationOf(node);
        // One that has just died, of which the head has not heard yet, is gone before the next start.
        ASSERT_TRUE(mesh.ranks->Keeps(rank) ? is_same || !mesh.network->is_up(node) : !is_same);
        ++(mesh.ranks->Keeps(rank) ? kept : gone);
      }
      for (int64_t node = 0; node < mesh.network->size(); ++node) {
        const bool is_absent = !mesh.ranks->WhyAbsent(node * ranks_of_each).ok();
        partial += is_absent ? 1 : 0;
        if (!is_absent) served[static_cast<size_t>(node)] = mesh.network->IncarnationOf(node);
      }
      const base::Nanos began = mesh.network->Now();
      const bool transfers = prng.OneIn(4);
      const Status status = transfers ? mesh.Transfer(prng.OneIn(2), 1 + prng.Below(1 << 18), seconds(5)) : mesh.Run();
      ASSERT_LE(mesh.network->Now() - began, seconds(5 + 2 + (transfers ? 1 : 0)) + milliseconds(300));
      ++runs;
      if (mesh.ranks->healthy()) mesh.ranks->Renew();
      if (status.ok()) continue;
      ++failed;
      ASSERT_FALSE(mesh.ranks->healthy());
      const std::string text = status.ToString();
      ASSERT_TRUE(text.find("node ") != std::string::npos || text.find("rank ") != std::string::npos) << text;
    }
    ASSERT_EQ(mesh.network->wrong(), "");
    faults += mesh.network->num_faults();
  }
  std::cout << runs << " runs, " << failed << " failed, " << faults << " faults, seeds " << first << " to "
            << first + count - 1 << "; " << partial << " times without a node; at starts " << kept
            << " ranks kept their shards, " << gone << " had not\n";
  EXPECT_GT(failed, 0);
  EXPECT_GT(gone, 0);
  EXPECT_GT(partial, 0);
}

TEST(ClusterRanks, ADrainedNodeHasNoPart) {
  Mesh mesh(3, 2, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  ASSERT_TRUE(mesh.Run().ok());
  EXPECT_EQ(mesh.ranks->SetDrained(3, true).code(), Code::kNotFound);
  ASSERT_TRUE(mesh.ranks->SetDrained(1, true).ok());
  EXPECT_TRUE(mesh.ranks->WhyAbsent(2).ok());  // Until nothing is under way.
  mesh.ranks->Renew();
  EXPECT_FALSE(mesh.ranks->healthy());
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_EQ(mesh.ranks->WhyAbsent(2).ToString(), "UNAVAILABLE: node 1 is drained (hostir undrain ends that)");
  EXPECT_EQ(mesh.ranks->snapshot().absent,
            (std::vector<std::string>{"", "", "node 1 is drained (hostir undrain ends that)",
                                      "node 1 is drained (hostir undrain ends that)", "", ""}));
  const int64_t before = mesh.network->num_orders();
  ASSERT_TRUE(mesh.Run().ok());
  EXPECT_EQ(mesh.network->num_orders(), before + 2);
  ASSERT_TRUE(mesh.ranks->SetDrained(0, true).ok());
  EXPECT_EQ(mesh.ranks->SetDrained(2, true).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(mesh.ranks->SetDrained(0, false).ok());
  ASSERT_TRUE(mesh.ranks->SetDrained(1, false).ok());
  mesh.ranks->Renew();
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_TRUE(mesh.ranks->WhyAbsent(2).ok());
  EXPECT_TRUE(mesh.ranks->Keeps(2));
  ASSERT_TRUE(mesh.Run().ok());
  EXPECT_EQ(mesh.network->wrong(), "");
}

TEST(ClusterRanks, LinksAreMeasuredAtEachStart) {
  Mesh mesh(3, 2, {}, 1);
  EXPECT_TRUE(mesh.ranks->snapshot().links.of_node().empty());
  ASSERT_TRUE(mesh.ranks->SetDrained(1, true).ok());
  ASSERT_TRUE(mesh.ranks->Start().ok());
  const auto links = [&] {
    std::vector<double> found;
    const ::hostir::v1::Links known = mesh.ranks->snapshot().links;
    EXPECT_EQ(base::JoinInts(std::vector<int64_t>(known.node_of().begin(), known.node_of().end()), " "), "0 0 1 1 2 2");
    for (const ::hostir::v1::NodeLink& link : known.of_node()) {
      found.push_back(link.message_us());
      found.push_back(link.bytes_per_us());
    }
    return found;
  };
  // To powers of two; one that was never measured is as slow as the others.
  EXPECT_EQ(links(), (std::vector<double>{128, 128, 128, 128, 128, 128}));
  // One node alone measures nothing, and what was known stays.
  ASSERT_TRUE(mesh.ranks->SetDrained(2, true).ok());
  mesh.ranks->Renew();
  mesh.network->SetLink(0.001);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_EQ(links(), (std::vector<double>{128, 128, 128, 128, 128, 128}));
  ASSERT_TRUE(mesh.ranks->SetDrained(1, false).ok());
  mesh.ranks->Renew();
  mesh.network->SetLink(30);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_EQ(links(), (std::vector<double>{128, 32, 128, 32, 128, 128}));
  // Numbers that no link has are left alone.
  ASSERT_TRUE(mesh.ranks->SetDrained(2, false).ok());
  mesh.ranks->Renew();
  mesh.network->SetLink(-1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  EXPECT_EQ(links(), (std::vector<double>{128, 32, 128, 32, 128, 128}));
}

TEST(ClusterRanks, ADeathIsTheCauseOfWhatOthersSay) {
  // The ranks of other nodes fail a moment before the node that died is missed.
  for (uint64_t seed = 1; seed < 200; ++seed) {
    Mesh mesh(4, 1, {.faults = 20}, seed);
    if (!mesh.ranks->Start().ok()) continue;
    const Status status = mesh.Run();
    if (status.ok()) continue;
    EXPECT_TRUE(status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded) << status.ToString();
  }
}

TEST(ClusterRanks, AnInterruptEndsTheCallInProgress) {
  Mesh mesh(2, 1, {.run = seconds(100)}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  mesh.ranks->Interrupt(Unavailable("the daemon is shutting down"));
  EXPECT_EQ(mesh.Run(seconds(1000)).ToString(), "UNAVAILABLE: a run: the daemon is shutting down");
}

TEST(ClusterRanks, OnDevicesNothingOutlivesTheRanks) {
  for (uint64_t seed = 1; seed < 50; ++seed) {
    Mesh mesh(2, 1, {.faults = 100}, seed, /*on_devices=*/true);
    if (!mesh.ranks->Start().ok() || mesh.Run().ok()) continue;
    EXPECT_FALSE(mesh.ranks->Keeps(0));
    EXPECT_FALSE(mesh.ranks->Keeps(1));
  }
}

// Submit to last rank < 10 ms, on links of 50 us that take the head 500 ns a message. The real time is the head's own.
TEST(ClusterRanks, AThousandNodesOfEightRanks) {
  Mesh mesh(1000, 8, {}, 1);
  ASSERT_TRUE(mesh.ranks->Start().ok());
  constexpr int kRuns = 20;
  const base::Nanos real = base::Clock::Steady().Now();
  base::Nanos slowest = {};
  for (int i = 0; i < kRuns; ++i) {
    const base::Nanos began = mesh.network->Now();
    ASSERT_TRUE(mesh.Run().ok());
    slowest = std::max(slowest, mesh.network->last_arrival() - began);
  }
  const base::Nanos each = (base::Clock::Steady().Now() - real) / kRuns;
  std::cout << "submit to last rank: " << slowest.count() / 1000
            << " us of virtual time; the head's own: " << each.count() / 1000 << " us a run, " << each.count() / 1000
            << " ns a run and node\n";
  EXPECT_LT(slowest, milliseconds(10));
  EXPECT_EQ(mesh.network->wrong(), "");
}

}  // namespace
}  // namespace hir::service
