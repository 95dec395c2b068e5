#include "service/cluster/kept_shards.h"

#include <cstring>
#include <utility>

#include "csrc/base/text.h"

namespace hir::service {

Result<KeptShards::Memory> KeptShards::Get(int64_t id, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found = memory_.find(id);
  if (found == memory_.end()) return Make(id, bytes, bytes_ - bytes_for_clients_);
  if (found->second->bytes() != bytes)
    return Internal(base::Cat("shard ", id, " has ", found->second->bytes(), " bytes here, not ", bytes));
  if (for_clients_.erase(id) > 0) bytes_for_clients_ -= bytes;
  return found->second;
}

Result<KeptShards::Memory> KeptShards::GetForClient(int64_t id, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (memory_.contains(id)) return Internal(base::Cat("shard ", id, " is kept here already"));
  HIR_ASSIGN(Memory made, Make(id, bytes, bytes_));
  for_clients_.insert(id);
  bytes_for_clients_ += bytes;
  return made;
}

Result<KeptShards::Memory> KeptShards::Make(int64_t id, int64_t bytes, int64_t used) {
  if (bytes < 0) return Internal(base::Cat("shard ", id, " of ", bytes, " bytes"));
  if (bytes > bytes_max_ - used) {
    return ResourceExhausted(base::Cat("this node keeps shards of ", bytes_, " bytes, and ", bytes,
                                       " more are beyond tensor_bytes_max = ", bytes_max_));
  }
  HIR_ASSIGN(SharedMemory made, SharedMemory::Create(bytes));
  bytes_ += bytes;
  return memory_.emplace(id, std::make_shared<const SharedMemory>(std::move(made))).first->second;
}

KeptShards::Memory KeptShards::Find(int64_t id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = memory_.find(id);
  return found == memory_.end() ? nullptr : found->second;
}

Status KeptShards::Write(int64_t id, int64_t total, int64_t offset, std::string_view data) {
  const auto bytes = static_cast<int64_t>(data.size());
  if (offset < 0 || offset > total || bytes > total - offset) {
    return InvalidArgument(base::Cat(bytes, " bytes at ", offset, " of shard ", id, ", which has ", total));
  }
  if (offset > 0) {
    const std::scoped_lock lock(mutex_);
    const auto before = arrived_.find(id);
    if (before == arrived_.end() || before->second != offset)
      return InvalidArgument(
          base::Cat(bytes, " bytes at ", offset, " of shard ", id, ", whose bytes before are missing"));
  }
  HIR_ASSIGN(const Memory memory, Get(id, total));
  SetWhole({&id, 1}, false);
  if (bytes > 0) std::memcpy(memory->data() + offset, data.data(), data.size());
  const std::scoped_lock lock(mutex_);
  if (memory_.contains(id)) arrived_[id] = offset + bytes;
  return {};
}

bool KeptShards::HasArrived(int64_t id) const {
  const std::scoped_lock lock(mutex_);
  const auto memory = memory_.find(id);
  const auto arrived = arrived_.find(id);
  return memory != memory_.end() && arrived != arrived_.end() && arrived->second == memory->second->bytes();
}

void KeptShards::SetWhole(std::span<const int64_t> ids, bool whole) {
  const std::scoped_lock lock(mutex_);
  for (const int64_t id : ids) {
    if (!whole) {
      whole_.erase(id);
    } else if (memory_.contains(id)) {
      whole_.insert(id);
    }
  }
}

std::vector<int64_t> KeptShards::Whole() const {
  const std::scoped_lock lock(mutex_);
  return {whole_.begin(), whole_.end()};
}

void KeptShards::Drop(std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    Memory dropped;  // Outside the lock: giving much memory back takes time.
    const std::scoped_lock lock(mutex_);
    const auto found = memory_.find(id);
    if (found == memory_.end()) continue;
    bytes_ -= found->second->bytes();
    if (for_clients_.erase(id) > 0) bytes_for_clients_ -= found->second->bytes();
    dropped = std::move(found->second);
    memory_.erase(found);
    whole_.erase(id);
    arrived_.erase(id);
  }
}

void KeptShards::DropHalves() {
  std::vector<int64_t> halves;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, memory] : memory_) {
      if (!whole_.contains(id)) halves.push_back(id);
    }
  }
  Drop(halves);
}

int64_t KeptShards::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

}  // namespace hir::service
