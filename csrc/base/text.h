// Text: concatenation, joining, and number formatting that reads back to the same value.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace hir::base {

// The shortest text that reads back to exactly `value`; always with a point, an exponent, "inf" or "nan".
std::string FormatDouble(double value);

inline void AppendOne(std::string& out, std::string_view value) { out += value; }
inline void AppendOne(std::string& out, const char* value) { out += value; }
inline void AppendOne(std::string& out, char value) { out += value; }
inline void AppendOne(std::string& out, bool value) { out += value ? "true" : "false"; }
inline void AppendOne(std::string& out, double value) { out += FormatDouble(value); }
template <typename T>
concept Integer = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;
template <Integer T>
void AppendOne(std::string& out, T value) {
  out += std::to_string(value);
}

// The arguments' texts one after the other: Cat("line ", 3, ": bad").
template <typename... Ts>
std::string Cat(const Ts&... values) {
  std::string out;
  (AppendOne(out, values), ...);
  return out;
}

template <typename... Ts>
void Append(std::string& out, const Ts&... values) {
  (AppendOne(out, values), ...);
}

// The elements with `separator` between: Join({1, 2}, ", ") is "1, 2".
template <typename Range>
std::string Join(const Range& values, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& value : values) {
    if (!first) out += separator;
    first = false;
    AppendOne(out, value);
  }
  return out;
}

std::string JoinInts(std::span<const int64_t> values, std::string_view separator);

// The whole of `text` as a number, or nothing.
std::optional<int64_t> ParseInt(std::string_view text);
std::optional<double> ParseDouble(std::string_view text);

// The member of `candidates` nearest to `word` by edit distance, when near enough to suggest; else empty.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace hir::base
