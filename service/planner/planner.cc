#include "service/planner/planner.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "hostir/v1/worker.pb.h"
#include "service/os/channel.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr base::Nanos kSendTimeout = std::chrono::seconds(10);

pb::FromWorker Answer(const pb::ToWorker& message, PipelineOptions& options) {
  pb::FromWorker answer;
  answer.set_seq(message.seq());
  pb::PlanMade& made = *answer.mutable_plan_made();
  const pb::MakePlan& asked = message.make_plan();
  options.num_devices = asked.num_devices();
  options.target = {};
  if (asked.target().architecture() > 0) {
    options.target = {.kind = codegen::Target::Kind::kGpu,
                      .architecture = static_cast<int>(asked.target().architecture()),
                      .multiprocessors = static_cast<int>(asked.target().multiprocessors()),
                      .shared_bytes = asked.target().shared_bytes()};
  }
  options.sizes = {asked.sizes().begin(), asked.sizes().end()};
  auto plan = MakePlan(asked.program(), options);
  if (plan.ok()) {
    *made.mutable_plan() = *std::move(plan);
  } else {
    made.mutable_error()->set_code(static_cast<int>(plan.status().code()));
    made.mutable_error()->set_message(std::string(plan.status().message()));
  }
  return answer;
}

}  // namespace

void ServePlanner(Fd socket, PipelineOptions options) {
  Channel channel(std::move(socket));
  for (;;) {
    auto received = channel.Receive(/*block=*/true);
    if (!received.ok()) _exit(0);  // The daemon has gone.
    pb::ToWorker message;
    if (!message.ParseFromString((*received)->bytes) || !message.has_make_plan()) continue;
    if (!channel.Send(Answer(message, options).SerializeAsString(), {}, kSendTimeout).ok())
      _exit(1);
  }
}

}  // namespace hir::service
