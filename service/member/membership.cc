#include "service/member/membership.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/quoted.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;

// Changes are watched; so long after the look before there is one anyway.
constexpr milliseconds kLookEvery{1200};
constexpr milliseconds kLookAgain{250};  // Where something is missing: a head, or etcd.
constexpr int kSayEtcdWaitingMs = 5000;
// So long a request waits for etcd, which a head can be without.
constexpr milliseconds kWrittenWithin{2000};

}  // namespace

Membership::Membership(Options options, std::unique_ptr<GrpcKv> kv)
    : options_(std::move(options)),
      kv_(std::move(kv)),
      election_(options_.election, *kv_, base::Clock::Steady()),
      thread_([this] { Loop(); }) {
  kv_->Watch("/hostir/" + options_.election.cluster + "/lead/", [this] {
    const std::scoped_lock lock(mutex_);
    look_ = true;
    wanted_.notify_all();
  });
}

Membership::~Membership() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wanted_.notify_all();
  thread_.join();
}

void Membership::Answer(std::vector<Asked>& asked, const Status& status) {
  const base::Nanos now = base::Clock::Steady().Now();
  std::erase_if(asked, [&](const Asked& each) {
    if (!election_.view().heads) {
      each.done(Unavailable("another node heads the cluster, and does not know of this: make the request again"));
    } else if ((status.ok() && election_.has_written()) || now >= each.until) {
      each.done({});
    } else {
      return false;
    }
    return true;
  });
}

void Membership::Loop() {
  std::vector<Asked> asked;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool stands = stands_;
    if (std::exchange(deposed_, false)) election_.Depose();
    if (std::exchange(yielded_, false)) election_.Yielded();
    for (auto& [key, value] : std::exchange(unwritten_, {})) election_.Keep(key, std::move(value));
    std::ranges::move(std::exchange(asked_, {}), std::back_inserter(asked));
    look_ = false;
    lock.unlock();
    const Status status = election_.Look(stands && !options_.hears_head());
    options_.on_term(election_.view().term);
    Answer(asked, status);
    lock.lock();
    if (status.ok() != error_.ok()) {
      if (status.ok()) {
        spdlog::info("etcd is there again");
      } else {
        const bool is_away = status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded;
        spdlog::warn("{}: who is a member, and heads, stays as it is error={}",
                     is_away ? "etcd is not there" : "etcd has not taken it", base::Quoted(status.ToString()));
      }
    }
    error_ = status;
    const Election::View& now = election_.view();
    is_registered_ = is_registered_ || (status.ok() && now.own >= 0);
    // It stands again when whoever served clients has ended that: Stand.
    if (election_.was_deposed() && view_.heads)
      spdlog::warn("term={} has another head: {}", now.term, now.head ? now.head->address() : "");
    view_ = now;
    changed_.Signal();
    const bool is_settled = status.ok() && now.head && (!now.heads || !now.nodes.empty());
    wanted_.wait_for(lock, is_settled ? kLookEvery : kLookAgain,
                     [this] { return stopping_ || look_ || !unwritten_.empty(); });
  }
  std::ranges::move(std::exchange(asked_, {}), std::back_inserter(asked));
  lock.unlock();
  election_.Leave();
  Answer(asked, {});
}

Status Membership::WaitRegistered(int interrupt_fd, const Waiting& waiting) {
  for (;;) {
    pollfd fds[2] = {{interrupt_fd, POLLIN, 0}, {changed_.fd(), POLLIN, 0}};
    const int ready = poll(fds, 2, kSayEtcdWaitingMs);
    std::string why;
    {
      const std::scoped_lock lock(mutex_);
      changed_.Clear();
      if (is_registered_) return {};
      if (error_.code() == Code::kFailedPrecondition || error_.code() == Code::kDataLoss) return error_;
      why = error_.ok() ? "etcd" : error_.ToString();
    }
    if (fds[0].revents != 0) return Status(Code::kCancelled, "while it waited for " + why);
    if (ready == 0) waiting(why);
  }
}

void Membership::Stand() {
  const std::scoped_lock lock(mutex_);
  stands_ = true;
  yielded_ = true;
  look_ = true;
  wanted_.notify_all();
}

Election::View Membership::view() {
  const std::scoped_lock lock(mutex_);
  changed_.Clear();
  return view_;
}

void Membership::Deposed() {
  const std::scoped_lock lock(mutex_);
  deposed_ = true;
  look_ = true;
  wanted_.notify_all();
}

void Membership::Keep(const std::string& key, std::optional<std::string> value) {
  const std::scoped_lock lock(mutex_);
  unwritten_[key] = std::move(value);
  wanted_.notify_all();
}

void Membership::WhenWritten(std::function<void(const Status&)> done) {
  const std::scoped_lock lock(mutex_);
  asked_.push_back({std::move(done), base::Clock::Steady().Now() + kWrittenWithin});
  look_ = true;
  wanted_.notify_all();
}

}  // namespace hir::service
