#include "tools/cli/latency.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// "63 us", "1.2 ms", "3.0 s"
std::string TimeText(std::optional<double> us) {
  if (!us) return "-";
  if (*us < 1e3) return Cat(Fixed(*us, 0), " us");
  return *us < 1e6 ? Cat(Fixed(*us / 1e3, 1), " ms") : Cat(Fixed(*us / 1e6, 1), " s");
}

// All that `now` has more than `before`, which may be null.
std::vector<int64_t> Since(const pb::Times& now, const pb::Times* before) {
  std::vector<int64_t> counts(now.counts().begin(), now.counts().end());
  if (before == nullptr || before->counts_size() != now.counts_size()) return counts;
  std::ranges::transform(counts, before->counts(), counts.begin(), std::minus());
  return counts;
}

// Half and 99 % of the times.
std::vector<std::string> TwoTimes(const pb::StatusReply& status, const std::vector<int64_t>& counts) {
  const std::vector<int64_t> bounds(status.time_bounds_us().begin(), status.time_bounds_us().end());
  return {TimeText(Quantile(bounds, counts, 0.5)), TimeText(Quantile(bounds, counts, 0.99))};
}

std::vector<std::string> LatencyRow(const std::string& name, const pb::Times& times, const pb::Times* then,
                                    const pb::StatusReply& status, double seconds) {
  const std::vector<int64_t> counts = Since(times, then);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t errors = times.errors() - (then == nullptr ? 0 : then->errors());
  std::vector<std::string> row = {
      name, seconds > 0 ? Cat(Fixed(static_cast<double>(total) / seconds, 1), "/s") : Cat(total), Cat(errors)};
  for (std::string& time : TwoTimes(status, counts)) row.push_back(std::move(time));
  return row;
}

// The one of `all` with the name of `wanted`; null: there is none.
template <typename Named>
const Named* Find(const google::protobuf::RepeatedPtrField<Named>& all, const std::string& wanted) {
  const auto found = std::ranges::find_if(all, [&](const Named& one) { return one.name() == wanted; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::optional<double> Quantile(std::span<const int64_t> bounds, std::span<const int64_t> counts, double quantile) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (total <= 0 || bounds.empty()) return std::nullopt;
  const double wanted = quantile * static_cast<double>(total);
  double below = 0;
  for (size_t i = 0; i < counts.size() && i < bounds.size(); ++i) {
    const double count = static_cast<double>(counts[i]);
    if (count > 0 && below + count >= wanted) {
      const double least = i == 0 ? 0 : static_cast<double>(bounds[i - 1]);
      return least + (static_cast<double>(bounds[i]) - least) * (wanted - below) / count;
    }
    below += count;
  }
  return static_cast<double>(bounds.back());
}

std::string LatencyTable(const pb::StatusReply& now, const pb::StatusReply* before, double seconds) {
  std::vector<std::vector<std::string>> rows = {
      {"request", before == nullptr ? "over" : "rate", "errors", "p50", "p99"}};
  for (const pb::Times& times : now.requests_over()) {
    const pb::Times* const then = before == nullptr ? nullptr : Find(before->requests_over(), times.name());
    rows.push_back(LatencyRow(times.name(), times, then, now, before == nullptr ? 0 : seconds));
  }
  rows.push_back(LatencyRow("(runs on the devices)", now.run_times(),
                            before == nullptr ? nullptr : &before->run_times(), now, before == nullptr ? 0 : seconds));
  return Table(rows);
}

std::string PrincipalTable(const pb::StatusReply& now, const pb::StatusReply* before) {
  std::vector<std::vector<std::string>> rows = {{"principal", "sessions", "queued runs", "p50 wait", "p99 wait"}};
  for (const pb::Principal& principal : now.principals()) {
    const pb::Principal* const then = before == nullptr ? nullptr : Find(before->principals(), principal.name());
    std::vector<std::string> row = {principal.name().empty() ? "-" : principal.name(), Cat(principal.sessions()),
                                    Cat(principal.queued_runs())};
    for (std::string& time : TwoTimes(now, Since(principal.queue(), then == nullptr ? nullptr : &then->queue())))
      row.push_back(std::move(time));
    rows.push_back(std::move(row));
  }
  return rows.size() == 1 ? "" : Table(rows);
}

}  // namespace hir::cli
