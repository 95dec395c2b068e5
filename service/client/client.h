// Client: one connection to a daemon, and a session there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/service.pb.h"
#include "service/tls/files.h"

namespace hir::service {

// Errors are the daemon's, code and message. Threads: one at a time. Destruction ends the session, which frees its
// tensors.
class Client {
 public:
  // Connects, without a session. `address`: ParseAddress's. `tls`: WithEnvironment's: with its three files a connection
  // over TCP is one of TLS, without them it goes no further than this machine. Errors: kInvalidArgument; CheckTls's;
  // kUnavailable when nobody answers there, at once where nobody listens, else after `timeout`; kUnauthenticated when
  // one side does not take the other's certificate, or only one speaks TLS.
  static Result<std::unique_ptr<Client>> Connect(const std::string& address, const TlsFiles& tls, base::Nanos timeout);
  // Files that are not `given` are $HOSTIR_CA's, $HOSTIR_CERT's and $HOSTIR_KEY's.
  static TlsFiles WithEnvironment(TlsFiles given);
  virtual ~Client() = default;

  virtual const std::string& address() const = 0;
  // Opens the session that all calls below but GetStatus need. `name`: for the daemon's log. `told`: called on a thread
  // of the client's with how far a plan is that a call waits for, in order, some left out; may be null.
  using Told = std::function<void(const ::hostir::v1::PlanProgress&)>;
  virtual Status OpenSession(const std::string& name, Told told) = 0;
  virtual const ::hostir::v1::SessionEvent& session() const = 0;

  virtual Result<::hostir::v1::StatusReply> GetStatus() = 0;
  // As of Runtime.DrainNode: the node's address.
  virtual Result<std::string> DrainNode(const std::string& node, bool back) = 0;
  virtual Result<::hostir::v1::EventsReply> GetEvents() = 0;
  virtual Result<::hostir::v1::CompileReply> Compile(const ::hostir::v1::ProgramSource& program) = 0;
  using Sizes = std::map<std::string, int64_t>;
  virtual Result<::hostir::v1::ExplainReply> Explain(const ::hostir::v1::ProgramSource& program,
                                                     const Sizes& sizes) = 0;
  // `request`: all but the session.
  virtual Result<::hostir::v1::RunReply> Run(::hostir::v1::RunRequest request) = 0;
  // `header`: all but the session. `sent`, called with the number of bytes sent so far, may be null.
  using Sent = std::function<void(int64_t)>;
  virtual Result<::hostir::v1::Tensor> Upload(::hostir::v1::UploadHeader header, std::span<const std::byte> bytes,
                                              const Sent& sent) = 0;
  // `begin` gets the header, `chunk` then all bytes in order; where one fails the download ends with its error.
  using Begin = std::function<Status(const ::hostir::v1::DownloadHeader&)>;
  using Chunk = std::function<Status(std::span<const std::byte>)>;
  virtual Status Download(const std::string& handle, const Begin& begin, const Chunk& chunk) = 0;
  // By as many requests as it takes; what they freed before one failed is freed.
  virtual Status Free(std::span<const std::string> handles) = 0;

  // Whether the daemon has gone since Connect: an error was not its answer.
  virtual bool lost() const = 0;
};

}  // namespace hir::service
