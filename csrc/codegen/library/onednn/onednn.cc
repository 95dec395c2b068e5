// Products by oneDNN: float32 and bfloat16, and the blocks of attention's and of groups of rows. What it does not take
// goes to the loops.
//
// oneDNN runs on OpenMP threads; how many is a setting of the calling thread, made before a primitive is
// created and before
// it runs, so that ranks that share a machine do not take each other's cores.
#include "csrc/codegen/library/onednn/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/codegen/library/attention.h"
#include "csrc/codegen/library/grouped_product.h"
#include "csrc/codegen/library/problem.h"

namespace hir::codegen::library {
namespace {

using Dims = dnnl::memory::dims;

// Through the dynamic linker: the library was linked with OpenMP, we were not.
void SetThreads(int count) {
  using Fn = void (*)(int);
  static const auto set = reinterpret_cast<Fn>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(count);
}

dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// relu is the elu of slope 0, plus 0: oneDNN's own makes 0 of NaN, and elu's zeros are negative.
dnnl::primitive_attr AttributesOf(Epilogue epilogue) {
  using enum dnnl::algorithm;
  dnnl::post_ops operations;
  const auto add = [&](dnnl::algorithm algorithm, float alpha) {
    operations.append_eltwise(1.0F, algorithm, alpha, 0.0F);
  };
  switch (epilogue) {
    case Epilogue::kNone: break;
    case Epilogue::kGelu: add(eltwise_gelu_erf, 0); break;
    case Epilogue::kRelu:
      add(eltwise_elu, 0);
      add(eltwise_linear, 1);
      break;
    case Epilogue::kTanhGelu: add(eltwise_gelu_tanh, 0); break;
  }
  dnnl::primitive_attr attributes;
  if (epilogue != Epilogue::kNone) attributes.set_post_ops(operations);
  return attributes;
}

// Axes of a matrix that is stored once along one of them are no strides that oneDNN knows.
bool Fits(const Problem& p) {
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kBFloat16) return false;
  if (p.batches.size() > 8) return false;
  const auto fits = [](int64_t extent, int64_t stride) { return extent == 1 || stride > 0; };
  // One axis of each matrix is contiguous: anything else is slow there or refused.
  const auto dense = [](int64_t rows, int64_t row, int64_t columns, int64_t column) {
    return (columns == 1 || column == 1) || (rows == 1 || row == 1);
  };
  return fits(p.m, p.a_m) && fits(p.k, p.a_k) && fits(p.k, p.b_k) && fits(p.n, p.b_n) &&
         (!p.bias || fits(p.n, p.bias_n)) && (p.n == 1 || p.c_n == 1) && dense(p.m, p.a_m, p.k, p.a_k) &&
         dense(p.k, p.b_k, p.n, p.b_n);
}

class OneDnn final : public Call {
 public:
  OneDnn(const Problem& p, int num_threads)
      : num_threads_(num_threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const auto type = TypeOf(p.dtype);
    Dims a, b, c, bias, a_stride, b_stride, c_stride, bias_stride;
    for (const Batch& batch : p.batches) {
      // An operand that all of a batch share has extent 1 there.
      a.push_back(batch.a == 0 ? 1 : batch.extent);
      b.push_back(batch.b == 0 ? 1 : batch.extent);
      c.push_back(batch.extent);
      bias.push_back(1);
      a_stride.push_back(batch.a == 0 ? 1 : batch.a);
      b_stride.push_back(batch.b == 0 ? 1 : batch.b);
      c_stride.push_back(batch.c);
      bias_stride.push_back(p.n);
    }
    const auto add = [](Dims& dims, Dims& strides, int64_t rows, int64_t row, int64_t columns, int64_t column) {
      dims.insert(dims.end(), {rows, columns});
      // A stride along an axis of extent 1 means nothing, but must not look wrong.
      strides.insert(strides.end(),
                     {rows == 1 ? std::max<int64_t>(columns * column, columns) : row, columns == 1 ? 1 : column});
    };
    add(a, a_stride, p.m, p.a_m, p.k, p.a_k);
    add(b, b_stride, p.k, p.b_k, p.n, p.b_n);
    add(c, c_stride, p.m, p.c_m, p.n, p.c_n);
    const dnnl::memory::desc a_desc(a, type, a_stride), b_desc(b, type, b_stride), c_desc(c, type, c_stride);
    SetThreads(num_threads_);
    const dnnl::primitive_attr attributes = AttributesOf(p.epilogue);
    dnnl::matmul::primitive_desc description;
    if (p.bias) {
      bias.insert(bias.end(), {1, p.n});
      bias_stride.insert(bias_stride.end(), {p.n, 1});
      const dnnl::memory::desc bias_desc(bias, type, bias_stride);
      description = dnnl::matmul::primitive_desc({a_desc, b_desc, bias_desc, c_desc}, attributes, engine_);
      bias_ = dnnl::memory(bias_desc, engine_, nullptr);
    } else {
      description = dnnl::matmul::primitive_desc({a_desc, b_desc, c_desc}, attributes, engine_);
    }
    implementation_ = base::Cat("onednn (", description.impl_info_str(), ")");
    primitive_ = dnnl::matmul(description);
    a_ = dnnl::memory(a_desc, engine_, nullptr);
    b_ = dnnl::memory(b_desc, engine_, nullptr);
    c_ = dnnl::memory(c_desc, engine_, nullptr);
    arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}};
    if (p.bias) arguments_.emplace(DNNL_ARG_BIAS, bias_);
  }

  void Run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) override {
    SetThreads(num_threads_);
    a_.set_data_handle(const_cast<std::byte*>(inputs[0]));
    b_.set_data_handle(const_cast<std::byte*>(inputs[1]));
    if (bias_) bias_.set_data_handle(const_cast<std::byte*>(inputs[2]));
    c_.set_data_handle(outputs[0]);
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }
  std::string implementation() const override { return implementation_; }

 private:
  const int num_threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  dnnl::memory a_, b_, c_, bias_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::string implementation_;
};

void ProductOfBlocks(int64_t m, int64_t n, int64_t k, const Block<float>& a, const Block<float>& b, bool add, float* c,
                     int64_t c_next_row) {
  SetThreads(1);
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0F, a.at,
                                          a.next_row, b.at, b.next_row, add ? 1.0F : 0.0F, c, c_next_row);
  if (status != dnnl_success) LoopProduct(m, n, k, a, b, add, c, c_next_row);
}

}  // namespace

Result<std::unique_ptr<Call>> Make(const ProductDesc& desc, const Options& options) {
  HIR_ASSIGN(const Problem problem, Normalize(desc));
  int64_t elements = problem.m * problem.n;
  for (const Batch& batch : problem.batches) elements *= batch.extent;
  if (elements > 0 && problem.k > 0 && Fits(problem)) {
    try {
      return std::unique_ptr<Call>(std::make_unique<OneDnn>(problem, options.num_threads));
    } catch (const dnnl::error&) {
      // Not this type on this CPU (bfloat16 needs AVX-512), or not these strides.
    }
  }
  return MakeLoops(problem);
}

Result<std::unique_ptr<Call>> MakeAttention(const AttentionDesc& desc, base::WorkPool& pool) {
  return MakeAttention(desc, pool, ProductOfBlocks, "onednn sgemm");
}

Result<std::unique_ptr<Call>> MakeGroupedProduct(const GroupedProductDesc& desc, base::WorkPool& pool) {
  return MakeGroupedProduct(desc, pool, ProductOfBlocks, "onednn sgemm");
}

}  // namespace hir::codegen::library
