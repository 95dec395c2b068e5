// Page: all metrics, as prometheus-cpp prints them.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "csrc/base/clock.h"
#include "service/metrics/exposer.h"
#include "service/metrics/metrics.h"

namespace hir::service {

// docs/observability.md has a row for each.
std::vector<prometheus::MetricFamily> Page(const Metrics& metrics, const MetricsState& state, base::Nanos now);

}  // namespace hir::service
