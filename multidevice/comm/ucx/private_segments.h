// System V segments that only their user can read.
#pragma once

namespace hir::comm {

// This library has a shmget of its own, which takes the rights of group and others away: UCX makes its segments, which
// hold tensors on their way, for the group too, and has no setting for it. This is called so that it is linked.
void KeepSegmentsPrivate();

}  // namespace hir::comm
