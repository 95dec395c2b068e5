// Sessions of a client as sequences of requests, which the targets of the service start from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/mutate_message.h"

namespace hir::fuzz {

// The kinds of frames: all requests of service.proto, and what else befalls a session: its connection ends; the next
// call of the ranks fails with an Error.
enum Kind {
  kConnect,
  kUpload,
  kDownload,
#define HIR_UNARY(Method, Request, Reply, thread) k##Method,
#include "service/rpc/unary_methods.def"
#undef HIR_UNARY
  kLeave,
  kFault
};
Kinds RequestKinds();
Kinds SessionKinds();
// The flags of a frame: the client does not wait for this call before the next; it goes before it is answered; it gives
// an upload up.
inline constexpr int kGoesOn = 1, kGoes = 2;

// In requests "$s0", "$h1", "$p2", "$t3" stand for the ids of the first session, the second handle, the third program,
// the fourth token that there are, counted around.
std::vector<std::string> ServiceSeeds();
// Such, and words that requests may have.
std::vector<std::string_view> ServiceWords();

}  // namespace hir::fuzz
