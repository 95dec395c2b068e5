#include "service/planner/planner.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/work_pool.h"
#include "hostir/v1/worker.pb.h"
#include "service/os/channel.h"
#include "service/os/memory_limit.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr base::Nanos kSendTimeout = std::chrono::seconds(10);
constexpr base::Nanos kProgressPause = std::chrono::milliseconds(50);  // People read it.

// Those of a head that says nothing sensible are left out.
plan::Links FromMessage(const pb::Links& message) {
  const auto is_node = [&](int64_t node) { return node >= 0 && node < message.of_node_size(); };
  const auto is_link = [](const pb::NodeLink& link) { return link.message_us() >= 0 && link.bytes_per_us() > 0; };
  if (!std::ranges::all_of(message.node_of(), is_node) || !std::ranges::all_of(message.of_node(), is_link)) return {};
  plan::Links links = {.node_of = {message.node_of().begin(), message.node_of().end()}};
  for (const pb::NodeLink& link : message.of_node())
    links.of_node.push_back(
        {.message_seconds = link.message_us() * 1e-6, .bytes_per_second = link.bytes_per_us() * 1e6});
  return links;
}

pb::FromWorker Answer(const pb::ToWorker& message, Channel& channel, PipelineOptions& options) {
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
                      .shared_bytes = asked.target().shared_bytes(),
                      .cudnn = asked.target().cudnn()};
  }
  options.progress = [&channel, seq = message.seq(), last = base::Nanos()](const pb::PlanProgress& progress) mutable {
    const base::Nanos now = base::Clock::Steady().Now();
    const bool begins = progress.kernels_compiled() == 0;
    if (!begins && now - last < kProgressPause) return;
    last = now;
    pb::FromWorker told;
    told.set_seq(seq);
    *told.mutable_plan_progress() = progress;
    // What fails here fails for the answer, too.
    (void)channel.Send(told.SerializeAsString(), {}, kSendTimeout).ok();
  };
  options.links = FromMessage(asked.links());
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

int NumThreads() { return static_cast<int>(std::thread::hardware_concurrency()); }

}  // namespace

void ServePlanner(base::Fd socket, int64_t bytes_max, PipelineOptions options) {
  Channel channel(std::move(socket));
  // A plan is made at a time; ranks are idle meanwhile, or wait for it.
  base::WorkPool pool({.num_threads = std::max(1, NumThreads()) - 1});
  options.pool = &pool;
  if (const Status limited = bytes_max > 0 ? LimitMemory(bytes_max) : Status(); !limited.ok())
    spdlog::warn("planner_bytes_max={} does not hold: {}", bytes_max, limited.message());
  for (;;) {
    auto received = channel.Receive(/*block=*/true);
    if (!received.ok()) _exit(0);  // The daemon has gone.
    pb::ToWorker message;
    if (!message.ParseFromString((*received)->bytes) || !message.has_make_plan()) continue;
    if (!channel.Send(Answer(message, channel, options).SerializeAsString(), {}, kSendTimeout).ok()) _exit(1);
  }
}

}  // namespace hir::service
