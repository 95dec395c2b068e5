// The first process of a container, which has duties that are not a daemon's.
#pragma once

namespace hir::service {

// Where this is process 1 of a namespace it stays behind as that, and this returns in a child, to carry on as if it had
// been started by an init: signals are passed on to it, what is orphaned in the container is reaped, and its end is the
// container's, with its exit code, or 128 and the signal. Elsewhere it does nothing. Before there are threads.
void LeaveFirstProcess();

}  // namespace hir::service
