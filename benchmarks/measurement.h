// What a benchmark program prints: rows of pairs, as JSON that bench.py reads.
#pragma once

#include <time.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"

namespace hir::bench {

// ours[i] and theirs[i] were taken one after the other.
struct Measurement {
  std::string name = {};
  std::string unit = {};
  std::vector<double> ours = {};
  std::vector<double> theirs = {};
  std::string peer = {};
  bool higher_is_better = false;  // A rate, not a time.
};

inline std::string ToJson(const Measurement& m) {
  return base::Cat("{\"name\": \"", m.name, "\", \"unit\": \"", m.unit, "\", \"ours\": [", base::Join(m.ours, ", "),
                   "], \"theirs\": [", base::Join(m.theirs, ", "), "], \"peer\": \"", m.peer,
                   "\", \"higher_is_better\": ", m.higher_is_better, "}");
}

inline void PrintJson(const std::vector<Measurement>& rows) {
  std::vector<std::string> texts;
  for (const Measurement& row : rows) texts.push_back(ToJson(row));
  std::printf("[%s]\n", base::Join(texts, ",\n ").c_str());
}

// kCpu: that of all threads of this process, which other programs on a busy machine change little.
enum class Time { kWall, kCpu };

template <typename Body>
double Seconds(const Body& body, Time time = Time::kWall) {
  const auto now = [time] {
    timespec t{};
    clock_gettime(time == Time::kWall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double started = now();
  body();
  return now() - started;
}

}  // namespace hir::bench
