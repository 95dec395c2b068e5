// FromFile: the only place that knows toml++, a header-only library.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/config/config.h"

namespace hir::service {
namespace {

using base::Cat;

// A value as the file writes it, on one line.
std::string Written(const toml::node& node) {
  if (const auto* text = node.as_string()) return base::Quoted(text->get());
  if (const auto* number = node.as_integer()) return Cat(number->get());
  if (const auto* number = node.as_floating_point()) return Cat(number->get());
  if (const auto* flag = node.as_boolean()) return Cat(flag->get());
  return node.is_table() ? "a table" : node.is_array() ? "an array" : "a date";
}

Given::Kind KindOf(const toml::node& node) {
  if (node.is_string()) return Given::Kind::kText;
  return node.is_integer() ? Given::Kind::kNumber : Given::Kind::kSwitch;
}

Given AsGiven(const std::string& path, std::string key, const toml::node& node) {
  const std::string origin = Cat(path, ":", int64_t{node.source().begin.line});
  Given given = {.key = std::move(key), .text = Written(node), .name = {}, .origin = origin};
  given.name = Cat(origin, ": ", given.key, " = ", given.text);
  given.kind = KindOf(node);
  if (const auto* text = node.as_string()) given.text = text->get();
  return given;
}

}  // namespace

std::vector<Given> FromFile(const std::string& path, std::vector<std::string>& faults) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (path.empty() || (std::filesystem::exists(status) && !is_regular_file(status))) {
    faults.push_back(Cat("--config=", path, ": ", path.empty() ? "the path is empty" : "is no file"));
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    faults.push_back(Cat("--config=", path, ": cannot be read"));
    return {};
  }
  const toml::parse_result parsed = toml::parse(text.str());
  if (!parsed) {
    faults.push_back(Cat(path, ":", int64_t{parsed.error().source().begin.line}, ": ", parsed.error().description()));
    return {};
  }
  std::vector<Given> all;
  for (const auto& [key, node] : parsed.table()) all.push_back(AsGiven(path, std::string(key.str()), node));
  // In the order of the file: faults are read from top to bottom.
  std::ranges::stable_sort(all, {}, [&](const Given& given) {
    return *base::ParseInt(std::string_view(given.origin).substr(path.size() + 1));
  });
  return all;
}

}  // namespace hir::service
