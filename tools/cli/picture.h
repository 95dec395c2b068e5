// Picture: a plan as an SVG document: a lane for each stream, a box for each thing that is queued.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/plan_items.h"

namespace hir::cli {

struct PictureTitle {
  std::string name;      // "transformer_layer"
  std::string subtitle;  // "9 segments, 2 communications, ..."
};

// The document. Equal plans give equal pictures. Boxes are as wide as their bytes, but never narrower than their text;
// long plans go on in the next row. No text is crossed by another, by a box it is not in, or by an arrow.
std::string DrawPlan(const PictureTitle& title, const std::vector<PlanItem>& items);

}  // namespace hir::cli
