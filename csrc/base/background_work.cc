#include "csrc/base/background_work.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace hir::base {
namespace {

struct Registry {
  std::atomic<bool> any = false;
  std::mutex mutex;
  std::vector<BackgroundWork*> works;  // Guarded by mutex.
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

void AddBackgroundWork(BackgroundWork& work) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.works.push_back(&work);
  registry.any = true;
}

void RemoveBackgroundWork(BackgroundWork& work) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  std::erase(registry.works, &work);
  registry.any = !registry.works.empty();
}

bool HelpBackgroundWork() {
  Registry& registry = TheRegistry();
  if (!registry.any) return false;
  std::unique_lock lock(registry.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool happened = false;
  for (BackgroundWork* work : registry.works) happened |= work->Help();
  return happened;
}

bool BackgroundWorkIsUnderWay() {
  Registry& registry = TheRegistry();
  if (!registry.any) return false;
  const std::unique_lock lock(registry.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return true;  // Somebody helps, or takes some away: perhaps.
  return std::ranges::any_of(registry.works, &BackgroundWork::IsUnderWay);
}

void LeaveBackgroundWork() {
  Registry& registry = TheRegistry();
  if (!registry.any) return;
  std::lock_guard lock(registry.mutex);
  for (BackgroundWork* work : registry.works) work->Leave();
}

}  // namespace hir::base
