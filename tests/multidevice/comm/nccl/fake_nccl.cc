// A libnccl whose ranks are threads of one process: enough of NCCL's behaviour, on host memory, to
// execute what comm/nccl asks of it without a GPU. Reductions go from the last rank to the first, in
// the type of the elements: another order than the other backends'.
#include "tests/multidevice/comm/nccl/fake_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

// NCCL's enumerations have aliases, and more than comm/nccl uses.
#pragma GCC diagnostic ignored "-Wswitch-enum"

using hir::comm::FakeScript;
using hir::comm::FakeStream;

namespace {

// One call between GroupStart and GroupEnd.
struct Call {
  std::string name;
  const char* src = nullptr;
  char* dst = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int peer = -1;  // Or the root.
  bool done = false;
};

// What one GroupEnd starts of one communicator; of a graph, one launch of it.
struct Launch {
  ncclComm* comm = nullptr;
  std::vector<Call> calls = {};
  int waiting_streams = 0;  // All of them start before it does.
  std::vector<FakeStream::Done> streams_go_on = {};
  bool deaf = false;
};

// What one GroupEnd says of one communicator. In a graph it starts a launch for each of the graph's.
struct Group {
  ncclComm* comm = nullptr;
  std::vector<Call> calls = {};
  int num_streams = 0;
  long number = 0;                        // Of the communicator's, from 0.
  std::map<long, Launch*> launches = {};  // By how often its streams have reached it.
};

struct Clique {
  int size = 0;
  std::vector<ncclComm*> members;
  std::vector<std::deque<Launch*>> running;  // By rank, started and not ended.
  // The split under way: what each rank asked for.
  struct Wish {
    int color = 0;
    int key = 0;
    ncclComm_t* result = nullptr;
  };
  std::map<int, Wish> wishes;
};

std::mutex mutex;                 // Guards everything here.
std::condition_variable changed;  // A graph is gone.
FakeScript script;
std::string calls_log;
std::map<std::string, std::shared_ptr<Clique>> cliques;  // By unique id.
int64_t next_id = 0;
int alive = 0;
thread_local int group_depth = 0;
struct Pending {
  ncclComm* comm;
  FakeStream* stream;
  Call call;
};
thread_local std::vector<Pending> pending;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool joined = false;  // All members are there.
  bool splitting = false;
  bool blocking = false;
  bool aborted = false;
  int in_progress = 0;  // So many answers yet.
  long launches = 0;
  std::deque<std::unique_ptr<Launch>> made;
  std::deque<std::unique_ptr<Group>> groups;
  int graphs = 0;  // Graphs with its calls that are alive.
};

namespace {

void Log(const ncclComm* comm, const std::string& text) {
  calls_log += "r" + std::to_string(comm->rank) + " " + text + "\n";
}

[[noreturn]] void Mismatch(const Call& a, const Call& b) {
  std::fprintf(stderr, "fake nccl: %s of %zu meets %s of %zu\n", a.name.c_str(), a.count, b.name.c_str(), b.count);
  std::abort();
}

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

template <typename T>
struct Stored {
  using Type = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};
// 16-bit floats: rounded after every step, as on a GPU.
struct Half {
  using Type = _Float16;
  static float Load(_Float16 value) { return static_cast<float>(value); }
  static _Float16 Store(float value) { return static_cast<_Float16>(value); }
};
struct BFloat {
  using Type = uint16_t;
  static float Load(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  static uint16_t Store(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

template <typename T>
T Two(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclSum:
    case ncclAvg: return static_cast<T>(a + b);
    case ncclProd: return static_cast<T>(a * b);
    case ncclMin: return std::min(a, b);
    case ncclMax: return std::max(a, b);
    default: std::abort();
  }
}

// out[i] = srcs[n - 1][i] op ... op srcs[0][i], the elements of all of them from `offset` on.
template <typename S>
void Fold(const std::vector<const Call*>& calls, size_t offset, size_t count, char* out) {
  using T = typename S::Type;
  for (size_t i = 0; i < count; ++i) {
    T sum = {};
    for (size_t j = calls.size(); j-- > 0;) {
      T next = {};
      std::memcpy(&next, calls[j]->src + (offset + i) * sizeof(T), sizeof(T));
      if constexpr (std::is_floating_point_v<decltype(S::Load(next))>) {
        const auto n = static_cast<decltype(S::Load(next))>(calls.size());
        if (calls[0]->op == ncclAvg) next = S::Store(S::Load(next) * (1 / n));
      }
      sum = j + 1 == calls.size() ? next : S::Store(Two(calls[0]->op, S::Load(sum), S::Load(next)));
    }
    std::memcpy(out + i * sizeof(T), &sum, sizeof(T));
  }
}

void Reduce(const std::vector<const Call*>& calls, size_t offset, size_t count, char* out) {
  switch (calls[0]->type) {
    case ncclInt8: return Fold<Stored<int8_t>>(calls, offset, count, out);
    case ncclUint8: return Fold<Stored<uint8_t>>(calls, offset, count, out);
    case ncclInt32: {
      const bool ordered = calls[0]->op == ncclMin || calls[0]->op == ncclMax;
      if (ordered) return Fold<Stored<int32_t>>(calls, offset, count, out);
      return Fold<Stored<uint32_t>>(calls, offset, count, out);
    }
    case ncclInt64: {
      const bool ordered = calls[0]->op == ncclMin || calls[0]->op == ncclMax;
      if (ordered) return Fold<Stored<int64_t>>(calls, offset, count, out);
      return Fold<Stored<uint64_t>>(calls, offset, count, out);
    }
    case ncclFloat16: return Fold<Half>(calls, offset, count, out);
    case ncclBfloat16: return Fold<BFloat>(calls, offset, count, out);
    case ncclFloat32: return Fold<Stored<float>>(calls, offset, count, out);
    case ncclFloat64: return Fold<Stored<double>>(calls, offset, count, out);
    default: std::abort();
  }
}

// What every rank asked for, worked out for all of them.
void RunCollective(const std::vector<Call*>& calls) {
  const std::vector<const Call*> all(calls.begin(), calls.end());
  const size_t bytes = calls[0]->count * BytesOf(calls[0]->type);
  std::vector<std::vector<char>> results(calls.size());
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const Call& call = *calls[rank];
    if (call.name != calls[0]->name || call.count != calls[0]->count || call.type != calls[0]->type ||
        call.op != calls[0]->op || call.peer != calls[0]->peer)
      Mismatch(call, *calls[0]);
    std::vector<char>& out = results[rank];
    out.resize(bytes);
    if (call.name == "allgather") {
      out.clear();
      for (const Call* from : all) out.insert(out.end(), from->src, from->src + bytes);
    } else if (call.name == "broadcast") {
      std::memcpy(out.data(), all[static_cast<size_t>(call.peer)]->src, bytes);
    } else if (call.name == "reducescatter") {
      Reduce(all, rank * call.count, call.count, out.data());
    } else if (call.name == "allreduce" || static_cast<int>(rank) == call.peer) {
      Reduce(all, 0, call.count, out.data());
    } else {
      out.clear();  // Not the root of a reduce.
    }
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (!results[rank].empty()) std::memcpy(calls[rank]->dst, results[rank].data(), results[rank].size());
  }
  for (Call* call : calls) call->done = true;
}

bool IsPair(const Call& call) { return call.name == "send" || call.name == "recv"; }

Call* FirstOf(std::deque<Launch*>& launches, const std::function<bool(const Call&)>& wanted) {
  for (Launch* launch : launches) {
    if (launch->deaf) return nullptr;
    for (Call& call : launch->calls) {
      if (!call.done && wanted(call)) return &call;
    }
  }
  return nullptr;
}

// Does whatever has met its counterparts; returns what then goes on.
std::vector<FakeStream::Done> Advance(Clique& clique) {
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<Call*> meeting;
    for (auto& launches : clique.running) {
      meeting.push_back(FirstOf(launches, [](const Call& call) { return !IsPair(call); }));
    }
    if (std::all_of(meeting.begin(), meeting.end(), [](Call* call) { return call != nullptr; })) {
      RunCollective(meeting);
      moved = true;
    }
    for (int from = 0; from < clique.size; ++from) {
      for (int to = 0; to < clique.size; ++to) {
        Call* const send = FirstOf(clique.running[static_cast<size_t>(from)],
                                   [&](const Call& c) { return c.name == "send" && c.peer == to; });
        Call* const recv = FirstOf(clique.running[static_cast<size_t>(to)],
                                   [&](const Call& c) { return c.name == "recv" && c.peer == from; });
        if (send == nullptr || recv == nullptr) continue;
        if (send->count != recv->count || send->type != recv->type) Mismatch(*send, *recv);
        std::memcpy(recv->dst, send->src, send->count * BytesOf(send->type));
        send->done = recv->done = moved = true;
      }
    }
  }
  std::vector<FakeStream::Done> go_on;
  for (auto& launches : clique.running) {
    while (!launches.empty() && !launches.front()->deaf &&
           std::all_of(launches.front()->calls.begin(), launches.front()->calls.end(),
                       [](const Call& call) { return call.done; })) {
      for (auto& done : launches.front()->streams_go_on) go_on.push_back(std::move(done));
      launches.pop_front();
    }
  }
  return go_on;
}

Launch& LaunchOf(Group& group, long time) {
  Launch*& launch = group.launches[time];
  if (launch != nullptr) return *launch;
  ncclComm& comm = *group.comm;
  launch = comm.made
               .emplace_back(std::make_unique<Launch>(
                   Launch{.comm = &comm,
                          .calls = group.calls,
                          .waiting_streams = group.num_streams,
                          .deaf = comm.rank == script.deaf_rank && group.number + time >= script.deaf_after}))
               .get();
  return *launch;
}

// One of the group's streams has reached it, for the time `time`.
void StreamIsThere(Group& group, long time, FakeStream::Done done) {
  std::vector<FakeStream::Done> go_on;
  {
    std::lock_guard lock(mutex);
    if (group.comm->aborted) {
      go_on.push_back(std::move(done));
    } else {
      Launch& launch = LaunchOf(group, time);
      launch.streams_go_on.push_back(std::move(done));
      if (--launch.waiting_streams == 0) {
        Clique& clique = *launch.comm->clique;
        clique.running[static_cast<size_t>(launch.comm->rank)].push_back(&launch);
        go_on = Advance(clique);
      }
    }
  }
  for (auto& one : go_on) one();
}

ncclResult_t Queue(ncclComm_t comm, cudaStream_t stream, Call call) {
  if (comm == nullptr || stream == nullptr) return ncclInvalidArgument;
  pending.push_back({comm, reinterpret_cast<FakeStream*>(stream), std::move(call)});
  if (group_depth > 0) return ncclSuccess;
  std::abort();  // comm/nccl groups everything.
}

std::string Describe(const Call& call) {
  std::string text =
      call.name + " " + std::to_string(call.count) + " type=" + std::to_string(static_cast<int>(call.type));
  if (call.name.find("reduce") != std::string::npos) text += " op=" + std::to_string(static_cast<int>(call.op));
  if (call.peer >= 0) text += " peer=" + std::to_string(call.peer);
  if (call.src != nullptr && call.src == call.dst) text += " in place";
  return text;
}

// The ranks that asked for the same color, in the order of their keys, are a new clique.
void FinishSplit(Clique& clique) {
  if (static_cast<int>(clique.wishes.size()) < clique.size) return;
  std::map<int, std::vector<std::pair<int, int>>> colors;  // Color: key and rank.
  for (const auto& [rank, wish] : clique.wishes) colors[wish.color].push_back({wish.key, rank});
  for (auto& [color, members] : colors) {
    std::sort(members.begin(), members.end());
    auto made = std::make_shared<Clique>();
    made->size = static_cast<int>(members.size());
    made->running.resize(members.size());
    for (const auto& [key, rank] : members) {
      auto* const comm = new ncclComm;
      comm->clique = made;
      comm->rank = static_cast<int>(made->members.size());
      comm->joined = true;
      comm->blocking = true;
      ++alive;
      made->members.push_back(comm);
      *clique.wishes[rank].result = comm;
      clique.members[static_cast<size_t>(rank)]->splitting = false;
    }
  }
  clique.wishes.clear();
}

// Stays as long as what was captured can be launched.
std::shared_ptr<void> CountGraph(ncclComm& comm) {
  std::lock_guard lock(mutex);
  ++comm.graphs;
  return {&comm, [](ncclComm* gone) {
            std::lock_guard gone_lock(mutex);
            --gone->graphs;
            changed.notify_all();
          }};
}

ncclResult_t Release(ncclComm_t comm, const char* how) {
  std::vector<FakeStream::Done> go_on;
  {
    std::lock_guard lock(mutex);
    Log(comm, how);
    --alive;
    comm->aborted = true;  // It is never freed: a late call finds it so.
    for (Launch* launch : comm->clique->running[static_cast<size_t>(comm->rank)]) {
      for (auto& done : launch->streams_go_on) go_on.push_back(std::move(done));
    }
    comm->clique->running[static_cast<size_t>(comm->rank)].clear();
    for (auto& launch : comm->made) {
      if (launch->waiting_streams == 0) continue;
      for (auto& done : launch->streams_go_on) go_on.push_back(std::move(done));
      launch->streams_go_on.clear();
    }
  }
  for (auto& one : go_on) {
    if (one) one();
  }
  // NCCL keeps what graphs refer to.
  std::unique_lock lock(mutex);
  if (changed.wait_for(lock, std::chrono::seconds(20), [comm] { return comm->graphs == 0; })) return ncclSuccess;
  std::fprintf(stderr, "fake nccl: %s waits for a graph that is not destroyed\n", how);
  std::abort();
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) ncclResult_t ncclGetVersion(int* version) {
  std::lock_guard lock(mutex);
  *version = script.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(mutex);
  std::snprintf(id->internal, sizeof id->internal, "id %lld", static_cast<long long>(next_id++));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "some error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) return ncclInvalidUsage;
  std::lock_guard lock(mutex);
  auto& clique = cliques[id.internal];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->size = size;
  clique->running.resize(static_cast<size_t>(size));
  clique->members.resize(static_cast<size_t>(size));
  auto* const comm = new ncclComm;
  comm->clique = clique;
  comm->rank = rank;
  comm->in_progress = 1;
  ++alive;
  *result = comm;
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  Log(comm, "init size=" + std::to_string(size) + " nvls=" + (multicast ? multicast : "unset"));
  if (rank == script.absent_rank) return ncclInProgress;
  clique->members[static_cast<size_t>(rank)] = comm;
  if (std::all_of(clique->members.begin(), clique->members.end(), [](ncclComm* member) { return member != nullptr; })) {
    for (ncclComm* member : clique->members) member->joined = true;
  }
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 1) return ncclInvalidUsage;
  std::lock_guard lock(mutex);
  Log(comm, "split color=" + std::to_string(color) + " key=" + std::to_string(key));
  *result = nullptr;
  comm->splitting = true;
  comm->clique->wishes[comm->rank] = {color, key, result};
  FinishSplit(*comm->clique);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm == nullptr) return ncclInvalidArgument;
  std::lock_guard lock(mutex);
  if (comm->aborted) return ncclInvalidArgument;
  const bool broken = comm->rank == script.broken_rank && comm->launches > script.broken_after;
  *state = broken ? ncclRemoteError : ncclSuccess;
  if (!comm->joined || comm->splitting) *state = ncclInProgress;
  if (*state == ncclSuccess && comm->in_progress > 0) {
    --comm->in_progress;
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  std::lock_guard lock(mutex);
  Log(comm, "finalize");
  return comm->blocking ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return Release(comm, "destroy"); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return Release(comm, "abort"); }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Pending> calls = std::move(pending);
  pending.clear();
  struct Start {
    Group* group;
    FakeStream* stream;
  };
  std::vector<Start> starts;
  {
    std::lock_guard lock(mutex);
    if (script.refuses_group) return ncclInvalidUsage;
    std::map<ncclComm*, Group*> groups;
    for (Pending& one : calls) {
      Group*& group = groups[one.comm];
      if (group == nullptr) {
        group = one.comm->groups.emplace_back(std::make_unique<Group>()).get();
        group->comm = one.comm;
        group->number = one.comm->launches++;
        if (!one.comm->blocking) std::abort();  // It would start a thread.
        Log(one.comm, "group");
      }
      Log(one.comm, Describe(one.call));
      group->calls.push_back(std::move(one.call));
      const bool known = std::any_of(starts.begin(), starts.end(), [&](const Start& start) {
        return start.group == group && start.stream == one.stream;
      });
      if (known) continue;
      ++group->num_streams;
      starts.push_back({group, one.stream});
    }
  }
  for (const Start& start : starts) {
    std::shared_ptr<void> graph;
    if (start.stream->capturing && start.stream->capturing()) graph = CountGraph(*start.group->comm);
    start.stream->queue([group = start.group, times = std::make_shared<std::atomic<long>>(0),
                         graph](FakeStream::Done done) { StreamIsThere(*group, (*times)++, std::move(done)); });
  }
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* src, void* dst, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "allgather",
                .src = static_cast<const char*>(src),
                .dst = static_cast<char*>(dst),
                .count = count,
                .type = type});
}
ncclResult_t ncclAllReduce(const void* src, void* dst, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "allreduce",
                .src = static_cast<const char*>(src),
                .dst = static_cast<char*>(dst),
                .count = count,
                .type = type,
                .op = op});
}
ncclResult_t ncclReduceScatter(const void* src, void* dst, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "reducescatter",
                .src = static_cast<const char*>(src),
                .dst = static_cast<char*>(dst),
                .count = count,
                .type = type,
                .op = op});
}
ncclResult_t ncclReduce(const void* src, void* dst, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "reduce",
                .src = static_cast<const char*>(src),
                .dst = static_cast<char*>(dst),
                .count = count,
                .type = type,
                .op = op,
                .peer = root});
}
ncclResult_t ncclBroadcast(const void* src, void* dst, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "broadcast",
                .src = static_cast<const char*>(src),
                .dst = static_cast<char*>(dst),
                .count = count,
                .type = type,
                .peer = root});
}
ncclResult_t ncclSend(const void* src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "send", .src = static_cast<const char*>(src), .count = count, .type = type, .peer = peer});
}
ncclResult_t ncclRecv(void* dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return Queue(comm, stream,
               {.name = "recv", .dst = static_cast<char*>(dst), .count = count, .type = type, .peer = peer});
}

void FakeNcclSetScript(const FakeScript* next) {
  std::lock_guard lock(mutex);
  script = *next;
}
void FakeNcclTakeLog(std::string* log) {
  std::lock_guard lock(mutex);
  *log = std::move(calls_log);
  calls_log.clear();
}
int FakeNcclAlive() {
  std::lock_guard lock(mutex);
  return alive;
}

}  // extern "C"
