// Before: fusion @f(%x: f32[i0, 4]) { %y: f32[i0, 4] = neg(%x)  return %y }, %x and %y with stride_order(0, 1)
// After:  fusion @f(%x: f32[4, i0]) {
//           %x.axes: f32[i0, 4] = permute(%x) {dims=[1, 0]}
//           %y: f32[i0, 4] = neg(%x.axes)
//           %y.memory: f32[4, i0] = permute(%y) {dims=[1, 0]}
//           return %y.memory
//         }
//
// Each rank's part is permuted, so that shardings, which are of axes, need no word about memory. Kernels read and write
// through permutes at their own indices, and library calls by strides.
#include "host_ir/pipeline/memory_orders.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"
#include "multidevice/plan/emit_steps.h"

namespace hir::host {
namespace {

using base::Cat;
using ir::Value;

MemoryOrder OrderOf(const Value& value) {
  const auto rank = std::ssize(value.stride_order);
  MemoryOrder order(value.stride_order.size());
  for (int64_t axis = 0; axis < rank; ++axis)
    order[static_cast<size_t>(rank - 1 - value.stride_order[static_cast<size_t>(axis)])] = axis;
  return std::ranges::is_sorted(order) ? MemoryOrder() : order;
}

bool HaveOneShape(const Value& a, const Value& b) {
  return std::ranges::equal(ir::ValueAxes(*a.type), ir::ValueAxes(*b.type), {}, &ir::Axis::extent, &ir::Axis::extent);
}

std::string Text(const MemoryOrder& order) {
  return order.empty() ? "row-major" : Cat("with its axes in the order ", base::JoinInts(order, ", "));
}

Value* Permuted(ir::Graph& graph, ir::Op* position, Value* value, std::span<const int64_t> dims,
                std::string_view name) {
  ir::Builder builder(graph, graph.body, position);
  Value* const made = builder.Make("permute", {value}, {{"dims", dims}}, name);
  if (value->layout != nullptr) plan::PlaceOn(graph, *made, value->layout->mesh);  // Its stream axes are its own.
  return made;
}

// The axes of memory, as the axes of `value`.
MemoryOrder Inverse(const MemoryOrder& order) {
  MemoryOrder inverse(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    inverse[static_cast<size_t>(order[place])] = static_cast<int64_t>(place);
  return inverse;
}

// Gives parameter `index` its axes in the order of memory, and its readers a permute of it, which it returns.
Value* LayOutParam(const MemoryOrder& order, size_t index, ir::Graph& graph) {
  Value* const param = graph.params[index];
  std::vector<ir::Axis> axes;
  for (const int64_t axis : order) axes.push_back(param->type->axes[static_cast<size_t>(axis)]);
  Value* const stored = graph.AddParam("", graph.Tensor(param->type->dtype, axes));
  graph.params.pop_back();
  graph.params[index] = stored;
  stored->index = param->index;
  stored->layout = param->layout;
  const MemoryOrder dims = Inverse(order);
  Value* const made = Permuted(graph, graph.body.first, stored, dims, Cat(param->name, ".axes"));
  ir::ReplaceUses(graph, param, made);
  for (ir::Output& output : graph.outputs) {
    if (output.alias == param) output.alias = stored;
  }
  graph.TakeName(*stored, *param);
  return made;
}

}  // namespace

Result<MemoryOrders> MemoryOrdersOf(const ir::Graph& program) {
  MemoryOrders orders;
  for (const Value* param : program.params) orders.inputs.push_back(OrderOf(*param));
  for (const ir::Output& output : program.outputs) {
    MemoryOrder order = OrderOf(*output.value);
    if (output.alias != nullptr && HaveOneShape(*output.alias, *output.value)) {  // Else nothing of it is kept.
      const MemoryOrder& replaced = orders.inputs[static_cast<size_t>(output.alias->index)];
      if (output.value->stride_order.empty()) order = replaced;
      if (order != replaced) {
        return InvalidArgument(Cat("output %", output.value->name, ", ", Text(order), ", replaces input %",
                                   output.alias->name, ", ", Text(replaced),
                                   "; give both one stride_order, or return it without alias"));
      }
    }
    orders.outputs.push_back(std::move(order));
  }
  return orders;
}

Status LayOut(const MemoryOrders& orders, plan::LocalProgram& program) {
  ir::Graph& graph = *program.graph;
  std::vector<Value*> axes_of(orders.inputs.size());  // By input: what has its own axes; null: itself.
  for (size_t i = 0; i < orders.inputs.size(); ++i) {
    const MemoryOrder& order = orders.inputs[i];
    if (order.empty()) continue;
    axes_of[i] = LayOutParam(order, i, graph);
    program.inputs[i].memory_order = order;
    program.inputs[i].local = graph.params[i];
  }
  std::vector<std::pair<const Value*, size_t>> made;  // By value, the first output with it.
  for (size_t i = 0; i < orders.outputs.size(); ++i) {
    const MemoryOrder& order = orders.outputs[i];
    Value* const value = graph.outputs[i].value;
    program.outputs[i].local = value;
    if (order.empty()) continue;
    const auto known = std::ranges::find_if(
        made, [&](const auto& each) { return each.first == value && orders.outputs[each.second] == order; });
    Value* stored = nullptr;
    if (known != made.end()) {
      stored = graph.outputs[known->second].value;
    } else {
      // An input that is returned as it lies is itself; any other permute of one has other axes.
      const auto input = static_cast<size_t>(std::ranges::find(axes_of, value) - axes_of.begin());
      const bool is_input = input < axes_of.size() && orders.inputs[input] == order;
      stored = is_input ? graph.params[input] : Permuted(graph, nullptr, value, order, Cat(value->name, ".memory"));
      made.emplace_back(value, i);
    }
    graph.outputs[i].value = stored;
    program.outputs[i].memory_order = order;
    program.outputs[i].local = stored;
  }
  // Inputs that nothing reads need no permute.
  const std::vector<std::vector<ir::Op*>> uses = ir::UsesOf(graph);
  for (Value* axes : axes_of) {
    const auto is_axes = [axes](const ir::Output& output) { return output.value == axes; };
    if (axes == nullptr || !uses[static_cast<size_t>(axes->id)].empty()) continue;
    if (!std::ranges::any_of(graph.outputs, is_axes)) graph.body.Erase(axes->def);
  }
  return graph.exprs().status();
}

}  // namespace hir::host
