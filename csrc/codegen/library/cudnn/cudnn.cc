// Fused attention by cuDNN's graph API, through NVIDIA's frontend.
#include "csrc/codegen/library/cudnn/cudnn.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <cudnn_frontend.h>
#pragma GCC diagnostic pop

#include "csrc/base/text.h"
#include "csrc/codegen/library/flash/flash.h"
#include "csrc/codegen/library/queued/workspaces.h"

// The frontend looks its functions up in it.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace hir::codegen::library {
namespace {

namespace fe = cudnn_frontend;
using base::Cat;
using TensorRef = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr size_t kLeastVersion = 90000;
// A plan's memory is small; programs have few problems.
constexpr size_t kKernelsMax = 256;

void* LoadFirst(std::initializer_list<const char*> paths, std::string& tried) {
  for (const char* const path : paths) {
    if (path == nullptr || *path == '\0') continue;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    const char* const why = dlerror();
    base::Append(tried, tried.empty() ? "" : "; ", why == nullptr ? path : why);
  }
  return nullptr;
}

Status Load() {
  std::string tried;
  // The frontend asks for CUDA's runtime by this name, which finds what is loaded already.
  if (LoadFirst({std::getenv("HOSTIR_CUDART"), "libcudart.so.13", "libcudart.so.12",
                 "/usr/local/cuda/lib64/libcudart.so.13", "/usr/local/cuda/lib64/libcudart.so.12"},
                tried) == nullptr)
    return {Code::kFailedPrecondition,
            Cat("CUDA's runtime, which cuDNN needs, cannot be loaded: ", tried, "; set HOSTIR_CUDART to it")};
  void* const library =
      LoadFirst({std::getenv("HOSTIR_CUDNN"), "libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"}, tried = "");
  if (library == nullptr) {
    return {Code::kFailedPrecondition,
            Cat("cuDNN cannot be loaded: ", tried, "; install nvidia-cudnn-cu13, or set HOSTIR_CUDNN to the library")};
  }
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
  if (version == nullptr || version() < kLeastVersion) {
    return {Code::kFailedPrecondition, Cat("cuDNN is ", version == nullptr ? 0 : version(), "; fused attention needs ",
                                           kLeastVersion, " or newer")};
  }
  fe::cudnn_dlhandle = library;
  return {};
}

std::string VersionName() {
  const size_t version = fe::detail::get_backend_version();
  return Cat("cudnn ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

Status Checked(fe::error_object error, const char* what) {
  if (error.is_good()) return {};
  const bool lacks = error.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED ||
                     error.get_code() == fe::error_code_t::ATTRIBUTE_NOT_SET ||
                     error.get_code() == fe::error_code_t::HEURISTIC_QUERY_FAILED ||
                     error.get_code() == fe::error_code_t::INVALID_VALUE;
  return {lacks ? Code::kUnimplemented : Code::kUnavailable, Cat("cuDNN: ", what, ": ", error.get_message())};
}

// The library's handle on one device. One thread at a time uses it.
struct Handle {
  cudnnHandle_t handle = nullptr;
  std::mutex mutex;
  Handle() = default;
  Handle(const Handle&) = delete;
  ~Handle() {
    if (handle != nullptr) fe::detail::destroy_handle(handle);
  }
};

class CudnnKernel final : public FlashKernel {
 public:
  CudnnKernel(Handle& handle, device::Device& device, const CudnnOptions& options)
      : handle_(handle), device_(device), options_(options) {}

  Status Build(const FlashProblem& problem) {
    problem_ = problem;
    const fe::DataType_t type = problem.dtype == DType::kFloat16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
    graph_.set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    using enum FlashSlot;
    const int64_t h = problem.heads, g = problem.key_heads, m = problem.m, n = problem.n, d = problem.d, e = problem.e;
    const TensorRef q = Input(kQ, h, m, d), k = Input(kK, g, n, d), v = Input(kV, g, n, e);
    // A band that ends in the last key of the last query is known to cuDNN by that; others begin at the first query.
    const bool from_end = problem.diagonal && *problem.diagonal != 0 && *problem.diagonal == n - m;
    const auto mask = [&](auto& attributes) {
      attributes.set_attn_scale(static_cast<float>(problem.scale));
      if (!problem.diagonal) return;
      attributes.set_diagonal_alignment(from_end ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                 : fe::DiagonalAlignment_t::TOP_LEFT);
      attributes.set_diagonal_band_right_bound(from_end ? 0 : static_cast<int>(*problem.diagonal));
    };
    if (!problem.backward) {
      auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(problem.with_lse);
      mask(attributes);
      const auto [values, lse] = graph_.sdpa(q, k, v, attributes);
      Output(values, kValues, h, m, e);
      if (problem.with_lse) Output(lse, kLse, h, m, 1);
    } else {
      // Sums of gradients in one order, whatever runs first.
      auto attributes =
          fe::graph::SDPA_backward_attributes().set_name("attention_grad").set_deterministic_algorithm(true);
      mask(attributes);
      const TensorRef values = Input(kValues, h, m, e), gradient = Input(kGradient, h, m, e),
                      lse = Input(kLse, h, m, 1);
      const auto [of_q, of_k, of_v] = graph_.sdpa_backward(q, k, v, values, gradient, lse, attributes);
      Output(of_q, kOfQ, h, m, d);
      Output(of_k, kOfK, h, n, d);
      Output(of_v, kOfV, h, n, e);
    }
    options_.make_current(device_);
    const std::scoped_lock lock(handle_.mutex);
    HIR_TRY(Checked(graph_.build(handle_.handle, {fe::HeurMode_t::A}), "no kernel"));
    return Checked(graph_.get_workspace_size(workspace_bytes_), "no workspace");
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  Status Queue(const std::array<std::byte*, kFlashSlots>& at, device::Buffer workspace,
               device::Stream& stream) override {
    std::unordered_map<int64_t, void*> pointers;
    for (const FlashSlot slot : slots_) pointers.emplace(Uid(slot), at[static_cast<size_t>(slot)]);
    options_.make_current(device_);
    const std::scoped_lock lock(handle_.mutex);
    try {
      auto* const native = static_cast<cudaStream_t>(options_.native_stream(stream));
      if (fe::detail::set_stream(handle_.handle, native) != CUDNN_STATUS_SUCCESS)
        return Unavailable("cuDNN takes no work for this stream");
      return Checked(graph_.execute(handle_.handle, pointers, workspace.data), "not queued");
    } catch (const std::exception& error) {
      return Unavailable(Cat("cuDNN: ", error.what()));
    }
  }

  std::string implementation() const override { return VersionName(); }

 private:
  static int64_t Uid(FlashSlot slot) { return static_cast<int64_t>(slot) + 1; }

  void Describe(const TensorRef& tensor, FlashSlot slot, int64_t heads, int64_t rows, int64_t columns) {
    const FlashTensor& form = problem_.tensors[static_cast<size_t>(slot)];
    tensor->set_uid(Uid(slot))
        .set_dim({problem_.batches, heads, rows, columns})
        .set_stride({form.batch, form.head, form.row, 1});
    if (slot == FlashSlot::kLse) tensor->set_data_type(fe::DataType_t::FLOAT);
    slots_.push_back(slot);
  }
  TensorRef Input(FlashSlot slot, int64_t heads, int64_t rows, int64_t columns) {
    TensorRef tensor = graph_.tensor(fe::graph::Tensor_attributes());
    Describe(tensor, slot, heads, rows, columns);
    return tensor;
  }
  void Output(const TensorRef& tensor, FlashSlot slot, int64_t heads, int64_t rows, int64_t columns) {
    tensor->set_output(true);
    Describe(tensor, slot, heads, rows, columns);
  }

  Handle& handle_;
  device::Device& device_;
  const CudnnOptions& options_;
  FlashProblem problem_;
  fe::graph::Graph graph_;
  std::vector<FlashSlot> slots_;
  int64_t workspace_bytes_ = 0;
};

class Opened final : public Cudnn {
 public:
  Opened(device::Device& device, const CudnnOptions& options)
      : device_(device), options_(options), workspaces_(device) {}
  ~Opened() override { options_.make_current(device_); }

  Status Begin() {
    options_.make_current(device_);
    if (fe::detail::create_handle(&handle_.handle) == CUDNN_STATUS_SUCCESS) return {};
    handle_.handle = nullptr;
    return Unavailable(Cat("cuDNN does not come up on ", device_.name()));
  }

  Result<std::unique_ptr<DeviceCall>> Make(const AttentionDesc& desc) override {
    return MakeFlash(desc, {.make_kernel = [this](const FlashProblem& problem) { return KernelFor(problem); },
                            .copy = options_.copy,
                            .workspaces = &workspaces_});
  }

 private:
  Result<std::shared_ptr<FlashKernel>> KernelFor(const FlashProblem& problem) {
    const std::scoped_lock lock(mutex_);
    for (const auto& [known, kernel] : kernels_) {
      if (known == problem) return kernel;
    }
    auto kernel = std::make_shared<CudnnKernel>(handle_, device_, options_);
    try {
      HIR_TRY(kernel->Build(problem));
    } catch (const std::exception& error) {
      return Unavailable(Cat("cuDNN: ", error.what()));
    }
    if (kernels_.size() >= kKernelsMax) kernels_.erase(kernels_.begin());
    return kernels_.emplace_back(problem, std::move(kernel)).second;
  }

  device::Device& device_;
  const CudnnOptions options_;
  Workspaces workspaces_;
  Handle handle_;
  std::mutex mutex_;
  std::vector<std::pair<FlashProblem, std::shared_ptr<FlashKernel>>> kernels_;  // Guarded by mutex_.
};

}  // namespace

Status LoadCudnn() {
  static const Status status = [] {
    try {
      return Load();
    } catch (const std::exception& error) {
      return Unavailable(Cat("cuDNN: ", error.what()));
    }
  }();
  return status;
}

Result<std::unique_ptr<Cudnn>> Cudnn::Open(device::Device& device, const CudnnOptions& options) {
  HIR_CHECK(options.native_stream != nullptr && options.make_current != nullptr && options.copy != nullptr);
  HIR_TRY(LoadCudnn());
  auto opened = std::make_unique<Opened>(device, options);
  HIR_TRY(opened->Begin());
  return std::unique_ptr<Cudnn>(std::move(opened));
}

}  // namespace hir::codegen::library
