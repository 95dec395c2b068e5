// Server: the service on an address, with health and reflection beside it.
#pragma once

#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "service/engine/engine.h"

namespace hir::service {

struct ServerOptions {
  std::string listen;         // "unix:/path" or "tcp:127.0.0.1:50051" (port 0: any)
  bool insecure_tcp = false;  // TCP has neither encryption nor authentication yet.
};

// Serves from Start to its destruction. Threads: one at a time.
class Server {
 public:
  // `engine` has been started, and outlives the server.
  // Errors: kInvalidArgument for an address that is none, or TCP without insecure_tcp; kPermissionDenied for TCP that
  //         is not loopback, or a socket's directory that others may enter; kAlreadyExists when another daemon
  //         listens there; kUnavailable.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, Engine& engine);
  virtual ~Server() = default;

  virtual const std::string& address()
      const = 0;  // What clients connect to: "unix:/path", "127.0.0.1:50051".
  // No new work; returns when the old is done, or with false at `deadline`.
  virtual bool Drain(base::Nanos deadline) = 0;
  // Where requests are carried out: rpc_threads threads, and a queue for queued_rpcs_max.
  virtual base::WorkPool& pool() = 0;
};

}  // namespace hir::service
