// How the programs of the service end, for scripts and supervisors. docs/configuration.md has the same table.
#pragma once

namespace hir::service {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;   // Whatever has no number of its own.
inline constexpr int kExitUsage = 2;    // The command line, the configuration, a file that is not there.
inline constexpr int kExitDevice = 3;   // A device, or the process that owns it.
inline constexpr int kExitAddress = 4;  // In use by another daemon; for clients: nobody answers there.

}  // namespace hir::service
