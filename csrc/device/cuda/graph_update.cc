#include "csrc/device/cuda/graph_update.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "csrc/base/text.h"
#include "csrc/device/cuda/cuda_stream.h"

namespace hir::device::cuda {

using base::Cat;

namespace {

// CUgraphEdgeData, which came with CUDA 12.3.
struct EdgeData {
  uint8_t from_port = 0, to_port = 0, type = 0, reserved[5] = {};
};
// The later kernel may start before the earlier one has ended: CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.
constexpr uint8_t kProgrammatic = 1;

std::string_view NodeKind(CUgraphNodeType type) {
  switch (static_cast<int>(type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY: return "copy";
    case CU_GRAPH_NODE_TYPE_MEMSET: return "fill";
    case CU_GRAPH_NODE_TYPE_HOST: return "host function";
    case CU_GRAPH_NODE_TYPE_EMPTY: return "empty";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "event wait";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return "event record";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "word";
    default: return "other";
  }
}

}  // namespace

GraphNode CopyNode(Buffer dst, Buffer src) {
  const bool nothing = dst.data == src.data || dst.bytes == 0;
  if (nothing) return {};
  return {.kind = GraphNode::Kind::kCopy, .dst = dst, .src = src};
}

GraphNode FillNode(Buffer dst, uint64_t pattern, int pattern_bytes) {
  if (dst.bytes == 0) return {};
  GraphNode node = {.kind = GraphNode::Kind::kFill, .dst = dst, .pattern = pattern, .pattern_bytes = pattern_bytes};
  if (pattern_bytes < 8) {
    node.pattern &= (uint64_t{1} << (8 * pattern_bytes)) - 1;
  } else if (dst.bytes == 8) {
    node.kind = GraphNode::Kind::kWriteWord;  // In one piece: somebody may be looking.
  } else if (pattern >> 32 == (pattern & 0xffffffff)) {
    node.pattern = pattern & 0xffffffff;
    node.pattern_bytes = 4;
  } else {
    node.kind = GraphNode::Kind::kFillPairs;
  }
  return node;
}

void* ArgumentBlock(const CudaKernel& kernel, std::span<const int64_t> args, int64_t* block) {
  const auto slots = static_cast<size_t>(kernel.info().num_slots);
  HIR_CHECK(args.size() <= slots);
  std::fill(std::copy(args.begin(), args.end(), block), block + slots, 0);
  return block;
}

void GraphUpdater::Begin() {
  next_ = 0;
  failure_ = {};
}

Status GraphUpdater::End() {
  if (failure_.ok() && next_ != graph_.nodes_.size()) Fail("less work than was captured");
  return failure_;
}

void GraphUpdater::Fail(std::string_view what) {
  if (failure_.ok()) failure_ = {Code::kFailedPrecondition, Cat(graph_.context_.name(), " graph: ", what)};
}

bool GraphUpdater::Patched(CUresult result, std::string_view call) {
  if (result != CUDA_SUCCESS) Fail(Cat(call, ": ", graph_.context_.driver().Describe(result)));
  return result == CUDA_SUCCESS;
}

GraphNode* GraphUpdater::Next(GraphNode::Kind kind) {
  if (!failure_.ok()) return nullptr;
  if (next_ == graph_.nodes_.size()) {
    Fail("more work than was captured");
    return nullptr;
  }
  GraphNode& node = graph_.nodes_[next_++];
  if (node.kind == kind) return &node;
  Fail(Cat("call ", next_ - 1, " is another than was captured"));
  return nullptr;
}

void GraphUpdater::Launch(const Kernel& kernel, std::span<const int64_t> args, int64_t grid) {
  const auto& cuda = static_cast<const CudaKernel&>(kernel);
  GraphNode* const node = Next(grid > 0 ? GraphNode::Kind::kKernel : GraphNode::Kind::kNothing);
  if (node == nullptr || grid == 0) return;
  if (node->kernel != &cuda) return Fail(Cat("kernel ", cuda.name(), " where ", node->kernel->name(), " was captured"));
  if (node->grid == grid && std::ranges::equal(node->args, args)) return;
  if (cuda.NumCtas(grid) > INT32_MAX) return Fail(Cat("kernel ", cuda.name(), ": a grid of ", grid, " CTAs"));
  std::array<int64_t, kSlotsMax> block;  // NOLINT: filled where it is used.
  void* parameters[] = {ArgumentBlock(cuda, args, block.data())};
  CUDA_KERNEL_NODE_PARAMS_v2 changed = {};
  changed.func = cuda.function();
  changed.gridDimX = static_cast<unsigned>(cuda.NumCtas(grid));
  changed.gridDimY = changed.gridDimZ = 1;
  changed.blockDimX = static_cast<unsigned>(cuda.info().threads);
  changed.blockDimY = changed.blockDimZ = 1;
  changed.sharedMemBytes = static_cast<unsigned>(cuda.info().shared_bytes);
  changed.kernelParams = parameters;
  graph_.context_.Enter();
  // What a node does is noted once it does: a change that failed is tried again by the next update.
  if (!Patched(graph_.context_.driver().GraphExecKernelNodeSetParams(graph_.exec_, node->node, &changed), cuda.name()))
    return;
  node->grid = grid;
  node->args.assign(args.begin(), args.end());
}

void GraphUpdater::Copy(Buffer dst, Buffer src) {
  const GraphNode wanted = CopyNode(dst, src);
  GraphNode* const node = Next(wanted.kind);
  if (node == nullptr || (node->dst == dst && node->src == src) || wanted.kind == GraphNode::Kind::kNothing) return;
  CUDA_MEMCPY3D changed = {};
  changed.srcMemoryType = changed.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  changed.srcDevice = Address(src.data);
  changed.dstDevice = Address(dst.data);
  changed.srcPitch = changed.dstPitch = changed.WidthInBytes = static_cast<size_t>(dst.bytes);
  changed.srcHeight = changed.dstHeight = changed.Height = 1;
  changed.Depth = 1;
  const Context& context = graph_.context_;
  context.Enter();
  if (!Patched(context.driver().GraphExecMemcpyNodeSetParams(graph_.exec_, node->node, &changed, context.handle()),
               "copy"))
    return;
  node->dst = dst;
  node->src = src;
}

void GraphUpdater::Fill(Buffer dst, uint64_t pattern, int pattern_bytes) {
  GraphNode wanted = FillNode(dst, pattern, pattern_bytes);
  GraphNode* const node = Next(wanted.kind);
  if (node == nullptr) return;
  wanted.node = node->node;
  if (wanted == *node) return;
  const Context& context = graph_.context_;
  context.Enter();
  bool patched = false;
  if (wanted.kind == GraphNode::Kind::kFillPairs) return Fail("a fill by pairs of words, which cannot be changed");
  if (wanted.kind == GraphNode::Kind::kWriteWord) {
    CUstreamBatchMemOpParams write = {};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write.writeValue.address = Address(dst.data);
    write.writeValue.value64 = pattern;
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 changed = {};
    changed.ctx = context.handle();
    changed.count = 1;
    changed.paramArray = &write;
    patched = Patched(context.driver().GraphExecBatchMemOpNodeSetParams(graph_.exec_, node->node, &changed), "write");
  } else {
    CUDA_MEMSET_NODE_PARAMS_v1 changed = {};
    changed.dst = Address(dst.data);
    changed.value = static_cast<unsigned>(wanted.pattern);
    changed.elementSize = static_cast<unsigned>(wanted.pattern_bytes);
    changed.width = static_cast<size_t>(dst.bytes / wanted.pattern_bytes);
    changed.height = 1;
    patched = Patched(
        context.driver().GraphExecMemsetNodeSetParams(graph_.exec_, node->node, &changed, context.handle()), "fill");
  }
  if (patched) *node = std::move(wanted);
}

void GraphUpdater::Enqueue(AsyncOp& op) {
  Fail("an operation that the host completes");
  op.Skip(failure_);
}

void GraphUpdater::HostCallback(std::function<Status()>) { Fail("a host callback"); }

CudaGraph::~CudaGraph() {
  context_.Enter();
  context_.driver().GraphExecDestroy(exec_);
  context_.driver().GraphDestroy(graph_);
}

void CudaGraph::Launch(Stream& stream) { static_cast<CudaStream&>(stream).Launch(exec_); }

std::string CudaGraph::Describe() const {
  context_.Enter();
  const Driver& driver = context_.driver();
  size_t count = 0;
  std::vector<CUgraphNode> nodes;
  CUresult result = driver.GraphGetNodes(graph_, nullptr, &count);
  if (result == CUDA_SUCCESS) {
    nodes.resize(count);
    result = driver.GraphGetNodes(graph_, nodes.data(), &count);
  }
  std::map<std::string_view, int64_t> kinds;
  for (size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    result = driver.GraphNodeGetType(nodes[i], &type);
    ++kinds[NodeKind(type)];
  }
  if (result != CUDA_SUCCESS) return driver.Describe(result);
  std::vector<std::string> parts;
  for (const auto& [kind, number] : kinds) parts.push_back(Cat(number, " ", kind));
  std::string text = Cat(nodes.size(), " nodes (", base::Join(parts, ", "), ")");
  if (driver.GraphGetEdges == nullptr) return text;
  result = driver.GraphGetEdges(graph_, nullptr, nullptr, nullptr, &count);
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<EdgeData> data(count);
  if (result == CUDA_SUCCESS && count > 0)
    result = driver.GraphGetEdges(graph_, from.data(), to.data(), data.data(), &count);
  if (result != CUDA_SUCCESS) return Cat(text, ", edges: ", driver.Describe(result));
  const auto early =
      std::count_if(data.begin(), data.end(), [](const EdgeData& edge) { return edge.type == kProgrammatic; });
  return Cat(text, ", ", count, " edges, ", early, " of them programmatic");
}

}  // namespace hir::device::cuda
