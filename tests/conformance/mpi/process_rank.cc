#include "tests/conformance/mpi/process_rank.h"

#include <gtest/gtest.h>

#include <chrono>

#include "csrc/base/text.h"
#include "tests/conformance/mpi/rank_device.h"
#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"

namespace hir::testing {
namespace {

constexpr base::Nanos kTogether = std::chrono::seconds(60);

// The one rank of this process. Its communicator stays from run to run.
class ProcessRank final : public Ranks {
 public:
  static Result<std::unique_ptr<ProcessRank>> Make(const rank::Backends& backends, int64_t device, int64_t generation) {
    auto process = std::make_unique<ProcessRank>();
    comm::MpiRendezvous& ranks = comm::Ranks();
    HIR_ASSIGN(process->device_, backends.make_device({.rank = ranks.rank(), .ordinal = device}));
    HIR_ASSIGN(process->communicator_, backends.make_communicator({.rank = ranks.rank(),
                                                                   .size = ranks.size(),
                                                                   .generation = generation,
                                                                   .setup_timeout = kTogether,
                                                                   .op_timeout = kTogether},
                                                                  ranks, *process->device_));
    return process;
  }
  int64_t size() const override { return comm::Ranks().size(); }
  Status Run(const Body& body) override {
    return body(comm::Ranks().rank(), *communicator_, *device_).WithContext(base::Cat("rank ", comm::Ranks().rank()));
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<comm::Communicator> communicator_;
};

// All wait here for all: a rank that is done early stays as long as others may wait for it.
void Meet(int64_t place) {
  comm::MpiRendezvous& ranks = comm::Ranks();
  ASSERT_TRUE(ranks.Publish(base::Cat("meet/", place, "/", ranks.rank()), "").ok());
  for (int64_t peer = 0; peer < ranks.size(); ++peer) {
    ASSERT_TRUE(ranks.Get(base::Cat("meet/", place, "/", peer), kTogether).ok()) << "rank " << peer;
  }
}

}  // namespace

void OnProcessRanks(const rank::Backends& backends,
                    const std::function<void(const RankRunOptions& options, const codegen::Target& target)>& body) {
  const Result<int64_t> device = comm::DeviceOfRank(backends);
  if (!device.ok()) GTEST_SKIP() << device.status().ToString();
  const auto facts = backends.facts_of(*device);
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  static int64_t generation = 0;
  ++generation;
  auto ranks = ProcessRank::Make(backends, *device, generation);
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  body({.num_ranks = comm::Ranks().size(),
        .ranks = ranks->get(),
        .backends = &backends,
        .compile = backends.make_compiler()},
       facts->target);
  if (!::testing::Test::HasFatalFailure()) Meet(generation);
}

}  // namespace hir::testing
