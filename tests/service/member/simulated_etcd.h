// SimulatedEtcd: keys, transactions and leases on a virtual clock, and what a node sees of them over a network that may
// be cut, or lose a request or its answer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/prng.h"
#include "service/etcd/kv.h"

namespace hir::testing {

class SimulatedEtcd final : public base::Clock {
 public:
  base::Nanos Now() const override { return now_; }
  void Pass(base::Nanos time);
  // Where it is not, nobody is answered. One that is back gives every lease its whole time again.
  void SetUp(bool up);
  bool is_up() const { return is_up_; }

  std::vector<service::Kv::Entry> List(std::string_view prefix) const;
  Result<bool> Commit(const service::Kv::Transaction& transaction);
  int64_t Grant(base::Nanos time);
  bool KeepAlive(int64_t lease);
  void Revoke(int64_t lease);

 private:
  struct Lease {
    base::Nanos time = {};
    base::Nanos end = {};
  };
  base::Nanos now_ = {};
  bool is_up_ = true;
  std::map<std::string, service::Kv::Entry> entries_;
  std::map<int64_t, Lease> leases_;
  int64_t last_lease_ = 0;
};

// One node's view of it.
class SimulatedKv final : public service::Kv {
 public:
  // `between`: called within a request, before it is carried out: others may be faster.
  SimulatedKv(SimulatedEtcd& etcd, base::Prng& prng, std::function<void()> between)
      : etcd_(etcd), prng_(prng), between_(std::move(between)) {}

  void Cut(bool cut) { is_cut_ = cut; }
  bool is_cut() const { return is_cut_; }
  // How many of 1,000 requests are lost, or their answers.
  void Lose(int64_t of_thousand) { lost_ = of_thousand; }

  Result<std::vector<Entry>> List(std::string_view prefix) override;
  Result<bool> Commit(const Transaction& transaction) override;
  Result<int64_t> Grant(base::Nanos time) override;
  Result<bool> KeepAlive(int64_t lease) override;
  Status Revoke(int64_t lease) override;

 private:
  template <typename Done>
  auto Ask(const Done& done) -> Result<decltype(done())>;
  // Whether the request, or its answer, is lost.
  bool IsLost();

  SimulatedEtcd& etcd_;
  base::Prng& prng_;
  const std::function<void()> between_;
  bool is_cut_ = false;
  int64_t lost_ = 0;
};

}  // namespace hir::testing
