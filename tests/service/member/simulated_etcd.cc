#include "tests/service/member/simulated_etcd.h"

#include <algorithm>
#include <utility>

namespace hir::testing {

using service::Kv;

void SimulatedEtcd::Pass(base::Nanos time) {
  now_ += time;
  if (!is_up_) return;
  std::vector<int64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (lease.end <= now_) over.push_back(id);
  }
  for (const int64_t id : over) Revoke(id);
}

void SimulatedEtcd::SetUp(bool up) {
  is_up_ = up;
  for (auto& [id, lease] : leases_) lease.end = now_ + lease.time;
}

std::vector<Kv::Entry> SimulatedEtcd::List(std::string_view prefix) const {
  std::vector<Kv::Entry> found;
  for (const auto& [key, entry] : entries_) {
    if (key.starts_with(prefix)) found.push_back(entry);
  }
  return found;
}

Result<bool> SimulatedEtcd::Commit(const Kv::Transaction& transaction) {
  for (const Kv::Condition& when : transaction.when) {
    const auto found = entries_.find(when.key);
    const bool is_there = found != entries_.end();
    if (when.value ? !is_there || found->second.value != *when.value
                   : (when.lease ? !is_there || found->second.lease != *when.lease : is_there))
      return false;
  }
  for (const Kv::Entry& put : transaction.puts) {
    if (put.lease != 0 && !leases_.contains(put.lease))
      return Status(Code::kNotFound, "etcdserver: requested lease not found");
  }
  for (const Kv::Entry& put : transaction.puts) entries_[put.key] = put;
  for (const std::string& key : transaction.erased) entries_.erase(key);
  return true;
}

int64_t SimulatedEtcd::Grant(base::Nanos time) {
  leases_[++last_lease_] = {time, now_ + time};
  return last_lease_;
}

bool SimulatedEtcd::KeepAlive(int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return false;
  found->second.end = now_ + found->second.time;
  return true;
}

void SimulatedEtcd::Revoke(int64_t lease) {
  leases_.erase(lease);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.lease == lease; });
}

bool SimulatedKv::IsLost() { return is_cut_ || !etcd_.is_up() || prng_.Below(1000) < lost_; }

template <typename Done>
auto SimulatedKv::Ask(const Done& done) -> Result<decltype(done())> {
  between_();
  const Status lost = Unavailable("etcd: nobody answers");
  if (IsLost()) return lost;
  auto answer = done();
  if (IsLost()) return lost;
  return answer;
}

Result<std::vector<Kv::Entry>> SimulatedKv::List(std::string_view prefix) {
  return Ask([&] { return etcd_.List(prefix); });
}

Result<bool> SimulatedKv::Commit(const Transaction& transaction) {
  Result<Result<bool>> answer = Ask([&] { return etcd_.Commit(transaction); });
  return answer.ok() ? *std::move(answer) : Result<bool>(answer.status());
}

Result<int64_t> SimulatedKv::Grant(base::Nanos time) {
  return Ask([&] { return etcd_.Grant(time); });
}

Result<bool> SimulatedKv::KeepAlive(int64_t lease) {
  return Ask([&] { return etcd_.KeepAlive(lease); });
}

Status SimulatedKv::Revoke(int64_t lease) {
  return Ask([&] {
           etcd_.Revoke(lease);
           return true;
         })
      .status();
}

}  // namespace hir::testing
