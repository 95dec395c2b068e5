// Shapes and storage of buffers: row-major over the value axes, reduction axes dropped, broadcast
// axes stored once.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

// Elements stored: the product of the extents of the iteration axes.
const ir::Expr* StorageElements(ir::ExprPool& pool, const ir::Type& type);

// The extents as stored, one a value axis: broadcast axes are 1.
std::vector<const ir::Expr*> StoredExtents(ir::ExprPool& pool, const ir::Type& type);

// Equal value axes, kinds of axes aside.
bool SameShape(const ir::Type& a, const ir::Type& b);

}  // namespace hir::host
