// Which loads elements are made of: vectors, numbers, and how many fit no vectors. Private to csrc/codegen/gpu.
#pragma once

#include <set>
#include <span>
#include <utility>
#include <vector>

#include "csrc/codegen/gpu/conditions.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/places.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Loads {
 public:
  using Element = fusion::Element;

  // All outlive this.
  Loads(IndexMath& math, const Vector& vector, Dependences& dependences, Conditions& conditions, Guards& guards,
        Places& places)
      : math_(math),
        vector_(vector),
        dependences_(dependences),
        conditions_(conditions),
        guards_(guards),
        places_(places) {}

  // The loads below `roots` that are vectors.
  std::vector<Access> Vectors(const std::vector<const Element*>& roots, int guard = 0);
  // Loads of one element that vary with `rows` and not with `columns`, whatever conditions say.
  std::vector<Access> Scalars(const std::vector<const Element*>& roots, std::span<const Loop> rows,
                              std::span<const Loop> columns);
  // The offset at which rows along `variable` begin in memory: that of most of the tensors of `region` that have one by
  // its grid, those that are stored counting twice: across vectors there are loads alone. Null: none has.
  const ir::Expr* RowOffset(const Region& region, int variable);
  // The weight, in accesses, of all in `region` that does not fit vectors.
  int Misfits(const Region& region);

 private:
  // A search for vectors, with what it has been to.
  struct Search {
    std::set<std::pair<const Element*, int>> seen = {};
    std::vector<Access> found = {};
    bool counts_misfits = false;
    int misfits = 0;  // Loads that are one of each lane.
  };
  void Visit(const Element* element, int guard, Search& search);
  void VisitScalars(const Element* element, std::span<const Loop> rows, std::span<const Loop> columns,
                    std::set<const Element*>& seen, std::vector<Access>& found);
  int MisfitsOf(const Loop& loop);
  int MisfitsOf(const Store& store);

  IndexMath& math_;
  const Vector& vector_;
  Dependences& dependences_;
  Conditions& conditions_;
  Guards& guards_;
  Places& places_;
};

}  // namespace hir::codegen::gpu
