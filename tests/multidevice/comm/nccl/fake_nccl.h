// What the fake libnccl.so (fake_nccl.cc) and its test share. The fake's ranks are threads of one
// process and its streams FakeStreams; it does what the calls ask for, on host memory, and keeps a
// log of them.
#pragma once

#include <functional>
#include <string>

namespace hir::comm {

// What a cudaStream_t points to.
struct FakeStream {
  using Done = std::function<void()>;
  // `start` runs in stream order; the stream goes on when it calls what it is given.
  std::function<void(std::function<void(Done)> start)> queue;
  // Whether it is in a capture: then `start` runs once for each launch of the graph. Empty: never.
  std::function<bool()> capturing = {};
};

// What goes wrong. Set while no communicator exists.
struct FakeScript {
  int version = 22809;
  int absent_rank = -1;        // Its ncclCommInitRankConfig never completes.
  int deaf_rank = -1;          // What it starts never ends,
  long deaf_after = 0;         // beginning with this launch of a communicator, counted from 0.
  int broken_rank = -1;        // Its communicators find an error by themselves,
  long broken_after = 0;       // after so many launches.
  bool refuses_group = false;  // ncclGroupEnd fails.
};

// Exported by the fake beside NCCL's functions.
extern "C" {
void FakeNcclSetScript(const FakeScript* script);
// The log so far, a line a call in the order of calls, and empties it: "r0 split color=0 key=1".
void FakeNcclTakeLog(std::string* log);
// Communicators that were made and neither destroyed nor aborted.
int FakeNcclAlive();
}

}  // namespace hir::comm
