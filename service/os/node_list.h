// The nodes of a cluster, as a fixed list says them, or the members of the etcd that knows them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "service/os/address.h"

namespace hir::service {

inline constexpr size_t kNodesMax = 1024;

// "tcp:10.0.0.1:7001,tcp:10.0.0.2:7001", node 0 first, or the path of a file with one address a line, and comments
// behind "#".
// Errors: kInvalidArgument: an address, by its place; one that is there twice; too many of them; kNotFound: the file.
Result<std::vector<Address>> ParseNodes(std::string_view text);

// "etcd:10.0.0.1:2379,10.0.0.2:2379": the members of one etcd, each as host:port.
// Errors: kInvalidArgument: what is wrong with it.
Result<std::vector<std::string>> ParseEtcd(std::string_view text);

}  // namespace hir::service
