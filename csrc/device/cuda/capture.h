// Capture: work on its way into a graph. CudaGraph: the graph, which knows the node of each launch, copy and fill.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/device/cuda/cuda_kernel.h"

namespace hir::device::cuda {

class CudaStream;

// One call that was captured, and the node that the driver made of it.
struct GraphNode {
  enum class Kind : uint8_t { kNothing, kKernel, kCopy, kFill, kWriteWord, kFillPairs };
  Kind kind = Kind::kNothing;  // kNothing: an empty launch, copy or fill. kFillPairs: two nodes, never patched.
  CUgraphNode node = nullptr;
  const CudaKernel* kernel = nullptr;
  std::vector<int64_t> args = {};
  int64_t grid = 0;
  Buffer dst = {}, src = {};
  uint64_t pattern = 0;
  int pattern_bytes = 0;

  bool operator==(const GraphNode&) const = default;
};

// From BeginCapture to EndCapture. One thread.
class Capture {
 public:
  // number: of this capture, never 0.
  Capture(Context& context, CudaStream& origin, int64_t number);

  int64_t number() const { return number_; }
  const CudaStream& origin() const { return *streams_[0]; }
  // `stream` waits for an event of the capture: from here on it is part of it.
  void Join(CudaStream& stream);
  void set_fixed(bool fixed) { is_fixed_ = fixed; }
  // Notes a call on `stream` just made, unless it is fixed; node.node is found here.
  void Add(CudaStream& stream, GraphNode node);
  // Notes a call that no update can compare.
  void AddUnknown();
  void Fail(const Status& status);
  void Leave(CudaStream& stream);

  Status Begin();
  Result<std::unique_ptr<Graph>> End();

 private:
  Result<CUgraphNode> LastNode(const CudaStream& stream) const;

  Context& context_;
  std::vector<CudaStream*> streams_;  // The origin first.
  const int64_t number_;
  bool is_fixed_ = false;
  std::vector<GraphNode> nodes_;
  Status failure_;
};

}  // namespace hir::device::cuda
