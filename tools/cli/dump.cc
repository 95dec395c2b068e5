// hostir dump.
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "service/client/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/connection.h"
#include "tools/cli/ending.h"
#include "tools/cli/json.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

std::string Ms(int64_t us) { return us == 0 ? "" : Fixed(static_cast<double>(us) / 1e3, 3); }

std::string TextOf(const pb::EventsReply& reply) {
  std::vector<std::vector<std::string>> rows = {{"ago, s", "what", "number", "name", "waited, ms", "took, ms", "end"}};
  for (const pb::Event& event : reply.events()) {
    const std::string code(CodeName(static_cast<Code>(event.code())));
    rows.push_back({Fixed(static_cast<double>(event.age_us()) / 1e6, 3), event.kind(), Cat(event.number()),
                    event.name(), Ms(event.waited_us()), Ms(event.took_us()),
                    Cat(code, event.error().empty() ? "" : ": ", event.error())});
  }
  return Cat(Table(rows), reply.earlier() > 0 ? Cat(reply.earlier(), " earlier ones are no longer kept\n") : "");
}

}  // namespace

Outcome DumpEvents(const Options& options) {
  std::unique_ptr<service::Client> client;
  if (Outcome outcome = ConnectTo(AddressOf(options), options, &client); !outcome.ok()) return outcome;
  const Result<pb::EventsReply> reply = client->GetEvents();
  if (!reply.ok()) return {reply.status(), client->lost() ? service::kExitAddress : service::kExitFailed};
  return WriteOutput(options.json ? ToJson(*reply) + "\n" : TextOf(*reply));
}

}  // namespace hir::cli
