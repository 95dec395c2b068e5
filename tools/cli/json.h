// Messages as JSON.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace hir::cli {

// Every field by its name in proto/, in its order, those with default values too; of those that say whether they are
// there (messages, `optional`), only those that are. 64-bit numbers are numbers. Two spaces a level, no newline behind.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace hir::cli
