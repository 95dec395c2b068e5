#include "service/os/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "service/os/error.h"

namespace hir::service {
namespace {

constexpr int kCoresMost = 1 << 16;

// A set of any number of CPUs: cpu_set_t has 1024.
class CpuSet {
 public:
  explicit CpuSet(int cores)
      : set_(CPU_ALLOC(static_cast<size_t>(cores))), bytes_(CPU_ALLOC_SIZE(static_cast<size_t>(cores))) {
    CPU_ZERO_S(bytes_, set_.get());
  }
  cpu_set_t* get() { return set_.get(); }
  size_t bytes() const { return bytes_; }
  void Add(int core) { CPU_SET_S(static_cast<size_t>(core), bytes_, set_.get()); }
  bool Has(int core) const { return CPU_ISSET_S(static_cast<size_t>(core), bytes_, set_.get()); }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set_;
  size_t bytes_;
};

}  // namespace

Result<Cores> CoresOfThread(pid_t thread) {
  // The system refuses a set that is smaller than its own, whose size it does not say.
  for (int most = 1024; most <= kCoresMost; most *= 2) {
    CpuSet set(most);
    if (sched_getaffinity(thread, set.bytes(), set.get()) == 0) {
      Cores cores;
      for (int core = 0; core < most; ++core) {
        if (set.Has(core)) cores.push_back(core);
      }
      return cores;
    }
    if (errno != EINVAL) break;
  }
  return ErrnoStatus("sched_getaffinity");
}

Status BindThread(std::span<const int> cores) {
  HIR_CHECK(!cores.empty());
  CpuSet set(*std::ranges::max_element(cores) + 1);
  for (const int core : cores) set.Add(core);
  if (sched_setaffinity(0, set.bytes(), set.get()) == 0) return {};
  return ErrnoStatus(base::Cat("cannot run on cores ", CoresText(cores)));
}

std::vector<Cores> ShareCores(std::span<const int> cores, int64_t num_ranks) {
  HIR_CHECK(!cores.empty() && num_ranks > 0);
  const auto count = static_cast<int64_t>(cores.size());
  std::vector<Cores> shares;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const int64_t begin = rank * count / num_ranks;
    const int64_t end = std::max(begin + 1, (rank + 1) * count / num_ranks);
    shares.emplace_back(cores.begin() + begin, cores.begin() + end);
  }
  return shares;
}

std::string CoresText(std::span<const int> cores) {
  Cores sorted(cores.begin(), cores.end());
  std::ranges::sort(sorted);
  std::vector<std::string> ranges;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    ranges.push_back(last == i ? base::Cat(sorted[i]) : base::Cat(sorted[i], "-", sorted[last]));
    i = last + 1;
  }
  return base::Join(ranges, ", ");
}

}  // namespace hir::service
