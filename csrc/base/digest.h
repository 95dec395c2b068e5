// A name for bytes.
#pragma once

#include <string>
#include <string_view>

namespace hir::base {

// 32 hexadecimal digits: enough to notice damage and to keep names apart. Not against forgery.
std::string Digest(std::string_view bytes);

}  // namespace hir::base
