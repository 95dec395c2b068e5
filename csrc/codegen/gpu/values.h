// Values of elements as code, each computed once, as far out as it can be, where its guard holds; with the loads that
// they are made of, whose addresses may be values. Private to csrc/codegen/gpu.
#pragma once

#include <string>
#include <vector>

#include "csrc/codegen/gpu/arguments.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/indices.h"
#include "csrc/codegen/gpu/loaded.h"
#include "csrc/codegen/gpu/loads.h"
#include "csrc/codegen/gpu/places.h"
#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"

namespace hir::codegen::gpu {

class Values {
 public:
  using Element = fusion::Element;

  // All outlive this. `is_fast`: see PrimText.
  Values(Scopes& code, IndexMath& math, const Vector& vector, const Arguments& arguments, Dependences& dependences,
         Guards& guards, Indices& indices, Places& places, Loads& loads, const Loaded& loaded, bool is_fast)
      : code_(code),
        math_(math),
        vector_(vector),
        arguments_(arguments),
        dependences_(dependences),
        guards_(guards),
        indices_(indices),
        places_(places),
        loads_(loads),
        loaded_(loaded),
        is_fast_(is_fast) {}

  // Values of lanes that do not vary with `variable`, the one of a loop inside the vector's scope, are computed in
  // front of that loop, into arrays. -1: there is no such loop.
  void SetInnerRows(int variable) { inner_rows_ = variable; }

  std::string Text(const Element* element, int guard = 0);

  // A vector load as an expression, with what the caches are told of it.
  enum class Reading {
    kPlain,
    kAcross,  // Places::IsAcrossVectors.
    kLast,    // It is not read again.
    kFirst,   // It soon is.
  };
  std::string LoadText(const Access& access, Reading reading);
  // The same for a load of one element.
  std::string ScalarText(const Access& access);
  // Its address.
  std::string LoadAddress(const Access& access);
  std::string OffsetText(const Places::Offset& offset, bool is_lane);
  // A vector load, by its name.
  std::string PackText(const Access& access);
  // Vectors of which a uniform condition allows one or the other: one load from the address that it chooses.
  void PairLoads(const Element* select, int guard);

 private:
  using Key = Scopes::Key;

  std::string GuardText(int guard);
  std::vector<std::string> ArgumentsOf(const Element* element, int guard);
  std::string PrimValue(const Element* element, const Key& key, size_t level);
  std::string LoadValue(const Element* element, int guard);
  size_t LevelOf(const Access& access);
  bool LeavesRows(const Element* element, int guard, uint64_t vars) const;
  std::string InFrontOfRows(const Element* element, size_t level);

  Scopes& code_;
  IndexMath& math_;
  const Vector& vector_;
  const Arguments& arguments_;
  Dependences& dependences_;
  Guards& guards_;
  Indices& indices_;
  Places& places_;
  Loads& loads_;
  const Loaded& loaded_;
  const bool is_fast_;
  int inner_rows_ = -1;
};

}  // namespace hir::codegen::gpu
