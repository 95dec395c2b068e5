// Calls of fused attention: leading axes become batches and heads, and what does not fit that is copied.
#include "csrc/codegen/library/flash/flash.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/attention.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

constexpr int64_t kVector = 8;  // Elements that a kernel loads at once.
constexpr int64_t kHeadMax = 128;
constexpr uint64_t kMinusInfinity = 0xff800000;  // Of float32.

// One tensor of the call, as it is given.
struct Given {
  FlashSlot slot = FlashSlot::kQ;
  const Attention::Matrix* matrix = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t skipped = 0;  // Rows in front of these.
  int place = -1;       // Among the inputs, or the outputs; none: it is made, and dropped.
  bool output = false;
  bool copied = false;
  int64_t scratch = 0;  // Where in the workspace, if it is copied or dropped.
  int64_t bytes() const { return DTypeBytes(matrix->dtype); }
};

// The stride of these axes as one; none where they are not evenly apart.
std::optional<int64_t> Merged(std::span<const int64_t> extents, std::span<const int64_t> strides) {
  if (extents.empty()) return 0;
  for (size_t axis = 0; axis + 1 < extents.size(); ++axis) {
    if (strides[axis] != strides[axis + 1] * extents[axis + 1]) return std::nullopt;
  }
  return strides.back();
}

int64_t Product(std::span<const int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) product *= extent;
  return product;
}

class FlashCall final : public DeviceCall {
 public:
  FlashCall(Attention attention, FlashOptions options, bool copies_all)
      : a_(std::move(attention)), options_(std::move(options)), copies_all_(copies_all) {}

  Status Prepare() {
    // Queries without keys come first, and are left out; behind them the diagonal is 0.
    skipped_ = std::max<int64_t>(-a_.diagonal, 0);
    Collect();
    is_nothing_ = a_.m <= skipped_ || a_.n == 0 || Product(a_.batches) == 0;
    if (is_nothing_) return options_.workspaces->Reserve(kWorkspaceAlignment);
    // cuDNN has no gradients of one query and one key: a query of zeros, whose gradients are 0, goes with it.
    pads_ = a_.backward && a_.m - skipped_ == 1 && a_.n == 1;
    ChooseHeads();
    problem_.dtype = a_.dtype;
    problem_.backward = a_.backward;
    problem_.with_lse = static_cast<bool>(a_.of_lse);
    problem_.m = pads_ ? 2 : a_.m - skipped_;
    problem_.n = a_.n;
    problem_.d = a_.d;
    problem_.e = a_.e;
    if (a_.diagonal < a_.n - 1) problem_.diagonal = std::max<int64_t>(a_.diagonal, 0);
    problem_.scale = a_.scale;
    HIR_ASSIGN(kernel_, options_.make_kernel(problem_));
    for (Given& each : given_) {
      if (each.place >= 0 && !each.copied) continue;
      each.scratch = scratch_bytes_;
      scratch_bytes_ += Rounded(Product(a_.batches) * Rows(each) * each.columns * each.bytes());
    }
    if (skipped_ > 0) {
      empty_ = scratch_bytes_;
      scratch_bytes_ += kWorkspaceAlignment;
    }
    const int64_t needed = scratch_bytes_ + kernel_->workspace_bytes();
    return needed == 0 ? Status() : options_.workspaces->Reserve(needed);
  }

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    const Status status = is_nothing_ ? Fill(outputs, stream) : TryQueue(inputs, outputs, stream);
    if (!status.ok()) stream.HostCallback([status] { return status; });
  }

  std::string implementation() const override { return is_nothing_ ? "fill" : kernel_->implementation(); }

 private:
  static int64_t Rounded(int64_t bytes) { return base::CeilDiv(bytes, kWorkspaceAlignment) * kWorkspaceAlignment; }

  // In the workspace.
  int64_t Rows(const Given& each) const { return pads_ && !IsOfKeys(each.slot) ? 2 : each.rows; }

  static bool IsOfKeys(FlashSlot slot) {
    using enum FlashSlot;
    return slot == kK || slot == kV || slot == kOfK || slot == kOfV;
  }

  void Collect() {
    using enum FlashSlot;
    const auto input = [&](FlashSlot slot, const Attention::Matrix& matrix, int64_t rows, int64_t columns, int place) {
      const int64_t skipped = IsOfKeys(slot) ? 0 : std::min(skipped_, rows);
      given_.push_back({.slot = slot,
                        .matrix = &matrix,
                        .rows = rows - skipped,
                        .columns = columns,
                        .skipped = skipped,
                        .place = place});
    };
    const auto output = [&](FlashSlot slot, Attention::Output& to, int64_t rows, int64_t columns) {
      if (!to) to.matrix.dtype = a_.dtype;
      input(slot, to.matrix, rows, columns, to.place);
      given_.back().output = true;
    };
    input(kQ, a_.q, a_.m, a_.d, 0);
    input(kK, a_.k, a_.n, a_.d, 1);
    input(kV, a_.v, a_.n, a_.e, 2);
    if (!a_.backward) {
      output(kValues, a_.values, a_.m, a_.e);
      if (a_.of_lse) output(kLse, a_.of_lse, a_.m, 1);
      return;
    }
    input(kGradient, a_.gradient, a_.m, a_.e, 3);
    input(kLse, a_.lse, a_.m, 1, 4);
    input(kValues, a_.saved, a_.m, a_.e, 5);
    output(kOfQ, a_.of_q, a_.m, a_.d);
    output(kOfK, a_.of_k, a_.n, a_.d);
    output(kOfV, a_.of_v, a_.n, a_.e);
  }

  // Leading axes from `split` on are heads. Keys and values of a forward pass may have fewer, each for as many queries'
  // heads that follow each other: they are stored once along the last `shared` axes.
  struct Heads {
    size_t split = 0, shared = 0;
  };
  std::optional<FlashTensor> Fit(const Given& each, Heads heads) const {
    if (copies_all_ || pads_) return {};
    const Attention::Matrix& matrix = *each.matrix;
    const bool is_lse = each.slot == FlashSlot::kLse;
    const bool is_key = each.slot == FlashSlot::kK || each.slot == FlashSlot::kV;
    const std::span<const int64_t> extents = a_.batches, strides = matrix.batch;
    const size_t end = extents.size() - (is_key ? heads.shared : 0);
    if (is_key && std::ranges::any_of(strides.subspan(end), [](int64_t stride) { return stride != 0; })) return {};
    const std::optional<int64_t> batch = Merged(extents.first(heads.split), strides.first(heads.split));
    const std::optional<int64_t> head =
        Merged(extents.subspan(heads.split, end - heads.split), strides.subspan(heads.split, end - heads.split));
    if (!batch || !head) return {};
    const FlashTensor fit = {*batch, *head, matrix.row};
    if (heads.split > 0 && fit.batch <= 0) return {};
    if (end > heads.split && fit.head <= 0) return {};
    if (is_lse) {
      const int64_t of_batch = each.rows * Product(extents.subspan(heads.split));
      const bool packed = (heads.split == 0 || fit.batch == of_batch) &&
                          (end == heads.split || fit.head == each.rows) && (each.rows == 1 || fit.row == 1);
      return packed ? std::optional(FlashTensor{of_batch, each.rows, 1}) : std::nullopt;
    }
    if (matrix.column != 1 || (each.rows > 1 && fit.row < each.columns)) return {};
    if (fit.batch % kVector != 0 || fit.head % kVector != 0 || fit.row % kVector != 0) return {};
    return fit;
  }
  // As a copy has it: no gaps, all leading axes.
  FlashTensor Packed(const Given& each, Heads heads) const {
    const int64_t of_head = Rows(each) * each.columns;
    return {of_head * Product(std::span(a_.batches).subspan(heads.split)), of_head, each.columns};
  }

  // With as few elements to copy as can be; of equals the one with most heads.
  void ChooseHeads() {
    const size_t rank = a_.batches.size();
    Heads best;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t split = 0; split <= rank; ++split) {
      for (size_t shared = 0; shared <= (a_.backward ? 0 : rank - split); ++shared) {
        const Heads heads = {split, shared};
        int64_t copied = 0;
        bool possible = true;
        for (const Given& each : given_) {
          if (each.place < 0 || Fit(each, heads)) continue;
          copied += each.rows * each.columns;
          // Copies of keys have all leading axes.
          possible &= shared == 0 || (each.slot != FlashSlot::kK && each.slot != FlashSlot::kV);
        }
        if (!possible || copied >= least) continue;
        least = copied;
        best = heads;
      }
    }
    const std::span<const int64_t> extents = a_.batches;
    problem_.batches = Product(extents.first(best.split));
    problem_.heads = Product(extents.subspan(best.split));
    problem_.key_heads = Product(extents.subspan(best.split, rank - best.split - best.shared));
    for (Given& each : given_) {
      const std::optional<FlashTensor> fit = each.place < 0 ? std::nullopt : Fit(each, best);
      each.copied = each.place >= 0 && !fit;
      FlashTensor& tensor = problem_.tensors[static_cast<size_t>(each.slot)];
      tensor = fit ? *fit : Packed(each, best);
      // Where there is one of something, its stride says nothing; a library wants to see a sound one.
      const bool is_key = each.slot == FlashSlot::kK || each.slot == FlashSlot::kV;
      if (Rows(each) == 1) tensor.row = each.columns;
      if ((is_key ? problem_.key_heads : problem_.heads) == 1) tensor.head = Rows(each) * each.columns;
      if (problem_.batches == 1)
        tensor.batch = (is_key ? problem_.key_heads : problem_.heads) * Rows(each) * each.columns;
    }
  }

  Status TryQueue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
                  device::Stream& stream) {
    const auto given_at = [&](const Given& each) {
      const device::Buffer all = (each.output ? outputs : inputs)[static_cast<size_t>(each.place)];
      const int64_t begin = each.skipped * each.matrix->row * each.bytes();
      return all.Slice(begin, all.bytes - begin);
    };
    // Addresses are known only now; those of parts of tensors may lie askew.
    const bool askew = std::ranges::any_of(given_, [&](const Given& each) {
      if (each.place < 0 || each.copied || each.slot == FlashSlot::kLse) return false;
      return reinterpret_cast<uintptr_t>(given_at(each).data) % (kVector * DTypeBytes(a_.dtype)) != 0;
    });
    if (askew) {
      if (copying_ == nullptr) {
        auto made = std::make_unique<FlashCall>(a_, options_, /*copies_all=*/true);
        HIR_TRY(made->Prepare());
        copying_ = std::move(made);
      }
      return copying_->TryQueue(inputs, outputs, stream);
    }
    device::Buffer workspace;
    if (const int64_t bytes = scratch_bytes_ + kernel_->workspace_bytes(); bytes > 0) {
      HIR_ASSIGN(workspace, options_.workspaces->For(stream, bytes));
    }
    if (pads_) stream.Fill(workspace.Slice(0, scratch_bytes_), 0, 1);
    std::array<std::byte*, kFlashSlots> at = {};
    for (const Given& each : given_) {
      const bool own = each.place >= 0 && !each.copied;
      at[static_cast<size_t>(each.slot)] = own ? given_at(each).data : workspace.data + each.scratch;
      if (each.copied && !each.output) HIR_TRY(Copy(each, given_at(each), workspace, stream));
    }
    const device::Buffer of_kernel = workspace.data == nullptr
                                         ? device::Buffer()
                                         : workspace.Slice(scratch_bytes_, workspace.bytes - scratch_bytes_);
    HIR_TRY(kernel_->Queue(at, of_kernel, stream));
    for (const Given& each : given_) {
      if (each.copied && each.output) HIR_TRY(Copy(each, given_at(each), workspace, stream));
      if (each.skipped > 0 && each.output && each.place >= 0)
        HIR_TRY(Empty(each, each.skipped, outputs[static_cast<size_t>(each.place)], workspace, stream));
    }
    return {};
  }

  // Between a tensor and its place in the workspace.
  Status Copy(const Given& each, device::Buffer buffer, device::Buffer workspace, device::Stream& stream) const {
    std::vector<int64_t> shape = a_.batches, strides = each.matrix->batch;
    shape.insert(shape.end(), {each.rows, each.columns});
    strides.insert(strides.end(), {each.matrix->row, each.columns == 1 ? 1 : each.matrix->column});
    std::vector<int64_t> packed(shape.size(), 1);
    std::vector<int64_t> held = shape;
    held[held.size() - 2] = Rows(each);
    for (size_t axis = held.size() - 1; axis-- > 0;) packed[axis] = packed[axis + 1] * held[axis + 1];
    const device::Buffer scratch = workspace.Slice(each.scratch, Product(held) * each.bytes());
    return each.output ? options_.copy(buffer, strides, scratch, packed, shape, each.bytes(), stream)
                       : options_.copy(scratch, packed, buffer, strides, shape, each.bytes(), stream);
  }

  // The first `rows` rows of a result where nothing takes part, by copies of one element: values and gradients are 0,
  // and the logarithm of a sum of nothing is -inf.
  Status Empty(const Given& each, int64_t rows, device::Buffer output, device::Buffer workspace,
               device::Stream& stream) const {
    const device::Buffer element = workspace.Slice(empty_, kWorkspaceAlignment);
    stream.Fill(element, each.slot == FlashSlot::kLse ? kMinusInfinity : 0, 4);
    std::vector<int64_t> shape = a_.batches, strides = each.matrix->batch;
    shape.insert(shape.end(), {rows, each.columns});
    strides.insert(strides.end(), {each.matrix->row, each.columns == 1 ? 1 : each.matrix->column});
    const std::vector<int64_t> nowhere(shape.size(), 0);
    return options_.copy(output, strides, element, nowhere, shape, each.bytes(), stream);
  }

  Status Fill(std::span<const device::Buffer> outputs, device::Stream& stream) const {
    HIR_ASSIGN(const device::Buffer workspace, options_.workspaces->For(stream, kWorkspaceAlignment));
    for (const Given& each : given_) {
      if (!each.output || each.place < 0) continue;
      const device::Buffer output = outputs[static_cast<size_t>(each.place)];
      HIR_TRY(Empty(each, each.skipped + each.rows, output, workspace, stream));
    }
    return {};
  }

  Attention a_;
  const FlashOptions options_;
  const bool copies_all_;
  std::unique_ptr<FlashCall> copying_;  // For operands that lie askew; made with the first of them.
  std::vector<Given> given_;
  FlashProblem problem_;
  std::shared_ptr<FlashKernel> kernel_;
  int64_t skipped_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t empty_ = 0;  // Where in the workspace one element is written for rows without keys.
  bool is_nothing_ = false;
  bool pads_ = false;
};

}  // namespace

Result<std::unique_ptr<DeviceCall>> MakeFlash(const AttentionDesc& desc, FlashOptions options) {
  HIR_ASSIGN(Attention a, Normalize(desc));
  if (a.dtype != DType::kFloat16 && a.dtype != DType::kBFloat16)
    return Unimplemented(Cat("fused attention of ", DTypeName(a.dtype), "; it has f16 and bf16"));
  if (a.has_mask) return Unimplemented("fused attention with a mask");
  for (const int64_t size : {a.d, a.e}) {
    if (size < kVector || size > kHeadMax || size % kVector != 0) {
      return Unimplemented(
          Cat("fused attention of heads of ", size, "; they are of a multiple of ", kVector, ", at most ", kHeadMax));
    }
  }
  auto call = std::make_unique<FlashCall>(std::move(a), std::move(options), /*copies_all=*/false);
  HIR_TRY(call->Prepare());
  return std::unique_ptr<DeviceCall>(std::move(call));
}

}  // namespace hir::codegen::library
