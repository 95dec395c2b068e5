#include "service/cluster/remembered.h"

#include <utility>

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr int kTensorsOfMessage = 256;  // Some tens of KiB: a slow link has others to carry, too.

// A message with room for one more.
pb::Remember& Room(std::vector<pb::Remember>& messages, int64_t count) {
  const bool is_full = messages.empty() || messages.back().tensors_size() >= kTensorsOfMessage ||
                       messages.back().forgotten_size() >= kTensorsOfMessage;
  if (is_full) messages.emplace_back().set_count(count);
  return messages.back();
}

}  // namespace

void Remembered::Add(pb::TensorRecord tensor) {
  const std::scoped_lock lock(mutex_);
  const std::string handle = tensor.handle();
  tensors_[handle] = std::move(tensor);
  news_[handle] = true;
}

void Remembered::Forget(const std::string& handle) {
  const std::scoped_lock lock(mutex_);
  if (tensors_.erase(handle) == 0) return;
  const auto told = news_.find(handle);
  if (told != news_.end() && told->second) {
    news_.erase(told);  // Nobody has heard of it.
  } else {
    news_[handle] = false;
  }
}

std::vector<pb::Remember> Remembered::Take() {
  const std::scoped_lock lock(mutex_);
  std::vector<pb::Remember> messages;
  if (news_.empty()) return messages;
  ++count_;
  for (const auto& [handle, is_there] : news_) {
    pb::Remember& message = Room(messages, count_);
    if (is_there) {
      *message.add_tensors() = tensors_.at(handle);
    } else {
      message.add_forgotten(handle);
    }
  }
  news_.clear();
  // A node that has heard all of it knows more than one that was cut off in between.
  for (size_t i = 0; i + 1 < messages.size(); ++i) messages[i].set_count(count_ - 1);
  return messages;
}

std::vector<pb::Remember> Remembered::All() const {
  const std::scoped_lock lock(mutex_);
  std::vector<pb::Remember> messages;
  Room(messages, count_).set_from_start(true);
  for (const auto& [handle, tensor] : tensors_) *Room(messages, count_).add_tensors() = tensor;
  for (size_t i = 0; i + 1 < messages.size(); ++i) messages[i].set_count(0);  // As in Take.
  return messages;
}

}  // namespace hir::service
