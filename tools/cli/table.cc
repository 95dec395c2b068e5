#include "tools/cli/table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "csrc/base/text.h"

namespace hir::cli {

std::string Bytes(int64_t bytes) {
  constexpr std::pair<const char*, int64_t> kUnits[] = {
      {" GiB", int64_t{1} << 30}, {" MiB", int64_t{1} << 20}, {" KiB", int64_t{1} << 10}};
  for (const auto& [unit, size] : kUnits) {
    if (bytes >= size) return Fixed(static_cast<double>(bytes) / static_cast<double>(size), 1) + unit;
  }
  return base::Cat(bytes, " B");
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string Micros(double us) {
  char text[32];
  std::snprintf(text, sizeof(text), us < 1000 ? "%.3g us" : "%.4g ms", us < 1000 ? us : us / 1000);
  return text;
}

std::string Short(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string Counted(int64_t count, const std::string& what) {
  return base::Cat(count, " ", what, count == 1 ? "" : "s");
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      base::Append(line, i == 0 ? "" : "  ", row[i], std::string(widths[i] - row[i].size(), ' '));
    line.resize(line.find_last_not_of(' ') + 1);
    base::Append(out, line, "\n");
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    add(rows[i]);
    if (i > 0) continue;
    std::vector<std::string> rule;
    for (const size_t width : widths) rule.push_back(std::string(width, '-'));
    add(rule);
  }
  return out;
}

}  // namespace hir::cli
