// Records in etcd, as JSON that people can read.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "csrc/base/status.h"
#include "service/etcd/kv.h"

namespace hir::service {

std::string ToJson(const google::protobuf::Message& message);
// Fields that later versions add are skipped. Errors: kDataLoss: somebody else wrote there.
Status ParseEntry(const Kv::Entry& entry, google::protobuf::Message& message);

template <typename Message>
Result<Message> FromEntry(const Kv::Entry& entry) {
  Message message;
  HIR_TRY(ParseEntry(entry, message));
  return message;
}

}  // namespace hir::service
