#include "tests/fuzz/mutate_message.h"

#include <cmath>
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

double Real(base::Prng& prng) {
  constexpr double kReals[] = {0, -0.0, 1, -1, 0.5, 1e-300, 1e300, INFINITY, -INFINITY, NAN, 0x1p63, -0x1p63, 0x1p31};
  return prng.OneIn(4) ? static_cast<double>(Number(prng)) / 3 : kReals[Pick(prng, std::size(kReals))];
}

// A text found elsewhere in the messages, so that names often mean something, or one of `words`.
std::string Text(base::Prng& prng, const std::vector<Message*>& all, std::span<const std::string_view> words) {
  if (!words.empty() && prng.OneIn(4)) return std::string(words[Pick(prng, words.size())]);
  for (int tries = 0; tries < 20; ++tries) {
    const Message& from = *all[Pick(prng, all.size())];
    std::vector<const FieldDescriptor*> fields;
    from.GetReflection()->ListFields(from, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING || !prng.OneIn(2)) continue;
      const Reflection& reflection = *from.GetReflection();
      std::string text = field->is_repeated()
                             ? reflection.GetRepeatedString(
                                   from, field, static_cast<int>(prng.Below(reflection.FieldSize(from, field))))
                             : reflection.GetString(from, field);
      if (!text.empty() && prng.OneIn(4)) text[Pick(prng, text.size())] = "%@+*/()[0 \"i\n"[Pick(prng, 13)];
      return text;
    }
  }
  return "";
}

// The value that a field is set to: one function for the field, one for an element that is added to it.
struct Setter {
  base::Prng& prng;
  const std::vector<Message*>& all;
  std::span<const std::string_view> words;

  std::string AsText(const FieldDescriptor* field) const {
    std::string text = Text(prng, all, words);
    if (field->type() != FieldDescriptor::TYPE_BYTES) {
      // Bytes that are not UTF-8 are no message: there is nothing to find behind them.
      for (char& c : text) c = (static_cast<unsigned char>(c) & 0x80) != 0 ? '?' : c;
    }
    return text;
  }
  int AsEnum(const FieldDescriptor* field) const {
    return static_cast<int>(prng.Below(field->enum_type()->value_count() + 2)) - 1;
  }

  void Set(Message& message, const FieldDescriptor* field) const {
    const Reflection& reflection = *message.GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64: reflection.SetInt64(&message, field, Number(prng)); break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection.SetUInt64(&message, field, static_cast<uint64_t>(Number(prng)));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&message, field, static_cast<int32_t>(Number(prng)));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection.SetUInt32(&message, field, static_cast<uint32_t>(Number(prng)));
        break;
      case FieldDescriptor::CPPTYPE_BOOL: reflection.SetBool(&message, field, prng.OneIn(2)); break;
      case FieldDescriptor::CPPTYPE_FLOAT: reflection.SetFloat(&message, field, static_cast<float>(Real(prng))); break;
      case FieldDescriptor::CPPTYPE_DOUBLE: reflection.SetDouble(&message, field, Real(prng)); break;
      case FieldDescriptor::CPPTYPE_ENUM: reflection.SetEnumValue(&message, field, AsEnum(field)); break;
      case FieldDescriptor::CPPTYPE_STRING: reflection.SetString(&message, field, AsText(field)); break;
      case FieldDescriptor::CPPTYPE_MESSAGE: reflection.MutableMessage(&message, field); break;
    }
  }

  void Add(Message& message, const FieldDescriptor* field) const {
    const Reflection& reflection = *message.GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64: reflection.AddInt64(&message, field, Number(prng)); break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection.AddUInt64(&message, field, static_cast<uint64_t>(Number(prng)));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.AddInt32(&message, field, static_cast<int32_t>(Number(prng)));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection.AddUInt32(&message, field, static_cast<uint32_t>(Number(prng)));
        break;
      case FieldDescriptor::CPPTYPE_BOOL: reflection.AddBool(&message, field, prng.OneIn(2)); break;
      case FieldDescriptor::CPPTYPE_FLOAT: reflection.AddFloat(&message, field, static_cast<float>(Real(prng))); break;
      case FieldDescriptor::CPPTYPE_DOUBLE: reflection.AddDouble(&message, field, Real(prng)); break;
      case FieldDescriptor::CPPTYPE_ENUM: reflection.AddEnumValue(&message, field, AsEnum(field)); break;
      case FieldDescriptor::CPPTYPE_STRING: reflection.AddString(&message, field, AsText(field)); break;
      case FieldDescriptor::CPPTYPE_MESSAGE: reflection.AddMessage(&message, field); break;
    }
  }

  // A new element changes places with an old one, which goes or stays.
  void Repeated(Message& message, const FieldDescriptor* field) const {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, field);
    if (size == 0) return Add(message, field);
    const int at = static_cast<int>(prng.Below(size));
    switch (prng.Below(4)) {
      case 0: reflection.SwapElements(&message, field, at, static_cast<int>(prng.Below(size))); break;
      case 1:
        reflection.SwapElements(&message, field, at, size - 1);
        reflection.RemoveLast(&message, field);
        break;
      case 2:
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
          Message* copy = reflection.AddMessage(&message, field);
          copy->CopyFrom(reflection.GetRepeatedMessage(message, field, at));
          reflection.SwapElements(&message, field, at, size);
          break;
        }
        [[fallthrough]];
      default:
        Add(message, field);
        reflection.SwapElements(&message, field, at, size);
        if (prng.OneIn(2)) reflection.RemoveLast(&message, field);
    }
  }
};

void MutateIn(base::Prng& prng, const std::vector<Message*>& all, std::span<const std::string_view> words) {
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
  const Setter setter = {prng, all, words};
  if (field->is_repeated()) return setter.Repeated(target, field);
  if (prng.OneIn(6)) return reflection.ClearField(&target, field);
  setter.Set(target, field);
}

}  // namespace

void MutateMessage(base::Prng& prng, Message& message) {
  Message* const one = &message;
  MutateOneOf(prng, {&one, 1});
}

void MutateOneOf(base::Prng& prng, std::span<Message* const> messages, std::span<const std::string_view> words) {
  std::vector<Message*> all;
  for (Message* message : messages) Collect(*message, all);
  if (!all.empty()) MutateIn(prng, all, words);
}

bool Graft(base::Prng& prng, Message& message, Message& donor) {
  std::vector<Message*> here, there;
  Collect(message, here);
  Collect(donor, there);
  for (int tries = 0; tries < 10; ++tries) {
    Message& to = *here[Pick(prng, here.size())];
    const Message& from = *there[Pick(prng, there.size())];
    if (to.GetDescriptor() != from.GetDescriptor() || (&to == &message && tries < 5)) continue;
    prng.OneIn(3) ? to.MergeFrom(from) : to.CopyFrom(from);
    return true;
  }
  return false;
}

}  // namespace hir::fuzz
