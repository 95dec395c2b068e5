// A seeded mutator of protobuf messages, over their fields by reflection.
#pragma once

#include <google/protobuf/message.h>

#include "csrc/base/prng.h"

namespace hir::fuzz {

// Changes one field somewhere in `message`: a number, a text (to another of the message's texts, or
// damaged), an element repeated, dropped or moved, a field cleared.
void MutateMessage(base::Prng& prng, google::protobuf::Message& message);

}  // namespace hir::fuzz
