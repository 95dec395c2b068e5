#include "csrc/device/cuda/cuda_kernel.h"

#include <algorithm>
#include <map>
#include <string>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::device::cuda {
namespace {

using base::Cat;

class CubinKernels final : public KernelSource {
 public:
  explicit CubinKernels(Context& context) : context_(context) {}
  ~CubinKernels() override {
    context_.Enter();
    if (module_ != nullptr) context_.driver().ModuleUnload(module_);
  }

  Status Load(std::string_view cubin) {
    context_.Enter();
    return context_.Check(context_.driver().ModuleLoadData(&module_, cubin.data()), "cuModuleLoadData");
  }
  Status Add(const CudaKernelInfo& info);

  Result<const Kernel*> Get(std::string_view name) override {
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) return Status(Code::kNotFound, Cat("no kernel ", name, " in the cubin"));
    return found->second.get();
  }

 private:
  Status CheckInfo(const CudaKernelInfo& info) const;
  Status CheckParameter(const CudaKernelInfo& info, CUfunction function) const;

  Context& context_;
  CUmodule module_ = nullptr;
  std::map<std::string, std::unique_ptr<CudaKernel>, std::less<>> kernels_;
};

Status CubinKernels::CheckInfo(const CudaKernelInfo& info) const {
  if (info.num_slots < 0 || info.num_slots > kSlotsMax) {
    return InvalidArgument(Cat(info.num_slots, " argument slots; at most ", kSlotsMax, " are passed to a kernel"));
  }
  HIR_CHECK(info.grid_per_cta > 0);
  if (info.threads < 1 || info.threads > 1024) {
    return InvalidArgument(Cat(info.threads, " threads; a CTA has 1 to 1024"));
  }
  const int64_t shared_max = context_.facts().shared_bytes_per_block;
  if (info.shared_bytes < 0 || info.shared_bytes > shared_max) {
    return InvalidArgument(Cat(info.shared_bytes, " bytes of shared memory; ", context_.name(), " has ", shared_max));
  }
  return {};
}

// A block of another size would be read past its end.
Status CubinKernels::CheckParameter(const CudaKernelInfo& info, CUfunction function) const {
  const Driver& driver = context_.driver();
  if (driver.FuncGetParamInfo == nullptr) return {};
  size_t offset = 0, bytes = 0, more = 0;
  const CUresult first = driver.FuncGetParamInfo(function, 0, &offset, &bytes);
  const CUresult second = driver.FuncGetParamInfo(function, 1, &offset, &more);
  const size_t wanted = static_cast<size_t>(info.num_slots) * sizeof(int64_t);
  const bool none = first != CUDA_SUCCESS && info.num_slots == 0;
  if (none || (first == CUDA_SUCCESS && bytes == wanted && second != CUDA_SUCCESS)) return {};
  return InvalidArgument(Cat("its parameter must be one block of ", wanted, " bytes (", info.num_slots, " slots), not ",
                             first == CUDA_SUCCESS ? bytes : 0, second == CUDA_SUCCESS ? " bytes and more" : " bytes"));
}

Status CubinKernels::Add(const CudaKernelInfo& info) {
  const Driver& driver = context_.driver();
  HIR_TRY(CheckInfo(info));
  CUfunction function = nullptr;
  HIR_TRY(driver.Check(
      driver.ModuleGetFunction(&function, module_, (info.symbol.empty() ? info.name : info.symbol).c_str()),
      "cuModuleGetFunction"));
  // A first launch that still loads code could not be captured.
  if (driver.FuncLoad != nullptr) HIR_TRY(driver.Check(driver.FuncLoad(function), "cuFuncLoad"));
  HIR_TRY(CheckParameter(info, function));
  const auto read = [&](CUfunction_attribute attribute, auto& value) -> Status {
    int number = 0;
    HIR_TRY(driver.Check(driver.FuncGetAttribute(&number, attribute, function), "cuFuncGetAttribute"));
    value = number;
    return {};
  };
  CudaKernelFacts facts;
  HIR_TRY(read(CU_FUNC_ATTRIBUTE_NUM_REGS, facts.registers));
  HIR_TRY(read(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, facts.local_bytes));
  HIR_TRY(read(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, facts.shared_bytes));
  HIR_TRY(read(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, facts.threads_max));
  if (info.threads > facts.threads_max) {
    return InvalidArgument(
        Cat(info.threads, " threads; its ", facts.registers, " registers a thread leave room for ", facts.threads_max));
  }
  if (info.shared_bytes > 0) {
    HIR_TRY(driver.Check(driver.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                 static_cast<int>(info.shared_bytes)),
                         "cuFuncSetAttribute"));
  }
  HIR_TRY(driver.Check(driver.OccupancyMaxActiveBlocksPerMultiprocessor(&facts.ctas_that_fit, function, info.threads,
                                                                        static_cast<size_t>(info.shared_bytes)),
                       "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  if (facts.ctas_that_fit < 1) {
    return InvalidArgument(Cat("no multiprocessor holds a CTA of ", info.threads, " threads with ", info.shared_bytes,
                               " bytes of shared memory"));
  }
  kernels_[info.name] = std::make_unique<CudaKernel>(info, facts, function, context_.facts().multiprocessors);
  return {};
}

}  // namespace

int64_t CudaKernel::NumCtas(int64_t grid) const {
  grid = base::CeilDiv(grid, info_.grid_per_cta);
  if (info_.ctas_per_sm == 0) return grid;
  const int each = info_.ctas_per_sm == kCtasThatFit ? facts_.ctas_that_fit : info_.ctas_per_sm;
  return std::min(grid, int64_t{each} * multiprocessors_);
}

Result<std::unique_ptr<KernelSource>> LoadCubin(Context& context, std::string_view cubin,
                                                std::span<const CudaKernelInfo> kernels) {
  auto source = std::make_unique<CubinKernels>(context);
  HIR_TRY(source->Load(cubin));
  for (const CudaKernelInfo& info : kernels) {
    if (const Status status = source->Add(info); !status.ok()) {
      return status.WithContext(Cat(context.name(), ": kernel ", info.name));
    }
  }
  return std::unique_ptr<KernelSource>(std::move(source));
}

}  // namespace hir::device::cuda
