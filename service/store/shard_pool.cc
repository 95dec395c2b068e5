#include "service/store/shard_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hir::service {
namespace {

constexpr int64_t kPageBytes = 4096;

bool Matches(const ShardPool::Kept& kept, std::span<const int64_t> devices, int64_t bytes) {
  return std::ranges::equal(kept.shards, devices, [&](const ShardSet::Shard& shard, int64_t device) {
    return shard.bytes == bytes && shard.device == device;
  });
}

}  // namespace

int64_t ShardPool::BytesOf(const Kept& kept) {
  int64_t bytes = 0;
  for (const ShardSet::Shard& shard : kept.shards) bytes += (shard.bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return bytes;
}

void ShardPool::Open(std::string_view session) {
  const std::scoped_lock lock(mutex_);
  open_.emplace(session);
}

void ShardPool::Close(std::string_view session) {
  std::list<Entry> given_up;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto open = open_.find(session); open != open_.end()) open_.erase(open);
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto entry = at++;
      if (entry->session == session) Remove(entry, given_up);
    }
  }
  GiveUp(std::move(given_up));
}

void ShardPool::Keep(std::string_view session, Kept kept) {
  Entry entry = {std::string(session), std::move(kept), 0};
  entry.bytes = BytesOf(entry.kept);
  std::list<Entry> given_up;
  {
    const std::scoped_lock lock(mutex_);
    if (entry.bytes > bytes_max_ || !open_.contains(session)) {
      given_up.push_back(std::move(entry));
    } else {
      TrimLocked(bytes_max_ - entry.bytes, given_up);
      if (std::ssize(entries_) == kTensorsMax) Remove(std::prev(entries_.end()), given_up);
      bytes_ += entry.bytes;
      entries_.push_front(std::move(entry));
    }
  }
  GiveUp(std::move(given_up));
}

std::optional<ShardPool::Kept> ShardPool::Take(std::string_view session, std::span<const int64_t> devices,
                                               int64_t bytes) {
  std::list<Entry> taken;
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return Matches(entry.kept, devices, bytes) && entry.session == session; });
  if (found == entries_.end()) return std::nullopt;
  Remove(found, taken);
  return std::move(taken.front().kept);
}

void ShardPool::Trim(int64_t bytes) {
  std::list<Entry> given_up;
  {
    const std::scoped_lock lock(mutex_);
    TrimLocked(bytes, given_up);
  }
  GiveUp(std::move(given_up));
}

int64_t ShardPool::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

void ShardPool::TrimLocked(int64_t bytes, std::list<Entry>& given_up) {
  while (bytes_ > std::max<int64_t>(bytes, 0)) Remove(std::prev(entries_.end()), given_up);
}

void ShardPool::Remove(std::list<Entry>::iterator entry, std::list<Entry>& given_up) {
  bytes_ -= entry->bytes;
  given_up.splice(given_up.end(), entries_, entry);
}

void ShardPool::GiveUp(std::list<Entry> entries) {
  if (entries.empty()) return;
  std::vector<int64_t> ids;
  for (const Entry& entry : entries) {
    for (const ShardSet::Shard& shard : entry.kept.shards) ids.push_back(shard.id);
  }
  entries.clear();  // First the memory: who is told may look.
  released_->Add(std::move(ids));
}

}  // namespace hir::service
