// Stores of elements: contiguous vectors, masked and past the caches, and scatters. Private to csrc/codegen/cpu.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "csrc/codegen/cpu/element_emitter.h"

namespace hir::codegen::cpu {

class Stores {
 public:
  using Element = fusion::Element;

  // `in_place`: some input may lie where an output does.
  Stores(ElementEmitter& elements, bool in_place)
      : elements_(elements), writer_(elements.writer()), scopes_(elements.scopes()), in_place_(in_place) {}

  void Emit(std::span<const Store> stores);
  // Stores `value` in tensor `slot`.
  void EmitAt(int slot, std::span<const Element* const> index, V value);
  // Whether some store so far goes past the caches.
  bool streams() const { return streams_; }

 private:
  // The value of one, now; the function writes it, in the same place of the code or behind it.
  std::function<void()> Prepare(const Store& store);
  std::function<void()> PrepareInPairs(const Store& store);  // Null: `store` is something else.
  // Stores a vector in memory's order, past the caches where the tensor is larger than they are and the address allows
  // it: a whole one alone.
  void EmitStream(const Tensor& tensor, const V& value, const V& address);
  // The address bits that must be 0 for that; all bits where it never pays, empty where that is certain.
  V StreamBits(const Tensor& tensor, int64_t bytes);
  // Stores the lanes of `value` that exist.
  void EmitMasked(const Tensor& tensor, const V& value, const V& address);
  void EmitScatter(const Tensor& tensor, const V& value, const V& addresses);
  // "%t3", of a tensor of the nest.
  std::string BaseOf(const Tensor& tensor) const;

  ElementEmitter& elements_;
  Writer& writer_;
  Scopes& scopes_;
  const bool in_place_;
  bool streams_ = false;
};

}  // namespace hir::codegen::cpu
