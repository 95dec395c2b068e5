// The work on a vector: its lanes one by one, sums, and stores. Private to csrc/codegen/gpu.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/indices.h"
#include "csrc/codegen/gpu/loaded.h"
#include "csrc/codegen/gpu/places.h"
#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/gpu/stores.h"
#include "csrc/codegen/gpu/values.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

// In the scope of a vector.
class Lanes {
 public:
  using Element = fusion::Element;

  // All outlive this.
  Lanes(Scopes& code, const Vector& vector, Guards& guards, Places& places, Indices& indices, const Loaded& loaded,
        Values& values, Stores& stores)
      : code_(code),
        vector_(vector),
        guards_(guards),
        places_(places),
        indices_(indices),
        loaded_(loaded),
        values_(values),
        stores_(stores) {}

  // body() once for each lane `e` of the vector in scope.
  void Each(const std::function<void()>& body);

  // Adds to `accumulators` (named by `names`, an expression in the lane e) and stores.
  struct Product {  // A sum of products of values, by its name.
    std::string name;
    std::vector<const Element*> factors;
  };
  void Body(std::span<const Accumulator> accumulators, std::span<const std::string> names,
            std::span<const Store> stores, std::span<const Product> products = {});
  // Adds exp(x - base) to `sum`.
  void AddExponentials(const Element* x, const std::string& base, const std::string& sum);
  // The lanes of `element` as a pack of `dtype`, its name.
  std::string PackOf(const Element* element, DType dtype);

 private:
  // A store of a whole vector, and the array of what is computed of it, lane by lane.
  struct VectorStore {
    const Store* store;
    Stores::Packed packed;
    std::string array;
  };
  std::vector<VectorStore> StartVectors(std::span<const Store> stores);
  void Accumulate(std::span<const Accumulator> accumulators, std::span<const std::string> names,
                  std::span<const Product> products);
  void StoreLane(std::span<const Store> stores, const std::vector<VectorStore>& vectors);
  bool Branches(const VectorStore& vector);
  void Compute(const VectorStore& vector, int guard, int& splits);
  std::string PairsText(const Element* element) const;

  Scopes& code_;
  const Vector& vector_;
  Guards& guards_;
  Places& places_;
  Indices& indices_;
  const Loaded& loaded_;
  Values& values_;
  Stores& stores_;
};

}  // namespace hir::codegen::gpu
