// Loads that a schedule has done, and other values that it has computed: values are made of these instead. Private to
// csrc/codegen/gpu.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "csrc/codegen/gpu/places.h"

namespace hir::codegen::gpu {

class Loaded {
 public:
  // From now on, that vector is `text`, a pack.
  void SetPack(const Access& access, std::string text) { packs_[{access.load, access.guard}] = std::move(text); }
  void ForgetPacks() { packs_.clear(); }
  const std::string* PackOf(const Access& access) const {  // Null: it is not loaded.
    const auto known = packs_.find({access.load, access.guard});
    return known == packs_.end() ? nullptr : &known->second;
  }

  // From now on, in this region, that element, a load of one or computed, is `text`.
  void SetScalar(const fusion::Element* element, std::string text) { scalars_[element] = std::move(text); }
  void ForgetScalars() { scalars_.clear(); }
  const std::string* ScalarOf(const fusion::Element* element) const {  // Null: there is none.
    const auto known = scalars_.find(element);
    return known == scalars_.end() ? nullptr : &known->second;
  }

 private:
  std::map<std::pair<const fusion::Element*, int>, std::string> packs_;
  std::unordered_map<const fusion::Element*, std::string> scalars_;
};

}  // namespace hir::codegen::gpu
