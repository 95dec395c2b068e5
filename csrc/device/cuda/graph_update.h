// CudaGraph: an instantiated graph, and the stream that updates it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/device/cuda/capture.h"

namespace hir::device::cuda {

class CudaGraph;

// Compares what is queued with the nodes of a graph, one after the other, and patches those that differ.
class GraphUpdater final : public Stream {
 public:
  explicit GraphUpdater(CudaGraph& graph) : graph_(graph) {}

  void Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) override;
  void Copy(Buffer dst, Buffer src) override;
  void Fill(Buffer dst, uint64_t pattern, int pattern_bytes) override;
  void Record(Event&) override {}
  void Wait(const Event&) override {}
  void Enqueue(AsyncOp& op) override;
  void HostCallback(std::function<Status()> callback) override;
  Status Synchronize(base::Nanos) override { return failure_; }
  Status status() const override { return failure_; }
  void ClearError() override { failure_ = {}; }

  void Begin();
  Status End();

 private:
  GraphNode* Next(GraphNode::Kind kind);
  void Fail(std::string_view what);
  bool Patched(CUresult result, std::string_view call);

  CudaGraph& graph_;
  size_t next_ = 0;
  Status failure_;
};

class CudaGraph final : public Graph {
 public:
  CudaGraph(Context& context, CUgraph graph, CUgraphExec exec, std::vector<GraphNode> nodes)
      : context_(context), graph_(graph), exec_(exec), nodes_(std::move(nodes)), updater_(*this) {}
  ~CudaGraph() override;

  void Launch(Stream& stream) override;
  std::string Describe() const override;
  void BeginUpdate() override { updater_.Begin(); }
  Stream& updater() override { return updater_; }
  Status EndUpdate() override { return updater_.End(); }

 private:
  friend class GraphUpdater;
  Context& context_;
  const CUgraph graph_;  // Owns the nodes that the executable graph is patched by.
  const CUgraphExec exec_;
  std::vector<GraphNode> nodes_;  // In the order of the calls.
  GraphUpdater updater_;
};

// What a copy or fill becomes as a node: the same rules for streams, captures and updates.
GraphNode CopyNode(Buffer dst, Buffer src);
GraphNode FillNode(Buffer dst, uint64_t pattern, int pattern_bytes);
// The arguments of a launch as its kernel takes them: num_slots of them, the rest zero. `block` holds kSlotsMax.
void* ArgumentBlock(const CudaKernel& kernel, std::span<const int64_t> args, int64_t* block);

}  // namespace hir::device::cuda
