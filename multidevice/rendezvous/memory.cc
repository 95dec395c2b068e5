#include "multidevice/rendezvous/memory.h"

#include "csrc/base/text.h"

namespace hir::comm {

Status MemoryRendezvous::Publish(std::string_view key, std::string_view bytes) {
  if (bytes.size() > kRendezvousBytesMax) {
    return ResourceExhausted(base::Cat("rendezvous: ", key, " has ", bytes.size(),
                                       " bytes, limit rendezvous_bytes_max: ", kRendezvousBytesMax));
  }
  std::lock_guard lock(mutex_);
  const auto [at, inserted] = values_.emplace(key, bytes);
  if (!inserted && at->second != bytes) {
    return {Code::kAlreadyExists, base::Cat("rendezvous: ", key, " holds other bytes already")};
  }
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryRendezvous::Get(std::string_view key, base::Nanos timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.find(key) != values_.end(); })) {
    return Status(Code::kDeadlineExceeded, base::Cat("rendezvous: ", key, " was not published in ",
                                                     std::chrono::duration<double>(timeout).count(), " s"));
  }
  return values_.find(key)->second;
}

}  // namespace hir::comm
