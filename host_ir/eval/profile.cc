// A run that is timed: each piece of work is over before the next is queued. All ranks queue the
// same communications in the same order, so no two wait for each other.
#include <utility>

#include "host_ir/eval/evaluator_impl.h"

namespace hir::host {

Status EvaluatorImpl::TakeTime(const Instr& instr, base::Nanos began, const Binding::State& state,
                               const RunOptions& options) {
  const bool ends_group = instr.kind == Instr::Kind::kGroupEnd;
  if (instr.kind == Instr::Kind::kGroupBegin) {
    group_began_ = began;
    group_op_ = nullptr;
  }
  if (!ends_group && !IsWork(instr.kind)) return {};
  if (in_group_) {  // What is in it need not start before its end.
    if (group_op_ == nullptr) group_op_ = instr.op;
    return {};
  }
  const ir::Op* op = ends_group ? std::exchange(group_op_, nullptr) : instr.op;
  if (op == nullptr) return {};  // A group in which this rank has no part.
  for (device::Stream* stream : queues_.first(static_cast<size_t>(code_.num_streams))) {
    if (!ends_group && stream != &StreamOf(instr, state)) continue;
    const Status done = stream->Synchronize(options.wait_timeout);
    if (!done.ok()) return done.WithContext(Describe(*op));
  }
  const base::Nanos now = base::Clock::Steady().Now();
  options.times->push_back({op, now - (ends_group ? group_began_ : began)});
  return {};
}

}  // namespace hir::host
