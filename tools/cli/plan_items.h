// What a plan queues on streams, as `hostir explain --svg` draws it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "hostir/v1/service.pb.h"

namespace hir::cli {

// One launch, library call, communication or fill.
struct PlanItem {
  enum class Kind : uint8_t { kKernel, kLibrary, kCommunication, kFill };
  Kind kind = Kind::kKernel;
  int64_t stream = 0;
  std::string label = {};             // "k0 pointwise", "allreduce #0 y.sum"
  std::string amount = {};            // "4.0 MiB", "3072*tokens bytes"; empty: nothing is known.
  std::optional<int64_t> bytes = {};  // A rank, where the sizes are known.
  std::vector<std::string> ops = {};  // "%y = relu", in order.
  std::string note = {};              // "2 teams of 4"
  std::vector<size_t> after = {};     // The items whose results it reads, ascending.
};

// In the order in which the host queues them. Loops are unrolled, the first kLoopRoundsMax rounds of each.
// Errors: kInternal: the host program does not parse.
inline constexpr int64_t kLoopRoundsMax = 8;
Result<std::vector<PlanItem>> ItemsOf(const ::hostir::v1::ExplainReply& plan);

}  // namespace hir::cli
