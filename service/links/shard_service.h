// ShardService: clients write and read the bytes of shards that this node keeps, past the head (shards.proto).
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "service/cluster/tickets.h"

namespace hir::service {

// To be registered with one server, which goes first; `tickets` outlives both.
std::unique_ptr<grpc::Service> MakeShardService(Tickets& tickets);

}  // namespace hir::service
