// Admission: what a message will cost as objects is known, and charged, before it becomes any. A byte on the wire may
// cost a hundred: 60 MiB of empty arguments are 30 million objects.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "csrc/base/status.h"
#include "service/store/budget.h"

namespace hir::service {

// At least the bytes that parsing `bytes` as a message like `like` takes from the heap, counted until they are more
// than `most`; nothing is allocated for them. Nothing: they are no message, which shows before they are more. Of those
// protobuf would make objects up to there, and room for a text of the length that it only claims to have.
std::optional<int64_t> CostOf(grpc::ByteBuffer& bytes, const google::protobuf::Message& like, int64_t most);

// Thread-safe.
class Admission {
 public:
  // `bytes_max` is requests_bytes_max.
  explicit Admission(int64_t bytes_max) : bytes_("requests_bytes_max", "bytes of requests", bytes_max) {}

  // `bytes` as `message`, which `charge` stands for: who holds it holds that too. `what` names it: "RunRequest".
  // Errors: kResourceExhausted naming requests_bytes_max; kInvalidArgument: they are no such message.
  Status Parse(grpc::ByteBuffer& bytes, std::string_view what, google::protobuf::Message& message, Charge& charge);

 private:
  Budget bytes_;
};

}  // namespace hir::service
