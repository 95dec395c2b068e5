// Goal: calls wait their turn in their stream, and calls on several streams at once disturb each
// other nowhere. Method: a simulated driver and a cuBLASLt that computes on host memory in the driver's streams.
#include <dlfcn.h>

#include <cstring>

#include "csrc/codegen/library/cublaslt/cublaslt.h"
#include "csrc/device/cuda/cuda_device.h"
#include "tests/csrc/codegen/library/cublaslt/product_cases.h"

namespace hir::codegen::library {
namespace {

CublasLtOptions Options(const char* library) {
  CublasLtOptions options;
  options.libraries = {library};
  options.native_stream = &device::NativeStream;
  options.make_current = &device::MakeCurrent;
  return options;
}

class CublasLtStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const driver = dlopen(HIR_FAKE_CUDA, RTLD_NOW);
    void* const fake = dlopen(HIR_FAKE_CUBLASLT, RTLD_NOW);
    ASSERT_TRUE(driver != nullptr && fake != nullptr);
    using Find = int (*)(const char*, void**, int, uint64_t, void*);
    const auto find = reinterpret_cast<Find>(dlsym(driver, "cuGetProcAddress_v2"));
    ASSERT_NE(find, nullptr);
    void* queue = nullptr;
    int found = 0;
    ASSERT_EQ(find("cuLaunchHostFunc", &queue, 12000, 0, &found), 0);
    ASSERT_NE(queue, nullptr);
    const auto queue_through = reinterpret_cast<void (*)(void*)>(dlsym(fake, "FakeQueueThrough"));
    queue_through(queue);
    device::CudaDeviceOptions options;
    options.driver = HIR_FAKE_CUDA;
    auto device = device::OpenCudaDevice(options);
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    device_ = std::move(*device);
    for (std::unique_ptr<device::Stream>& stream : streams_) {
      auto made = device_->CreateStream();
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      stream = std::move(*made);
    }
    auto library = CublasLt::Open(*device_, Options(HIR_FAKE_CUBLASLT));
    ASSERT_TRUE(library.ok()) << library.status().ToString();
    library_ = std::move(*library);
  }

  struct Queued {
    std::vector<std::unique_ptr<device::Allocation>> memory = {};
    std::unique_ptr<DeviceCall> call = nullptr;
    device::Buffer output = {};
  };

  // The operands are copied in stream order in front of the call.
  Result<Queued> Queue(const ProductDesc& desc, const std::vector<Bytes>& inputs, int64_t bytes,
                       device::Stream& stream) {
    Queued queued;
    std::vector<device::Buffer> buffers;
    for (const Bytes& input : inputs) {
      const auto size = static_cast<int64_t>(input.size());
      HIR_ASSIGN(auto staged, device_->Allocate(size));
      HIR_ASSIGN(auto operand, device_->Allocate(size));
      buffers.push_back(operand->buffer());
      buffers.back().bytes = size;
      HIR_TRY(device::CopyFromHost(*device_, staged->buffer().Slice(0, size), input));
      stream.Copy(buffers.back(), staged->buffer().Slice(0, size));
      queued.memory.push_back(std::move(staged));
      queued.memory.push_back(std::move(operand));
    }
    HIR_ASSIGN(auto output, device_->Allocate(bytes));
    queued.output = output->buffer().Slice(0, bytes);
    queued.memory.push_back(std::move(output));
    HIR_ASSIGN(queued.call, library_->Make(desc));
    queued.call->Queue(buffers, {&queued.output, 1}, stream);
    return queued;
  }

  Result<Bytes> Read(const Queued& queued, device::Stream& stream) {
    HIR_TRY(stream.Synchronize(std::chrono::seconds(30)));
    Bytes result(static_cast<size_t>(queued.output.bytes));
    HIR_TRY(device::CopyToHost(*device_, result, queued.output));
    return result;
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> streams_[3];
  std::unique_ptr<CublasLt> library_;
};

TEST_F(CublasLtStreams, CallsOnSeveralStreamsAtOnce) {
  base::Prng prng(1);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    Case c = RandomCase(prng, 20);
    // Not every layout has an algorithm with one, and streams are the point here.
    c.epilogue = Epilogue::kNone;
    CheckCase(c, prng, [&](const ProductDesc& desc, const std::vector<Bytes>& inputs, int64_t bytes) -> Result<Bytes> {
      std::vector<Queued> queued;
      for (const auto& stream : streams_) {
        HIR_ASSIGN(queued.emplace_back(), Queue(desc, inputs, bytes, *stream));
      }
      std::vector<Bytes> results;
      for (size_t s = 0; s < queued.size(); ++s) {
        HIR_ASSIGN(results.emplace_back(), Read(queued[s], *streams_[s]));
        if (results[s] != results[0]) return Internal("streams differ");
      }
      return results[0];
    });
  }
}

}  // namespace
}  // namespace hir::codegen::library
