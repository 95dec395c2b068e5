// Goal: fused attention is called with tensors as its kernels take them, whatever the strides, leading axes and
// addresses of a call are, and its results come where the call wants them; what it has no kernel for is refused.
// Method: random calls on a CPU's device, whose kernels are the CPU's attention and check what they are given.
#include "csrc/codegen/library/flash/flash.h"

#include <gtest/gtest.h>

#include "csrc/base/work_pool.h"
#include "csrc/codegen/library/onednn/onednn.h"
#include "csrc/device/host/host_device.h"
#include "tests/csrc/codegen/library/flash/flash_cases.h"

namespace hir::codegen::library {
namespace {

using namespace testing;

class CpuKernel final : public FlashKernel {
 public:
  CpuKernel(const FlashProblem& problem, base::WorkPool& pool) : p_(problem) {
    using enum FlashSlot;
    const int64_t shared = p_.heads / p_.key_heads;
    const auto tensor = [&](FlashSlot slot, int64_t rows, int64_t columns, bool is_key) {
      const FlashTensor& form = p_.tensors[static_cast<size_t>(slot)];
      if (slot != kLse) {
        EXPECT_TRUE(form.batch % 8 == 0 && form.head % 8 == 0 && form.row % 8 == 0);
        EXPECT_TRUE(form.batch > 0 && form.head > 0 && form.row >= columns);
      }
      Tensor made = {slot == kLse ? DType::kFloat32 : p_.dtype,
                     {p_.batches, p_.key_heads, is_key ? 1 : shared, rows},
                     {form.batch, is_key ? form.head : shared * form.head, form.head, form.row}};
      if (columns > 0) made.shape.push_back(columns), made.strides.push_back(1);
      return made;
    };
    desc_ = {.inputs = {tensor(kQ, p_.m, p_.d, false), tensor(kK, p_.n, p_.d, true), tensor(kV, p_.n, p_.e, true)},
             .backward = p_.backward,
             .causal = p_.diagonal.has_value(),
             .diagonal = p_.diagonal.value_or(0),
             .scale = p_.scale};
    from_ = {kQ, kK, kV};
    if (p_.backward) {
      EXPECT_EQ(p_.key_heads, p_.heads);
      EXPECT_TRUE(p_.m > 1 || p_.n > 1) << "cuDNN has none of one query and one key";
      desc_.inputs.push_back(tensor(kGradient, p_.m, p_.e, false));
      desc_.inputs.push_back(tensor(kLse, p_.m, 0, false));
      desc_.inputs.push_back(tensor(kValues, p_.m, p_.e, false));
      from_.insert(from_.end(), {kGradient, kLse, kValues});
      desc_.outputs = {{What::kQ, tensor(kOfQ, p_.m, p_.d, false)},
                       {What::kK, tensor(kOfK, p_.n, p_.d, false)},
                       {What::kV, tensor(kOfV, p_.n, p_.e, false)}};
      to_ = {kOfQ, kOfK, kOfV};
    } else {
      desc_.outputs = {{What::kValues, tensor(kValues, p_.m, p_.e, false)}};
      to_ = {kValues};
      if (p_.with_lse) {
        desc_.outputs.push_back({What::kLse, tensor(kLse, p_.m, 0, false)});
        to_.push_back(kLse);
      }
    }
    auto call = MakeAttention(desc_, pool);
    EXPECT_TRUE(call.ok()) << call.status().ToString();
    if (call.ok()) call_ = std::move(*call);
  }

  int64_t workspace_bytes() const override { return kBytes; }
  Status Queue(const std::array<std::byte*, kFlashSlots>& at, device::Buffer workspace,
               device::Stream& stream) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlignment, 0U);
    EXPECT_GE(workspace.bytes, kBytes);
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const FlashSlot slot : from_) from.push_back(at[static_cast<size_t>(slot)]);
    for (const FlashSlot slot : to_) to.push_back(at[static_cast<size_t>(slot)]);
    for (size_t i = 0; i < from.size(); ++i)
      EXPECT_TRUE(from_[i] == FlashSlot::kLse || reinterpret_cast<uintptr_t>(from[i]) % 16 == 0);
    stream.HostCallback([this, from, to, workspace] {
      std::fill_n(workspace.data, kBytes, std::byte{0x5a});  // A kernel writes there what it likes.
      call_->Run(from, to);
      return Status();
    });
    return {};
  }
  std::string implementation() const override { return "a CPU's"; }

 private:
  static constexpr int64_t kBytes = 1000;
  const FlashProblem p_;
  AttentionDesc desc_;
  std::vector<FlashSlot> from_, to_;
  std::unique_ptr<Call> call_;
};

class Flash : public ::testing::Test {
 protected:
  void SetUp() override {
    auto stream = device_->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    stream_ = std::move(*stream);
  }

  Where where() {
    return {*device_, *stream_,
            [](device::Device&, device::Buffer to, std::span<const std::byte> from) {
              std::ranges::copy(from, to.data);
              return Status();
            },
            [](device::Device&, std::span<std::byte> to, device::Buffer from) {
              std::copy_n(from.data, to.size(), to.data());
              return Status();
            }};
  }

  Result<std::unique_ptr<DeviceCall>> Make(const AttentionDesc& desc) {
    FlashOptions options;
    options.make_kernel = [this](const FlashProblem& problem) -> Result<std::shared_ptr<FlashKernel>> {
      problems_.push_back(problem);
      return std::shared_ptr<FlashKernel>(std::make_shared<CpuKernel>(problem, pool_));
    };
    options.copy = [this](device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
                          std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
                          device::Stream& stream) {
      ++copies_;
      const std::vector<int64_t> to_steps(to_strides.begin(), to_strides.end());
      const std::vector<int64_t> from_steps(from_strides.begin(), from_strides.end());
      stream.HostCallback([=, extents = std::vector<int64_t>(shape.begin(), shape.end())] {
        for (int64_t i = 0; i < CountOf(extents); ++i) {
          int64_t rest = i, a = 0, b = 0;
          for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) {
            a += rest % extents[axis] * to_steps[axis];
            b += rest % extents[axis] * from_steps[axis];
          }
          std::copy_n(from.data + b * bytes, bytes, to.data + a * bytes);
        }
        return Status();
      });
      return Status();
    };
    options.workspaces = &workspaces_;
    return MakeFlash(desc, std::move(options));
  }

  base::WorkPool pool_{{.num_threads = 1}};
  std::unique_ptr<device::Device> device_ = *device::CreateHostDevice({});
  Workspaces workspaces_{*device_};
  std::unique_ptr<device::Stream> stream_;
  std::vector<FlashProblem> problems_;
  int copies_ = 0;
};

TEST_F(Flash, RandomCalls) {
  CheckFlash(
      where(), [this](const AttentionDesc& desc) { return Make(desc); }, 300, 0);
  EXPECT_GT(copies_, 100) << "operands that do not fit";
}

Tensor Packed(DType dtype, Shape shape) {
  Shape strides(shape.size(), 1);
  for (size_t axis = shape.size() - 1; axis-- > 0;) strides[axis] = strides[axis + 1] * shape[axis + 1];
  return {dtype, std::move(shape), std::move(strides)};
}

AttentionDesc Usual() {
  constexpr DType kType = DType::kBFloat16;
  return {.inputs = {Packed(kType, {2, 4, 5, 16}), Packed(kType, {2, 4, 7, 16}), Packed(kType, {2, 4, 7, 8})},
          .outputs = {{What::kValues, Packed(kType, {2, 4, 5, 8})}}};
}

TEST_F(Flash, CopiesNothingOfWhatModelsHave) {
  AttentionDesc desc = Usual();
  // [batch, length, heads, size], seen as [batch, heads, length, size], and two heads that share keys.
  desc.inputs[0] = {DType::kBFloat16, {2, 2, 2, 5, 16}, {5 * 64, 32, 16, 64, 1}};
  desc.inputs[1] = {DType::kBFloat16, {2, 2, 1, 7, 16}, {7 * 32, 16, 1, 32, 1}};
  desc.inputs[2] = {DType::kBFloat16, {2, 2, 1, 7, 8}, {7 * 16, 8, 1, 16, 1}};
  desc.outputs[0].tensor = {DType::kBFloat16, {2, 2, 2, 5, 8}, {5 * 32, 16, 8, 32, 1}};
  ASSERT_TRUE(Make(desc).ok());
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_EQ(problems_[0].batches, 2);
  EXPECT_EQ(problems_[0].heads, 4);
  EXPECT_EQ(problems_[0].key_heads, 2);
  EXPECT_EQ(problems_[0].tensors[0], (FlashTensor{5 * 64, 16, 64}));
  EXPECT_EQ(problems_[0].tensors[1], (FlashTensor{7 * 32, 16, 32}));
}

TEST_F(Flash, OfNothing) {
  AttentionDesc desc = Usual();
  desc.inputs[1] = Packed(DType::kBFloat16, {2, 4, 0, 16});
  desc.inputs[2] = Packed(DType::kBFloat16, {2, 4, 0, 8});
  desc.outputs.push_back({What::kLse, Packed(DType::kFloat32, {2, 4, 5})});
  auto call = Make(desc);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ((*call)->implementation(), "fill");
  std::vector<Data> inputs, outputs;
  for (const Tensor& tensor : desc.inputs) inputs.push_back(MakeData(tensor.dtype, tensor.shape));
  for (const auto& output : desc.outputs) outputs.push_back(MakeData(output.tensor.dtype, output.tensor.shape));
  ASSERT_TRUE(RunOn(where(), **call, inputs, outputs, 0).ok());
  for (const double value : outputs[0].Dense(outputs[0].tensor.shape)) EXPECT_EQ(value, 0);
  for (const double value : outputs[1].Dense(outputs[1].tensor.shape)) EXPECT_EQ(value, -kInfinity);
}

TEST_F(Flash, RefusesWhatNoKernelIsFor) {
  const auto refused = [&](const std::function<void(AttentionDesc&)>& change) {
    AttentionDesc desc = Usual();
    change(desc);
    return Make(desc).status().ToString();
  };
  EXPECT_EQ(refused([](AttentionDesc& desc) {
              for (Tensor& each : desc.inputs) each.dtype = DType::kFloat32;
              desc.outputs[0].tensor.dtype = DType::kFloat32;
            }),
            "UNIMPLEMENTED: fused attention of f32; it has f16 and bf16");
  EXPECT_EQ(refused([](AttentionDesc& desc) {
              desc.has_mask = true;
              desc.inputs.push_back(Packed(DType::kBool, {5, 7}));
            }),
            "UNIMPLEMENTED: fused attention with a mask");
  EXPECT_EQ(refused([](AttentionDesc& desc) {
              desc.inputs[2] = Packed(DType::kBFloat16, {2, 4, 7, 12});
              desc.outputs[0].tensor = Packed(DType::kBFloat16, {2, 4, 5, 12});
            }),
            "UNIMPLEMENTED: fused attention of heads of 12; they are of a multiple of 8, at most 128");
}

}  // namespace
}  // namespace hir::codegen::library
