#include "csrc/device/cuda/capture.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/device/cuda/cuda_stream.h"
#include "csrc/device/cuda/graph_update.h"

namespace hir::device::cuda {

using base::Cat;

Capture::Capture(Context& context, CudaStream& origin, int64_t number)
    : context_(context), streams_{&origin}, number_(number) {}

Status Capture::Begin() {
  context_.Enter();
  // Other threads may go on with what cannot be captured.
  HIR_TRY(
      context_.Check(context_.driver().StreamBeginCapture(streams_[0]->handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     "cuStreamBeginCapture"));
  streams_[0]->set_capture(this);
  context_.set_capture(this);
  return {};
}

void Capture::Join(CudaStream& stream) {
  stream.set_capture(this);
  streams_.push_back(&stream);
}

void Capture::Leave(CudaStream& stream) { std::erase(streams_, &stream); }

void Capture::Fail(const Status& status) {
  if (failure_.ok()) failure_ = status;
}

void Capture::Add(CudaStream& stream, GraphNode node) {
  if (is_fixed_) return;
  if (node.kind != GraphNode::Kind::kNothing) {
    Result<CUgraphNode> made = LastNode(stream);
    if (!made.ok()) return Fail(made.status());
    node.node = *made;
  }
  nodes_.push_back(std::move(node));
}

void Capture::AddUnknown() {
  if (!is_fixed_) Fail(Internal(Cat(streams_[0]->name(), ": a word is taken in what updates compare")));
}

// What the next work of the stream would depend on: the one node just made.
Result<CUgraphNode> Capture::LastNode(const CudaStream& stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* dependencies = nullptr;
  size_t count = 0;
  HIR_TRY(context_.Check(
      context_.driver().StreamGetCaptureInfo(stream.handle(), &status, nullptr, nullptr, &dependencies, &count),
      "cuStreamGetCaptureInfo"));
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1) return dependencies[0];
  return Internal(Cat(stream.name(), ": work just captured is ", count, " nodes"));
}

Result<std::unique_ptr<Graph>> Capture::End() {
  context_.Enter();
  const Driver& driver = context_.driver();
  CUgraph graph = nullptr;
  const CUresult ended = driver.StreamEndCapture(streams_[0]->handle(), &graph);
  for (CudaStream* stream : streams_) stream->set_capture(nullptr);
  context_.set_capture(nullptr);
  Status status = failure_;
  if (status.ok()) status = context_.Check(ended, "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  if (status.ok()) {
    status = context_.Check(driver.GraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
  }
  if (status.ok()) {  // Now, rather than in the first launch.
    status = context_.Check(driver.GraphUpload(exec, streams_[0]->handle()), "cuGraphUpload");
  }
  if (!status.ok()) {
    if (exec != nullptr) driver.GraphExecDestroy(exec);
    if (graph != nullptr) driver.GraphDestroy(graph);
    return status;
  }
  return std::make_unique<CudaGraph>(context_, graph, exec, std::move(nodes_));
}

}  // namespace hir::device::cuda
