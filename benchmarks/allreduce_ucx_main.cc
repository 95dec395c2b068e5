// All-reduce of f32 sums through comm/ucx between processes of this machine, posted on a host
// stream as the evaluator does. Prints one line: the median microseconds of one all-reduce on rank
// 0. `allreduce_ucx BYTES REPEATS RANKS`.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "benchmarks/payload.h"
#include "csrc/base/text.h"
#include "csrc/device/host/host_device.h"
#include "multidevice/comm/ucx/ucx.h"

namespace hir {
namespace {

// A rendezvous in memory that forked processes share: a few published values, found by their key.
class SharedRendezvous final : public comm::Rendezvous {
 public:
  SharedRendezvous()
      : table_(static_cast<Table*>(mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}

  Status Publish(std::string_view key, std::string_view bytes) override {
    const size_t slot = table_->used.fetch_add(1);
    if (slot >= kSlots || key.size() >= kKeyBytes || bytes.size() > kValueBytes)
      return ResourceExhausted("rendezvous");
    Slot& entry = table_->slots[slot];
    std::memcpy(entry.key, key.data(), key.size());
    std::memcpy(entry.value, bytes.data(), bytes.size());
    entry.bytes = bytes.size();
    entry.ready.store(true, std::memory_order_release);
    return {};
  }

  Result<std::string> Get(std::string_view key, base::Nanos timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < deadline) {
      for (const Slot& entry : table_->slots) {
        if (entry.ready.load(std::memory_order_acquire) && key == entry.key)
          return std::string(entry.value, entry.bytes);
      }
      sched_yield();
    }
    return Status(Code::kDeadlineExceeded, base::Cat("no rank published ", key));
  }

 private:
  static constexpr size_t kSlots = 256, kKeyBytes = 128, kValueBytes = 4096;
  struct Slot {
    char key[kKeyBytes];
    char value[kValueBytes];
    size_t bytes;
    std::atomic<bool> ready;
  };
  struct Table {
    std::atomic<size_t> used;
    Slot slots[kSlots];
  };
  Table* table_;  // Zeroed by mmap.
};

double Micros(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

Status RunRank(const bench::AllreduceArgs& args, int64_t rank, int64_t ranks,
               SharedRendezvous& rendezvous) {
  HIR_ASSIGN(auto communicator, comm::CreateUcx({.rank = rank, .size = ranks}, rendezvous));
  HIR_ASSIGN(auto device, device::CreateHostDevice({.num_threads = 1}));
  HIR_ASSIGN(auto stream, device->CreateStream());
  std::vector<int64_t> everyone;
  for (int64_t i = 0; i < ranks; ++i) everyone.push_back(i);
  HIR_ASSIGN(const comm::TeamId team, communicator->Team(everyone, 0));
  std::vector<float> source = bench::RandomFloats(args.count, static_cast<uint64_t>(rank));
  std::vector<float> sum(source.size());
  float token[1] = {0};
  const auto bytes = [](std::vector<float>& v) {
    return device::Buffer{reinterpret_cast<std::byte*>(v.data()),
                          static_cast<int64_t>(v.size() * sizeof(float))};
  };
  comm::CommDesc barrier{.type = comm::CommType::kAllreduce, .team = team, .count = 1};
  barrier.src = barrier.dst = device::Buffer{reinterpret_cast<std::byte*>(token), sizeof token};
  comm::CommDesc desc{.type = comm::CommType::kAllreduce,
                      .team = team,
                      .count = args.count,
                      .src = bytes(source),
                      .dst = bytes(sum)};
  std::vector<double> micros;
  for (int i = 0; i < args.repeats + 1; ++i) {
    HIR_TRY(communicator->Post(barrier, *stream));
    HIR_TRY(stream->Synchronize(std::chrono::seconds(60)));
    const auto started = std::chrono::steady_clock::now();
    HIR_TRY(communicator->Post(desc, *stream));
    HIR_TRY(stream->Synchronize(std::chrono::seconds(60)));
    if (i > 0) micros.push_back(Micros(std::chrono::steady_clock::now() - started));
  }
  if (!bench::IsSumOfRandomFloats(sum, static_cast<int>(ranks)))
    return Internal("the sum is wrong");
  if (rank == 0) std::printf("%.3f\n", bench::Median(micros));
  HIR_TRY(communicator->Post(barrier, *stream));  // Nobody leaves while another still waits.
  return stream->Synchronize(std::chrono::seconds(60));
}

}  // namespace
}  // namespace hir

int main(int argc, char** argv) {
  const hir::bench::AllreduceArgs args = hir::bench::ParseAllreduceArgs(argc, argv);
  const int64_t ranks = argc > 3 ? std::atoll(argv[3]) : 4;
  hir::SharedRendezvous rendezvous;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    const hir::Status status = hir::RunRank(args, rank, ranks, rendezvous);
    if (!status.ok())
      std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), status.ToString().c_str());
    std::fflush(stdout);
    _exit(status.ok() ? 0 : 1);
  }
  int failed = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int state = 0;
    wait(&state);
    failed += state != 0;
  }
  return failed == 0 ? 0 : 1;
}
