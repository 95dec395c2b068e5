// Fuzz target: any bytes as a request, before and while they become objects. The first byte chooses which. What parsing
// takes is at most what it was said to cost, and what costs too much stays bytes.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "hostir/v1/service.pb.h"
#include "service/rpc/admission.h"
#include "tests/fuzz/mutate_bytes.h"
#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/service_seeds.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {
namespace {

using google::protobuf::Message;

constexpr int64_t kBytesMax = int64_t{1} << 20;

const Message& KindOf(std::string_view input) {
  return *RequestKinds()[static_cast<unsigned char>(input[0]) % RequestKinds().size()];
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const std::string& session : ServiceSeeds()) {
    for (const Frame& frame : FramesOf(session, RequestKinds()))
      seeds.push_back(base::Cat(static_cast<char>(frame.kind), frame.message->SerializeAsString()));
  }
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  if (input.empty() || prng.OneIn(2)) return MutateBytes(prng, input);
  const std::unique_ptr<Message> message(KindOf(input).New());
  if (!message->ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1))) return MutateBytes(prng, input);
  MutateMessage(prng, *message);
  return input[0] + message->SerializePartialAsString();
}

void RunOne(std::string_view input) {
  if (input.empty()) return;
  const Message& kind = KindOf(input);
  const grpc::Slice slice(input.data() + 1, input.size() - 1);
  grpc::ByteBuffer bytes(&slice, 1);
  const std::optional<int64_t> cost = service::CostOf(bytes, kind, kBytesMax);
  service::Admission admission(kBytesMax);
  service::Charge charge;
  const std::unique_ptr<Message> message(kind.New());
  const Status status = admission.Parse(bytes, kind.GetDescriptor()->name(), *message, charge);
  const bool parsed = message->SpaceUsedLong() > kind.SpaceUsedLong();
  if (status.code() == Code::kResourceExhausted) {
    if (!cost || *cost <= kBytesMax) Found("refused, and it costs less than there is");
    if (parsed) Found("refused, and it was parsed");
  } else if (cost) {
    const auto taken = static_cast<int64_t>(message->SpaceUsedLong());
    if (taken > *cost) Found(base::Cat(status.ToString(), ": it takes ", taken, " bytes, and is said to cost ", *cost));
  } else if (parsed || message->ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1))) {
    Found("said to be no message, and it is one");
  }
}

}  // namespace hir::fuzz
