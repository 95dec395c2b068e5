// RankRun::Measure: samples of the device's time, and the host's time beside them.
#include <algorithm>
#include <utility>

#include "csrc/base/stopwatch.h"
#include "tools/eval/rank_run.h"

namespace hir::eval {
namespace {

constexpr int kBinds = 200;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int64_t RankRun::RunsQueued() const {
  const int64_t sample = options_.batch + 1;  // And the run before it.
  return std::max({int64_t{1}, options_.warmup, ranks_.size() == 1 ? options_.repeat * sample : sample});
}

Status RankRun::PrepareMeasure() {
  if (HasPart()) HIR_TRY(MeasureBind());
  if (options_.cold_l2 && flushed_ == nullptr) {
    HIR_ASSIGN(flushed_, on_.device().Allocate(kFlushBytes));
  }
  for (int64_t i = 0; i < options_.warmup; ++i) HIR_TRY(Queue());
  return Synchronize(RunsQueued());
}

Status RankRun::MeasureBind() {
  base::Stopwatch watch;
  for (int i = 0; i < kBinds; ++i) HIR_TRY(evaluator_->Bind(arguments_, symbols_, &binding_));
  timing_.bind_us = watch.Ms() * 1e3 / kBinds;
  return {};
}

// The runs of one sample.
Status RankRun::QueueSample() {
  for (int64_t i = 0; i < options_.batch; ++i) {
    base::Stopwatch watch;
    HIR_TRY(Queue());
    queue_us_.push_back(watch.Ms() * 1e3);
  }
  return {};
}

Status RankRun::Measure(int64_t samples) {
  const bool timed = kind_.make_timed_event != nullptr;
  const auto num_samples = static_cast<size_t>(samples);
  std::vector<std::unique_ptr<device::Event>> begins, ends;
  for (size_t i = 0; i < num_samples && timed; ++i) {
    HIR_ASSIGN(begins.emplace_back(), kind_.make_timed_event(on_.device()));
    HIR_ASSIGN(ends.emplace_back(), kind_.make_timed_event(on_.device()));
  }
  for (size_t i = 0; i < num_samples; ++i) {
    // One rank alone queues ahead of its device, so that no sample waits for the host. Several start together: they
    // meet within a millisecond on the host, then, by a run that is not timed and communicates, on their devices.
    if (ranks_.size() > 1) {
      HIR_TRY(Synchronize(RunsQueued()));
      HIR_TRY(ranks_.Exchange("sample", "", RunsQueued()).status());
      HIR_TRY(Queue());
    }
    if (flushed_ != nullptr) on_.streams()[0]->Fill(flushed_->buffer(), 0, 1);
    if (timed) {
      on_.streams()[0]->Record(*begins[i]);
      HIR_TRY(QueueSample());
      on_.streams()[0]->Record(*ends[i]);
    } else {
      HIR_TRY(on_.streams()[0]->Synchronize(WaitFor(1)));
      base::Stopwatch watch;
      HIR_TRY(QueueSample());
      HIR_TRY(Synchronize(RunsQueued()));
      timing_.samples_ms.push_back(watch.Ms() / static_cast<double>(options_.batch));
    }
  }
  HIR_TRY(on_.streams()[0]->Synchronize(WaitFor(RunsQueued())));
  HIR_TRY(Synchronize(RunsQueued()));
  for (size_t i = 0; i < begins.size(); ++i) {
    HIR_ASSIGN(const double ms, kind_.elapsed_ms(*begins[i], *ends[i]));
    timing_.samples_ms.push_back(ms / static_cast<double>(options_.batch));
  }
  timing_.queue_us = Median(queue_us_);
  if (HasPart()) timing_.graphs = evaluator_->DescribeGraphs();
  return {};
}

}  // namespace hir::eval
