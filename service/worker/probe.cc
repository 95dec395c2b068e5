#include "service/worker/probe.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "service/os/channel.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr base::Nanos kProbeSendTimeout = std::chrono::seconds(10);
constexpr int64_t kTrialBytes = int64_t{64} << 20;  // Enough to see that the device gives memory.

void SetError(const Status& status, pb::Error* error) {
  error->set_code(static_cast<int>(status.code()));
  error->set_message(std::string(status.message()));
}

Status Open(const rank::Backends& backends, int64_t ordinal) {
  HIR_ASSIGN(const auto device, backends.make_device({.ordinal = ordinal, .memory_bytes_max = kTrialBytes}));
  return device->Allocate(kTrialBytes / 2).status();
}

void Describe(const rank::Backends& backends, pb::ProbedDevice& out) {
  const Result<rank::DeviceFacts> facts = backends.facts_of(out.ordinal());
  Status status = facts.status();
  if (facts.ok()) {
    out.set_model(facts->model);
    out.set_uuid(facts->uuid);
    out.set_memory_bytes(facts->memory_bytes);
    out.mutable_target()->set_architecture(facts->target.architecture);
    out.mutable_target()->set_multiprocessors(facts->target.multiprocessors);
    out.mutable_target()->set_shared_bytes(facts->target.shared_bytes);
    out.mutable_target()->set_cudnn(facts->target.cudnn);
    status = Open(backends, out.ordinal());
  }
  if (!status.ok()) SetError(status, out.mutable_error());
}

}  // namespace

pb::Probed Probe(const rank::Backends& backends, const pb::Probe& probe) {
  pb::Probed probed;
  std::vector<int64_t> ordinals(probe.ordinals().begin(), probe.ordinals().end());
  const Result<int64_t> count = backends.num_devices();  // Without a driver one error says it all.
  if (!count.ok()) {
    SetError(count.status(), probed.mutable_error());
    return probed;
  }
  for (int64_t i = 0; probe.all() && i < *count; ++i) ordinals.push_back(i);
  for (const int64_t ordinal : ordinals) probed.add_devices()->set_ordinal(ordinal);
  {
    std::vector<std::jthread> threads;
    for (pb::ProbedDevice& device : *probed.mutable_devices())
      threads.emplace_back([&] { Describe(backends, device); });
  }
  return probed;
}

void ServeProbe(base::Fd socket, const rank::Backends& backends) {
  Channel channel(std::move(socket));
  const auto received = channel.Receive(/*block=*/true);
  pb::ToWorker message;
  if (!received.ok() || !message.ParseFromString((*received)->bytes) || !message.has_probe()) _exit(1);
  pb::FromWorker answer;
  *answer.mutable_probed() = Probe(backends, message.probe());
  _exit(channel.Send(answer.SerializeAsString(), {}, kProbeSendTimeout).ok() ? 0 : 1);
}

}  // namespace hir::service
