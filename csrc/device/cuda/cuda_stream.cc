#include "csrc/device/cuda/cuda_stream.h"

#include <array>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/device/cuda/graph_update.h"

namespace hir::device::cuda {
namespace {

using base::Cat;

// A host callback on its way; the driver calls Run, which frees it.
struct PendingCallback {
  std::function<Status()> callback;
  std::shared_ptr<StreamHistory> history;
  int64_t index;

  static void Run(void* argument) {
    const std::unique_ptr<PendingCallback> self(static_cast<PendingCallback*>(argument));
    const bool skipped = !self->history->FailureBefore(self->index).ok();
    self->history->End(self->index, skipped ? Status() : self->callback());
  }
};

// Work of a library on its way; Complete, which comes once, frees it.
class LibraryWork final : public Completion::Target {
 public:
  // Null: it is captured, and does not run.
  explicit LibraryWork(std::shared_ptr<StreamHistory> history) : history_(std::move(history)) {
    if (history_ == nullptr) return;
    history_->Begin();
    index_ = history_->Next();
  }
  void Complete(Status status) override {
    const std::unique_ptr<LibraryWork> self(this);
    if (history_ != nullptr) history_->End(index_, status);
  }

 private:
  const std::shared_ptr<StreamHistory> history_;
  int64_t index_ = 0;
};

}  // namespace

CudaEvent::~CudaEvent() {
  if (!timed_) {
    context_.GiveEvent(event_);
  } else {
    context_.Enter();
    context_.driver().EventDestroy(event_);
  }
}

bool CudaEvent::Fired() const {
  if (!recorded()) return true;
  context_.Enter();
  return context_.driver().EventQuery(event_) != CUDA_ERROR_NOT_READY;
}

Status CudaEvent::Synchronize(base::Nanos timeout) {
  if (!recorded()) return {};
  context_.Enter();
  HIR_TRY(context_.Await(event_, Cat(context_.name(), " event"), timeout));
  return history_->FailureBefore(position_);
}

CudaStream::CudaStream(Context& context, CompletionWords& words, CUstream stream, CompletionWord& word,
                       std::string name)
    : context_(context),
      words_(words),
      stream_(stream),
      word_(word),
      name_(std::move(name)),
      history_(std::make_shared<StreamHistory>(context.failures())),
      mark_(context.NewStreamNumber() << 40) {}

CudaStream::~CudaStream() {
  if (capture_ != nullptr) capture_->Leave(*this);
  context_.Enter();
  context_.driver().StreamDestroy(stream_);
  words_.GiveWord(word_);
}

void CudaStream::Fail(const Status& status) {
  if (capture_ != nullptr) return capture_->Fail(status);
  history_->Fail(history_->Next(), status);
}

bool CudaStream::Queued(CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return true;
  Fail(context_.driver().Check(result, call).WithContext(name_));
  return false;
}

bool CudaStream::Skips() const {
  return capture_ == nullptr && !context_.failures().settled() && !history_->FailureBefore(history_->position()).ok();
}

void CudaStream::Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) {
  HIR_CHECK(grid >= 0);
  const auto& cuda = static_cast<const CudaKernel&>(kernel);
  if (Skips()) return;
  ++mark_;
  if (grid > 0) {
    const int64_t ctas = cuda.NumCtas(grid);
    if (ctas > INT32_MAX) {
      return Fail(InvalidArgument(Cat(name_, ": kernel ", cuda.name(), ": a grid of ", ctas, " CTAs; at most ",
                                      INT32_MAX, " can be launched")));
    }
    context_.Enter();
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {};
    config.gridDimX = static_cast<unsigned>(ctas);
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = static_cast<unsigned>(cuda.info().threads);
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(cuda.info().shared_bytes);
    config.hStream = stream_;
    config.attrs = &attribute;
    config.numAttrs = cuda.info().dependent && context_.facts().architecture >= 90 ? 1 : 0;
    std::array<int64_t, kSlotsMax> block;  // NOLINT: filled where it is used.
    void* parameters[] = {ArgumentBlock(cuda, args, block.data())};
    if (!Queued(context_.driver().LaunchKernelEx(&config, cuda.function(), parameters, nullptr), cuda.name())) return;
  }
  if (capture_ == nullptr) return;
  GraphNode node = {.kind = grid > 0 ? GraphNode::Kind::kKernel : GraphNode::Kind::kNothing};
  if (grid > 0) {
    node.kernel = &cuda;
    node.args.assign(args.begin(), args.end());
    node.grid = grid;
  }
  capture_->Add(*this, std::move(node));
}

Completion CudaStream::BeginWork() { return Completion(*new LibraryWork(capture_ == nullptr ? history_ : nullptr)); }

void CudaStream::Launch(CUgraphExec graph) {
  if (Skips()) return;
  ++mark_;
  context_.Enter();
  Queued(context_.driver().GraphLaunch(graph, stream_), "cuGraphLaunch");
}

void CudaStream::Copy(Buffer dst, Buffer src) {
  HIR_CHECK(dst.bytes == src.bytes);
  HIR_CHECK(dst.data == src.data || !Overlap(dst, src));
  if (Skips()) return;
  ++mark_;
  GraphNode node = CopyNode(dst, src);
  if (node.kind != GraphNode::Kind::kNothing) {
    context_.Enter();
    const CUresult result =
        context_.driver().MemcpyAsync(Address(dst.data), Address(src.data), static_cast<size_t>(dst.bytes), stream_);
    if (!Queued(result, "copy")) return;
  }
  if (capture_ != nullptr) capture_->Add(*this, std::move(node));
}

void CudaStream::Fill(Buffer dst, uint64_t pattern, int pattern_bytes) {
  HIR_CHECK(pattern_bytes == 1 || pattern_bytes == 2 || pattern_bytes == 4 || pattern_bytes == 8);
  HIR_CHECK(dst.bytes % pattern_bytes == 0);
  if (Skips()) return;
  ++mark_;
  GraphNode node = FillNode(dst, pattern, pattern_bytes);
  const Driver& driver = context_.driver();
  const CUdeviceptr address = Address(dst.data);
  const auto count = static_cast<size_t>(dst.bytes / pattern_bytes);
  CUresult result = CUDA_SUCCESS;
  if (node.kind != GraphNode::Kind::kNothing) context_.Enter();
  switch (node.kind) {
    case GraphNode::Kind::kFill:
      if (node.pattern_bytes == 1) {
        result =
            driver.MemsetD8Async(address, static_cast<uint8_t>(node.pattern), static_cast<size_t>(dst.bytes), stream_);
      } else if (node.pattern_bytes == 2) {
        result = driver.MemsetD16Async(address, static_cast<uint16_t>(node.pattern), count, stream_);
      } else {
        result = driver.MemsetD32Async(address, static_cast<uint32_t>(node.pattern), static_cast<size_t>(dst.bytes / 4),
                                       stream_);
      }
      break;
    case GraphNode::Kind::kWriteWord: result = driver.StreamWriteValue64(stream_, address, pattern, 0); break;
    case GraphNode::Kind::kFillPairs:  // Each half of the words as a column of 4 bytes in rows of 8.
      result = driver.MemsetD2D32Async(address, 8, static_cast<uint32_t>(pattern), 1, count, stream_);
      if (result == CUDA_SUCCESS) {
        result = driver.MemsetD2D32Async(address + 4, 8, static_cast<uint32_t>(pattern >> 32), 1, count, stream_);
      }
      break;
    case GraphNode::Kind::kNothing:
    case GraphNode::Kind::kKernel:
    case GraphNode::Kind::kCopy: break;
  }
  if (!Queued(result, "fill") || capture_ == nullptr) return;
  capture_->Add(*this, std::move(node));
}

void CudaStream::Record(Event& event) {
  auto& cuda = static_cast<CudaEvent&>(event);
  cuda.history_ = history_;
  cuda.position_ = history_->position();
  cuda.capture_ = capture_ == nullptr ? 0 : capture_->number();
  context_.Enter();
  Queued(context_.driver().EventRecord(cuda.event_, stream_), "cuEventRecord");
}

void CudaStream::Wait(const Event& event) {
  const auto& cuda = static_cast<const CudaEvent&>(event);
  if (cuda.history_ == nullptr || cuda.history_ == history_) return;
  ++mark_;
  const int64_t mine = capture_ == nullptr ? 0 : capture_->number();
  if (cuda.capture_ == 0 && mine != 0) return;  // Recorded before the capture.
  if (cuda.capture_ != 0) {
    Capture* const capture = context_.capture();
    if (capture == nullptr || capture->number() != cuda.capture_) return;  // Recorded in one that has ended.
    if (mine == 0) capture->Join(*this);
  } else {
    history_->AddWait(cuda.history_, cuda.position_);
  }
  context_.Enter();
  Queued(context_.driver().StreamWaitEvent(stream_, cuda.event_, 0), "cuStreamWaitEvent");
}

void CudaStream::Enqueue(AsyncOp& op) {
  if (capture_ != nullptr) {
    const Status status = Unimplemented(Cat(name_, ": an operation that the host completes cannot be captured"));
    capture_->Fail(status);
    return op.Skip(status);
  }
  if (Skips()) return op.Skip(history_->FailureBefore(history_->position()));
  ++mark_;
  context_.Enter();
  const Driver& driver = context_.driver();
  const uint32_t number = ++word_.issued;
  PendingOp& pending = words_.TakeOp();
  history_->Begin();
  const int64_t index = history_->Next();
  pending.Set(op, history_, index, word_, number);
  const CUresult result = driver.LaunchHostFunc(stream_, &PendingOp::Start, &pending);
  if (result != CUDA_SUCCESS) {
    const Status status = driver.Check(result, "cuLaunchHostFunc").WithContext(name_);
    op.Skip(status);
    return pending.Complete(status);
  }
  Queued(driver.StreamWaitValue32(stream_, word_.address, number, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
}

void CudaStream::TakeWord(Buffer word) {
  HIR_CHECK(word.bytes == 8);
  if (Skips()) return;
  ++mark_;
  context_.Enter();
  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[0].waitValue.address = Address(word.data);
  ops[0].waitValue.value64 = 1;
  ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  ops[1].writeValue.address = Address(word.data);
  ops[1].writeValue.value64 = 0;
  if (Queued(context_.driver().StreamBatchMemOp(stream_, 2, ops, 0), "cuStreamBatchMemOp") && capture_ != nullptr) {
    capture_->AddUnknown();
  }
}

void CudaStream::HostCallback(std::function<Status()> callback) {
  if (capture_ != nullptr) return capture_->Fail(Unimplemented(Cat(name_, ": a host callback cannot be captured")));
  if (Skips()) return;
  ++mark_;
  context_.Enter();
  history_->Begin();
  const int64_t index = history_->Next();
  auto pending = std::make_unique<PendingCallback>(PendingCallback{std::move(callback), history_, index});
  const CUresult result = context_.driver().LaunchHostFunc(stream_, &PendingCallback::Run, pending.get());
  if (result == CUDA_SUCCESS) {
    static_cast<void>(pending.release());  // The driver has it now.
    return;
  }
  history_->End(index, context_.driver().Check(result, "cuLaunchHostFunc").WithContext(name_));
}

Status CudaStream::Synchronize(base::Nanos timeout) {
  if (capture_ != nullptr) {
    return {Code::kFailedPrecondition, Cat(name_, ": its work is being captured, and does not run")};
  }
  context_.Enter();
  const int64_t position = history_->position();
  HIR_ASSIGN(const CUevent event, context_.TakeEvent());
  const CUresult recorded = context_.driver().EventRecord(event, stream_);
  const Status waited =
      recorded == CUDA_SUCCESS ? context_.Await(event, name_, timeout) : context_.driver().Check(recorded, name_);
  context_.GiveEvent(event);
  if (!waited.ok()) return waited;
  history_->Settle(position);
  return history_->FailureBefore(position);
}

Status CudaStream::status() const {
  HIR_TRY(known_status());
  if (capture_ != nullptr) return {};
  context_.Enter();
  const CUresult result = context_.driver().StreamQuery(stream_);
  return result == CUDA_ERROR_NOT_READY ? Status() : context_.driver().Check(result, name_);
}

}  // namespace hir::device::cuda
