#include "service/supervise/devices.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "service/os/channel.h"
#include "service/os/process.h"
#include "service/supervise/child_error.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;
using std::chrono::milliseconds;

constexpr base::Nanos kProbeSendTimeout = std::chrono::seconds(2);

Status Unusable(std::string_view text, std::string_view why) {
  return InvalidArgument(Cat(text, ": want cpu:N with N from 1 to ", kDevicesMax,
                             ", cuda:all, or GPUs by number such as cuda:0,2 (", why, ")"));
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// The answer of a probe. Errors: how it ended instead.
Result<pb::Probed> Ask(const DeviceRequest& request, const ProbeOptions& options) {
  HIR_ASSIGN(auto ends, Channel::Pair());
  std::vector<std::string> args = {"--role=probe", Cat("--device=", request.kind, ":0"),
                                   Cat("--parent-pid=", getpid())};
  args.insert(args.end(), options.worker_args.begin(), options.worker_args.end());
  HIR_ASSIGN(Process process, Process::Spawn(options.worker_path, args, ends.second));
  ends.second.Close();
  Channel channel(std::move(ends.first));
  pb::ToWorker message;
  message.mutable_probe()->set_all(request.all);
  for (const int64_t ordinal : request.ordinals) message.mutable_probe()->add_ordinals(ordinal);
  const auto ended = [&] {
    return Unavailable(
        Cat("the process that looked for devices ", process.Ended(milliseconds(200)).value_or("ended its socket")));
  };
  if (!channel.Send(message.SerializeAsString(), {}, kProbeSendTimeout).ok()) return ended();
  pollfd readable = {channel.fd(), POLLIN, 0};
  const int64_t timeout_ms = std::chrono::ceil<milliseconds>(options.timeout).count();
  if (poll(&readable, 1, static_cast<int>(timeout_ms)) <= 0) {
    return Status(Code::kDeadlineExceeded, Cat("looking for devices took longer than ", timeout_ms, " ms"));
  }
  Result<std::optional<Channel::Message>> received = channel.Receive(/*block=*/false);
  pb::FromWorker from;
  if (!received.ok() || !received->has_value() || !from.ParseFromString((*received)->bytes) || !from.has_probed()) {
    return ended();
  }
  return std::move(*from.mutable_probed());
}

}  // namespace

Result<DeviceRequest> ParseDevices(std::string_view text) {
  const size_t colon = text.find(':');
  DeviceRequest request;
  request.kind = text.substr(0, colon);
  if (colon == std::string_view::npos) return Unusable(text, "no colon");
  const std::string_view rest = text.substr(colon + 1);
  const std::vector<std::string_view> parts = Split(rest);
  for (const std::string_view part : parts) {
    const size_t other = part.find(':');
    if (other == std::string_view::npos) continue;
    return Unusable(text, part.substr(0, other) == request.kind ? Cat(request.kind, " is named twice")
                                                                : Cat(request.kind, " and ", part.substr(0, other),
                                                                      " together; a daemon has devices of one kind"));
  }
  if (request.kind == "cpu") {
    const std::optional<int64_t> count = base::ParseInt(rest);
    if (!count.has_value() || *count < 1 || *count > kDevicesMax)
      return Unusable(text, "no such number of CPU devices");
    for (int64_t i = 0; i < *count; ++i) request.ordinals.push_back(i);
    return request;
  }
  if (request.kind != "cuda") return Unusable(text, Cat("no kind of device is called ", request.kind));
  request.all = rest == "all";
  if (request.all) return request;
  for (const std::string_view part : parts) {
    const std::optional<int64_t> ordinal = base::ParseInt(part);
    if (!ordinal.has_value() || *ordinal < 0) return Unusable(text, Cat("\"", part, "\" is no GPU"));
    if (std::ranges::find(request.ordinals, *ordinal) != request.ordinals.end())
      return Unusable(text, Cat("GPU ", *ordinal, " is named twice"));
    request.ordinals.push_back(*ordinal);
  }
  if (static_cast<int64_t>(request.ordinals.size()) > kDevicesMax)
    return Unusable(text, Cat("more than ", kDevicesMax, " devices"));
  return request;
}

std::string Devices::NameOf(int64_t rank) const { return Cat(kind, ":", used[static_cast<size_t>(rank)].ordinal); }

pb::Target Devices::target() const {
  pb::Target target;
  for (size_t i = 0; i < used.size(); ++i) {
    const pb::Target& of = used[i].target;
    if (i == 0) target = of;
    target.set_multiprocessors(std::min(target.multiprocessors(), of.multiprocessors()));
    target.set_shared_bytes(std::min(target.shared_bytes(), of.shared_bytes()));
    target.set_cudnn(target.cudnn() && of.cudnn());
  }
  return target;
}

Devices FromProbe(const DeviceRequest& request, const pb::Probed& probed) {
  Devices devices;
  devices.kind = request.kind;
  devices.own_memory = true;
  devices.failure = FromError(probed.error());
  for (const pb::ProbedDevice& answer : probed.devices()) {
    LocalDevice device = {answer.ordinal(),          answer.model(), answer.memory_bytes(), answer.target(),
                          FromError(answer.error()), answer.uuid()};
    const int64_t architecture = device.target.architecture();
    if (device.failure.ok() && !devices.used.empty() && architecture != devices.used.front().target.architecture()) {
      device.failure = Status(Code::kFailedPrecondition,
                              Cat("its architecture is ", architecture, "; this daemon's plans are for ",
                                  devices.used.front().target.architecture(), ", that of ", devices.NameOf(0)));
    }
    if (device.failure.ok() && devices.size() == kDevicesMax)
      device.failure = ResourceExhausted(Cat("a daemon has at most ", kDevicesMax, " devices"));
    (device.failure.ok() ? devices.used : devices.failed).push_back(std::move(device));
  }
  if (devices.used.empty() && devices.failure.ok()) {
    devices.failure =
        devices.failed.empty()
            ? Status(Code::kFailedPrecondition, "no GPU: the driver shows none")
            : devices.failed.front().failure.WithContext(Cat(devices.kind, ":", devices.failed.front().ordinal));
  }
  return devices;
}

Devices FindDevices(const DeviceRequest& request, const ProbeOptions& options) {
  if (request.kind == "cpu") {
    Devices devices;
    for (const int64_t ordinal : request.ordinals) devices.used.push_back({.ordinal = ordinal});
    return devices;
  }
  const Result<pb::Probed> probed = Ask(request, options);
  if (probed.ok()) return FromProbe(request, *probed);
  Devices devices;
  devices.kind = request.kind;
  devices.own_memory = true;
  devices.failure = probed.status();
  return devices;
}

}  // namespace hir::service
