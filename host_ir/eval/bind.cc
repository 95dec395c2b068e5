// Bind: sizes and addresses become the numbers of one run.
#include <algorithm>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "host_ir/eval/evaluator_impl.h"

namespace hir::host {

using base::Cat;

namespace {

// The bytes of `elements`; nothing when that is no size.
std::optional<int64_t> BytesOf(int64_t elements, int64_t element_bytes) {
  return elements < 0 ? std::nullopt : base::CheckedMul(elements, element_bytes);
}

}  // namespace

Status EvaluatorImpl::Bind(std::span<const Argument> arguments, std::span<const int64_t> symbols, Binding* binding) {
  Binding::State& state = binding->state();
  state.bound = ++binds_;
  if (arguments.size() != code_.params.size()) {
    return InvalidArgument(Cat("the program has ", code_.params.size(), " parameters, got ", arguments.size()));
  }
  if (state.sizes == nullptr || !std::ranges::equal(state.sizes->symbols, symbols)) {
    HIR_ASSIGN(state.sizes, SizesFor(symbols));
    state.values = state.sizes->values;
    state.buffers.resize(static_cast<size_t>(code_.num_buffers));
    state.args.resize(static_cast<size_t>(code_.num_args));
  }
  HIR_TRY(BindParams(arguments, state));
  HIR_TRY(CheckOverlap(state));
  HIR_ASSIGN(state.memory, options_.pool->Reserve(state.sizes->pool_bytes));
  const device::Buffer pool = state.memory->buffer();
  for (size_t i = 0; i < used_allocs_.size(); ++i) {
    const auto buffer = static_cast<size_t>(code_.allocs[used_allocs_[i]].buffer);
    const InWindow& in = windows_[used_allocs_[i]];
    state.buffers[buffer] = in.window == nullptr ? pool.Slice(state.sizes->pool_offsets[i], state.sizes->alloc_bytes[i])
                                                 : in.window->own().Slice(in.offset, state.sizes->alloc_bytes[i]);
  }
  for (int view : code_.bind_views) HIR_TRY(ResolveView(code_.views[static_cast<size_t>(view)], state));
  FillArgs(arguments, state);
  return {};
}

Result<std::shared_ptr<const Sizes>> EvaluatorImpl::SizesFor(std::span<const int64_t> symbols) {
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (!std::ranges::equal(sizes_[i]->symbols, symbols)) continue;
    std::rotate(sizes_.begin(), sizes_.begin() + static_cast<ptrdiff_t>(i),
                sizes_.begin() + static_cast<ptrdiff_t>(i) + 1);
    return sizes_.front();
  }
  if (symbols.size() != code_.symbols.size()) {
    return InvalidArgument(Cat("the program has ", code_.symbols.size(), " symbols, got ", symbols.size(), " values"));
  }
  auto sizes = std::make_shared<Sizes>();
  sizes->symbols.assign(symbols.begin(), symbols.end());
  sizes->values.resize(static_cast<size_t>(code_.exprs.num_slots()));
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] < 0)
      return InvalidArgument(Cat(program_.symbols()[i], " is ", symbols[i], "; extents are at least 0"));
    sizes->values[static_cast<size_t>(code_.symbols[i])] = symbols[i];
  }
  for (const auto& [slot, value] : code_.rank_symbols) sizes->values[static_cast<size_t>(slot)] = value;
  if (!code_.exprs.Evaluate(0, sizes->values))
    return InvalidArgument("an extent of the program overflows 64 bits at these sizes");
  for (size_t i : used_allocs_) {
    const AllocCode& alloc = code_.allocs[i];
    const auto bytes = BytesOf(sizes->values[static_cast<size_t>(alloc.elements)], alloc.element_bytes);
    if (!bytes) return InvalidArgument(Cat("%", alloc.op->results[0]->name, " has no size that fits 64 bits"));
    sizes->alloc_bytes.push_back(*bytes);
  }
  sizes->pool_offsets.resize(used_allocs_.size());
  std::vector<int64_t> in_pool = sizes->alloc_bytes;
  for (size_t i = 0; i < used_allocs_.size(); ++i) {
    if (windows_[used_allocs_[i]].window != nullptr) in_pool[i] = 0;
  }
  HIR_ASSIGN(const PoolBytes pool, plan_.Place(in_pool, device::kAlignmentBytes, sizes->pool_offsets));
  sizes->pool_bytes = pool.reserved;
  HIR_TRY(MakeCalls(*sizes));
  sizes_.insert(sizes_.begin(), sizes);
  if (sizes_.size() > kSizesKept) {
    retired_.push_back(std::move(sizes_.back()));
    sizes_.pop_back();
  }
  return std::shared_ptr<const Sizes>(sizes);
}

Status EvaluatorImpl::MakeCalls(Sizes& sizes) {
  for (const LibraryCode& library : code_.libraries) {
    std::vector<LibraryTensor> inputs;
    for (const TensorCode& input : library.inputs) {
      HIR_ASSIGN(inputs.emplace_back(), Describe(input, sizes));
    }
    std::vector<LibraryTensor> outputs;
    for (const TensorCode& output : library.outputs) {
      HIR_ASSIGN(outputs.emplace_back(), Describe(output, sizes));
    }
    const auto desc_of = [&](const auto& what) -> LibraryDesc {
      if constexpr (std::is_same_v<decltype(what), const IndexSumCode&>) {
        return IndexSumDesc{inputs.at(0), inputs.at(1), outputs.at(0), what.axis};
      } else if constexpr (std::is_same_v<decltype(what), const GroupedProductCode&>) {
        return GroupedProductDesc{what.outer,   inputs.at(0),  inputs.at(1),
                                  inputs.at(2), outputs.at(0), sizes.values[static_cast<size_t>(what.first)]};
      } else if constexpr (std::is_same_v<decltype(what), const AttentionCode&>) {
        return AttentionDesc{std::move(inputs),
                             what.results,
                             std::move(outputs),
                             what.causal,
                             sizes.values[static_cast<size_t>(what.diagonal)],
                             what.scale};
      } else {
        return ProductDesc{what.op, std::move(inputs), outputs.at(0), what.epilogue, what.tf32};
      }
    };
    HIR_ASSIGN(sizes.calls.emplace_back(), options_.libraries->Make(std::visit(desc_of, library.what)));
  }
  return {};
}

Result<LibraryTensor> EvaluatorImpl::Describe(const TensorCode& tensor, const Sizes& sizes) const {
  LibraryTensor described = {.dtype = tensor.dtype};
  for (int slot : tensor.extents) described.shape.push_back(sizes.values[static_cast<size_t>(slot)]);
  for (int slot : tensor.strides) described.strides.push_back(sizes.values[static_cast<size_t>(slot)]);
  return described;
}

Status EvaluatorImpl::BindParams(std::span<const Argument> arguments, Binding::State& state) {
  for (size_t i = 0; i < code_.params.size(); ++i) {
    const TensorCode& param = code_.params[i];
    if (param.buffer < 0) continue;
    int64_t elements = 1;
    for (size_t axis = 0; axis < param.extents.size(); ++axis) {
      const bool broadcast = state.values[static_cast<size_t>(param.strides[axis])] == 0;
      const int64_t extent = broadcast ? 1 : state.values[static_cast<size_t>(param.extents[axis])];
      elements = base::CheckedMul(elements, extent).value_or(-1);
    }
    const auto bytes = BytesOf(elements, DTypeBytes(param.dtype));
    const device::Buffer& given = arguments[i].buffer;
    const std::string_view name = program_.graph().params[i]->name;
    if (!bytes) return InvalidArgument(Cat("%", name, " has no size that fits 64 bits"));
    if (code_.param_used[i] && given.bytes < *bytes) {
      return InvalidArgument(Cat("%", name, " needs ", *bytes, " bytes, got ", given.bytes));
    }
    state.buffers[static_cast<size_t>(param.buffer)] = {given.data, std::min(given.bytes, *bytes)};
  }
  return {};
}

// The verifier takes parameters for separate memory. Inputs may share theirs; an output may lie in the input that it
// takes over.
// By address, so that a program with a parameter for each of a model's tensors is no square of them.
Status EvaluatorImpl::CheckOverlap(const Binding::State& state) {
  const auto of = [&](size_t i) -> const device::Buffer& {
    return state.buffers[static_cast<size_t>(code_.params[i].buffer)];
  };
  const auto clash = [&](size_t i, size_t j) {
    if (!code_.param_written[i] || !code_.param_used[j] || !device::Overlap(of(i), of(j))) return Status();
    if (code_.param_replaced[i] == static_cast<int>(j) && of(i).data == of(j).data) return Status();
    return InvalidArgument(Cat("%", program_.graph().params[i]->name, ", which the program writes, overlaps %",
                               program_.graph().params[j]->name));
  };
  auto& [by_address, read, written] = checked_;
  for (std::vector<size_t>* const list : {&by_address, &read, &written}) list->clear();
  for (size_t i = 0; i < code_.params.size(); ++i) {
    const bool is_there = code_.params[i].buffer >= 0 && (code_.param_written[i] || code_.param_used[i]);
    if (is_there && of(i).bytes > 0) by_address.push_back(i);
  }
  std::ranges::sort(by_address, std::less(), [&](size_t i) { return std::pair(of(i).data, i); });
  for (const size_t i : by_address) {
    const auto is_past = [&](size_t j) { return of(j).data + of(j).bytes <= of(i).data; };
    std::erase_if(written, is_past);
    for (const size_t j : written) {
      HIR_TRY(clash(i, j));
      HIR_TRY(clash(j, i));
    }
    if (code_.param_written[i]) {  // What is only read may lie on one another.
      std::erase_if(read, is_past);
      for (const size_t j : read) HIR_TRY(clash(i, j));
    }
    (code_.param_written[i] ? written : read).push_back(i);
  }
  return {};
}

// The arguments that no loop changes; addresses are filled in at each launch.
void EvaluatorImpl::FillArgs(std::span<const Argument> arguments, Binding::State& state) const {
  for (const LaunchCode& launch : code_.launches) {
    int64_t* args = state.args.data() + launch.args + launch.buffers.size() + launch.extents.size();
    for (int param : launch.scalars) *args++ = arguments[static_cast<size_t>(param)].scalar_bits;
  }
}

}  // namespace hir::host
