// Tables and amounts for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hir::cli {

// "1.5 MiB", "12 B"
std::string Bytes(int64_t bytes);
// `value` with `digits` behind the point.
std::string Fixed(double value, int digits);
// "12.3 us", "1.25 ms"
std::string Micros(double us);
// Four digits that tell something: "12.35", "0.001234".
std::string Short(double value);
// "3 devices", "1 device"
std::string Counted(int64_t count, const std::string& what);

// Columns as wide as their widest cell, two spaces between; under the first row, the head, a line.
std::string Table(const std::vector<std::vector<std::string>>& rows);

}  // namespace hir::cli
