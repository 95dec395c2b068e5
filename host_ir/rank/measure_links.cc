#include "host_ir/rank/measure_links.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>

#include "csrc/base/check.h"
#include "csrc/base/dtype.h"
#include "host_ir/host_ops.h"

namespace hir::rank {
namespace {

// After bytes that took longer there is no larger message: on that link it would take much longer.
constexpr double kLongSeconds = 5e-3;
constexpr int64_t kBytes[] = {8, 16 << 10, 256 << 10, 4 << 20};
// The first message over a connection also makes it.
constexpr int kRounds = 3;
constexpr double kLongRoundSeconds = 0.1;  // There are no more then.
// The lane of most communications.
constexpr int64_t kLane = host::kFirstLoopStream - 1;
constexpr int64_t kTimeBytes = sizeof(double);

class LinkProbe {
 public:
  static Result<std::vector<Link>> Run(const Backends& backends, device::Device& device,
                                       comm::Communicator& communicator, std::span<const int64_t> ranks,
                                       base::Nanos timeout) {
    LinkProbe probe(backends, device, communicator, ranks, timeout);
    HIR_TRY(probe.Prepare());
    std::vector<Link> links(ranks.size());
    for (const int64_t bytes : kBytes) {
      HIR_ASSIGN(const bool has_room, probe.MakeRoom(bytes));
      if (!has_room) break;
      HIR_ASSIGN(const std::vector<double> seconds, probe.Measure(bytes));
      double longest = 0;
      for (size_t i = 0; i < links.size(); ++i) {
        Link& link = links[i];
        if (bytes == kBytes[0]) {
          link.message_seconds = seconds[i];
          continue;
        }
        // Nothing carries more than ten times what the few bytes' time would leave.
        const double carried = std::max(seconds[i] - link.message_seconds, 0.1 * seconds[i]);
        link.bytes_per_second = static_cast<double>(bytes) / carried;
        longest = std::max(longest, seconds[i] - link.message_seconds);
      }
      if (longest > kLongSeconds) break;
    }
    return links;
  }

 private:
  LinkProbe(const Backends& backends, device::Device& device, comm::Communicator& communicator,
            std::span<const int64_t> ranks, base::Nanos timeout)
      : backends_(backends), device_(device), communicator_(communicator), ranks_(ranks), timeout_(timeout) {
    const auto me = std::ranges::find(ranks, communicator.rank()) - ranks.begin();
    const auto n = std::ssize(ranks);
    HIR_CHECK(me < n && n > 1);
    next_ = ranks[static_cast<size_t>((me + 1) % n)];
    before_ = ranks[static_cast<size_t>((me + n - 1) % n)];
  }

  Status Prepare() {
    HIR_ASSIGN(stream_, device_.CreateStream());
    HIR_ASSIGN(team_, communicator_.Team(ranks_, kLane));
    return Allocate(std::max(kBytes[1], std::ssize(ranks_) * kTimeBytes));
  }

  Status Allocate(int64_t bytes) {
    HIR_ASSIGN(std::unique_ptr<device::Allocation> sent, device_.Allocate(bytes));
    HIR_ASSIGN(heard_, device_.Allocate(bytes));
    sent_ = std::move(sent);
    return {};
  }

  // Whether all ranks have memory for messages of `bytes`: a device may be let have little.
  Result<bool> MakeRoom(int64_t bytes) {
    if (bytes <= sent_->buffer().bytes) return true;
    const Status allocated = Allocate(bytes);
    HIR_ASSIGN(const std::vector<double> short_of, Share(allocated.ok() ? 0 : 1));
    return std::ranges::max(short_of) == 0;
  }

  Status Do(comm::CommDesc desc) {
    desc.team = team_;
    desc.src = sent_->buffer();
    desc.dst = heard_->buffer();
    HIR_TRY(communicator_.Post(desc, *stream_));
    return stream_->Synchronize(timeout_);
  }

  // How long a message of `bytes` takes, by rank: the shortest of a few. All ranks have the same numbers, and so make
  // as many.
  Result<std::vector<double>> Measure(int64_t bytes) {
    std::vector<double> least(ranks_.size(), std::numeric_limits<double>::infinity());
    for (int round = 0; round < kRounds; ++round) {
      HIR_ASSIGN(const std::vector<double> seconds, MeasureOnce(bytes));
      for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], seconds[i]);
      if (std::ranges::max(seconds) > kLongRoundSeconds) break;
    }
    // A rank waits for its neighbours' links, too: one is slow where it and both neighbours say so.
    std::vector<double> of_links;
    const size_t n = least.size();
    for (size_t i = 0; i < n; ++i) of_links.push_back(std::min({least[(i + n - 1) % n], least[i], least[(i + 1) % n]}));
    return of_links;
  }

  Result<std::vector<double>> MeasureOnce(int64_t bytes) {
    const base::Nanos began = base::Clock::Steady().Now();
    HIR_TRY(Do({.type = comm::CommType::kCollectivePermute,
                .dtype = DType::kInt64,
                .count = bytes / DTypeBytes(DType::kInt64),
                .to = next_,
                .from = before_}));
    return Share(std::chrono::duration<double>(base::Clock::Steady().Now() - began).count());
  }

  // The numbers that ranks say, in their order.
  Result<std::vector<double>> Share(double mine) {
    std::vector<double> all(ranks_.size());
    const auto times = std::as_writable_bytes(std::span(all));
    HIR_TRY(backends_.copy_from_host(device_, {.data = sent_->buffer().data, .bytes = kTimeBytes},
                                     std::as_bytes(std::span(&mine, 1))));
    HIR_TRY(Do({.type = comm::CommType::kAllgather, .dtype = DType::kFloat64, .count = 1}));
    HIR_TRY(backends_.copy_to_host(device_, times, {.data = heard_->buffer().data, .bytes = std::ssize(times)}));
    return all;
  }

  const Backends& backends_;
  device::Device& device_;
  comm::Communicator& communicator_;
  const std::span<const int64_t> ranks_;
  const base::Nanos timeout_;
  int64_t next_ = 0, before_ = 0;
  comm::TeamId team_ = {};
  std::unique_ptr<device::Allocation> sent_, heard_;
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace

Result<std::vector<Link>> MeasureLinks(const Backends& backends, device::Device& device,
                                       comm::Communicator& communicator, std::span<const int64_t> ranks,
                                       base::Nanos timeout) {
  return LinkProbe::Run(backends, device, communicator, ranks, timeout);
}

}  // namespace hir::rank
