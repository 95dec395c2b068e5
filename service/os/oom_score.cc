#include "service/os/oom_score.h"

#include <algorithm>
#include <fstream>

namespace hir::service {
namespace {

constexpr const char* kPath = "/proc/self/oom_score_adj";
constexpr int kMost = 1000;

}  // namespace

void RaiseOomScore(int more) {
  int score = 0;
  if (!(std::ifstream(kPath) >> score)) return;
  std::ofstream(kPath) << std::min(kMost, score + more);
}

}  // namespace hir::service
