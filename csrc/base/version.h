// The version of everything here.
#pragma once

#include <string_view>

namespace hir {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace hir
