// How fast a device works and its links carry, as measured there: what predictions are made from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace hir::host {

// Seconds by an amount (bytes, or sums of products), measured at a few amounts.
class Curve {
 public:
  // An amount that is there already keeps the shorter time.
  void Add(double amount, double seconds);
  // Between two points along the line through them in logarithms; below the first its time; above the last in
  // proportion to the amount. 0 without points.
  double Seconds(double amount) const;
  bool empty() const { return points_.empty(); }
  const std::map<double, double>& points() const { return points_; }
  bool operator==(const Curve&) const = default;

 private:
  std::map<double, double> points_;
};

// Of one kind of device, and of so many ranks on it.
struct Rates {
  std::string device = {};      // "NVIDIA H100 80GB HBM3"
  int64_t ranks = 1;            // That communicated when it was measured.
  int64_t multiprocessors = 0;  // Of a GPU; 0: a CPU, whose cores also carry what ranks send.
  double run_seconds = 0;       // Of a run beside its work.
  Curve memory = {};            // Of a kernel, by the bytes it reads and writes.
  // Of a product, by its sums' terms times two; by dtype ("bf16", "f32", "tf32"). On GPUs of whole waves.
  std::map<std::string, Curve, std::less<>> products = {};
  // By the bytes that a rank sends or gets, whichever are more; by type ("allgather"), "copies" of those that copy
  // engines carry.
  std::map<std::string, Curve, std::less<>> communications = {};
  bool operator==(const Rates&) const = default;
};

// Of the tiles of a product's result the share of the multiprocessors' time that they fill: 1 where one wave holds all.
double WaveShare(int64_t multiprocessors, int64_t batches, int64_t rows, int64_t columns);

// A line for each: "device NAME", "ranks 2", "memory 8192 2.1e-06", "product bf16 2.7e+08 9e-06", ...
std::string ToText(const Rates& rates);
// Errors: kInvalidArgument naming the line and what it wants.
Result<Rates> ParseRates(std::string_view text);

}  // namespace hir::host
