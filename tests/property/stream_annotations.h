// Random stream axes on the values of a random program.
#pragma once

#include <cstdint>
#include <string>

#include "tests/property/program_generator.h"

namespace hir::testing {

struct StreamTally {
  int64_t values = 0, whole = 0, ways = 0, chunks = 0, dealt = 0, merged = 0, nested = 0, partial = 0;

  void Add(const StreamTally& other);
  // "values with stream axes 236: element by element 97, ..."
  std::string Describe() const;
};

// Over how many streams the loops of a seed's program rotate: 1, 2, 3 or 8.
int StreamsOf(uint64_t seed);

// Gives a part of the results stream axes of every kind that their ops can be computed along: some of their own, some
// those of an operand, so that several ops share a loop. What has a layout keeps it. The same for the same seed.
StreamTally AnnotateStreams(GeneratedProgram& program, uint64_t seed);

}  // namespace hir::testing
