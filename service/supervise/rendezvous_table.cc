#include "service/supervise/rendezvous_table.h"

#include <utility>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

// The addresses of 1,024 ranks sixteen times, or 50,000 communicators of NCCL.
constexpr int64_t kBytesMax = int64_t{16} << 20;
constexpr int64_t kKeyBytes = 128;  // Of a key, besides what it and its value hold.

}  // namespace

Result<std::vector<int64_t>> RendezvousTable::Publish(const std::string& key, std::string value) {
  const size_t bytes = key.size() + value.size();
  if (values_.emplace(key, std::move(value)).second) HIR_TRY(Charge(bytes));
  const auto waiting = waiting_.extract(key);
  if (waiting.empty()) return std::vector<int64_t>();
  bytes_ -= std::ssize(waiting.mapped()) * (std::ssize(key) + kKeyBytes);
  return std::vector<int64_t>(waiting.mapped().begin(), waiting.mapped().end());
}

Result<const std::string*> RendezvousTable::Get(int64_t who, const std::string& key) {
  if (const auto found = values_.find(key); found != values_.end()) return &found->second;
  if (waiting_[key].insert(who).second) HIR_TRY(Charge(key.size()));
  return nullptr;
}

Status RendezvousTable::Charge(size_t bytes) {
  bytes_ += static_cast<int64_t>(bytes) + kKeyBytes;
  if (bytes_ <= kBytesMax) return {};
  return ResourceExhausted(
      base::Cat("rendezvous keys of ", bytes_, " bytes were published or asked for, a generation has ", kBytesMax));
}

}  // namespace hir::service
