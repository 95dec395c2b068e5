#include "service/rpc/admission.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kDepthMax = 100;  // As protobuf's own.
// Bytes that malloc adds to a block, and that a growing array holds beside what it needs.
constexpr int64_t kBlock = 16;
constexpr int64_t kPointer = 16;
constexpr int64_t kNumber = 16;
constexpr int64_t kUnknown = 64;
constexpr int64_t kMapNode = 64;

// Walks over a message, as its parser will. Threads: one.
class Walk {
 public:
  Walk(CodedInputStream& in, int64_t most) : in_(in), most_(most) {}

  // False: it costs too much, or is no message.
  bool Message(const Descriptor* type, int depth) {
    if (depth > kDepthMax) return false;
    for (;;) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0 || WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_END_GROUP)
        return tag != 0 || in_.ConsumedEntireMessage();
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByNumber(number);
      if (!Field(field, WireFormatLite::GetTagWireType(tag), depth) || cost_ > most_) return false;
    }
  }
  int64_t cost() const { return cost_; }
  // An empty one.
  int64_t SizeOf(const Descriptor* type) {
    const auto [found, is_new] = sizes_.try_emplace(type);
    if (is_new) {
      const auto* like = google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
      found->second = like == nullptr ? kUnknown : static_cast<int64_t>(like->SpaceUsedLong());
    }
    return found->second;
  }

 private:
  // Whether the parser takes it for the field: else it keeps it as one that it does not know, which costs more.
  static bool IsOf(const FieldDescriptor* field, WireFormatLite::WireType wire) {
    const auto type = static_cast<WireFormatLite::FieldType>(field->type());
    return wire == WireFormatLite::WireTypeForFieldType(type) ||
           (field->is_packable() && wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  bool Field(const FieldDescriptor* field, WireFormatLite::WireType wire, int depth) {
    if (field != nullptr && !IsOf(field, wire)) field = nullptr;
    cost_ += field == nullptr ? kUnknown : field->is_repeated() ? kNumber : 0;
    uint64_t varint = 0;
    uint32_t fixed = 0;
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT: return in_.ReadVarint64(&varint);
      case WireFormatLite::WIRETYPE_FIXED64: return in_.ReadLittleEndian64(&varint);
      case WireFormatLite::WIRETYPE_FIXED32: return in_.ReadLittleEndian32(&fixed);
      case WireFormatLite::WIRETYPE_START_GROUP: return Message(nullptr, depth + 1);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: return Delimited(field, depth);
      case WireFormatLite::WIRETYPE_END_GROUP: break;
    }
    return false;
  }

  bool Delimited(const FieldDescriptor* field, int depth) {
    uint32_t bytes = 0;
    if (!in_.ReadVarint32(&bytes) || bytes > uint32_t{1} << 31) return false;
    const int length = static_cast<int>(bytes);
    const auto cpp = field == nullptr ? FieldDescriptor::CPPTYPE_STRING : field->cpp_type();
    if (cpp == FieldDescriptor::CPPTYPE_MESSAGE) {
      cost_ += SizeOf(field->message_type()) + kBlock + (field->is_map() ? kMapNode : kPointer);
      // One that claims to end behind what holds it is parsed as far as it claims, before that is refused.
      if (length > in_.BytesUntilLimit()) return false;
      const CodedInputStream::Limit limit = in_.PushLimit(length);
      const bool walked = Message(field->message_type(), depth + 1);
      in_.PopLimit(limit);
      return walked;
    }
    if (!in_.Skip(length)) return false;
    const bool packed = cpp != FieldDescriptor::CPPTYPE_STRING;
    cost_ += packed ? length * kNumber : length + static_cast<int64_t>(sizeof(std::string)) + kBlock + kPointer;
    return true;
  }

  CodedInputStream& in_;
  const int64_t most_;
  int64_t cost_ = 0;
  std::map<const Descriptor*, int64_t> sizes_;
};

}  // namespace

std::optional<int64_t> CostOf(grpc::ByteBuffer& bytes, const google::protobuf::Message& like, int64_t most) {
  grpc::ProtoBufferReader reader(&bytes);
  if (!reader.status().ok()) return std::nullopt;
  CodedInputStream in(&reader);
  (void)in.PushLimit(static_cast<int>(std::min<size_t>(bytes.Length(), INT_MAX)));
  Walk walk(in, most);
  const bool walked = walk.Message(like.GetDescriptor(), 0);
  const int64_t cost = walk.cost() + walk.SizeOf(like.GetDescriptor());
  if (!walked && cost <= most) return std::nullopt;
  return cost;
}

Status Admission::Parse(grpc::ByteBuffer& bytes, std::string_view what, google::protobuf::Message& message,
                        Charge& charge) {
  charge = {};
  if (const std::optional<int64_t> cost = CostOf(bytes, message, bytes_.max())) {
    HIR_ASSIGN(charge, bytes_.Take(*cost));
    grpc::ProtoBufferReader reader(&bytes);
    if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader)) return {};
  }
  return InvalidArgument(base::Cat("the ", bytes.Length(), " bytes are no ", what));
}

}  // namespace hir::service
