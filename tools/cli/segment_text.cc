#include "tools/cli/segment_text.h"

#include <algorithm>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::cli {

namespace pb = ::hostir::v1;
using base::Cat;

std::string AmountOf(const pb::SegmentRecord& segment) {
  return segment.loop().empty() ? Amount(segment) : Cat(Amount(segment), " x ", segment.iterations());
}

std::string CostOf(const pb::SegmentRecord& segment) {
  if (!segment.has_cost() || !segment.has_bytes_value()) return "";
  const pb::KernelCost& cost = segment.cost();
  // A saved answer may say anything.
  const int64_t moved =
      base::CheckedAdd(std::max<int64_t>(cost.bytes(), 0), std::max<int64_t>(cost.again(), 0)).value_or(INT64_MAX);
  std::vector<std::string> reasons;
  const auto add = [&reasons](int64_t bytes, std::string_view reason) {
    if (bytes > 0) reasons.push_back(Cat(Bytes(bytes), " ", reason));
  };
  add(cost.again(), "again");
  if (cost.arithmetic() > moved) add(cost.arithmetic() - moved, "of functions");
  add(cost.idle(), "idle");
  add(cost.of_launches(), "of launches");
  return Cat(Bytes(cost.total()), reasons.empty() ? "" : Cat(": ", base::Join(reasons, ", ")));
}

std::string NameOf(const pb::SegmentRecord& segment) {
  return segment.loop().empty() ? segment.name() : Cat(segment.loop(), ".", segment.name());
}

std::string WorkOf(const pb::SegmentRecord& segment) {
  // A library call's schedule says only what it does behind its sums.
  const bool library = segment.kind() == "library";
  if (!segment.schedule().empty() && !library) return segment.schedule();
  std::vector<std::string> names;
  for (const std::string& op : segment.ops()) {
    const size_t equals = op.rfind("= ");
    names.push_back(equals == std::string::npos ? op : op.substr(equals + 2));
  }
  if (library && !segment.schedule().empty()) names.push_back(segment.schedule());
  return base::Join(names, ", ");
}

std::string Names(const google::protobuf::RepeatedPtrField<std::string>& typed) {
  constexpr int kNamesMax = 4;
  std::vector<std::string> names;
  for (int i = 0; i < std::min(typed.size(), kNamesMax); ++i) names.push_back(typed[i].substr(0, typed[i].find(':')));
  if (typed.size() > kNamesMax) names.push_back(Cat("+", typed.size() - kNamesMax));
  return base::Join(names, ", ");
}

}  // namespace hir::cli
