// FramedCalls: requests by a Unix socket without HTTP/2: a frame with a request, one with its answer, and so on, one
// request of a connection at a time. gRPC takes several times as long to carry what is small.
//
// All numbers are little-endian. The preface is answered with an empty answer. A request: bytes of the message (4), of
// the method's name (1) and of the trace context (1), the name as of the service ("Run"), the trace context, the
// message. An answer: bytes (4), gRPC's status code (4), the message, or where the code is not 0 the error's text.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/os/wakeup.h"
#include "service/rpc/listener.h"
#include "service/rpc/unary_call.h"
#include "service/store/budget.h"

namespace hir::service {

class FrameSocket;

// A request that has come in a frame. Thread-safe.
class FramedCall final : public UnaryCall {
 public:
  // As of UnaryCall's constructor. The answer goes into `socket`, whose request it is.
  static std::shared_ptr<FramedCall> Make(CallRecord record, InFlight& in_flight, CallLog& log,
                                          std::unique_ptr<google::protobuf::Message> reply,
                                          const std::shared_ptr<FrameSocket>& socket);

 private:
  friend class FrameSocket;
  FramedCall(CallRecord record, InFlight& in_flight, CallLog& log, std::unique_ptr<google::protobuf::Message> reply,
             std::shared_ptr<FrameSocket> socket);
  void Send(const Status& status, grpc::ByteBuffer answer) override;

  const std::shared_ptr<FrameSocket> socket_;
};

// Thread-safe but for Start and Stop, which are its owner's.
class FramedCalls {
 public:
  struct Options {
    int threads = 4;
    int64_t message_bytes_max = int64_t{20} << 20;
    int64_t transport_bytes_max = int64_t{64} << 20;  // Of frames beyond kSmallBytes that have not come whole.
    base::Nanos idle = std::chrono::seconds(60);      // So long a frame may stand still on its way, in or out.
  };
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;

  struct Request {
    std::string_view method;  // As the client says it, as the next.
    std::string_view trace;
    Listener::Peer peer;
    int fd = -1;  // Its number, for logs.
    grpc::ByteBuffer bytes;
    std::shared_ptr<FrameSocket> socket;
  };
  // `carry` makes a FramedCall for a request, on one of the threads here, or has it refused.
  FramedCalls(const Options& options, std::function<void(Request request)> carry);
  ~FramedCalls() { Stop(); }

  // Takes a connection whose preface is read. Does not block.
  void Add(base::Fd fd, const Listener::Peer& peer);
  // The answer of a request for which there is no call.
  static void Refuse(const Request& request, const Status& status);
  // Ends all connections: their clients have left. Calls may end later.
  void Stop();

 private:
  friend class FrameSocket;
  void Loop();
  void CountMoving(int64_t more);
  void EndStalled();
  std::shared_ptr<FrameSocket> Find(int fd);
  // Those that no longer are to be looked at. REQUIRES: it is open.
  void Forget(int fd);
  // Has `fd` looked at once more, when `events` come.
  void Watch(int fd, uint32_t events);

  const Options options_;
  const std::function<void(Request)> carry_;
  Budget bytes_;
  base::Fd epoll_;
  Wakeup stop_, moving_;
  std::atomic<int64_t> num_moving_ = 0;               // Sockets with a frame that has come, or gone, in part.
  std::atomic<base::Nanos> look_at_ = base::Nanos();  // For those of them that stand still.
  std::mutex mutex_;
  std::unordered_map<int, std::shared_ptr<FrameSocket>> sockets_;  // Guarded by mutex_, as the next.
  bool stopped_ = false;
  std::vector<std::thread> threads_;  // Last.
};

}  // namespace hir::service
