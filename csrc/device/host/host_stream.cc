#include "csrc/device/host/host_stream.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/device/host/host_kernel.h"

namespace hir::device {
namespace {

// A thread of its own pays from about here on: 256 KiB take some 20 us, waking a thread 5 to 10.
constexpr int64_t kMemoryGrainBytes = 256 * 1024;

int64_t Slot(const void* pointer) { return std::bit_cast<int64_t>(pointer); }
std::byte* Pointer(int64_t slot) { return std::bit_cast<std::byte*>(slot); }

void CopyBytes(const int64_t* args, int64_t begin, int64_t end) {
  std::memcpy(Pointer(args[0]) + begin, Pointer(args[1]) + begin, static_cast<size_t>(end - begin));
}

template <typename T>
void FillWith(const int64_t* args, int64_t begin, int64_t end) {
  T* const data = reinterpret_cast<T*>(Pointer(args[0]));
  std::fill(data + begin, data + end, static_cast<T>(args[1]));
}

HostFunction FillFunction(int pattern_bytes) {
  switch (pattern_bytes) {
    case 1: return FillWith<uint8_t>;
    case 2: return FillWith<uint16_t>;
    case 4: return FillWith<uint32_t>;
    case 8: return FillWith<uint64_t>;
    default: HIR_CHECK(false); return nullptr;
  }
}

}  // namespace

bool HostEvent::Fired() const { return core_ == nullptr || core_->done() >= position_; }

Status HostEvent::Synchronize(base::Nanos timeout) {
  return core_ == nullptr ? Status() : core_->Synchronize(position_, timeout);
}

HostStream::HostStream(StreamCore& core, std::function<void(StreamCore&)> release)
    : core_(core), release_(std::move(release)) {}

HostStream::~HostStream() { release_(core_); }

void HostStream::Queue(HostFunction function, std::span<const int64_t> args, int64_t grid, int64_t grain) {
  Task* const task = core_.NewTask();
  if (task == nullptr) return;
  task->kind = Task::Kind::kLaunch;
  task->function = function;
  task->grid = grid;
  task->grain = grain;
  task->SetArgs(args);
  core_.Submit();
}

void HostStream::Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) {
  HIR_CHECK(grid >= 0);
  const auto& host = static_cast<const HostKernel&>(kernel);
  Queue(host.function(), args, grid, host.grain());
}

void HostStream::Copy(Buffer dst, Buffer src) {
  HIR_CHECK(dst.bytes == src.bytes);
  HIR_CHECK(dst.data == src.data || !Overlap(dst, src));
  if (dst.data == src.data || dst.bytes == 0) return;
  Queue(CopyBytes, std::array{Slot(dst.data), Slot(src.data)}, dst.bytes, kMemoryGrainBytes);
}

void HostStream::Fill(Buffer dst, uint64_t pattern, int pattern_bytes) {
  const HostFunction function = FillFunction(pattern_bytes);
  HIR_CHECK(dst.bytes % pattern_bytes == 0);
  if (dst.bytes == 0) return;
  Queue(function, std::array{Slot(dst.data), std::bit_cast<int64_t>(pattern)}, dst.bytes / pattern_bytes,
        kMemoryGrainBytes / pattern_bytes);
}

// What is recorded is only where the stream stands: nothing is queued.
void HostStream::Record(Event& event) {
  auto& host = static_cast<HostEvent&>(event);
  host.core_ = &core_;
  host.position_ = core_.queued();
}

void HostStream::Wait(const Event& event) {
  const auto& host = static_cast<const HostEvent&>(event);
  if (host.core_ == nullptr || host.core_ == &core_) return;
  if (host.Fired() && host.core_->FailureBefore(host.position_).ok()) return;
  Task* const task = core_.NewTask();
  if (task == nullptr) return;
  task->kind = Task::Kind::kWait;
  task->source = host.core_;
  task->position = host.position_;
  core_.Submit();
}

void HostStream::Enqueue(AsyncOp& op) {
  Task* const task = core_.NewTask();
  if (task == nullptr) return op.Skip(status());
  task->kind = Task::Kind::kAsync;
  task->op = &op;
  core_.Submit();
}

void HostStream::HostCallback(std::function<Status()> callback) {
  Task* const task = core_.NewTask();
  if (task == nullptr) return;
  task->kind = Task::Kind::kCallback;
  task->callback = std::move(callback);
  core_.Submit();
}

}  // namespace hir::device
