// See fake_driver.h. Compiled as a library of its own; functions.def says which functions it must have.
#include "tests/csrc/device/cuda/fake_driver.h"

#include <cuda.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>

namespace hir::device {
namespace {

constexpr size_t kGranularity = 2 << 20;

// What a test of other processes says: their fakes are out of its reach.
bool SetFromEnvironment(FakeCuda& state) {
  const auto set = [](const char* name, std::atomic<int>& value) {
    if (const char* text = std::getenv(name)) value = std::atoi(text);
  };
  set("FAKE_CUDA_VERSION", state.version);
  set("FAKE_CUDA_DEVICES", state.num_devices);
  set("FAKE_CUDA_FAILING_DEVICE", state.failing_device);
  return true;
}

FakeCuda& State() {
  static FakeCuda state;
  [[maybe_unused]] static const bool set = SetFromEnvironment(state);
  return state;
}

// Counts a call; the error that a test asked for, or success.
CUresult Call(const char* name) {
  FakeCuda& state = State();
  std::lock_guard lock(state.mutex);
  ++state.calls[name];
  const auto fail = state.fail_next.find(name);
  if (fail == state.fail_next.end()) return CUDA_SUCCESS;
  const auto result = static_cast<CUresult>(fail->second);
  state.fail_next.erase(fail);
  return result;
}
#define CALLED() \
  if (const CUresult call_result_ = Call(__func__); call_result_ != CUDA_SUCCESS) return call_result_

thread_local CUcontext current = nullptr;
int contexts[16];
std::atomic<int> lost = 0;  // The error that every call answers from now on.

using Work = std::function<void()>;

struct Node {
  Work work;
  std::vector<Node*> after = {};
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  bool early = false;  // A programmatic dependent launch.
};
struct FakeStream;
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<FakeStream*> joined = {};  // The streams of its capture but the first.
  bool capturing = true;
};
struct Exec {
  std::shared_ptr<Graph> graph;
  std::map<Node*, Work> work;
};
struct Point {  // In a stream; done once.
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  void Set() {
    std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  bool Get() {
    std::lock_guard lock(mutex);
    return done;
  }
};
struct FakeEvent {
  std::mutex mutex;
  bool timed = false;
  std::shared_ptr<Point> point;
  std::shared_ptr<Graph> capture;
  std::vector<Node*> nodes;
};

struct FakeStream {
  FakeStream() : thread([this] { Loop(); }) {}
  void Queue(Work work) {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_one();
  }
  // Queues, or makes a node.
  void Add(Work work, CUgraphNodeType type, bool early = false) {
    if (capture == nullptr) return Queue(std::move(work));
    auto node = std::make_unique<Node>(Node{std::move(work), last, type, early});
    last = {node.get()};
    capture->nodes.push_back(std::move(node));
  }
  void Loop() {
    for (;;) {
      Work work;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return !queue.empty(); });
        work = std::move(queue.front());
        queue.pop_front();
      }
      if (!work) return;
      work();
    }
  }
  ~FakeStream() {
    Queue({});
    thread.join();
  }

  std::shared_ptr<Graph> capture;
  bool is_origin = false;
  std::vector<Node*> last;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  std::thread thread;
};

FakeStream& Of(CUstream stream) { return *reinterpret_cast<FakeStream*>(stream); }
FakeEvent& Of(CUevent event) { return *reinterpret_cast<FakeEvent*>(event); }
std::byte* At(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

CUresult Init(unsigned) {
  CALLED();
  return static_cast<CUresult>(State().init_result.load());
}
CUresult GetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_OUT_OF_MEMORY             ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_ILLEGAL_ADDRESS         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == CUDA_ERROR_DEVICE_UNAVAILABLE      ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
          : error == CUDA_ERROR_INVALID_IMAGE           ? "CUDA_ERROR_INVALID_IMAGE"
          : error == CUDA_ERROR_NOT_FOUND               ? "CUDA_ERROR_NOT_FOUND"
          : error == CUDA_ERROR_STREAM_CAPTURE_UNJOINED ? "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
                                                        : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult GetErrorString(CUresult, const char** text) {
  *text = "simulated";
  return CUDA_SUCCESS;
}
CUresult DeviceGetCount(int* count) {
  CALLED();
  *count = State().num_devices;
  return CUDA_SUCCESS;
}
CUresult DeviceGet(CUdevice* device, int ordinal) {
  CALLED();
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult DeviceGetName(char* name, int bytes, CUdevice) {
  CALLED();
  std::strncpy(name, "Fake H0", static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}
CUresult DeviceGetUuid(CUuuid* uuid, CUdevice device) {
  CALLED();
  std::memset(uuid->bytes, device + 1, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}
CUresult DeviceTotalMem(size_t* bytes, CUdevice) {
  CALLED();
  *bytes = static_cast<size_t>(State().memory_bytes.load());
  return CUDA_SUCCESS;
}
CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  CALLED();
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    default: *value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  CALLED();
  if (device == State().failing_device) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  ++State().live_objects;
  *context = reinterpret_cast<CUcontext>(&contexts[device]);
  return CUDA_SUCCESS;
}
CUresult DevicePrimaryCtxRelease(CUdevice) {
  CALLED();
  --State().live_objects;
  lost = 0;
  return CUDA_SUCCESS;
}
CUresult CtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult CtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
// Every call below needs a context and one that is not lost.
#define CALLED_IN_CONTEXT()                                  \
  CALLED();                                                  \
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT; \
  if (lost != 0) return static_cast<CUresult>(lost.load())

CUresult MemGetInfo(size_t* free, size_t* total) {
  CALLED_IN_CONTEXT();
  *total = static_cast<size_t>(State().memory_bytes.load());
  *free = *total - static_cast<size_t>(State().created_bytes.load());
  return CUDA_SUCCESS;
}
CUresult MemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  CALLED_IN_CONTEXT();
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}
CUresult MemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  CALLED_IN_CONTEXT();
  if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  ++State().live_objects;
  *address = reinterpret_cast<CUdeviceptr>(data);
  return CUDA_SUCCESS;
}
CUresult MemAddressFree(CUdeviceptr address, size_t bytes) {
  CALLED_IN_CONTEXT();
  munmap(At(address), bytes);
  --State().live_objects;
  return CUDA_SUCCESS;
}
struct Physical {
  int fd;
  int64_t bytes;
  bool owned;  // Not imported.
  int uses;
};
std::mutex physical_mutex;
std::map<CUmemGenericAllocationHandle, Physical> physical;
struct Mapping {
  CUmemGenericAllocationHandle handle;
  size_t bytes;
  ino_t memory;  // Of the file, which is one for all who map it.
};
std::map<CUdeviceptr, Mapping> mapped;
FakePlace PlaceAt(CUdeviceptr address) {
  std::lock_guard lock(physical_mutex);
  auto found = mapped.upper_bound(address);
  if (found == mapped.begin()) return {};
  --found;
  const CUdeviceptr offset = address - found->first;
  return offset < found->second.bytes ? FakePlace{found->second.memory, static_cast<int64_t>(offset)} : FakePlace();
}
// False: a test leaves it out.
bool Asked(const FakeQueued& queued) {
  const auto& on_queue = State().on_queue;
  return on_queue == nullptr || on_queue(queued);
}
void Unuse(CUmemGenericAllocationHandle handle) {
  Physical& memory = physical.at(handle);
  if (--memory.uses > 0) return;
  close(memory.fd);
  if (memory.owned) State().created_bytes -= memory.bytes;
  physical.erase(handle);
}
CUresult MemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*, unsigned long long) {
  CALLED_IN_CONTEXT();
  FakeCuda& state = State();
  if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (state.created_bytes + static_cast<int64_t>(bytes) > state.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  state.created_bytes += static_cast<int64_t>(bytes);
  static std::atomic<CUmemGenericAllocationHandle> next = 1;
  *handle = next++;
  std::lock_guard lock(physical_mutex);
  physical[*handle] = {fd, static_cast<int64_t>(bytes), true, 1};
  return CUDA_SUCCESS;
}
CUresult MemRelease(CUmemGenericAllocationHandle handle) {
  CALLED_IN_CONTEXT();
  std::lock_guard lock(physical_mutex);
  Unuse(handle);
  return CUDA_SUCCESS;
}
CUresult MemMap(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  CALLED_IN_CONTEXT();
  std::lock_guard lock(physical_mutex);
  Physical& memory = physical.at(handle);
  if (mmap(At(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory.fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct stat facts = {};
  if (fstat(memory.fd, &facts) != 0) return CUDA_ERROR_INVALID_VALUE;
  ++memory.uses;
  mapped[address] = {handle, bytes, facts.st_ino};
  return CUDA_SUCCESS;
}
CUresult MemUnmap(CUdeviceptr address, size_t bytes) {
  CALLED_IN_CONTEXT();
  std::lock_guard lock(physical_mutex);
  mmap(At(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  Unuse(mapped.at(address).handle);
  mapped.erase(address);
  return CUDA_SUCCESS;
}
CUresult MemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*, size_t) {
  CALLED_IN_CONTEXT();
  return mprotect(At(address), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult MemExportToShareableHandle(void* fd, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                    unsigned long long) {
  CALLED_IN_CONTEXT();
  std::lock_guard lock(physical_mutex);
  *static_cast<int*>(fd) = dup(physical.at(handle).fd);
  return CUDA_SUCCESS;
}
CUresult MemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* fd, CUmemAllocationHandleType) {
  CALLED_IN_CONTEXT();
  static std::atomic<CUmemGenericAllocationHandle> next = 1'000'000;
  *handle = next++;
  std::lock_guard lock(physical_mutex);
  physical[*handle] = {dup(static_cast<int>(reinterpret_cast<intptr_t>(fd))), 0, false, 1};
  return CUDA_SUCCESS;
}
CUresult MemHostAlloc(void** data, size_t bytes, unsigned) {
  CALLED_IN_CONTEXT();
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  ++State().live_objects;
  return CUDA_SUCCESS;
}
CUresult MemFreeHost(void* data) {
  CALLED_IN_CONTEXT();
  std::free(data);
  --State().live_objects;
  return CUDA_SUCCESS;
}
CUresult MemHostRegister(void* data, size_t bytes, unsigned) {
  CALLED_IN_CONTEXT();
  const bool pages = reinterpret_cast<uintptr_t>(data) % 4096 == 0 && bytes % 4096 == 0 && bytes > 0;
  if (pages) ++State().live_objects;
  return pages ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult MemHostUnregister(void*) {
  CALLED_IN_CONTEXT();
  --State().live_objects;
  return CUDA_SUCCESS;
}
CUresult MemHostGetDevicePointer(CUdeviceptr* address, void* data, unsigned) {
  CALLED_IN_CONTEXT();
  *address = reinterpret_cast<CUdeviceptr>(data);
  return CUDA_SUCCESS;
}

struct Module {
  std::vector<FakeKernel> kernels;
};
FakeKernel& Of(CUfunction function) { return *reinterpret_cast<FakeKernel*>(function); }

CUresult ModuleLoadData(CUmodule* module, const void* image) {
  CALLED_IN_CONTEXT();
  const auto* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, kFakeMagic, sizeof(kFakeMagic)) != 0) return CUDA_ERROR_INVALID_IMAGE;
  int64_t count = 0;
  std::memcpy(&count, bytes + sizeof(kFakeMagic), sizeof(count));
  auto* const made = new Module;
  made->kernels.resize(static_cast<size_t>(count));
  std::memcpy(static_cast<void*>(made->kernels.data()), bytes + sizeof(kFakeMagic) + sizeof(count),
              static_cast<size_t>(count) * sizeof(FakeKernel));
  ++State().live_objects;
  *module = reinterpret_cast<CUmodule>(made);
  return CUDA_SUCCESS;
}
CUresult ModuleUnload(CUmodule module) {
  CALLED_IN_CONTEXT();
  delete reinterpret_cast<Module*>(module);
  --State().live_objects;
  return CUDA_SUCCESS;
}
CUresult ModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CALLED_IN_CONTEXT();
  for (FakeKernel& kernel : reinterpret_cast<Module*>(module)->kernels) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    *function = reinterpret_cast<CUfunction>(&kernel);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult FuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  CALLED_IN_CONTEXT();
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = Of(function).threads_max; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = Of(function).local_bytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult FuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  CALLED_IN_CONTEXT();
  return CUDA_SUCCESS;
}
CUresult OccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int, size_t) {
  CALLED_IN_CONTEXT();
  *blocks = Of(function).ctas_that_fit;
  return CUDA_SUCCESS;
}
CUresult FuncLoad(CUfunction) {
  CALLED_IN_CONTEXT();
  return CUDA_SUCCESS;
}
CUresult FuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  CALLED_IN_CONTEXT();
  if (index > 0 || Of(function).num_slots == 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = static_cast<size_t>(Of(function).num_slots) * 8;
  return CUDA_SUCCESS;
}

CUresult StreamCreate(CUstream* stream, unsigned) {
  CALLED_IN_CONTEXT();
  ++State().live_objects;
  *stream = reinterpret_cast<CUstream>(new FakeStream);
  return CUDA_SUCCESS;
}
CUresult CtxGetStreamPriorityRange(int* least, int* greatest) {
  CALLED_IN_CONTEXT();
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult StreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  CALLED();
  return priority > 0 || priority < -5 ? CUDA_ERROR_INVALID_VALUE : StreamCreate(stream, flags);
}
CUresult StreamDestroy(CUstream stream) {
  CALLED();
  --State().live_objects;
  delete &Of(stream);
  return CUDA_SUCCESS;
}
CUresult Query(FakeStream& stream) {
  if (stream.capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto point = std::make_shared<Point>();
  stream.Queue([point] { point->Set(); });
  return point->Get() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult StreamQuery(CUstream stream) {
  CALLED_IN_CONTEXT();
  return Query(Of(stream));
}
CUresult StreamSynchronize(CUstream stream) {
  CALLED_IN_CONTEXT();
  const auto point = std::make_shared<Point>();
  Of(stream).Queue([point] { point->Set(); });
  point->Wait();
  return static_cast<CUresult>(lost.load());
}
CUresult EventCreate(CUevent* event, unsigned flags) {
  CALLED_IN_CONTEXT();
  auto* const made = new FakeEvent;
  made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  ++State().live_objects;
  *event = reinterpret_cast<CUevent>(made);
  return CUDA_SUCCESS;
}
CUresult EventDestroy(CUevent event) {
  CALLED();
  delete &Of(event);
  --State().live_objects;
  return CUDA_SUCCESS;
}
CUresult EventRecord(CUevent handle, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!Asked({.kind = FakeQueued::Kind::kRecord, .stream = stream, .event = handle})) return CUDA_SUCCESS;
  FakeEvent& event = Of(handle);
  FakeStream& on = Of(stream);
  std::lock_guard lock(event.mutex);
  event.capture = on.capture;
  event.nodes = on.last;
  event.point = nullptr;
  if (on.capture != nullptr) return CUDA_SUCCESS;
  const auto point = std::make_shared<Point>();
  event.point = point;
  on.Queue([point] { point->Set(); });
  return CUDA_SUCCESS;
}
CUresult StreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
  CALLED_IN_CONTEXT();
  if (!Asked({.kind = FakeQueued::Kind::kWait, .stream = stream, .event = handle})) return CUDA_SUCCESS;
  FakeEvent& event = Of(handle);
  FakeStream& on = Of(stream);
  std::lock_guard lock(event.mutex);
  if (event.capture != nullptr) {
    if (!event.capture->capturing) return CUDA_ERROR_CAPTURED_EVENT;
    if (on.capture != nullptr && on.capture != event.capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (on.capture == nullptr) {
      on.capture = event.capture;
      on.capture->joined.push_back(&on);
      on.last.clear();
    }
    on.last.insert(on.last.end(), event.nodes.begin(), event.nodes.end());
    return CUDA_SUCCESS;
  }
  if (on.capture != nullptr) return event.point == nullptr ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (event.point != nullptr) on.Queue([point = event.point] { point->Wait(); });
  return CUDA_SUCCESS;
}
CUresult EventQuery(CUevent handle) {
  CALLED_IN_CONTEXT();
  FakeEvent& event = Of(handle);
  std::lock_guard lock(event.mutex);
  if (event.capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return event.point == nullptr || event.point->Get() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult EventElapsedTime(float* ms, CUevent from, CUevent to) {
  CALLED_IN_CONTEXT();
  if (!Of(from).timed || !Of(to).timed) return CUDA_ERROR_INVALID_HANDLE;
  *ms = 1.5F;
  return CUDA_SUCCESS;
}
CUresult StreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  CALLED_IN_CONTEXT();
  if (Of(stream).capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Of(stream).Queue([word = reinterpret_cast<std::atomic<uint32_t>*>(address), value] {
    while (static_cast<int32_t>(word->load(std::memory_order_acquire) - value) < 0) std::this_thread::yield();
  });
  return CUDA_SUCCESS;
}

Work WriteWord(CUdeviceptr address, uint64_t value) {
  return [word = reinterpret_cast<std::atomic<uint64_t>*>(address), value] { word->store(value); };
}
CUresult StreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned) {
  CALLED_IN_CONTEXT();
  const std::vector<CUstreamBatchMemOpParams> all(ops, ops + count);
  for (const CUstreamBatchMemOpParams& op : all) {
    const bool waits = op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    if (!waits && op.operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) return CUDA_ERROR_INVALID_VALUE;
    if (waits && op.waitValue.flags != CU_STREAM_WAIT_VALUE_EQ) return CUDA_ERROR_INVALID_VALUE;
  }
  const FakePlace word = PlaceAt(all[0].waitValue.address);
  if (!Asked({.kind = FakeQueued::Kind::kTakeWord, .stream = stream, .dst = word, .bytes = 8})) return CUDA_SUCCESS;
  Of(stream).Add(
      [all] {
        for (const CUstreamBatchMemOpParams& op : all) {
          if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
            WriteWord(op.writeValue.address, op.writeValue.value64)();
            continue;
          }
          const auto* const word = reinterpret_cast<std::atomic<uint64_t>*>(op.waitValue.address);
          while (word->load() != op.waitValue.value64) std::this_thread::yield();
        }
      },
      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  return CUDA_SUCCESS;
}
CUresult StreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  CALLED_IN_CONTEXT();
  const FakeQueued queued = {
      .kind = FakeQueued::Kind::kWriteWord, .stream = stream, .dst = PlaceAt(address), .bytes = 8, .value = value};
  if (!Asked(queued)) return CUDA_SUCCESS;
  Of(stream).Add(WriteWord(address, value), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  return CUDA_SUCCESS;
}
Work Run(const FakeKernel& kernel, void** parameters, int64_t ctas) {
  std::vector<int64_t> slots(static_cast<size_t>(kernel.num_slots));
  if (!slots.empty()) std::memcpy(slots.data(), parameters[0], slots.size() * sizeof(int64_t));
  return [function = kernel.function, slots, ctas] { function(slots.data(), ctas); };
}
CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
  CALLED_IN_CONTEXT();
  if (config->gridDimX == 0) return CUDA_ERROR_INVALID_VALUE;
  const FakeKernel& kernel = Of(function);
  FakeQueued queued = {.kind = FakeQueued::Kind::kLaunch, .stream = config->hStream, .kernel = kernel.name};
  queued.slots.resize(static_cast<size_t>(kernel.num_slots));
  if (!queued.slots.empty()) std::memcpy(queued.slots.data(), parameters[0], queued.slots.size() * sizeof(int64_t));
  if (!Asked(queued)) return CUDA_SUCCESS;
  Of(config->hStream)
      .Add(Run(Of(function), parameters, config->gridDimX), CU_GRAPH_NODE_TYPE_KERNEL, config->numAttrs > 0);
  return CUDA_SUCCESS;
}
CUresult LaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  CALLED_IN_CONTEXT();
  Of(stream).Add([function, argument] { function(argument); }, CU_GRAPH_NODE_TYPE_HOST);
  return CUDA_SUCCESS;
}
bool AskedCopy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return Asked({.kind = FakeQueued::Kind::kCopy,
                .stream = stream,
                .dst = PlaceAt(dst),
                .src = PlaceAt(src),
                .bytes = static_cast<int64_t>(bytes)});
}
bool AskedFill(CUstream stream, CUdeviceptr dst, size_t bytes) {
  return Asked(
      {.kind = FakeQueued::Kind::kFill, .stream = stream, .dst = PlaceAt(dst), .bytes = static_cast<int64_t>(bytes)});
}
Work Move(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return [dst, src, bytes] { std::memmove(At(dst), At(src), bytes); };
}
CUresult MemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedCopy(stream, dst, src, bytes)) return CUDA_SUCCESS;
  Of(stream).Add(Move(dst, src, bytes), CU_GRAPH_NODE_TYPE_MEMCPY);
  return CUDA_SUCCESS;
}
CUresult MemcpyHtoDAsync(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedCopy(stream, dst, reinterpret_cast<CUdeviceptr>(src), bytes)) return CUDA_SUCCESS;
  Of(stream).Add(Move(dst, reinterpret_cast<CUdeviceptr>(src), bytes), CU_GRAPH_NODE_TYPE_MEMCPY);
  return CUDA_SUCCESS;
}
CUresult MemcpyDtoHAsync(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedCopy(stream, reinterpret_cast<CUdeviceptr>(dst), src, bytes)) return CUDA_SUCCESS;
  Of(stream).Add(Move(reinterpret_cast<CUdeviceptr>(dst), src, bytes), CU_GRAPH_NODE_TYPE_MEMCPY);
  return CUDA_SUCCESS;
}
// Elements of `element` bytes, `width` a row.
Work Set(CUdeviceptr dst, unsigned value, size_t element, size_t pitch, size_t width, size_t height) {
  return [=] {
    for (size_t row = 0; row < height; ++row) {
      for (size_t i = 0; i < width; ++i) std::memcpy(At(dst) + row * pitch + i * element, &value, element);
    }
  };
}
CUresult MemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedFill(stream, dst, count)) return CUDA_SUCCESS;
  Of(stream).Add(Set(dst, value, 1, 0, count, 1), CU_GRAPH_NODE_TYPE_MEMSET);
  return CUDA_SUCCESS;
}
CUresult MemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedFill(stream, dst, 2 * count)) return CUDA_SUCCESS;
  Of(stream).Add(Set(dst, value, 2, 0, count, 1), CU_GRAPH_NODE_TYPE_MEMSET);
  return CUDA_SUCCESS;
}
CUresult MemsetD32Async(CUdeviceptr dst, unsigned value, size_t count, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedFill(stream, dst, 4 * count)) return CUDA_SUCCESS;
  Of(stream).Add(Set(dst, value, 4, 0, count, 1), CU_GRAPH_NODE_TYPE_MEMSET);
  return CUDA_SUCCESS;
}
CUresult MemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream) {
  CALLED_IN_CONTEXT();
  if (!AskedFill(stream, dst, pitch * height)) return CUDA_SUCCESS;
  Of(stream).Add(Set(dst, value, 4, pitch, width, height), CU_GRAPH_NODE_TYPE_MEMSET);
  return CUDA_SUCCESS;
}

CUresult StreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  CALLED_IN_CONTEXT();
  FakeStream& stream = Of(handle);
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture = std::make_shared<Graph>();
  stream.is_origin = true;
  stream.last.clear();
  ++State().live_objects;
  return CUDA_SUCCESS;
}
void Reach(Node* node, std::set<Node*>& seen) {
  if (!seen.insert(node).second) return;
  for (Node* after : node->after) Reach(after, seen);
}
CUresult StreamEndCapture(CUstream handle, CUgraph* graph) {
  CALLED();
  FakeStream& stream = Of(handle);
  if (stream.capture == nullptr || !stream.is_origin) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Graph> made = stream.capture;
  std::set<Node*> seen;
  for (Node* node : stream.last) Reach(node, seen);
  made->capturing = false;
  made->joined.push_back(&stream);
  for (FakeStream* joined : made->joined) {
    joined->capture = nullptr;
    joined->is_origin = false;
    joined->last.clear();
  }
  made->joined.clear();
  if (seen.size() != made->nodes.size()) {
    --State().live_objects;
    return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  const auto ended = std::make_shared<Graph>();  // Apart from what events of the capture keep.
  ended->nodes = std::move(made->nodes);
  ended->capturing = false;
  *graph = reinterpret_cast<CUgraph>(new std::shared_ptr<Graph>(ended));
  return CUDA_SUCCESS;
}
CUresult StreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*,
                              const CUgraphNode** dependencies, size_t* count) {
  CALLED_IN_CONTEXT();
  const FakeStream& on = Of(stream);
  *status = on.capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *dependencies = reinterpret_cast<const CUgraphNode*>(on.last.data());
  *count = on.last.size();
  return CUDA_SUCCESS;
}
CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  CALLED_IN_CONTEXT();
  auto* const made = new Exec;
  made->graph = *reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  for (const auto& node : made->graph->nodes) made->work[node.get()] = node->work;
  ++State().live_objects;
  *exec = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}
CUresult GraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  CALLED_IN_CONTEXT();
  const Graph& of = **reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(of.nodes[i].get());
  }
  *count = of.nodes.size();
  return CUDA_SUCCESS;
}
CUresult GraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  CALLED_IN_CONTEXT();
  *type = reinterpret_cast<Node*>(node)->type;
  return CUDA_SUCCESS;
}
CUresult GraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, void* data, size_t* count) {
  CALLED_IN_CONTEXT();
  size_t i = 0;
  for (const auto& node : (*reinterpret_cast<std::shared_ptr<Graph>*>(graph))->nodes) {
    for (Node* const after : node->after) {
      if (from != nullptr) {
        from[i] = reinterpret_cast<CUgraphNode>(after);
        to[i] = reinterpret_cast<CUgraphNode>(node.get());
        auto* const edge = static_cast<CUgraphEdgeData*>(data) + i;
        *edge = {};
        edge->type = node->early && after->type == CU_GRAPH_NODE_TYPE_KERNEL ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
                                                                             : CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
      }
      ++i;
    }
  }
  *count = i;
  return CUDA_SUCCESS;
}
CUresult GraphExecDestroy(CUgraphExec exec) {
  CALLED();
  delete reinterpret_cast<Exec*>(exec);
  --State().live_objects;
  return CUDA_SUCCESS;
}
CUresult GraphDestroy(CUgraph graph) {
  CALLED();
  delete reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  --State().live_objects;
  return CUDA_SUCCESS;
}
CUresult GraphLaunch(CUgraphExec handle, CUstream stream) {
  CALLED_IN_CONTEXT();
  auto* const exec = reinterpret_cast<Exec*>(handle);
  std::vector<Work> all;  // As it is now: updates concern later launches.
  for (const auto& node : exec->graph->nodes) all.push_back(exec->work.at(node.get()));
  Of(stream).Queue([all] {
    for (const Work& work : all) work();
  });
  return CUDA_SUCCESS;
}
CUresult GraphUpload(CUgraphExec, CUstream) {
  CALLED_IN_CONTEXT();
  return CUDA_SUCCESS;
}
CUresult Change(CUgraphExec exec, CUgraphNode node, Work work) {
  auto& all = reinterpret_cast<Exec*>(exec)->work;
  const auto found = all.find(reinterpret_cast<Node*>(node));
  if (found == all.end()) return CUDA_ERROR_INVALID_VALUE;
  found->second = std::move(work);
  return CUDA_SUCCESS;
}
CUresult GraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* to) {
  CALLED_IN_CONTEXT();
  return Change(exec, node, Run(Of(to->func), to->kernelParams, to->gridDimX));
}
CUresult GraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* to, CUcontext) {
  CALLED_IN_CONTEXT();
  return Change(exec, node, Move(to->dstDevice, to->srcDevice, to->WidthInBytes));
}
CUresult GraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1* to,
                                      CUcontext) {
  CALLED_IN_CONTEXT();
  return Change(exec, node, Set(to->dst, to->value, to->elementSize, to->pitch, to->width, to->height));
}
CUresult GraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* to) {
  CALLED_IN_CONTEXT();
  return Change(exec, node, WriteWord(to->paramArray->writeValue.address, to->paramArray->writeValue.value64));
}

struct Entry {
  const char* name;
  void* address;
};
const Entry kEntries[] = {
#define CUDA_FUNCTION(Name, parameters, need) \
  {"cu" #Name, reinterpret_cast<void*>(static_cast<CUresult(*) parameters>(&Name))},
#include "csrc/device/cuda/functions.def"
};

}  // namespace
}  // namespace hir::device

extern "C" {

hir::device::FakeCuda* fake_cuda() { return &hir::device::State(); }
// What a library queues on its own: `work` may block, and is a kernel in a graph.
void fake_cuda_queue(CUstream stream, std::function<void()> work) {
  hir::device::Of(stream).Add(std::move(work), CU_GRAPH_NODE_TYPE_KERNEL);
}
hir::device::FakePlace fake_cuda_place(const void* address) {
  return hir::device::PlaceAt(reinterpret_cast<CUdeviceptr>(address));
}
bool fake_cuda_capturing(CUstream stream) { return hir::device::Of(stream).capture != nullptr; }
// Everything fails from now on, as after a kernel's fault, until the context goes.
void fake_cuda_lose(int error) { hir::device::lost = error; }

#undef cuGetProcAddress
CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = hir::device::State().version;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** address, int, cuuint64_t,
                                     CUdriverProcAddressQueryResult* found) {
  *address = nullptr;
  for (const auto& entry : hir::device::kEntries) {
    if (std::strcmp(entry.name, symbol) == 0) *address = entry.address;
  }
  *found = *address == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  return *address == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
}
