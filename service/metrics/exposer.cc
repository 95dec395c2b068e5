#include "service/metrics/exposer.h"

#include <netdb.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"
#include "service/metrics/page.h"
#include "service/os/listen.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr base::Nanos kKnockPause = std::chrono::milliseconds(10);
constexpr int kNice = 10;  // A tenth of the cores, where others want them too.
// The HTTP server's own settings. Who has not sent its request within the time, or does not take the answer, is cut
// off; beyond the queue, connections wait in the system.
constexpr const char* kSettings[] = {
    "num_threads",       "2",  "request_timeout_ms",       "2000", "connection_queue", "16",
    "enable_keep_alive", "no", "enable_directory_listing", "no"};

// One page after another. A flood of requests finds threads that sleep: if each took what time it can, the threads that
// carry out runs would wait for cores.
class Collected final : public prometheus::Collectable {
 public:
  Collected(const Metrics& metrics, std::function<MetricsState()> state)
      : metrics_(metrics), state_(std::move(state)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::scoped_lock lock(mutex_);
    std::this_thread::sleep_for(next_ - base::Clock::Steady().Now());
    const base::Nanos now = base::Clock::Steady().Now();
    next_ = now + kBetweenPages;
    return Page(metrics_, state_(), now);
  }

 private:
  const Metrics& metrics_;
  const std::function<MetricsState()> state_;
  mutable std::mutex mutex_;       // Guards the next; others wait for it.
  mutable base::Nanos next_ = {};  // When a page may be made.
};

// A connection to `address` that ends at once.
void Knock(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string named = address.substr(0, colon);
  const std::string host = named.starts_with('[') ? named.substr(1, named.size() - 2) : named;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return;
  const base::Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)connect(fd.get(), found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
}

class HttpExposer final : public Exposer {
 public:
  HttpExposer(const Metrics& metrics, std::function<MetricsState()> state)
      : collected_(std::make_shared<Collected>(metrics, std::move(state))) {}
  ~HttpExposer() override {
    if (server_ == nullptr) return;
    // The server looks every two seconds whether it is to end, and after each connection.
    std::atomic<bool> ended = false;
    std::thread knocking([&] {
      for (; !ended; std::this_thread::sleep_for(kKnockPause)) Knock(address_);
    });
    server_ = nullptr;
    ended = true;
    knocking.join();
  }

  Status Listen(const Address& address) {
    HIR_TRY(ListenOn(address).status());  // The server would not say what is wrong.
    std::vector<std::string> settings(std::begin(kSettings), std::end(kSettings));
    settings.insert(settings.end(), {"listening_ports", address.target});
    std::string error;
    // Threads inherit how nice the one is that makes them, which cannot be less nice afterwards.
    std::thread([&] {
      (void)setpriority(PRIO_PROCESS, 0, kNice);  // Of this thread alone.
      try {
        server_ = std::make_unique<prometheus::Exposer>(settings);
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
    }).join();
    if (server_ == nullptr) return Unavailable(Cat("cannot listen on ", address.ToString(), ": ", error));
    server_->RegisterCollectable(collected_);
    const std::vector<int> ports = server_->GetListeningPorts();
    address_ = Cat(address.target.substr(0, address.target.rfind(':')), ":", ports.empty() ? 0 : ports.front());
    if (ports.size() != 1) return Internal(Cat(address.ToString(), ": ", ports.size(), " ports are listened on"));
    return {};
  }
  const std::string& address() const override { return address_; }

 private:
  const std::shared_ptr<Collected> collected_;
  std::unique_ptr<prometheus::Exposer> server_;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<Exposer>> Exposer::Start(const Address& address, const Metrics& metrics,
                                                std::function<MetricsState()> state) {
  if (!address.IsNumeric()) return InvalidArgument(Cat(address.ToString(), ": want the number of an address"));
  auto exposer = std::make_unique<HttpExposer>(metrics, std::move(state));
  HIR_TRY(exposer->Listen(address));
  return std::unique_ptr<Exposer>(std::move(exposer));
}

}  // namespace hir::service
