// World: ranks that are threads of one process, under a seeded scheduler: the oracle of the other
// backends, and the place to try what goes wrong. The same options and the same programs give the
// same trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/host/executor.h"
#include "multidevice/comm/communicator.h"

namespace hir::comm {

inline constexpr int64_t kAnyRank = -1;
inline constexpr int64_t kAnySeq = -1;

// What a script does to messages and ranks; `seq` is CommDesc::seq.
struct MessageDelay {
  int64_t from = kAnyRank;
  int64_t to = kAnyRank;
  int64_t seq = kAnySeq;
  base::Nanos time = {};
};
struct MessageLoss {
  int64_t from = kAnyRank;
  int64_t to = kAnyRank;
  int64_t seq = kAnySeq;
};
struct RankDeath {
  int64_t rank = 0;
  int64_t seq = 0;                                // It dies where it would enter this communication.
  std::optional<base::Nanos> noticed_after = {};  // Then every other rank is aborted; never, when absent.
};

struct WorldOptions {
  int64_t size = 1;
  uint64_t seed = 0;
  base::Nanos op_timeout = std::chrono::seconds(5);  // Simulated time, from a rank's start of a communication.
  base::Nanos random_delay_max = {};                 // Every message takes a random time up to this.
  std::vector<MessageDelay> delays = {};
  std::vector<MessageLoss> losses = {};
  std::vector<RankDeath> deaths = {};
};

// A message takes its bytes from src when it is delivered, as late as is allowed, and dst holds
// garbage (0xa5) from the start of a communication on: a program that reads or writes too early
// shows it. Communications of one team that do not match between ranks (type, dtype, count,
// reduction, root) fail with kInvalidArgument.
//
// A communication that misses its deadline poisons every rank: "rank 3 has not entered allgather
// #17; 3 peers waiting 5.0 s".
//
// Threads: as Scheduler: the threads of Run, or the one thread that made it.
class World {
 public:
  static std::unique_ptr<World> Create(WorldOptions options);
  virtual ~World() = default;

  // Rank `rank`'s; once each. The world outlives it.
  virtual std::unique_ptr<Communicator> Join(int64_t rank) = 0;
  // For the host device of `rank` (CreateHostDevice), which then runs inside the simulation.
  virtual device::Executor& executor(int64_t rank) = 0;

  // body(rank) for every rank, each on a thread of its own; returns when all have returned and
  // nothing can happen.
  virtual void Run(const std::function<void(int64_t rank)>& body) = 0;
  // For a test that queues every rank's work from its own thread: lets it happen. Timers
  // (deadlines) stay.
  virtual void RunUntilIdle() = 0;

  virtual const base::Clock& clock() const = 0;
  // What happened so far, one line each: "rank 2 enters allgather #17".
  virtual std::vector<std::string> trace() const = 0;
};

}  // namespace hir::comm
