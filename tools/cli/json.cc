#include "tools/cli/json.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::cli {
namespace {

using base::Cat;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Render(const Message& message, const std::string& indent);

std::string Number(double value) { return std::isfinite(value) ? base::FormatDouble(value) : "null"; }

// The element `index` of a repeated field, or with -1 the field.
std::string Value(const Message& message, const FieldDescriptor& field, int index, const std::string& indent) {
  const Reflection& reflection = *message.GetReflection();
#define HIR_GET(Type) \
  (index < 0 ? reflection.Get##Type(message, &field) : reflection.GetRepeated##Type(message, &field, index))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return Cat(HIR_GET(Int32));
    case FieldDescriptor::CPPTYPE_INT64: return Cat(HIR_GET(Int64));
    case FieldDescriptor::CPPTYPE_UINT32: return Cat(HIR_GET(UInt32));
    case FieldDescriptor::CPPTYPE_UINT64: return Cat(HIR_GET(UInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE: return Number(HIR_GET(Double));
    case FieldDescriptor::CPPTYPE_FLOAT: return Number(HIR_GET(Float));
    case FieldDescriptor::CPPTYPE_BOOL: return Cat(HIR_GET(Bool));
    case FieldDescriptor::CPPTYPE_ENUM: return base::Quoted(HIR_GET(Enum)->name());
    case FieldDescriptor::CPPTYPE_STRING: return base::Quoted(HIR_GET(String));
    case FieldDescriptor::CPPTYPE_MESSAGE: return Render(HIR_GET(Message), indent);
  }
#undef HIR_GET
  return "null";
}

// Entries of a map are sorted by key: a message does not say in which order it has them.
std::string Map(const Message& message, const FieldDescriptor& field, const std::string& indent) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<std::string> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const google::protobuf::Descriptor& type = *entry.GetDescriptor();
    entries.push_back(Cat(Value(entry, *type.field(0), -1, indent), ": ", Value(entry, *type.field(1), -1, indent)));
  }
  std::ranges::sort(entries);
  return Cat("{", base::Join(entries, ", "), "}");
}

std::string List(const Message& message, const FieldDescriptor& field, const std::string& indent) {
  const int size = message.GetReflection()->FieldSize(message, &field);
  const bool in_lines = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && size > 0;
  const std::string inner = indent + "  ";
  std::string out = "[";
  for (int i = 0; i < size; ++i) {
    if (i > 0) out += in_lines ? "," : ", ";
    if (in_lines) base::Append(out, "\n", inner);
    out += Value(message, field, i, inner);
  }
  if (in_lines) base::Append(out, "\n", indent);
  return out + "]";
}

std::string Render(const Message& message, const std::string& indent) {
  const std::string inner = indent + "  ";
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  std::string out;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
    base::Append(out, out.empty() ? "\n" : ",\n", inner, "\"", field.name(), "\": ");
    if (field.is_map()) {
      out += Map(message, field, inner);
    } else if (field.is_repeated()) {
      out += List(message, field, inner);
    } else {
      out += Value(message, field, -1, inner);
    }
  }
  return out.empty() ? "{}" : Cat("{", out, "\n", indent, "}");
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message) { return Render(message, ""); }

}  // namespace hir::cli
