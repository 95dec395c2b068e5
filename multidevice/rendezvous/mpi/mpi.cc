#include "multidevice/rendezvous/mpi/mpi.h"

#include <mpi.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/text.h"

namespace hir::comm {
namespace {

using base::Cat;

constexpr int kTag = 1;
// How long the thread sleeps when there is nothing to do: somebody waits for a value, or nobody does.
constexpr base::Nanos kSleepWaitedFor = std::chrono::microseconds(100);
constexpr base::Nanos kSleepIdle = std::chrono::milliseconds(5);

// A message is the key's length, the key, the value. An empty one is a rank's last.
std::string Encode(std::string_view key, std::string_view value) {
  const auto length = static_cast<uint32_t>(key.size());
  std::string message(sizeof(length), '\0');
  std::memcpy(message.data(), &length, sizeof(length));
  message += key;
  message += value;
  return message;
}

std::pair<std::string, std::string> Decode(const std::string& message) {
  uint32_t length = 0;
  HIR_CHECK(message.size() >= sizeof(length));
  std::memcpy(&length, message.data(), sizeof(length));
  HIR_CHECK(message.size() - sizeof(length) >= length);
  return {message.substr(sizeof(length), length), message.substr(sizeof(length) + length)};
}

class Mpi final : public MpiRendezvous {
 public:
  explicit Mpi(base::Nanos end_timeout) : end_timeout_(end_timeout), thread_([this] { Serve(); }) {}

  Status WaitUntilStarted() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_ || !failure_.ok(); });
    return failure_;
  }

  ~Mpi() override {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  Status Publish(std::string_view key, std::string_view bytes) override {
    if (bytes.size() > kRendezvousBytesMax) {
      return ResourceExhausted(
          Cat("rendezvous: ", key, " has ", bytes.size(), " bytes, limit rendezvous_bytes_max: ", kRendezvousBytesMax));
    }
    {
      const std::scoped_lock lock(mutex_);
      const auto [at, inserted] = values_.emplace(key, bytes);
      if (!inserted && at->second != bytes) {
        return {Code::kAlreadyExists, Cat("rendezvous: ", key, " holds other bytes already")};
      }
      if (!inserted) return {};
      outgoing_.push_back(Encode(key, bytes));
    }
    changed_.notify_all();
    wake_.notify_all();
    return {};
  }

  Result<std::string> Get(std::string_view key, base::Nanos timeout) override {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    wake_.notify_all();
    const bool found = changed_.wait_for(lock, timeout, [&] { return values_.find(key) != values_.end(); });
    --num_waiting_;
    if (!found) {
      return Status(Code::kDeadlineExceeded, Cat("rendezvous: ", key, " was not published in ",
                                                 std::chrono::duration<double>(timeout).count(), " s"));
    }
    return values_.find(key)->second;
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  int64_t node_rank() const override { return node_rank_; }

 private:
  // A message on its way to every other rank.
  struct Sending {
    std::string message;
    std::vector<MPI_Request> requests;
  };

  // The thread: the only one here that calls MPI.
  void Serve() {
    if (Status status = StartMpi(); !status.ok()) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::move(status);
      changed_.notify_all();
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      started_ = true;
      changed_.notify_all();
    }
    bool said_last = false;
    base::Nanos end = {};  // When others are waited for no longer.
    for (;;) {
      bool worked = SendOutgoing();
      worked |= Receive();
      std::erase_if(sending_, [](Sending& sending) { return IsSent(sending); });
      std::unique_lock lock(mutex_);
      if (ending_ && !said_last && outgoing_.empty()) {
        outgoing_.push_back(std::string());
        said_last = true;
        end = base::Clock::Steady().Now() + end_timeout_;
      }
      if (said_last && outgoing_.empty() && sending_.empty() && num_ended_ == size_ - 1) break;
      // MPI_Finalize would wait for them for ever.
      if (said_last && base::Clock::Steady().Now() >= end) return;
      if (worked || !outgoing_.empty()) continue;
      wake_.wait_for(lock, num_waiting_ > 0 || ending_ ? kSleepWaitedFor : kSleepIdle);
    }
    MPI_Finalize();
  }

  Status StartMpi() {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
      return Unavailable("MPI_Init_thread failed");
    }
    int rank = 0, size = 0, node_rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_free(&node);
    rank_ = rank;
    size_ = size;
    node_rank_ = node_rank;
    return {};
  }

  bool SendOutgoing() {
    std::deque<std::string> outgoing;
    {
      const std::scoped_lock lock(mutex_);
      outgoing.swap(outgoing_);
    }
    for (std::string& message : outgoing) {
      Sending& sending = sending_.emplace_back();
      sending.message = std::move(message);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        MPI_Isend(sending.message.data(), static_cast<int>(sending.message.size()), MPI_BYTE, peer, kTag,
                  MPI_COMM_WORLD, &sending.requests.emplace_back());
      }
    }
    return !outgoing.empty();
  }

  static bool IsSent(Sending& sending) {
    int done = 0;
    MPI_Testall(static_cast<int>(sending.requests.size()), sending.requests.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

  bool Receive() {
    bool received = false;
    for (;;) {
      int arrived = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &arrived, &status);
      if (arrived == 0) return received;
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::string message(static_cast<size_t>(bytes), '\0');
      MPI_Recv(message.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      received = true;
      if (message.empty()) {
        ++num_ended_;
        continue;
      }
      auto [key, value] = Decode(message);
      const std::scoped_lock lock(mutex_);
      values_.emplace(std::move(key), std::move(value));  // The first one stays.
      changed_.notify_all();
    }
  }

  const base::Nanos end_timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;  // For Get and WaitUntilStarted; wake_ is for the thread.
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::map<std::string, std::string, std::less<>> values_;
  std::deque<std::string> outgoing_;
  int num_waiting_ = 0;
  bool started_ = false;
  bool ending_ = false;
  Status failure_;

  // Set before started_.
  int64_t rank_ = 0, size_ = 1, node_rank_ = 0;

  // The thread's own.
  std::list<Sending> sending_;  // Its nodes stay where they are: MPI reads them.
  int64_t num_ended_ = 0;       // Ranks whose last message came.

  std::thread thread_;
};

}  // namespace

bool HasMpi() { return true; }

Result<std::unique_ptr<MpiRendezvous>> MpiRendezvous::Start(base::Nanos end_timeout) {
  auto mpi = std::make_unique<Mpi>(end_timeout);
  HIR_TRY(mpi->WaitUntilStarted());
  return std::unique_ptr<MpiRendezvous>(std::move(mpi));
}

}  // namespace hir::comm
