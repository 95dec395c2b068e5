// A run whose work is marked: what its streams did when, beside what the host did. The marks are the only difference to
// a run that is queued, so that what overlaps there overlaps here.
#include <utility>

#include "csrc/base/text.h"
#include "host_ir/eval/evaluator_impl.h"

namespace hir::host {

std::string NameOf(const ir::Op& op) {
  const HostOp code = CodeOf(op);
  if (code == HostOp::kLaunch) return std::string(op.Name("kernel"));
  if (code == HostOp::kCommunication) return base::Cat(op.Name("type"), " #", op.Int("seq"));
  if (code == HostOp::kLibrary || code == HostOp::kGroupedProduct)
    return base::Cat(op.Name("op"), " -> %", op.operands.back()->name);
  if (IsLibraryCall(code)) return base::Cat(op.info->name, " -> %", op.operands.back()->name);
  std::string name(op.info->name);
  return op.operands.empty() ? name : base::Cat(name, " %", op.operands.back()->name);
}

Status EvaluatorImpl::BeginSpans(const Instr& instr, const Binding::State& state) {
  if (instr.kind != Instr::Kind::kGroupBegin) {
    if (in_group_ || !(IsWork(instr.kind) || instr.kind == Instr::Kind::kWait)) return {};
    return BeginSpan(instr, state);
  }
  for (const Instr* member = &instr + 1; member->kind != Instr::Kind::kGroupEnd; ++member) {
    if (IsWork(member->kind)) HIR_TRY(BeginSpan(*member, state));
  }
  return {};
}

Status EvaluatorImpl::BeginSpan(const Instr& instr, const Binding::State& state) {
  if (marked_->spans.size() == kSpansMax) return {};
  const int64_t stream = state.values[static_cast<size_t>(instr.stream)];
  HIR_ASSIGN(const int64_t mark, marked_->marks->Mark(*queues_[static_cast<size_t>(stream)]));
  marked_->spans.push_back({.op = instr.op, .stream = static_cast<int>(stream), .queued = base::Clock::Steady().Now()});
  marked_->begins.push_back(mark);
  return {};
}

Status EvaluatorImpl::EndSpans() {
  if (in_group_) return {};
  const base::Nanos now = base::Clock::Steady().Now();
  for (size_t i = marked_->ends.size(); i < marked_->spans.size(); ++i) {
    OpSpan& span = marked_->spans[i];
    span.queued_end = now;
    HIR_ASSIGN(const int64_t mark, marked_->marks->Mark(*queues_[static_cast<size_t>(span.stream)]));
    marked_->ends.push_back(mark);
  }
  return {};
}

Status EvaluatorImpl::RunMarked(Binding::State& state, const RunOptions& options) {
  marked_.emplace();
  HIR_ASSIGN(marked_->marks, options_.device->CreateMarks());
  Status status = RunOnce(state, options);
  // Also after an error: the marks are there until the work behind which they are is over.
  const Status done = Synchronize(options.wait_timeout);
  Marked marked = *std::exchange(marked_, std::nullopt);
  HIR_TRY(status);
  HIR_TRY(done);
  for (size_t i = 0; i < marked.spans.size(); ++i) {
    HIR_ASSIGN(marked.spans[i].began, marked.marks->TimeOf(marked.begins[i]));
    HIR_ASSIGN(marked.spans[i].ended, marked.marks->TimeOf(marked.ends[i]));
    options.spans->push_back(marked.spans[i]);
  }
  return {};
}

}  // namespace hir::host
