// Descriptors, algorithms and calls. How a product is described is gemm.cc's.
#include "csrc/codegen/library/cublaslt/cublaslt.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/cublaslt/api.h"
#include "csrc/codegen/library/cublaslt/gemm.h"
#include "csrc/codegen/library/queued/workspaces.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

constexpr size_t kAlgorithmsMax = 4096;  // Remembered; about 300 bytes each.
// Addresses of a pool are multiples of this; slices of tensors may be less aligned.
constexpr int64_t kUsualAlignment = device::kAlignmentBytes;
constexpr int64_t kVectorAlignment = 16;  // The widest access of a thread.

// What the library does behind the product; the rest is done before or after it.
struct Fused {
  bool bias = false;      // Else the result begins as the bias, and the product is added.
  bool epilogue = false;  // Else it is applied to what was written.
  bool operator==(const Fused&) const = default;
};

struct Algorithm {
  bool found = false;
  cublasLtMatmulAlgo_t algorithm = {};
  int64_t workspace_bytes = 0;
  Fused fused = {};
};

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue, bool bias) {
  switch (epilogue) {
    case Epilogue::kNone: return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kRelu: return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kTanhGelu: return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Epilogue::kGelu: break;
  }
  HIR_CHECK(false);  // The library has none.
  return CUBLASLT_EPILOGUE_DEFAULT;
}

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kFloat16) return CUDA_R_16F;
  if (dtype == DType::kBFloat16) return CUDA_R_16BF;
  return dtype == DType::kFloat64 ? CUDA_R_64F : CUDA_R_32F;
}

// What several calls share: the library, its handle, algorithms found, workspaces.
class Library {
 public:
  Library(device::Device& device, const CublasLtOptions& options, const Api& api, cublasLtHandle_t handle)
      : api(api), handle(handle), workspaces(device), options(options), device_(device) {}
  Library(const Library&) = delete;
  ~Library() {
    MakeCurrent();
    api.destroy(handle);
  }

  Status Check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    return Unavailable(Cat(call, ": ", api.status_name(status)));
  }
  void MakeCurrent() const { options.make_current(device_); }
  Result<CublasLtOptions::Activation> MakeActivation(Epilogue epilogue, DType dtype) const {
    if (options.make_activation != nullptr) return options.make_activation(epilogue, dtype);
    return Unimplemented(Cat("nothing applies ", EpilogueName(epilogue), " behind cuBLASLt"));
  }

  std::optional<Algorithm> Known(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    const auto found = algorithms_.find(key);
    return found == algorithms_.end() ? std::nullopt : std::optional(found->second);
  }
  void Remember(const std::string& key, const Algorithm& algorithm) {
    const std::scoped_lock lock(mutex_);
    if (algorithms_.size() >= kAlgorithmsMax) algorithms_.clear();
    algorithms_[key] = algorithm;
  }

  const Api api;
  const cublasLtHandle_t handle;
  Workspaces workspaces;
  const CublasLtOptions options;

 private:
  device::Device& device_;
  std::mutex mutex_;
  std::unordered_map<std::string, Algorithm> algorithms_;
};

// The descriptors of a Gemm.
class Descriptors {
 public:
  explicit Descriptors(const Library& library) : library_(library) {}
  Descriptors(const Descriptors&) = delete;
  ~Descriptors() {
    for (cublasLtMatrixLayout_t layout : {left, right, result}) {
      if (layout != nullptr) library_.api.layout_destroy(layout);
    }
    if (product != nullptr) library_.api.desc_destroy(product);
  }

  Status Make(const Gemm& gemm) {
    const bool wide = gemm.dtype == DType::kFloat64;
    const cublasComputeType_t compute = wide        ? CUBLAS_COMPUTE_64F
                                        : gemm.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                    : CUBLAS_COMPUTE_32F;
    HIR_TRY(library_.Check(library_.api.desc_create(&product, compute, wide ? CUDA_R_64F : CUDA_R_32F),
                           "cublasLtMatmulDescCreate"));
    HIR_TRY(SetTransposed(CUBLASLT_MATMUL_DESC_TRANSA, gemm.left));
    HIR_TRY(SetTransposed(CUBLASLT_MATMUL_DESC_TRANSB, gemm.right));
    HIR_TRY(MakeLayout(left, gemm.dtype, gemm.left, gemm.batches));
    HIR_TRY(MakeLayout(right, gemm.dtype, gemm.right, gemm.batches));
    return MakeLayout(result, gemm.dtype, gemm.result, gemm.batches);
  }

  template <typename T>
  Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return library_.Check(library_.api.desc_set(product, attribute, &value, sizeof(value)),
                          "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;

 private:
  Status SetTransposed(cublasLtMatmulDescAttributes_t attribute, const Matrix& matrix) {
    const cublasOperation_t operation = matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return Set(attribute, operation);
  }

  Status MakeLayout(cublasLtMatrixLayout_t& layout, DType dtype, const Matrix& matrix, int64_t batches) {
    HIR_TRY(library_.Check(library_.api.layout_create(&layout, TypeOf(dtype), static_cast<uint64_t>(matrix.rows),
                                                      static_cast<uint64_t>(matrix.columns), matrix.ld),
                           "cublasLtMatrixLayoutCreate"));
    if (batches == 1) return {};
    const auto count = static_cast<int32_t>(batches);
    HIR_TRY(SetLayout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count));
    return SetLayout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  }

  template <typename T>
  Status SetLayout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    return library_.Check(library_.api.layout_set(layout, attribute, &value, sizeof(value)),
                          "cublasLtMatrixLayoutSetAttribute");
  }

  const Library& library_;
};

// Copies of the first `bytes` bytes of `buffer` into the rest of it.
void RepeatIn(device::Stream& stream, device::Buffer buffer, int64_t bytes) {
  for (int64_t done = bytes; done < buffer.bytes;) {
    const int64_t more = std::min(done, buffer.bytes - done);
    stream.Copy(buffer.Slice(done, more), buffer.Slice(0, more));
    done += more;
  }
}

void Fail(device::Stream& stream, Status status) {
  stream.HostCallback([status = std::move(status)] { return status; });
}

// An empty result, or sums of nothing.
class FillCall final : public DeviceCall {
 public:
  // `activation`: of biases; null where the epilogue leaves the result as it is.
  FillCall(Gemm gemm, CublasLtOptions::Activation activation)
      : gemm_(std::move(gemm)), activation_(std::move(activation)) {}

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    if (gemm_.calls.empty()) return;
    const device::Buffer output = outputs[0];
    if (!gemm_.bias) return stream.Fill(output, 0, 1);  // Every epilogue leaves 0 as it is.
    const int64_t elements = gemm_.repeats.empty() ? gemm_.bias_elements : 1;
    const int64_t bytes = elements * DTypeBytes(gemm_.dtype);
    stream.Copy(output.Slice(0, bytes), inputs[2].Slice(0, bytes));
    RepeatIn(stream, output, bytes);
    if (activation_ == nullptr) return;
    const Status status = activation_(output, stream);
    if (!status.ok()) Fail(stream, status);
  }
  std::string implementation() const override { return gemm_.calls.empty() ? "nothing" : "fill"; }

 private:
  const Gemm gemm_;
  const CublasLtOptions::Activation activation_;
};

class GemmCall final : public DeviceCall {
 public:
  GemmCall(Library& library, Gemm gemm) : library_(library), gemm_(std::move(gemm)), descriptors_(library) {}

  Status Prepare() {
    library_.MakeCurrent();
    HIR_TRY(descriptors_.Make(gemm_));
    if (gemm_.bias) {
      const cudaDataType_t type = TypeOf(gemm_.dtype);
      HIR_TRY(descriptors_.Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
    }
    key_ = ToString(gemm_);
    HIR_ASSIGN(const Algorithm algorithm, AlgorithmFor(0));
    const int64_t size = DTypeBytes(gemm_.dtype);
    for (const Repeat& repeat : gemm_.repeats) {
      int64_t& bytes = repeated_bytes_[repeat.operand];
      bytes = repeat.span * repeat.count * size;
    }
    for (int64_t& bytes : repeated_bytes_) {
      bytes = (bytes + kUsualAlignment - 1) / kUsualAlignment * kUsualAlignment;
      scratch_bytes_ += bytes;
    }
    // The library's own part lies behind it.
    scratch_bytes_ = (scratch_bytes_ + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    const int64_t needed = scratch_bytes_ + algorithm.workspace_bytes;
    return needed == 0 ? Status() : library_.workspaces.Reserve(needed);
  }

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    const Status status = TryQueue(inputs, outputs[0], stream);
    if (!status.ok()) Fail(stream, status);
  }

  std::string implementation() const override {
    const size_t version = library_.api.version();
    return Cat("cublaslt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

 private:
  // The epilogue is part of what an algorithm is chosen for.
  Status Describe(Fused fused) {
    if (described_ == fused) return {};
    const cublasLtEpilogue_t epilogue =
        EpilogueOf(fused.epilogue ? gemm_.epilogue : Epilogue::kNone, gemm_.bias && fused.bias);
    HIR_TRY(descriptors_.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    described_ = fused;
    return {};
  }

  // For operands and results at multiples of `alignment` bytes; not found where the library has none.
  Result<Algorithm> Choose(int64_t alignment, Fused fused) {
    const std::string key =
        Cat(key_, fused.bias ? "" : ", bias first", fused.epilogue ? "" : ", epilogue after", ", aligned ", alignment);
    if (const std::optional<Algorithm> known = library_.Known(key)) return *known;
    HIR_TRY(Describe(fused));
    if (gemm_.bias && fused.bias) {
      // No preference says how the bias is aligned; the library looks at its address.
      const auto* const address = reinterpret_cast<const void*>(alignment);
      HIR_TRY(descriptors_.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address));
    }
    const Api& api = library_.api;
    cublasLtMatmulPreference_t preference = nullptr;
    HIR_TRY(library_.Check(api.preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
    const auto bytes = static_cast<size_t>(library_.options.workspace_bytes);
    const auto least = static_cast<uint32_t>(alignment);
    cublasStatus_t status =
        api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS) status = api.preference_set(preference, attribute, &least, sizeof(least));
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = api.heuristic(library_.handle, descriptors_.product, descriptors_.left, descriptors_.right,
                             descriptors_.result, descriptors_.result, preference, 1, &result, &found);
    }
    api.preference_destroy(preference);
    Algorithm algorithm;
    algorithm.found = status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (!algorithm.found && status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED &&
        status != CUBLAS_STATUS_INVALID_VALUE) {
      return library_.Check(status, "cublasLtMatmulAlgoGetHeuristic");
    }
    algorithm.algorithm = result.algo;
    algorithm.workspace_bytes = static_cast<int64_t>(result.workspaceSize);
    algorithm.fused = fused;
    library_.Remember(key, algorithm);
    return algorithm;
  }

  // The algorithm for these addresses: almost always the one made ready.
  Result<Algorithm> AlgorithmFor(uint64_t addresses) {
    const auto low = static_cast<int64_t>(addresses & (~addresses + 1));  // 0: all are 0.
    const int64_t alignment = low == 0 || low >= kUsualAlignment ? kUsualAlignment
                              : low >= kVectorAlignment          ? kVectorAlignment
                                                                 : DTypeBytes(gemm_.dtype);
    for (const auto& [known, algorithm] : algorithms_) {
      if (known == alignment) return algorithm;
    }
    HIR_ASSIGN(const Algorithm algorithm, ChooseFused(alignment));
    if (!algorithm.fused.epilogue && activation_ == nullptr) {
      HIR_ASSIGN(activation_, library_.MakeActivation(gemm_.epilogue, gemm_.dtype));
    }
    algorithms_.emplace_back(alignment, algorithm);
    return algorithm;
  }

  // With as much behind the product as the library has an algorithm for.
  Result<Algorithm> ChooseFused(int64_t alignment) {
    const bool bias = gemm_.bias, epilogue = gemm_.epilogue != Epilogue::kNone;
    const bool known = !epilogue || HasEpilogue(Provider::kCublasLt, gemm_.epilogue, gemm_.dtype);
    for (const Fused fused : {Fused{true, true}, {false, true}, {true, false}, {false, false}}) {
      // What there is none of counts as done; what the library does not know is not asked for.
      if ((!fused.bias && !bias) || (!fused.epilogue && !epilogue) || (fused.epilogue && !known)) continue;
      if (!fused.epilogue && library_.options.make_activation == nullptr) continue;
      if (gemm_.gaps && !(fused.bias && fused.epilogue)) continue;
      HIR_ASSIGN(const Algorithm algorithm, Choose(alignment, fused));
      if (algorithm.found) return algorithm;
    }
    return Unimplemented(Cat("cuBLASLt has no algorithm for ", key_, " at multiples of ", alignment, " bytes",
                             gemm_.gaps ? ", all in one, as the result has gaps" : ""));
  }

  Status TryQueue(std::span<const device::Buffer> inputs, device::Buffer output, device::Stream& stream) {
    library_.MakeCurrent();
    const int64_t size = DTypeBytes(gemm_.dtype);
    const std::byte* operands[3] = {inputs[0].data, inputs[1].data, gemm_.bias ? inputs[2].data : nullptr};
    uint64_t addresses = reinterpret_cast<uint64_t>(output.data);
    for (int i = 0; i < 3; ++i) {
      if (repeated_bytes_[i] == 0) addresses |= reinterpret_cast<uint64_t>(operands[i]);
    }
    for (const Offsets& at : gemm_.calls) addresses |= static_cast<uint64_t>((at.a | at.b | at.c) * size);
    HIR_ASSIGN(const Algorithm algorithm, AlgorithmFor(addresses));
    device::Buffer workspace;
    if (const int64_t bytes = scratch_bytes_ + algorithm.workspace_bytes; bytes > 0) {
      HIR_ASSIGN(workspace, library_.workspaces.For(stream, bytes));
    }
    WriteOut(inputs, operands, workspace, stream);
    HIR_TRY(Describe(algorithm.fused));
    if (!algorithm.fused.bias) {
      const int64_t bytes = gemm_.bias_elements * size;
      const device::Buffer bias = {const_cast<std::byte*>(operands[2]), bytes};
      stream.Copy(output.Slice(0, bytes), bias);
      RepeatIn(stream, output, bytes);
    } else if (gemm_.bias) {
      const void* const bias = operands[2];
      HIR_TRY(descriptors_.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    }
    for (const Offsets& at : gemm_.calls) {
      HIR_TRY(Multiply(operands[1] + at.b * size, operands[0] + at.a * size, output.data + at.c * size, algorithm,
                       workspace.bytes == 0 ? nullptr : workspace.data + scratch_bytes_, stream));
    }
    if (algorithm.fused.epilogue) return {};
    return activation_(output, stream);
  }

  // Operands that are stored once along an axis, as often as the axis is long.
  void WriteOut(std::span<const device::Buffer> inputs, const std::byte* (&operands)[3], device::Buffer workspace,
                device::Stream& stream) const {
    const int64_t size = DTypeBytes(gemm_.dtype);
    int64_t begins[3] = {0, repeated_bytes_[0], repeated_bytes_[0] + repeated_bytes_[1]};
    for (const Repeat& repeat : gemm_.repeats) {
      const int i = repeat.operand;
      const int64_t bytes = repeat.span * size;
      const device::Buffer all = workspace.Slice(begins[i], bytes * repeat.count);
      if (operands[i] != all.data)  // The first repetition of this operand.
        stream.Copy(all.Slice(0, bytes), inputs[static_cast<size_t>(i)].Slice(0, bytes));
      operands[i] = all.data;
      RepeatIn(stream, all, bytes);
    }
  }

  Status Multiply(const std::byte* left, const std::byte* right, std::byte* result, const Algorithm& algorithm,
                  std::byte* workspace, device::Stream& stream) {
    const float one = 1, plus = algorithm.fused.bias ? 0 : 1;
    const double wide_one = 1, wide_plus = plus;
    const bool wide = gemm_.dtype == DType::kFloat64;
    const void* const alpha = wide ? static_cast<const void*>(&wide_one) : &one;
    const void* const beta = wide ? static_cast<const void*>(&wide_plus) : &plus;
    return library_.Check(
        library_.api.matmul(library_.handle, descriptors_.product, alpha, left, descriptors_.left, right,
                            descriptors_.right, beta, result, descriptors_.result, result, descriptors_.result,
                            &algorithm.algorithm, workspace, static_cast<size_t>(algorithm.workspace_bytes),
                            static_cast<cudaStream_t>(library_.options.native_stream(stream))),
        "cublasLtMatmul");
  }

  Library& library_;
  const Gemm gemm_;
  Descriptors descriptors_;
  std::string key_;
  std::vector<std::pair<int64_t, Algorithm>> algorithms_;  // By alignment.
  CublasLtOptions::Activation activation_ = nullptr;       // Where an algorithm leaves it to us.
  std::optional<Fused> described_ = std::nullopt;          // What the descriptor says now.
  int64_t repeated_bytes_[3] = {};  // Of a, b and the bias in the workspace; 0: read where they are.
  int64_t scratch_bytes_ = 0;
};

class Opened final : public CublasLt {
 public:
  Opened(device::Device& device, const CublasLtOptions& options, const Api& api, cublasLtHandle_t handle)
      : library_(device, options, api, handle) {}

  Result<std::unique_ptr<DeviceCall>> Make(const ProductDesc& desc) override {
    HIR_ASSIGN(const Problem problem, Normalize(desc));
    HIR_ASSIGN(Gemm gemm, MakeGemm(desc, problem));
    if (gemm.calls.empty() || gemm.k == 0) {
      CublasLtOptions::Activation activation = nullptr;
      if (gemm.bias && gemm.epilogue != Epilogue::kNone && !gemm.calls.empty()) {
        HIR_ASSIGN(activation, library_.MakeActivation(gemm.epilogue, gemm.dtype));
      }
      return std::unique_ptr<DeviceCall>(std::make_unique<FillCall>(std::move(gemm), std::move(activation)));
    }
    auto call = std::make_unique<GemmCall>(library_, std::move(gemm));
    HIR_TRY(call->Prepare());
    return std::unique_ptr<DeviceCall>(std::move(call));
  }

 private:
  Library library_;
};

}  // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::Open(device::Device& device, const CublasLtOptions& options) {
  HIR_CHECK(options.native_stream != nullptr && options.make_current != nullptr);
  HIR_ASSIGN(const Api api, LoadApi(options.libraries));
  options.make_current(device);
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = api.create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return Unavailable(Cat("cuBLASLt does not come up on ", device.name(), ": ", api.status_name(status)));
  }
  return std::unique_ptr<CublasLt>(std::make_unique<Opened>(device, options, api, handle));
}

}  // namespace hir::codegen::library
