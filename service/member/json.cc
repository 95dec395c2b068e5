#include "service/member/json.h"

#include <google/protobuf/util/json_util.h>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::service {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

Status ParseEntry(const Kv::Entry& entry, google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (google::protobuf::util::JsonStringToMessage(entry.value, &message, options).ok()) return {};
  return Status(Code::kDataLoss, base::Cat("etcd has ", base::Quoted(entry.value.substr(0, 64)), " at ", entry.key,
                                           ", which no node of hostir wrote"));
}

}  // namespace hir::service
