// Where the ranks of a test run: each a thread, with a communicator and a device of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "multidevice/comm/communicator.h"

namespace hir::testing {

// Threads: one.
class Ranks {
 public:
  using Body = std::function<Status(int64_t rank, comm::Communicator& communicator, device::Device& device)>;
  virtual ~Ranks() = default;

  virtual int64_t size() const = 0;
  // body(...) for every rank, at once. Errors: the first of a rank's, with its number.
  virtual Status Run(const Body& body) = 0;
};

// Simulated: what happens when is drawn from `seed`, messages take up to `random_delay_max`. A new world every run.
std::unique_ptr<Ranks> MakeLocalRanks(int64_t size, uint64_t seed, base::Nanos random_delay_max);

// Over UCX, whose communicators stay from run to run. Errors: as comm::CreateUcx.
Result<std::unique_ptr<Ranks>> MakeUcxRanks(int64_t size);

}  // namespace hir::testing
