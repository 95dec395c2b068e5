#include "tests/property/interpreted_library.h"

#include <cstring>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/builder.h"

namespace hir::testing {
namespace {

using Tensors = std::vector<host::LibraryTensor>;

// A description, whatever it is of.
struct Described {
  Tensors inputs;
  Tensors outputs;
  std::vector<std::unique_ptr<ir::Graph>> graphs;  // One an output.
};

// `f(a, b...) = op(a, b...) {attrs}`; axes of stride 0 are stored once.
std::unique_ptr<ir::Graph> GraphOf(std::string_view name, const Tensors& inputs, std::span<const ir::Attr> attrs) {
  auto graph = std::make_unique<ir::Graph>(fusion::kFusionOps, "library");
  std::vector<ir::Value*> operands;
  for (const host::LibraryTensor& input : inputs) {
    std::vector<ir::Axis> axes;
    for (size_t i = 0; i < input.shape.size(); ++i) {
      const bool once = input.strides[i] == 0 && input.shape[i] > 1;
      axes.push_back(
          {once ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration, graph->exprs().Const(input.shape[i])});
    }
    operands.push_back(graph->AddParam("", graph->Tensor(input.dtype, axes)));
  }
  ir::Builder builder(*graph);
  const auto op = builder.Add({.name = name, .operands = operands, .attrs = attrs});
  HIR_CHECK(op.ok());
  graph->outputs.push_back({(*op)->results[0], nullptr});
  return graph;
}

Described OneOutput(const Tensors& inputs, const host::LibraryTensor& output, std::unique_ptr<ir::Graph> graph) {
  Described described = {.inputs = inputs, .outputs = {output}, .graphs = {}};
  described.graphs.push_back(std::move(graph));
  return described;
}

Described Describe(const host::ProductDesc& desc) {
  const ir::Attr attrs[] = {{"epilogue", std::string_view(desc.epilogue)}};
  return OneOutput(desc.inputs, desc.output, GraphOf(desc.op, desc.inputs, attrs));
}

Described Describe(const host::IndexSumDesc& desc) {
  const Tensors inputs = {desc.updates, desc.indices};
  const ir::Attr attrs[] = {{"axis", desc.axis}, {"size", desc.output.shape.at(static_cast<size_t>(desc.axis))}};
  return OneOutput(inputs, desc.output, GraphOf("index_sum", inputs, attrs));
}

Described Describe(const host::GroupedProductDesc& desc) {
  const Tensors inputs = {desc.a, desc.b, desc.ends};
  std::vector<int64_t> offset(desc.outer ? 4 : 3, 0);
  (desc.outer ? offset.back() : offset.front()) = desc.first;
  const ir::Attr attrs[] = {{"offset", std::span<const int64_t>(offset)}};
  return OneOutput(inputs, desc.output, GraphOf(desc.outer ? "grouped_outer" : "grouped_matmul", inputs, attrs));
}

Described Describe(const host::AttentionDesc& desc) {
  Described described = {.inputs = desc.inputs, .outputs = desc.outputs, .graphs = {}};
  const bool is_gradient = desc.inputs.size() >= 6;
  for (size_t i = 0; i < desc.results.size(); ++i) {
    // Zeros, and at the queries of the result the diagonal; of keys, which are counted down by it.
    const std::string& result = desc.results[i];
    std::vector<int64_t> offset(desc.outputs[i].shape.size() + (is_gradient ? 1 : 0), 0);
    const size_t rank = offset.size();
    if (result == "k" || result == "v") {
      offset[rank - 1] = desc.diagonal;
    } else {
      offset[result == "lse" ? rank - 1 : result == "q" ? rank - 3 : rank - 2] = desc.diagonal;
    }
    const ir::Attr attrs[] = {{"result", std::string_view(result)},
                              {"causal", desc.causal},
                              {"offset", std::span<const int64_t>(offset)},
                              {"scale", desc.scale}};
    described.graphs.push_back(GraphOf(is_gradient ? "attention_grad" : "attention", desc.inputs, attrs));
  }
  return described;
}

// Calls `visit(dense, at, bytes)` for every element of `shape`: where it lies, in bytes, in a tensor without gaps and
// in `tensor`.
template <typename Visit>
void ForEachElement(const host::LibraryTensor& tensor, const std::vector<int64_t>& shape, const Visit& visit) {
  const int64_t bytes = DTypeBytes(tensor.dtype);
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t rest = i, at = 0;
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) at += rest % shape[axis] * tensor.strides[axis];
    visit(i * bytes, at * bytes, static_cast<size_t>(bytes));
  }
}

class InterpretedCall final : public host::LibraryCall {
 public:
  explicit InterpretedCall(const host::LibraryDesc& desc)
      : desc_(std::visit([](const auto& wanted) { return Describe(wanted); }, desc)) {}

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    std::vector<device::Buffer> buffers(inputs.begin(), inputs.end());
    std::vector<device::Buffer> written(outputs.begin(), outputs.end());
    stream.HostCallback([this, buffers, written]() -> Status {
      std::vector<fusion::HostTensor> tensors;
      for (size_t i = 0; i < buffers.size(); ++i) {
        fusion::HostTensor stored{.dtype = desc_.inputs[i].dtype, .shape = {}, .bytes = {}};
        for (size_t axis = 0; axis < desc_.inputs[i].shape.size(); ++axis) {
          const int64_t extent = desc_.inputs[i].shape[axis];
          stored.shape.push_back(desc_.inputs[i].strides[axis] == 0 && extent > 1 ? 1 : extent);
        }
        stored.bytes.resize(static_cast<size_t>(stored.num_elements() * DTypeBytes(stored.dtype)));
        ForEachElement(desc_.inputs[i], stored.shape, [&](int64_t dense, int64_t at, size_t bytes) {
          std::memcpy(stored.bytes.data() + dense, buffers[i].data + at, bytes);
        });
        tensors.push_back(fusion::WrittenOut(stored, desc_.inputs[i].shape));
      }
      for (size_t k = 0; k < written.size(); ++k) {
        HIR_ASSIGN(const auto results, fusion::Interpret(*desc_.graphs[k], tensors));
        ForEachElement(desc_.outputs[k], desc_.outputs[k].shape, [&](int64_t dense, int64_t at, size_t bytes) {
          std::memcpy(written[k].data + at, results[0].bytes.data() + dense, bytes);
        });
      }
      return {};
    });
  }

 private:
  const Described desc_;
};

}  // namespace

Result<std::unique_ptr<host::LibraryCall>> InterpretedLibrary::Make(const host::LibraryDesc& desc) {
  return std::unique_ptr<host::LibraryCall>(std::make_unique<InterpretedCall>(desc));
}

}  // namespace hir::testing
