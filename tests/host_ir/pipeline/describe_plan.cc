#include "tests/host_ir/pipeline/describe_plan.h"

#include <vector>

#include "csrc/base/text.h"

namespace hir::host {

std::string DescribePlan(const ProgramPlan& plan) {
  std::string out = DescribeSegments(plan);
  for (const QueuedCommunication& queued : CommunicationsInQueueOrder(plan)) {
    const plan::Communication& communication = *queued.communication;
    std::vector<std::string> teams;
    for (const auto& ranks : communication.teams) {
      teams.push_back(base::Cat("[", base::JoinInts(ranks, ", "), "]"));
    }
    base::Append(out, communication.type, " of ", communication.tensor, " in ", base::Join(teams, " "), ": ",
                 ir::ToString(communication.bytes), " bytes\n");
  }
  for (const ir::Guard& guard : plan.host->guards) {
    const bool equal = guard.kind == ir::Guard::Kind::kEqual;
    base::Append(out, "guard ", ir::ToString(guard.left), equal ? " == " : " <= ", ir::ToString(guard.right), " (",
                 guard.reason, ")\n");
  }
  return out;
}

}  // namespace hir::host
