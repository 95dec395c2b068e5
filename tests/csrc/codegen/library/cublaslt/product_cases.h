// Matmuls and linears for tests of libraries on devices: random ones, and the interpreter's answers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/library.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::library {

using Bytes = std::vector<std::byte>;

struct Operand {
  std::vector<int64_t> shape = {};
  std::vector<bool> once = {};  // Axes that are stored once; missing ones are not.
  bool IsOnce(size_t axis) const { return axis < once.size() && once[axis]; }
};

struct Case {
  std::string op = "matmul";
  DType dtype = DType::kFloat32;
  std::vector<Operand> operands = {};
  Epilogue epilogue = Epilogue::kNone;
  bool tf32 = false;

  std::string Text() const {
    std::string params, names;
    for (size_t i = 0; i < operands.size(); ++i) {
      std::string axes;
      for (size_t k = 0; k < operands[i].shape.size(); ++k)
        base::Append(axes, k > 0 ? ", " : "", operands[i].IsOnce(k) ? "b:" : "", operands[i].shape[k]);
      base::Append(params, i > 0 ? ", %x" : "%x", i, ": ", DTypeName(dtype), "[", axes, "]");
      base::Append(names, i > 0 ? ", %x" : "%x", i);
    }
    return base::Cat("fusion @f(", params, ") {\n  %y = ", op, "(", names, ") {epilogue=", EpilogueName(epilogue),
                     ", precision=", tf32 ? "tf32" : "full", "}\n  return %y\n}\n");
  }
};

// Runs one call: the result's bytes.
using Runner = std::function<Result<Bytes>(const ProductDesc&, const std::vector<Bytes>&, int64_t bytes)>;

inline Tensor Described(const ir::Type& type) {
  Tensor tensor = {type.dtype, {}, {}};
  const std::vector<ir::Axis> axes = ir::ValueAxes(type);
  int64_t stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const bool once = axes[i].kind == ir::AxisKind::kBroadcast;
    tensor.shape.insert(tensor.shape.begin(), axes[i].extent->value);
    tensor.strides.insert(tensor.strides.begin(), once ? 0 : stride);
    if (!once) stride *= axes[i].extent->value;
  }
  return tensor;
}

// `scale`: of the tolerance; 1 where sums are carried in float32 or wider.
inline void CheckCase(const Case& c, base::Prng& prng, const Runner& run, double scale = 1) {
  SCOPED_TRACE(c.Text());
  const auto graph = ir::Parse(c.Text(), fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<fusion::HostTensor> inputs;
  std::vector<Bytes> stored;
  ProductDesc desc = {
      .op = c.op, .output = Described(*(*graph)->outputs[0].value->type), .epilogue = c.epilogue, .tf32 = c.tf32};
  int64_t k = 1;
  for (const ir::Value* param : (*graph)->params) {
    desc.inputs.push_back(Described(*param->type));
    std::vector<int64_t> shape = desc.inputs.back().shape;
    if (desc.inputs.size() == 1) k = shape.back();
    for (size_t i = 0; i < shape.size(); ++i) {
      if (c.operands[desc.inputs.size() - 1].IsOnce(i)) shape[i] = 1;
    }
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = 2 * prng.Unit() - 1;
    const fusion::HostTensor tensor = fusion::TensorOf(c.dtype, shape, values);
    stored.push_back(tensor.bytes);
    inputs.push_back(fusion::WrittenOut(tensor, desc.inputs.back().shape));
  }
  const auto want = fusion::Interpret(**graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status().ToString();
  fusion::HostTensor got = (*want)[0];
  Result<Bytes> result = run(desc, stored, static_cast<int64_t>(got.bytes.size()));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  got.bytes = *result;
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles((*want)[0]);
  const double unit = c.dtype == DType::kFloat64    ? 1e-14
                      : c.dtype == DType::kFloat32  ? 2e-6
                      : c.dtype == DType::kBFloat16 ? 8e-3
                                                    : 1e-3;
  int faults = 0;
  for (size_t i = 0; i < a.size() && faults < 4; ++i) {
    const double tolerance = scale * unit * (std::fabs(b[i]) + std::sqrt(static_cast<double>(k + 1)));
    if (std::fabs(a[i] - b[i]) <= tolerance) continue;
    ++faults;
    ADD_FAILURE() << "element " << i << " is " << a[i] << ", not " << b[i];
  }
}

constexpr DType kFloats[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// Every rank, batches shared and not, axes stored once, empty axes, biases.
inline Case RandomCase(base::Prng& prng, int64_t extent_max) {
  const auto extent = [&] { return prng.OneIn(6) ? 1 : prng.Between(1, extent_max); };
  Case c = {prng.OneIn(3) ? "linear" : "matmul", kFloats[prng.Below(4)], {}};
  const int64_t m = extent(), n = extent(), k = prng.OneIn(20) ? 0 : extent();
  std::vector<int64_t> batch;
  for (int64_t i = prng.Below(4); i > 0; --i) batch.push_back(prng.Between(1, 4));
  constexpr Epilogue kEpilogues[] = {Epilogue::kRelu, Epilogue::kTanhGelu, Epilogue::kGelu};
  const Epilogue epilogue = kEpilogues[prng.Below(3)];
  if (prng.OneIn(2) && HasEpilogue(Provider::kCublasLt, epilogue, c.dtype)) c.epilogue = epilogue;
  const auto operand = [&](bool batched, std::vector<int64_t> last) {
    Operand made;
    const auto skip = batched ? prng.Below(std::ssize(batch) + 1) : std::ssize(batch);
    for (auto i = skip; i < std::ssize(batch); ++i)
      made.shape.push_back(prng.OneIn(4) ? 1 : batch[static_cast<size_t>(i)]);
    made.shape.insert(made.shape.end(), last.begin(), last.end());
    for (const int64_t e : made.shape) made.once.push_back(e > 0 && prng.OneIn(8));
    return made;
  };
  if (c.op == "linear") {
    Operand x = operand(true, {k});
    if (prng.OneIn(10) && !x.shape.empty() && x.shape.size() > 1) x = {{0, k}, {}};
    c.operands = {x, operand(false, {n, k})};
    if (prng.OneIn(2)) c.operands.push_back(operand(false, {n}));
    return c;
  }
  const bool row = prng.OneIn(10), column = prng.OneIn(10);
  c.operands = {row ? operand(false, {k}) : operand(true, {m, k}),
                column ? operand(false, {k}) : operand(true, {k, n})};
  if (c.operands[1].shape.size() == 2 && prng.OneIn(2)) c.operands.push_back(operand(false, {n}));
  return c;
}

}  // namespace hir::codegen::library
