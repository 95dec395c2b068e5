// Which products run beside the communication that brings their rows, or takes them away: in parts, a part for each
// rank, so that one is multiplied while another is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "host_ir/lower/stream_loops.h"
#include "multidevice/plan/localize.h"

namespace hir::host {

// A communication of a team of `ways` ranks as `ways - 1` shifts of its chunks, and the products beside it, each in
// `ways` parts of rows. Indices are of Segmented::groups.
//
//   all-gather, then products: shifts first; a product multiplies this rank's own rows, then the next rank's, ...
//   a product, then all-to-all: the next rank's rows are multiplied first and sent, ...; this rank's own last
struct Overlap {
  enum class Kind : uint8_t { kGathers, kSends } kind = Kind::kGathers;
  size_t communication = 0;
  std::vector<size_t> products = {};  // Of kSends one.
  int64_t ways = 0;
};

// Those of `program`, within `limits`; its loops are left alone. No product is in two of them.
std::vector<Overlap> FindOverlaps(const Segmented& program, const plan::OverlapLimits& limits);

// For people: of each product that could run in parts beside a communication whether it does, and what it falls short
// of. "y: 2 parts of 4096 rows beside allgather g", "y: whole behind allgather g: parts of 32 rows (from 256 on)".
std::vector<std::string> DescribeOverlaps(const Segmented& program, const plan::OverlapLimits& limits);

// The first axis of more than one element: rows that `ways` divides are those of chunks, one behind the other. -1: it
// does not divide them.
int RowAxis(const ir::Type& type, int64_t ways);

}  // namespace hir::host
