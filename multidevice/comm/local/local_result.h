// What a communication of the local backend leaves in dst.
#pragma once

#include <cstddef>

#include "multidevice/comm/local/exchange.h"

namespace hir::comm {

// The part of op's src that goes to the team's rank number `to`.
const std::byte* Outgoing(const LocalOp& op, int64_t to);
// Fills dst with garbage, unless it shares bytes with src.
void PoisonResult(const LocalOp& op, int64_t rank);
// Writes dst from src and what arrived. REQUIRES: everything has arrived and has been sent.
void WriteResult(const LocalOp& op, int64_t rank);

}  // namespace hir::comm
