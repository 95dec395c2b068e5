// Words for a run that does not end: who has not come to which communication.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hostir/v1/worker.pb.h"

namespace hir::service {

// `dumped`: what each rank answered (comm_entered -2: it did not). `awaited`: the replies each rank owes.
// "rank 3 has not entered allgather #17 (segment 4); 3 peers are waiting"
std::string DescribeStuck(std::span<const ::hostir::v1::Dumped> dumped, std::span<const int64_t> awaited);

}  // namespace hir::service
