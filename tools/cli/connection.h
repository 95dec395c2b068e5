// Connection: the daemon that a command talks to: one that runs, or one that is started for the command.
#pragma once

#include <memory>
#include <string>

#include "csrc/base/status.h"
#include "service/client/client.h"
#include "service/client/private_daemon.h"
#include "tools/cli/options.h"
#include "tools/cli/outcome.h"
#include "tools/cli/progress.h"

namespace hir::cli {

// Where options, $HOSTIR_ADDRESS or the default say that a daemon listens.
std::string AddressOf(const Options& options);
// A client of the daemon at `address`, without a session. `options`: their certificates.
Outcome ConnectTo(const std::string& address, const Options& options, std::unique_ptr<service::Client>* client);

class Connection {
 public:
  // A session with the daemon of --address, $HOSTIR_ADDRESS or hostird's default; with --devices, or where nobody
  // listens at the default, with one that is started and ends with this. `progress` outlives it. Errors: Outcome's code
  // says which kind.
  static Outcome Open(const Options& options, Progress& progress, Connection* out);

  service::Client& client() { return *client_; }
  // "unix:/run/user/1000/hostir/socket", "a daemon of its own on cpu:4".
  const std::string& where() const { return where_; }

  // How a command ends that got `status` of a request. `of_run`: of a run, or of what waits for one.
  Outcome Failed(const Status& status, bool of_run) const;

 private:
  std::unique_ptr<service::PrivateDaemon> daemon_;  // Null: one that ran before. Outlives the client.
  std::unique_ptr<service::Client> client_;
  std::string where_;
};

}  // namespace hir::cli
