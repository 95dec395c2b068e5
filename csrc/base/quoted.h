// Quoted: text as one value on one line of a log, a TOML file or a JSON document.
#pragma once

#include <string>
#include <string_view>

namespace hir::base {

// `text` in double quotes: quotes, backslashes and control characters as JSON escapes them.
std::string Quoted(std::string_view text);
// `text` for where any other than printable ASCII would break what it stands in: "?" for each such byte.
std::string Printable(std::string_view text);

}  // namespace hir::base
