// The host op table: host programs are graphs over kHostOps. Values are buffers (tensor types, one
// rank's shapes), host scalars, events and loop indices; an SSA name is a reference to memory, not
// its contents.
//
// Symbols in expressions, beside extents: `%i` a loop index, `rank` this rank, `@m.in` 1 when this
// rank is in mesh m (else 0), `@m.x`, `@m.y`, `@m.z` its coordinates in m along mesh_x, mesh_y,
// mesh_z (0 outside m).
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

enum class HostOp : uint16_t {
#define HOST_OP(Name, ...) k##Name,
#include "host_ir/host_ops.def"
};

extern const ir::OpSet kHostOps;
extern const ir::OpSet kUnorderedHostOps;  // For programs before assign_streams: verified but for (H8).

inline HostOp CodeOf(const ir::Op& op) { return static_cast<HostOp>(op.info->code); }

// What an op does to the bytes of one operand.
enum class Access : uint8_t {
  kNone,   // a host scalar or an event
  kAlias,  // refers to it
  kRead,
  kWrite,  // writes all of it
  kReadWrite,
  kScratch,  // a workspace: like kReadWrite, but may hold anything before
};
Access AccessOf(const ir::Op& op, int operand);
// Whether the last two axes of an operand of a product lie the other way round. REQUIRES: `op` is a `library` or a
// `grouped_product`.
bool IsTransposed(const ir::Op& op, size_t operand);

inline bool Reads(Access access) { return access == Access::kRead || access == Access::kReadWrite; }
inline bool Writes(Access access) { return access >= Access::kWrite; }

// Whether a library, and no kernel of the plan, does the op's work.
inline bool IsLibraryCall(HostOp op) {
  return op == HostOp::kLibrary || op == HostOp::kIndexSum || op == HostOp::kAttention || op == HostOp::kGroupedProduct;
}
// Whether the op is queued on a stream (has the attribute `stream`).
bool IsQueued(const ir::Op& op);
// Whether the result is a view of operand 0.
bool MakesView(const ir::Op& op);
// The name of queued work in profiles: a launch's kernel ("k0.1"), else the value that the op writes.
std::string_view WorkNameOf(const ir::Op& op);
// What a chain of views refers to: a parameter, or the result of an alloc.
const ir::Value* BaseOf(const ir::Value* value);

inline constexpr int64_t kStreamsMax = 64;  // Streams of one program: `stream` is in [0, kStreamsMax).
// What planning uses of them: 0, the caller's, 1 for communications, and from here on those of stream loops.
inline constexpr int kFirstLoopStream = 2;
inline constexpr int kLoopStreamsMax = 14;
// Communications of at most so many bytes are queued side by side and start together: what they cost is to begin.
inline constexpr int64_t kGroupedBytesMax = 64 << 10;

}  // namespace hir::host
