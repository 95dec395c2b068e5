#include "csrc/base/shortened.h"

#include <string_view>

#include "csrc/base/text.h"

namespace hir::base {
namespace {

constexpr std::string_view kCut = " ...";

// No character of UTF-8 begins with it.
bool IsInside(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

Status Shortened(const Status& status) {
  const std::string_view message = status.message();
  if (message.size() <= kErrorBytesMax) return status;
  size_t kept = kErrorBytesMax - kCut.size();
  while (kept > 0 && IsInside(message[kept])) --kept;
  return {status.code(), Cat(message.substr(0, kept), kCut)};
}

}  // namespace hir::base
