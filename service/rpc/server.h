// Server: the service on an address, with health and reflection beside it.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <optional>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "service/engine/engine.h"
#include "service/log/access_log.h"
#include "service/metrics/exposer.h"
#include "service/os/address.h"
#include "service/os/listen.h"
#include "service/tls/files.h"

namespace hir::service {

// For a process that ends with its server; called before it has one. gRPC is then not taken down with the server: for
// that it waits for a thread of its own, which after a write that had to wait goes on polling, up to 10 s.
void KeepTransport();

// Serves from Start to its destruction. Threads: one at a time.
class Server {
 public:
  // `engine` has been started, and outlives the server, as `access` does: the access log, or null. `tls`: all of its
  // files, which have been checked: over TCP only those are served that show a certificate of its authorities; what
  // replaces a file holds for connections from some seconds after on. None: what connects is served.
  // `given`: sockets that listen on the address already. `beside`: another service at the same address, or null.
  // Errors: kUnavailable: the address cannot be listened on.
  static Result<std::unique_ptr<Server>> Start(HeldAddress held, const TlsFiles& tls, Engine& engine,
                                               AccessLog* access = nullptr, std::optional<Listening> given = {},
                                               std::unique_ptr<grpc::Service> beside = {});
  virtual ~Server() = default;

  virtual const std::string& address() const = 0;  // What clients connect to: "unix:/path", "127.0.0.1:50051".
  // No new work, for the engine neither, and health says so at once; returns when the old is done, or with false at
  // `deadline`.
  virtual bool Drain(base::Nanos deadline) = 0;
  // Where requests are carried out: rpc_threads threads, and a queue for queued_rpcs_max; and as many for transfers.
  virtual base::WorkPool& pool() = 0;
  virtual base::WorkPool& bulk() = 0;
  // For the page of metrics. From any thread.
  virtual MetricsState metrics_state() const = 0;
  // For the page in the browser; the server outlives them.
  virtual PageTexts page_texts() const = 0;
};

}  // namespace hir::service
