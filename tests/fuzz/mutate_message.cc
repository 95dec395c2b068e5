#include "tests/fuzz/mutate_message.h"

#include <string>
#include <vector>

namespace hir::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

size_t Pick(base::Prng& prng, size_t n) { return static_cast<size_t>(prng.Below(static_cast<int64_t>(n))); }

// Every message below and with `message`, parents first.
void Collect(Message& message, std::vector<Message*>& all) {
  all.push_back(&message);
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(*reflection.MutableMessage(&message, field), all);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      Collect(*reflection.MutableRepeatedMessage(&message, field, i), all);
    }
  }
}

int64_t Number(base::Prng& prng) {
  constexpr int64_t kNumbers[] = {0, 1, -1, 2, 3, 16, 17, 1 << 20, INT64_MAX, INT64_MIN, int64_t{1} << 32};
  return prng.OneIn(4) ? static_cast<int64_t>(prng.Next()) : kNumbers[Pick(prng, std::size(kNumbers))];
}

// A text found elsewhere in the program, so that names often mean something.
std::string Text(base::Prng& prng, const std::vector<Message*>& all) {
  for (int tries = 0; tries < 20; ++tries) {
    const Message& from = *all[Pick(prng, all.size())];
    std::vector<const FieldDescriptor*> fields;
    from.GetReflection()->ListFields(from, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING || !prng.OneIn(2)) continue;
      std::string text = field->is_repeated() ? from.GetReflection()->GetRepeatedString(from, field, 0)
                                              : from.GetReflection()->GetString(from, field);
      if (!text.empty() && prng.OneIn(4)) text[Pick(prng, text.size())] = "%@+*/()[0 \"i\n"[Pick(prng, 13)];
      return text;
    }
  }
  return "";
}

void MutateRepeated(base::Prng& prng, Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, field);
  const int at = static_cast<int>(prng.Below(size));
  switch (prng.Below(3)) {
    case 0: reflection.SwapElements(&message, field, at, static_cast<int>(prng.Below(size))); break;
    case 1:
      reflection.SwapElements(&message, field, at, size - 1);
      reflection.RemoveLast(&message, field);
      break;
    default:
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Message* copy = reflection.AddMessage(&message, field);
        copy->CopyFrom(reflection.GetRepeatedMessage(message, field, at));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection.AddString(&message, field, reflection.GetRepeatedString(message, field, at));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        reflection.SetRepeatedInt64(&message, field, at, Number(prng));
      }
  }
}

}  // namespace

void MutateMessage(base::Prng& prng, Message& message) {
  std::vector<Message*> all;
  Collect(message, all);
  Message& target = *all[Pick(prng, all.size())];
  const Reflection& reflection = *target.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(target, &fields);
  // Sometimes a field that is not there yet: another member of a oneof, a location, an alias.
  if (fields.empty() || prng.OneIn(5)) {
    const int count = target.GetDescriptor()->field_count();
    if (count == 0) return;
    fields = {target.GetDescriptor()->field(static_cast<int>(prng.Below(count)))};
  }
  const FieldDescriptor* field = fields[Pick(prng, fields.size())];
  if (field->is_repeated()) {
    if (reflection.FieldSize(target, field) > 0) MutateRepeated(prng, target, field);
    return;
  }
  if (prng.OneIn(6)) return reflection.ClearField(&target, field);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: reflection.SetInt64(&target, field, Number(prng)); break;
    case FieldDescriptor::CPPTYPE_BOOL: reflection.SetBool(&target, field, prng.OneIn(2)); break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection.SetDouble(&target, field, static_cast<double>(Number(prng)) / 3);
      break;
    case FieldDescriptor::CPPTYPE_ENUM: reflection.SetEnumValue(&target, field, static_cast<int>(prng.Below(9))); break;
    case FieldDescriptor::CPPTYPE_STRING: reflection.SetString(&target, field, Text(prng, all)); break;
    case FieldDescriptor::CPPTYPE_MESSAGE: reflection.MutableMessage(&target, field); break;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_FLOAT: break;  // Programs have none.
  }
}

}  // namespace hir::fuzz
