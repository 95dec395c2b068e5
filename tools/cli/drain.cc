// hostir drain, hostir undrain: a node of a cluster leaves the mesh, and has a part in it again.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "csrc/base/text.h"
#include "service/client/client.h"
#include "service/os/exit_code.h"
#include "tools/cli/commands.h"
#include "tools/cli/connection.h"
#include "tools/cli/outcome.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;

constexpr std::chrono::milliseconds kLookAgain{100};

// Whether devices of the node have a part in runs.
bool HasPart(const pb::StatusReply& status, const std::string& node) {
  for (const pb::Device& device : status.devices()) {
    if (device.node() == node && !device.has_error()) return true;
  }
  return false;
}

// Returns when it is so: what is under way goes on until then.
Outcome Change(const Options& options, bool back) {
  std::unique_ptr<service::Client> client;
  if (Outcome outcome = ConnectTo(AddressOf(options), options, &client); !outcome.ok()) return outcome;
  const auto failed = [&client](const Status& status) {
    return Outcome{status, client->lost() ? service::kExitAddress : service::kExitFailed};
  };
  const Result<std::string> node = client->DrainNode(options.node, back);
  if (!node.ok()) return failed(node.status());
  for (;;) {
    const Result<pb::StatusReply> status = client->GetStatus();
    if (!status.ok()) return failed(status.status());
    if (HasPart(*status, *node) == back) break;
    std::this_thread::sleep_for(kLookAgain);
  }
  return WriteOutput(base::Cat(*node, back ? " has a part in runs again\n"
                                           : " is drained: its daemon may be stopped; hostir undrain has it back\n"));
}

}  // namespace

Outcome DrainNode(const Options& options) { return Change(options, /*back=*/false); }

Outcome UndrainNode(const Options& options) { return Change(options, /*back=*/true); }

}  // namespace hir::cli
