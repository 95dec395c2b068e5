#include "service/links/silence.h"

#include <chrono>
#include <utility>

namespace hir::service {
namespace {

constexpr std::chrono::milliseconds kLookEvery{250};
constexpr int kLooks = 20;

}  // namespace

Silence::Silence(std::function<void()> noticed) : noticed_(std::move(noticed)), thread_([this] { Loop(); }) {}

Silence::~Silence() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Silence::Loop() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kLookEvery, [this] { return is_over_; })) {
    if (++looks_ < kLooks) continue;
    was_noticed_ = true;
    return noticed_();
  }
}

}  // namespace hir::service
