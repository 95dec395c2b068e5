// How a segment of a plan looks in tables.
#pragma once

#include <string>

#include "hostir/v1/plan.pb.h"
#include "tools/cli/table.h"

namespace hir::cli {

// "1.5 MiB", or the expression where sizes are not known: of a segment or communication.
template <typename Record>
std::string Amount(const Record& record) {
  return record.has_bytes_value() ? Bytes(record.bytes_value()) : record.bytes();
}
// "1.0 KiB x 4": of a loop's parts, for each of its iterations.
std::string AmountOf(const ::hostir::v1::SegmentRecord& segment);
// The bytes that pass through memory in the time of a kernel whose sizes are known, and why they are more than it
// moves. Else empty.
std::string CostOf(const ::hostir::v1::SegmentRecord& segment);
// "loop0.k1"
std::string NameOf(const ::hostir::v1::SegmentRecord& segment);
// Its schedule; of a library call, communication or view the ops.
std::string WorkOf(const ::hostir::v1::SegmentRecord& segment);
// "x, w, b, c, +2" of "x: f32[4]", ...
std::string Names(const google::protobuf::RepeatedPtrField<std::string>& typed);

}  // namespace hir::cli
