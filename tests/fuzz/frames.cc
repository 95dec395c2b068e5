#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/fuzz/mutate_message.h"

namespace hir::fuzz {
namespace {

using google::protobuf::Message;

constexpr size_t kFramesMax = 64;

Frame CopyOf(const Frame& frame) {
  Frame copy = {frame.kind, frame.flags, std::unique_ptr<Message>(frame.message->New())};
  copy.message->CopyFrom(*frame.message);
  return copy;
}

}  // namespace

std::vector<Frame> FramesOf(std::string_view bytes, Kinds kinds) {
  std::vector<Frame> frames;
  while (bytes.size() >= 5 && frames.size() < kFramesMax) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    uint32_t length = 0;
    std::memcpy(&length, bytes.data() + 1, sizeof(length));
    Frame frame = {static_cast<int>(byte & 31), byte >> 5, nullptr};
    if (static_cast<size_t>(frame.kind) >= kinds.size() || length > bytes.size() - 5) break;
    frame.message.reset(kinds[static_cast<size_t>(frame.kind)]->New());
    if (!frame.message->ParseFromArray(bytes.data() + 5, static_cast<int>(length))) break;
    frames.push_back(std::move(frame));
    bytes.remove_prefix(5 + length);
  }
  return frames;
}

void AddFrame(std::string& bytes, int kind, const Message& message, int flags) {
  const auto length = static_cast<uint32_t>(message.ByteSizeLong());
  bytes.push_back(static_cast<char>(kind | flags << 5));
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  message.AppendPartialToString(&bytes);
}

std::string BytesOf(std::span<const Frame> frames) {
  std::string bytes;
  for (const Frame& frame : frames) AddFrame(bytes, frame.kind, *frame.message, frame.flags);
  return bytes;
}

std::string MutatedFrames(base::Prng& prng, const std::string& bytes, const std::string& donor, Kinds kinds,
                          std::span<const std::string_view> words) {
  std::vector<Frame> frames = FramesOf(bytes, kinds);
  std::vector<Frame> others = FramesOf(donor, kinds);
  if (frames.empty()) return BytesOf(others);
  const auto pick = [&](size_t n) { return static_cast<size_t>(prng.Below(static_cast<int64_t>(n))); };
  const size_t at = pick(frames.size());
  const auto here = frames.begin() + static_cast<ptrdiff_t>(at);
  switch (prng.Below(10)) {
    case 0: std::swap(frames[at], frames[pick(frames.size())]); break;
    case 1: frames.insert(here, CopyOf(frames[pick(frames.size())])); break;
    case 2: frames.erase(here); break;
    case 3:
      if (!others.empty()) frames.insert(here, CopyOf(others[pick(others.size())]));
      break;
    case 4: frames[at].flags ^= 1 << prng.Below(3); break;
    case 5:
      if (others.empty() || !Graft(prng, *frames[at].message, *others[pick(others.size())].message)) break;
      break;
    default: {
      std::vector<Message*> messages;
      for (const Frame& frame : frames) messages.push_back(frame.message.get());
      MutateOneOf(prng, messages, words);
    }
  }
  return BytesOf(frames);
}

}  // namespace hir::fuzz
