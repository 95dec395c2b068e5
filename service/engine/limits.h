// Every limit of the daemon: name, default, range, flag. The table is limits.def.
#pragma once

#include <cstdint>
#include <string_view>

namespace hir::service {

struct Limits {
#define LIMIT(name, default_value, least, most, what) int64_t name = default_value;
#include "service/engine/limits.def"
#undef LIMIT
};

struct LimitInfo {
  std::string_view name;
  std::string_view what;
  int64_t least;  // Values from here
  int64_t most;   // to here are taken.
  int64_t Limits::*value;
};
inline constexpr LimitInfo kLimits[] = {
#define LIMIT(name, default_value, least, most, what) {#name, what, least, most, &Limits::name},
#include "service/engine/limits.def"
#undef LIMIT
};

struct Machine {
  int64_t memory_bytes = 0;         // That the service may use.
  int64_t num_cpu_devices = 0;      // They share it.
  int64_t device_memory_bytes = 0;  // Of all devices with memory of their own; 0: they have none.
};

// `limits` with 0 replaced where 0 means "depends on the machine", and chunks that fit a message.
Limits Resolved(Limits limits, const Machine& machine);

}  // namespace hir::service
