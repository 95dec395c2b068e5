// Programs from text through the interpreter, with inputs and outputs as plain numbers.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"

namespace hir::fusion {

using Shape = std::vector<int64_t>;
using Numbers = std::vector<double>;

inline HostTensor Tensor(DType dtype, Shape shape, const Numbers& values) {
  return TensorOf(dtype, std::move(shape), values);
}
inline HostTensor F64(Shape shape, const Numbers& values) {
  return TensorOf(DType::kFloat64, std::move(shape), values);
}
inline HostTensor F32(Shape shape, const Numbers& values) {
  return TensorOf(DType::kFloat32, std::move(shape), values);
}
inline HostTensor I64(Shape shape, const std::vector<int64_t>& values) {
  return TensorOfInts(DType::kInt64, std::move(shape), values);
}
inline HostTensor I32(Shape shape, const std::vector<int64_t>& values) {
  return TensorOfInts(DType::kInt32, std::move(shape), values);
}
inline HostTensor Bools(Shape shape, const std::vector<int64_t>& values) {
  return TensorOfInts(DType::kBool, std::move(shape), values);
}
// 0, 1, 2, ...
inline HostTensor Counting(DType dtype, Shape shape) {
  HostTensor tensor = ZeroTensor(dtype, shape);
  std::vector<int64_t> values(static_cast<size_t>(tensor.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
  return TensorOfInts(dtype, std::move(shape), values);
}

// The text of a program: Program("%x: f32[3]", "%y = neg(%x)", "%y").
inline std::string Program(std::string_view params, std::string_view body, std::string_view outputs = "%y") {
  return std::string("fusion @f(") + std::string(params) + ") {\n  " + std::string(body) + "\n  return " +
         std::string(outputs) + "\n}\n";
}

// The first output, or a failure of the test and nothing.
inline HostTensor Execute(const std::string& text, const std::vector<HostTensor>& inputs) {
  const auto graph = ir::Parse(text, kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString() << "\n" << text;
  if (!graph.ok()) return {};
  const auto outputs = Interpret(**graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString() << "\n" << ir::Print(**graph);
  if (!outputs.ok()) return {};
  return (*outputs)[0];
}

// The inferred type of %y, or the error.
inline std::string TypeOfY(std::string_view params, std::string_view body) {
  const auto graph = ir::Parse(Program(params, body), kFusionOps);
  if (!graph.ok()) return graph.status().ToString();
  return ir::ToString(*(*graph)->outputs[0].value->type);
}

inline std::string TypeName(const HostTensor& tensor) {
  std::string text(DTypeName(tensor.dtype));
  text += '[';
  for (size_t i = 0; i < tensor.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  return text + "]";
}

}  // namespace hir::fusion
