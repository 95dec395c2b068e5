#include "csrc/base/background_work.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace hir::base {
namespace {

struct Registry {
  std::atomic<bool> any = false;
  std::mutex helping;          // Of who is inside Help or Leave.
  std::shared_mutex changing;  // Of `works`, which changes under both.
  std::vector<BackgroundWork*> works;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

void AddBackgroundWork(BackgroundWork& work) {
  Registry& registry = TheRegistry();
  const std::scoped_lock lock(registry.helping, registry.changing);
  registry.works.push_back(&work);
  registry.any = true;
}

void RemoveBackgroundWork(BackgroundWork& work) {
  Registry& registry = TheRegistry();
  const std::scoped_lock lock(registry.helping, registry.changing);
  std::erase(registry.works, &work);
  registry.any = !registry.works.empty();
}

Found HelpBackgroundWork() {
  Registry& registry = TheRegistry();
  if (!registry.any) return Found::kNothing;
  const std::unique_lock lock(registry.helping, std::try_to_lock);
  if (!lock.owns_lock()) return Found::kNothing;
  Found found = Found::kNothing;
  for (BackgroundWork* work : registry.works) found = std::max(found, work->Help());
  return found;
}

bool BackgroundWorkIsUnderWay() {
  Registry& registry = TheRegistry();
  if (!registry.any) return false;
  const std::shared_lock lock(registry.changing);  // Whoever helps may take its time.
  return std::ranges::any_of(registry.works, &BackgroundWork::IsUnderWay);
}

void LeaveBackgroundWork() {
  Registry& registry = TheRegistry();
  if (!registry.any) return;
  const std::lock_guard lock(registry.helping);
  for (BackgroundWork* work : registry.works) work->Leave();
}

}  // namespace hir::base
