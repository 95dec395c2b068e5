// Listener: accepts the daemon's connections, counts and bounds them, and knows who is at the other end.
//
// gRPC 1.51 could do the first, but drops its listening socket for ever when accept once finds no free descriptor, and
// does none of the rest.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/os/address.h"
#include "service/os/listen.h"
#include "service/os/wakeup.h"

namespace hir::service {

struct ListenerOptions {
  int64_t connections_max = 1024;                         // A newcomer beyond them is closed at once.
  base::Nanos preface_timeout = std::chrono::seconds(5);  // So long a connection may say nothing of HTTP/2, or TLS.
  base::Nanos full_timeout = std::chrono::seconds(1);     // So long a newcomer waits for a free descriptor.
  bool tls = false;                                       // Connections begin with TLS.
};

// Thread-safe but for Start and Stop, which are its owner's. One thread of its own accepts.
class Listener {
 public:
  // The other end of a connection, at the time it connected.
  struct Peer {
    uid_t uid = 0;
    pid_t pid = 0;  // Of the peer's namespace of processes; by now it may be another's.
  };

  // A connection that begins so, with the token of a transfer behind it (kTokenBytes), wants that one's descriptors, or
  // brings them, and no HTTP/2. As long as the preface of that.
  static constexpr std::string_view kMemoryPreface = "HOSTIR-SHARED-MEMORY/1\r\n";
  static constexpr size_t kTokenBytes = 32;
  // A connection that begins so has requests in frames behind it (framed_calls.h).
  static constexpr std::string_view kFramesPreface = "HOSTIR-FRAMED-CALLS/01\r\n";

  // Clients that connect from now on wait for Start. `given`: sockets that listen on the address already.
  // Errors: kUnavailable: the address cannot be listened on.
  static Result<std::unique_ptr<Listener>> Open(const Address& address, const ListenerOptions& options,
                                                std::optional<Listening> given = {});
  ~Listener() { Stop(); }

  const std::string& address() const { return address_; }

  // Each gets a connection by how it begins, on the listener's thread, and must not block.
  struct Takers {
    // The descriptor of one that has begun to speak HTTP/2, or TLS, with nothing read from it: to be closed in the end.
    std::function<void(int fd)> serve;
    // Of Unix sockets alone, as the next; either may be missing. One that wants descriptors, or has `brought` some.
    std::function<void(base::Fd socket, std::string_view token, std::vector<base::Fd> brought, const Peer& peer)>
        exchange = {};
    // One of frames, with its preface read.
    std::function<void(base::Fd socket, const Peer& peer)> frames = {};
  };
  void Start(Takers takers);
  // Nobody is accepted any more, and `serve` is not under way. What has been served is left as it is.
  void Stop();

  // The peer of a connection whose ServerContext::peer() is `peer` ("fd:12"); nothing for TCP. The call that asks must
  // be alive: gRPC closes the descriptor, whose number then is another's, after the last call on it.
  std::optional<Peer> PeerOf(std::string_view peer) const;
  // Those whose descriptors are open.
  int64_t connections() const;
  // Since the start: at connections_max, or for want of a descriptor.
  int64_t refused() const { return refused_; }

 private:
  // A connection that gRPC has, or one of frames. When it closes the descriptor nobody says so, and who needs to know
  // asks whether the number still names the same socket. A duplicate would say when the peer leaves, for twice the
  // descriptors; epoll without one says nothing of a descriptor that is closed before anybody looks.
  struct Served {
    dev_t device = 0;
    ino_t inode = 0;
    std::optional<Peer> peer;
  };
  // A connection that has not begun to speak.
  struct Silent {
    base::Fd fd;
    std::optional<Peer> peer;
    base::Nanos deadline = {};
  };
  enum class Preface { kHttp, kMemory, kFrames, kPart, kWrong };

  Listener(Listening listening, bool is_unix, const ListenerOptions& options);
  Preface PrefaceOf(int fd) const;
  static Preface PrefaceOfTls(int fd);
  static bool IsOpen(int fd, const Served& served);

  void Loop();
  int MsToWait() const;
  void Watch(bool on);
  void AcceptFrom(int listening);
  void Add(base::Fd fd);
  bool AcceptWithoutDescriptor(int listening);  // Whether to go on.
  void Look(int fd, uint32_t events);
  static bool IsWhole(Preface preface);
  void Begin(Preface preface, Silent connection);
  void ServeFrames(Silent connection);
  void Count(const Silent& connection);  // Among those that are served.
  void EndSilent();
  void Refuse(std::string_view why);
  void Forget() const;  // Those of served_ that are closed. REQUIRES: mutex_.

  const ListenerOptions options_;
  const bool is_unix_;
  const std::string address_;
  std::vector<base::Fd> listening_;
  base::Fd epoll_;
  base::Fd reserve_;  // Closed to have a descriptor for who is turned away.
  Wakeup stop_;
  Takers takers_;
  std::thread thread_;

  // The thread's own.
  std::map<int, Silent> silent_;
  base::Nanos look_at_silent_ = {};          // No deadline of theirs is earlier.
  std::optional<base::Nanos> full_since_;    // When accept first found no descriptor, and has since.
  std::optional<base::Nanos> try_again_at_;  // Until then nobody is accepted.
  base::Nanos say_refused_at_ = {};
  int64_t refused_said_ = 0;

  std::atomic<int64_t> num_silent_ = 0;
  std::atomic<int64_t> refused_ = 0;
  mutable std::mutex mutex_;
  mutable std::unordered_map<int, Served> served_;  // Guarded by mutex_.
};

}  // namespace hir::service
