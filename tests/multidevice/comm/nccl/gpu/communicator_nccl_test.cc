// The communicator suite over NCCL, and over peer memory beside it, a process for each GPU: run alone, this program
// forks them
// before anything touches CUDA, each runs all tests as its rank, and the exit status is the worst of
// theirs. Where there are fewer than two GPUs, or no NCCL, every test says so and is skipped.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/device/cuda/cuda_device.h"
#include "multidevice/comm/nccl/nccl.h"
#include "multidevice/comm/peer/peer_memory.h"
#include "multidevice/rendezvous/forked.h"
#include "tests/conformance/communicator_graph_suite.h"

namespace hir::comm {
namespace {

using std::chrono::seconds;

constexpr int64_t kRanksMax = 4;  // As many as the suite wants.

// This process among those of the program.
struct Place {
  int64_t rank = 0;
  int64_t size = 0;
  std::string absent = "this program has not counted the GPUs";
  Rendezvous* rendezvous = nullptr;
  device::Device* gpu = nullptr;
  int64_t generation = 0;  // Of the communicator: counted alike by all.
};
Place place;  // Set by main.

// Always the same text.
Result<std::string> Compile(std::string_view text, int architecture) {
  static const Result<codegen::gpu::Compiled> compiled = codegen::gpu::CompileCuda(std::string(text), architecture);
  HIR_TRY(compiled.status());
  return compiled->cubin;
}

class NcclBackend final : public CommBackend {
 public:
  // Nothing: NCCL alone.
  explicit NcclBackend(std::optional<PeerPaths> paths) : paths_(paths) {}
  std::string Absent() const override { return place.absent; }
  int64_t size_max() const override { return place.size; }
  bool fixed_order() const override { return false; }
  bool names_missing_rank() const override { return false; }

  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    const int64_t generation = ++place.generation;
    if (place.rank >= size) return;
    {
      std::shared_ptr<PeerMemory> peers;
      if (paths_) {
        auto made = PeerMemory::Create({.rank = place.rank,
                                        .size = size,
                                        .generation = generation,
                                        .op_timeout = op_timeout,
                                        .device = place.gpu,
                                        .compile = &Compile,
                                        .team_bytes = int64_t{2} << 20,
                                        .paths = *paths_},
                                       *place.rendezvous);
        ASSERT_TRUE(made.ok()) << made.status().ToString();
        peers = *std::move(made);
      }
      auto comm = CreateNccl({.rank = place.rank,
                              .size = size,
                              .generation = generation,
                              .op_timeout = op_timeout,
                              .device = place.gpu,
                              .native_stream = &device::NativeStream,
                              .begin_work = &device::BeginWork,
                              .work_mark = &device::WorkMark,
                              .is_capturing = &device::IsCapturing,
                              .peers = std::move(peers)},
                             *place.rendezvous);
      EXPECT_TRUE(comm.ok()) << comm.status().ToString();
      if (comm.ok()) body(**comm, *place.gpu);
      Meet(size, base::Cat("g", generation, "/over/"));
    }
    Meet(size, base::Cat("g", generation, "/gone/"));
  }

 private:
  // A rank that is done early stays as long as others may need it.
  static void Meet(int64_t size, const std::string& key) {
    EXPECT_TRUE(place.rendezvous->Publish(base::Cat(key, place.rank), "here").ok());
    for (int64_t rank = 0; rank < size; ++rank) {
      const auto there = place.rendezvous->Get(base::Cat(key, rank), seconds(120));
      EXPECT_TRUE(there.ok()) << there.status().ToString();
    }
  }

  const std::optional<PeerPaths> paths_;
};

// As far as they go.
std::unique_ptr<CommBackend> Nccl() { return std::make_unique<NcclBackend>(std::nullopt); }
std::unique_ptr<CommBackend> Pushes() { return std::make_unique<NcclBackend>(PeerPaths{.push_bytes_max = kNoBytes}); }
std::unique_ptr<CommBackend> Copies() {
  return std::make_unique<NcclBackend>(PeerPaths{.push_bytes_max = 0, .copies_alone_bytes_min = 1});
}
std::string Name(const testing::TestParamInfo<CommBackendFactory>& info) {
  return info.param == &Pushes ? "Pushes" : info.param == &Copies ? "Copies" : "Library";
}
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorSuite, testing::Values(&Nccl, &Pushes, &Copies), Name);
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorGraphSuite, testing::Values(&Nccl, &Pushes, &Copies), Name);

// The number of GPUs, asked by a process that then ends: forking after it would lose the driver.
int64_t CountGpus(std::string& why_none) {
  int pipes[2];
  if (pipe(pipes) != 0) return 0;
  const pid_t pid = fork();
  if (pid == 0) {
    const Result<int64_t> count = device::NumCudaDevices();
    const std::string text = count.ok() ? std::to_string(*count) : "-" + count.status().ToString();
    [[maybe_unused]] const ssize_t written = write(pipes[1], text.data(), text.size());
    _exit(0);
  }
  close(pipes[1]);
  std::string text(4096, '\0');
  const ssize_t got = read(pipes[0], text.data(), text.size());
  close(pipes[0]);
  waitpid(pid, nullptr, 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (text.starts_with("-")) why_none = text.substr(1);
  return base::ParseInt(text).value_or(0);
}

int RunAsRank(int64_t rank, int64_t size, Rendezvous& rendezvous) {
  place = {.rank = rank, .size = size, .absent = "", .rendezvous = &rendezvous};
  auto gpu = device::OpenCudaDevice({.ordinal = rank});
  if (!gpu.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), gpu.status().ToString().c_str());
    return 1;
  }
  place.gpu = gpu->get();
  return RUN_ALL_TESTS();
}

struct Child {
  pid_t pid = 0;
  std::FILE* output = nullptr;  // Of ranks but the first.
  int status = -1;              // As waitpid says; -1: it runs.
};

// Waits for all. When one was killed by a signal the others may wait for it: they get a minute.
void Await(std::vector<Child>& children) {
  auto deadline = std::chrono::steady_clock::time_point::max();
  for (size_t running = children.size(); running > 0;) {
    for (Child& child : children) {
      if (child.status != -1 || waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
      --running;
      if (WIFSIGNALED(child.status)) deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      for (Child& child : children) {
        if (child.status == -1) kill(child.pid, SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int RunOnAllGpus(int64_t size) {
  ForkedRendezvous rendezvous;
  std::vector<Child> children(static_cast<size_t>(size));
  for (int64_t rank = 0; rank < size; ++rank) {
    Child& child = children[static_cast<size_t>(rank)];
    if (rank > 0) child.output = std::tmpfile();
    child.pid = fork();
    if (child.pid != 0) continue;
    if (child.output != nullptr) {
      dup2(fileno(child.output), STDOUT_FILENO);
      dup2(fileno(child.output), STDERR_FILENO);
    }
    const int failed = RunAsRank(rank, size, rendezvous);
    std::fflush(nullptr);
    _exit(failed);
  }
  Await(children);
  int failed = 0;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    if (children[rank].status == 0) continue;
    failed = 1;
    std::printf("rank %zu ended with status %d\n", rank, children[rank].status);
    if (children[rank].output == nullptr) continue;
    std::rewind(children[rank].output);
    for (int c = std::fgetc(children[rank].output); c != EOF; c = std::fgetc(children[rank].output)) std::putchar(c);
  }
  return failed;
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  std::string why_none;
  const int64_t gpus = CountGpus(why_none);
  if (gpus >= 2 && HasNccl()) return RunOnAllGpus(std::min(gpus, kRanksMax));
  place.absent = base::Cat("NOT RUN: two GPUs and NCCL are needed; ", gpus, " GPUs here",
                           why_none.empty() ? "" : base::Cat(" (", why_none, ")"),
                           HasNccl() ? "" : ", and this build has no NCCL");
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace hir::comm

int main(int argc, char** argv) { return hir::comm::Main(argc, argv); }
