// A seeded mutator of protobuf messages, over their fields by reflection.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/prng.h"

namespace hir::fuzz {

// Changes one field somewhere in `message`: a number, a text (to another of the message's texts, or damaged), an item
// repeated, dropped or moved, a field cleared or set for the first time.
void MutateMessage(base::Prng& prng, google::protobuf::Message& message);
// The same of one of `messages`; texts come from all of them, and from `words`.
void MutateOneOf(base::Prng& prng, std::span<google::protobuf::Message* const> messages,
                 std::span<const std::string_view> words = {});
// Puts a part of `donor` in the place of a part of `message` of the same type, or beside it; false: they share none.
bool Graft(base::Prng& prng, google::protobuf::Message& message, google::protobuf::Message& donor);

// A message of a sequence, which an input is made of: a byte, four bytes of length, the message. The byte is an index
// into the kinds of messages, and three flags above, of which the target says what they mean.
struct Frame {
  int kind = 0;
  int flags = 0;
  std::unique_ptr<google::protobuf::Message> message;
};
using Kinds = std::span<const google::protobuf::Message* const>;  // At most 32.

// Bytes that are no frame of these kinds end the sequence.
std::vector<Frame> FramesOf(std::string_view bytes, Kinds kinds);
std::string BytesOf(std::span<const Frame> frames);
// Adds a frame to `bytes`.
void AddFrame(std::string& bytes, int kind, const google::protobuf::Message& message, int flags = 0);
// Frames moved, repeated, dropped, taken from `donor`, marked otherwise or mutated.
std::string MutatedFrames(base::Prng& prng, const std::string& bytes, const std::string& donor, Kinds kinds,
                          std::span<const std::string_view> words = {});

}  // namespace hir::fuzz
