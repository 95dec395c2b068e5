// Programs that show how fast a device works and its links carry, and what their times say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/target.h"
#include "host_ir/predict/rates.h"

namespace hir::eval {

// One program to time.
struct Probe {
  enum class Kind : uint8_t { kOneOp, kChain, kMemory, kProduct, kCommunication };
  Kind kind = Kind::kOneOp;
  std::string name = {};   // "product bf16 2048"
  std::string text = {};   // The program.
  std::string curve = {};  // Which of them, of products and communications.
  double amount = 0;       // Where it is on the curve.
};

std::vector<Probe> ProbesFor(const codegen::Target& target, int64_t ranks);

// `seconds`: of a run of each of `probes`, which are all of ProbesFor.
host::Rates RatesOf(std::span<const Probe> probes, std::span<const double> seconds, std::string device, int64_t ranks,
                    const codegen::Target& target);

}  // namespace hir::eval
