#include "csrc/base/traceparent.h"

#include "csrc/base/text.h"

namespace hir::base {
namespace {

constexpr std::string_view kVersion = "00-";
constexpr size_t kTraceDigits = 32;
constexpr size_t kParentDigits = 16;
constexpr size_t kFlagDigits = 2;

bool AreDigits(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }
bool AreZeros(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

bool IsTraceparent(std::string_view text) {
  constexpr size_t kParent = kVersion.size() + kTraceDigits + 1;
  constexpr size_t kFlags = kParent + kParentDigits + 1;
  if (text.size() != kFlags + kFlagDigits || !text.starts_with(kVersion)) return false;
  const std::string_view trace = text.substr(kVersion.size(), kTraceDigits);
  const std::string_view parent = text.substr(kParent, kParentDigits);
  return text[kParent - 1] == '-' && text[kFlags - 1] == '-' && AreDigits(trace) && AreDigits(parent) &&
         AreDigits(text.substr(kFlags)) && !AreZeros(trace) && !AreZeros(parent);
}

std::string_view TraceIdOf(std::string_view traceparent) {
  return traceparent.empty() ? traceparent : traceparent.substr(kVersion.size(), kTraceDigits);
}

std::string TraceField(std::string_view traceparent) {
  return traceparent.empty() ? std::string() : Cat(" trace=", TraceIdOf(traceparent));
}

}  // namespace hir::base
