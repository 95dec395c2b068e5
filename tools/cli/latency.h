// How long requests, runs and queues took, as `hostir top` shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hostir/v1/service.pb.h"

namespace hir::cli {

// The time in microseconds below which a share of `quantile` of what was counted lies, as if times lay evenly between
// the bounds; above the last bound that one. Nothing: nothing was counted. counts[i] is of those up to bounds[i], and
// above the bound before; the last is of those above all.
std::optional<double> Quantile(std::span<const int64_t> bounds, std::span<const int64_t> counts, double quantile);

// Tables of what was since `before`, `seconds` ago; without it: since the daemon's start.
// By method, and of runs on the devices: how many, errors, half and 99 % of their times.
std::string LatencyTable(const ::hostir::v1::StatusReply& now, const ::hostir::v1::StatusReply* before, double seconds);
// By principal: sessions, queued runs, half and 99 % of the times that runs waited for their turn. Empty: nobody is.
std::string PrincipalTable(const ::hostir::v1::StatusReply& now, const ::hostir::v1::StatusReply* before);

}  // namespace hir::cli
