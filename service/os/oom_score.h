// The order in which the kernel ends processes where memory runs out.
#pragma once

namespace hir::service {

// Beside the daemon, whose tensors are everybody's: workers are replaced, and planners have nothing to lose.
inline constexpr int kOomScoreOfWorkers = 500;
inline constexpr int kOomScoreOfPlanners = 600;

// Adds `more` to this process's oom_score_adj, up to the most there is. It needs no rights; where there is no /proc,
// nothing happens.
void RaiseOomScore(int more);

}  // namespace hir::service
