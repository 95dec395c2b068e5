// SessionSlots: how many of something each session has at a time, up to a limit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace hir::service {

// Thread-safe.
class SessionSlots {
 public:
  explicit SessionSlots(int64_t most) : most_(most) {}

  // One of the session's, as long as somebody holds it, which may be for longer than this lives. Null: it has them all.
  using Slot = std::shared_ptr<const void>;
  Slot Take(const std::string& session);

 private:
  struct Taken {
    std::mutex mutex;
    std::map<std::string, int64_t> of_session;  // Of those that have some. Guarded by mutex.
  };

  const int64_t most_;
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();
};

}  // namespace hir::service
