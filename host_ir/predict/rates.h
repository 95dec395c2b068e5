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

// Seconds as a function of an amount (bytes, operations), measured at a few amounts.
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

// Measured times of one kind of device, and of communications between a number of ranks on such devices.
struct Rates {
  std::string device = {};      // "NVIDIA H100 80GB HBM3"
  int64_t ranks = 1;            // Ranks that communicated.
  int64_t multiprocessors = 0;  // 0: a CPU, whose cores also carry what ranks send.
  double run_seconds = 0;       // Overhead of a run.
  Curve memory = {};            // Kernels, by the bytes read and written.
  // Products, by floating-point operations; a curve for each dtype ("bf16", "f32", "tf32"). On GPUs the time of a
  // product without an incomplete last wave.
  std::map<std::string, Curve, std::less<>> products = {};
  // Communications, by the bytes that a rank sends or gets, whichever are more; a curve for each type ("allgather"),
  // and "copies" for those by copy engines.
  std::map<std::string, Curve, std::less<>> communications = {};
  bool operator==(const Rates&) const = default;
};

// Wave efficiency of a product: tiles of the result over those that as many full waves would hold; 1 for a single wave,
// and without multiprocessors.
double WaveShare(int64_t multiprocessors, double batches, double rows, double columns);

// A line for each: "device NAME", "ranks 2", "memory 8192 2.1e-06", "product bf16 2.7e+08 9e-06", ...
std::string ToText(const Rates& rates);
// Errors: kInvalidArgument naming the line and what it wants.
Result<Rates> ParseRates(std::string_view text);

}  // namespace hir::host
