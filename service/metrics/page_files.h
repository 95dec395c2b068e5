// PageFiles: the files of service/metrics/page, which the build puts into the program.
#pragma once

#include <map>
#include <string_view>

namespace hir::service {

// The contents of each, by its name: "page.js".
std::map<std::string_view, std::string_view> PageFiles();

}  // namespace hir::service
