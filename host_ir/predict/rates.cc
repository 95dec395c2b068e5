#include "host_ir/predict/rates.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <sstream>

#include "csrc/base/text.h"

namespace hir::host {
namespace {

using base::Cat;

constexpr std::string_view kFirstLine = "hostir rates 1";

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

void AppendPoints(std::string_view name, const Curve& curve, std::string& out) {
  for (const auto& [amount, seconds] : curve.points())
    base::Append(out, name, " ", Number(amount), " ", Number(seconds), "\n");
}

bool ReadAmount(std::istringstream& fields, double& value) {
  return bool(fields >> value) && std::isfinite(value) && value >= 0;
}

bool ReadPoint(std::istringstream& fields, Curve& curve) {
  double amount = 0, seconds = 0;
  // Ratios of two of either must be numbers, too.
  const auto fits = [](double value) { return value >= 1e-30 && value <= 1e30; };
  if (!ReadAmount(fields, amount) || !ReadAmount(fields, seconds) || !fits(amount) || !fits(seconds)) return false;
  curve.Add(amount, seconds);
  return true;
}

bool ReadNamedPoint(std::istringstream& fields, std::map<std::string, Curve, std::less<>>& curves) {
  std::string name;
  return bool(fields >> name) && ReadPoint(fields, curves[name]);
}

bool ReadCount(std::istringstream& fields, int64_t least, int64_t& value) {
  return bool(fields >> value) && value >= least;
}

// Reads the line behind its first word. Returns a description of what should stand there, empty on success.
std::string_view ReadLine(const std::string& word, std::istringstream& fields, Rates& rates) {
  if (word == "device") {
    std::getline(fields >> std::ws, rates.device);
    return rates.device.empty() ? "a name" : "";
  }
  if (word == "ranks") return ReadCount(fields, 1, rates.ranks) ? "" : "a number from 1";
  if (word == "multiprocessors") return ReadCount(fields, 0, rates.multiprocessors) ? "" : "a number from 0";
  if (word == "run") return ReadAmount(fields, rates.run_seconds) ? "" : "seconds";
  if (word == "memory") return ReadPoint(fields, rates.memory) ? "" : "bytes and seconds, both above 0";
  if (word == "product") return ReadNamedPoint(fields, rates.products) ? "" : "a dtype, operations and seconds";
  if (word == "communication") return ReadNamedPoint(fields, rates.communications) ? "" : "a type, bytes and seconds";
  return "device, ranks, multiprocessors, run, memory, product or communication";
}

}  // namespace

void Curve::Add(double amount, double seconds) {
  const auto [at, added] = points_.emplace(amount, seconds);
  if (!added) at->second = std::min(at->second, seconds);
}

double Curve::Seconds(double amount) const {
  if (points_.empty()) return 0;
  const auto above = points_.lower_bound(amount);
  if (above == points_.begin()) return above->second;
  const auto& [low, low_seconds] = *std::prev(above);
  if (above == points_.end()) return low_seconds * amount / low;
  const double along = std::log(amount / low) / std::log(above->first / low);
  return low_seconds * std::pow(above->second / low_seconds, along);
}

double WaveShare(int64_t multiprocessors, double batches, double rows, double columns) {
  constexpr double kTileRows = 128, kTileColumns = 256;  // cuBLASLt's, for products that fill a GPU.
  const auto tiles = [&](double r, double c) { return std::ceil(rows / r) * std::ceil(columns / c); };
  const double all = batches * std::min(tiles(kTileRows, kTileColumns), tiles(kTileColumns, kTileRows));
  const auto held = static_cast<double>(multiprocessors);
  if (multiprocessors == 0 || all <= held) return 1;
  return all / (std::ceil(all / held) * held);
}

std::string ToText(const Rates& rates) {
  std::string out = Cat(kFirstLine, "\ndevice ", rates.device, "\nranks ", rates.ranks, "\nmultiprocessors ",
                        rates.multiprocessors, "\nrun ", Number(rates.run_seconds), "\n");
  AppendPoints("memory", rates.memory, out);
  for (const auto& [dtype, curve] : rates.products) AppendPoints(Cat("product ", dtype), curve, out);
  for (const auto& [type, curve] : rates.communications) AppendPoints(Cat("communication ", type), curve, out);
  return out;
}

Result<Rates> ParseRates(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) {
    return InvalidArgument(Cat("line 1: wants \"", kFirstLine, "\"; hostir-eval --calibrate FILE writes such a file"));
  }
  Rates rates;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::istringstream fields(line);
    std::string word, rest;
    if (!(fields >> word)) continue;
    const std::string_view wants = ReadLine(word, fields, rates);
    if (!wants.empty() || fields >> rest)
      return InvalidArgument(
          Cat("line ", number, ": ", word.substr(0, 64), " wants ", wants.empty() ? "no more" : wants));
  }
  if (rates.memory.empty()) return InvalidArgument("no line says memory: the file is cut off");
  return rates;
}

}  // namespace hir::host
