// Every limit of the daemon: name, default, flag. The table is limits.def.
#pragma once

#include <cstdint>
#include <string_view>

namespace hir::service {

struct Limits {
#define LIMIT(name, default_value, what) int64_t name = default_value;
#include "service/engine/limits.def"
#undef LIMIT
};

struct LimitInfo {
  std::string_view name;
  std::string_view what;
  int64_t Limits::*value;
};
inline constexpr LimitInfo kLimits[] = {
#define LIMIT(name, default_value, what) {#name, what, &Limits::name},
#include "service/engine/limits.def"
#undef LIMIT
};

// `limits` with 0 replaced where 0 means "depends on the machine".
Limits Resolved(Limits limits);

}  // namespace hir::service
