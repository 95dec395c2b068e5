// A reduction that reads the result of another over the same range can be reduced in the same parts as that: each part
// by itself, which is put right where the parts come together. So the range is read once.
//
//   sum of (x - c)^2, where c follows from the sum of x:
//     of a part of n elements S = sum of x; h = the mean of a sixteenth of them, which is read ahead; D = sum of x - h;
//     Q = sum of (x - h)^2 - D^2 / n, the least sum of squares that the part can have;
//     together: sum of Q + (S - n * c)^2 / n
//   sum of exp(x - max):
//     of a part m = its maximum, s = sum of exp(x - m);  together: sum of s * exp(m - max)
//
// Q is as exact as squares of deviations from the part's own mean, but for a factor of 16: as h is the mean of a
// sixteenth f of the part, n * (h - mean)^2 is at most Q / f.
//
// Private to csrc/codegen.
#pragma once

#include <optional>
#include <vector>

#include "csrc/codegen/nest_builder.h"

namespace hir::codegen {

constexpr int64_t kHeads = 16;  // Of a part: the mean of one is what its deviations are taken from.

struct Paired {
  size_t first = 0;                         // The accumulator of the first phase that it reads.
  const fusion::Element* center = nullptr;  // That its body has deviations from; null: it is a sum of exponentials.
};

// The pairs of all accumulators of phase `second`, in their order. Nothing where one of them reads what phase `first`
// accumulates in another way, or a store of that phase reads results.
std::optional<std::vector<Paired>> PairedOf(NestBuilder& builder, const Region& region, size_t first, size_t second);

// The accumulators of a part's deviations: `head` over its first elements, `head_count` of them, and `shifted` over all
// `count`, beside the first phase's. Counts are of the accumulator's dtype. `result` is Q, made of their results.
struct Deviations {
  Accumulator head;
  Accumulator shifted[2];
  const fusion::Element* result = nullptr;
};
Deviations DeviationsOfPart(NestBuilder& builder, const Accumulator& first, const fusion::Element* head_count,
                            const fusion::Element* count);
// The term of a part in the whole: `first_part` and `second_part` are its results. Reads the whole result of the first.
const fusion::Element* TermOfPart(NestBuilder& builder, const Paired& paired, const Accumulator& second,
                                  const fusion::Element* first_part, const fusion::Element* second_part,
                                  const fusion::Element* count);

// Phases `first` and `second` of a region that reads its range in one piece: deviations are of the whole range as of
// one part. Nothing changes where a pair is one of exponentials.
void ReadOnce(NestBuilder& builder, Region& region, size_t first, size_t second);

}  // namespace hir::codegen
