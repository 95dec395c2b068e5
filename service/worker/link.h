// Link: a worker's end of what it has in common with its daemon: the socket, and the memory where runs are posted to
// all ranks at once. Ordered messages are for the main thread, which takes them itself: no other thread has to wake for
// them. While it has been at one for a while a thread of the link reads the socket, so a worker that is stuck in a run
// still says where, and ends when its daemon does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "csrc/base/busy_wait.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/worker.pb.h"
#include "multidevice/rendezvous/rendezvous.h"
#include "service/os/broadcast.h"
#include "service/os/channel.h"

namespace hir::service {

// When the socket ends the process exits: there is nobody to work for. Lives until then.
class Link final : public comm::Rendezvous {
 public:
  struct Options {
    int64_t rank = 0;
    int64_t generation = 0;
  };
  // `dump` answers Dump, on the link's thread.
  Link(base::Fd socket, Options options, std::function<::hostir::v1::Dumped()> dump);

  struct Request {
    const ::hostir::v1::Execute* posted = nullptr;  // To all ranks, until the next one; or else
    ::hostir::v1::ToWorker message;                 // what came by the socket.
    std::vector<base::Fd> fds;
  };
  // The next message for the main thread; blocks.
  Request Next();
  // Sends `message`, the answer to the message `seq`.
  void Answer(int64_t seq, ::hostir::v1::FromWorker message);
  // The same for what was posted.
  void AnswerPosted(::hostir::v1::FromWorker message);

  // The rendezvous of this generation, which the daemon keeps.
  Status Publish(std::string_view key, std::string_view bytes) override;
  Result<std::string> Get(std::string_view key, base::Nanos timeout) override;

 private:
  [[noreturn]] void StandIn();  // The link's thread.
  // Reads what the socket has, and answers it or keeps it.
  void ReadAll();
  void Read(Channel::Message message);
  // Returns when the socket has something, or there was a message or a ring since `bell`.
  void Sleep(uint32_t bell);
  // Whether something was posted, or rung, since `bell`, or is before `look` is over.
  bool Look(uint32_t bell, base::Look& look) const;
  void SetTimer(base::Nanos time);

  const Options options_;
  const std::function<::hostir::v1::Dumped()> dump_;
  Channel channel_;

  const base::Fd timer_;          // Runs out when the main thread may have been at a request for long.
  ::hostir::v1::Execute posted_;  // The main thread's.

  std::mutex mutex_;
  std::condition_variable changed_;             // Guarded by mutex_: reading the socket, and what follows.
  std::optional<BroadcastReceiver> broadcast_;  // Set by Hello, as the next; then the main thread's.
  bool is_busy_ = true;                         // The main thread, with a request or before the first one.
  base::Nanos taken_ = {};                      // When it took its request.
  bool timer_runs_ = false;                     // It is set where it must be and left to run out: setting it is dear.
  bool has_stand_in_ = false;                   // The link's thread waits for what the socket has.
  std::deque<Request> requests_;
  std::map<std::string, std::string, std::less<>> values_;
  std::thread reader_;
};

}  // namespace hir::service
