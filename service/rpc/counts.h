// The metrics that Status shows.
#pragma once

#include "hostir/v1/service.pb.h"
#include "service/engine/engine.h"
#include "service/metrics/metrics.h"

namespace hir::service {

void AddCounts(const Metrics& metrics, const Engine::Report& report, ::hostir::v1::StatusReply* reply);

}  // namespace hir::service
