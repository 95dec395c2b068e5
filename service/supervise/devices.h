// The devices that a daemon runs on: what was asked for, and what of it can be used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/worker.pb.h"

namespace hir::service {

inline constexpr int64_t kDevicesMax = 64;

// What --devices says.
struct DeviceRequest {
  std::string kind = "cpu";
  bool all = false;                    // Every one that there is.
  std::vector<int64_t> ordinals = {};  // Else these, in this order: the devices 0, 1, ... of programs.
};

// "cpu:4" (four of them), "cuda:all", "cuda:0,2" and "cuda:2" (those GPUs).
// Errors: kInvalidArgument naming what is wrong; kinds that are mixed are.
Result<DeviceRequest> ParseDevices(std::string_view text);

struct LocalDevice {
  int64_t ordinal = 0;
  std::string model = {};  // "NVIDIA H200"; empty for CPUs.
  int64_t memory_bytes = 0;
  ::hostir::v1::Target target = {};
  Status failure = {};    // Of a device that cannot be used.
  std::string uuid = {};  // Of a GPU, 16 bytes.
  std::string node = {};  // The address of the node that has it; empty: this one is alone.
  bool is_here = true;    // On this node.
};

struct Devices {
  std::string kind = "cpu";
  bool own_memory = false;               // Tensors live in the devices' memory, not in the daemon's.
  std::vector<LocalDevice> used = {};    // By rank.
  std::vector<LocalDevice> failed = {};  // Asked for, and why each cannot be used.
  Status failure = {};                   // Why none is used.

  int64_t size() const { return static_cast<int64_t>(used.size()); }
  std::string NameOf(int64_t rank) const;  // "cuda:2"
  // What plans for all of them may rely on.
  ::hostir::v1::Target target() const;
};

struct ProbeOptions {
  std::string worker_path;
  std::vector<std::string> worker_args = {};
  base::Nanos timeout = std::chrono::seconds(60);
};

// Finds out what of `request` can be used: a process of its own opens each device once, so nothing a driver does can
// end the daemon. CPUs need none.
// Errors: none: a daemon serves on with what there is. `failure` is set when that is nothing.
Devices FindDevices(const DeviceRequest& request, const ProbeOptions& options);

// What the answer of a probe means: devices with another architecture than the first cannot run its plans.
Devices FromProbe(const DeviceRequest& request, const ::hostir::v1::Probed& probed);

}  // namespace hir::service
