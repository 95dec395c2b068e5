#include "tests/property/ranks.h"

#include <barrier>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/device/host/host_device.h"
#include "multidevice/comm/local/world.h"
#include "multidevice/comm/ucx/ucx.h"
#include "multidevice/rendezvous/memory.h"

namespace hir::testing {
namespace {

// Keeps the first error. Thread-safe.
class FirstError {
 public:
  void Add(int64_t rank, const Status& status) {
    const std::scoped_lock lock(mutex_);
    if (error_.ok() && !status.ok()) error_ = status.WithContext(base::Cat("rank ", rank));
  }
  Status Take() { return std::exchange(error_, {}); }

 private:
  std::mutex mutex_;
  Status error_;
};

class LocalRanks final : public Ranks {
 public:
  LocalRanks(int64_t size, uint64_t seed, base::Nanos random_delay_max)
      : size_(size), seed_(seed), random_delay_max_(random_delay_max) {}

  int64_t size() const override { return size_; }
  Status Run(const Body& body) override {
    FirstError error;
    auto world = comm::World::Create({.size = size_, .seed = seed_, .random_delay_max = random_delay_max_});
    world->Run([&](int64_t rank) {
      const auto run = [&]() -> Status {
        const std::unique_ptr<comm::Communicator> communicator = world->Join(rank);
        HIR_ASSIGN(const auto device,
                   device::CreateHostDevice({.name = base::Cat("host:", rank)}, world->executor(rank)));
        return body(rank, *communicator, *device);
      };
      error.Add(rank, run());
    });
    return error.Take();
  }

 private:
  const int64_t size_;
  const uint64_t seed_;
  const base::Nanos random_delay_max_;
};

class UcxRanks final : public Ranks {
 public:
  explicit UcxRanks(int64_t size) : size_(size), turn_(size + 1) {
    for (int64_t rank = 0; rank < size; ++rank) threads_.emplace_back([this, rank] { Serve(rank); });
  }
  ~UcxRanks() override {
    body_ = nullptr;
    turn_.arrive_and_wait();
  }

  int64_t size() const override { return size_; }
  Status Run(const Body& body) override {
    body_ = &body;
    turn_.arrive_and_wait();
    turn_.arrive_and_wait();
    return error_.Take();
  }

 private:
  void Serve(int64_t rank) {
    const auto device = device::CreateHostDevice({.name = base::Cat("host:", rank)});
    auto communicator =
        comm::CreateUcx({.rank = rank, .size = size_, .setup_timeout = std::chrono::seconds(60)}, rendezvous_);
    for (;;) {
      turn_.arrive_and_wait();
      if (body_ == nullptr) return;
      error_.Add(rank, !device.ok()         ? device.status()
                       : !communicator.ok() ? communicator.status()
                                            : (*body_)(rank, **communicator, **device));
      turn_.arrive_and_wait();
    }
  }

  const int64_t size_;
  comm::MemoryRendezvous rendezvous_;
  std::barrier<> turn_;
  const Body* body_ = nullptr;  // Changes between turns.
  FirstError error_;
  std::vector<std::jthread> threads_;
};

}  // namespace

std::unique_ptr<Ranks> MakeLocalRanks(int64_t size, uint64_t seed, base::Nanos random_delay_max) {
  return std::make_unique<LocalRanks>(size, seed, random_delay_max);
}

Result<std::unique_ptr<Ranks>> MakeUcxRanks(int64_t size) {
  auto ranks = std::make_unique<UcxRanks>(size);
  HIR_TRY(ranks->Run([](int64_t, comm::Communicator&, device::Device&) { return Status(); }));
  return std::unique_ptr<Ranks>(std::move(ranks));
}

}  // namespace hir::testing
