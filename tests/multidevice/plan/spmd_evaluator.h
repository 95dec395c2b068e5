// Runs a localized program on all ranks in one thread: op by op, each rank's part by the reference interpreter,
// communications by copying between the ranks' tensors. The oracle of multidevice/plan: what comes out must be what the
// global program gives.
#pragma once

#include <cstring>
#include <map>
#include <set>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "multidevice/plan/check_plan.h"
#include "multidevice/plan/localize.h"
#include "multidevice/plan/resharding.h"

namespace hir::plan {

using fusion::HostTensor;
using mesh::PartRange;

// Calls `visit(position of the element in the whole, position in the block)` for each element of the block `ranges` of
// `shape`.
template <typename Visit>
void ForEachInBlock(const std::vector<int64_t>& shape, const std::vector<mesh::Range>& ranges, const Visit& visit) {
  int64_t count = 1;
  for (const mesh::Range& range : ranges) count *= range.size();
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n, whole = 0, stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      whole += (ranges[axis].begin + rest % ranges[axis].size() * ranges[axis].step) * stride;
      rest /= ranges[axis].size();
      stride *= shape[axis];
    }
    visit(whole, n);
  }
}

// The same for the elements of a part that are no padding; its memory holds the padding, too.
template <typename Visit>
void ForEachInPart(const std::vector<int64_t>& shape, const PartRange& part, const Visit& visit) {
  std::vector<mesh::Range> ranges = part.valid;
  for (mesh::Range& range : ranges) range.end = std::max(range.begin, range.end);
  std::vector<int64_t> sizes;
  for (const mesh::Range& range : ranges) sizes.push_back(range.size());
  ForEachInBlock(shape, ranges, [&](int64_t whole, int64_t n) {
    int64_t at = 0, stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      at += n % sizes[axis] * stride;
      n /= sizes[axis];
      stride *= part.block[axis];
    }
    visit(whole, at);
  });
}

inline HostTensor BlockOfTensor(const HostTensor& whole, const std::vector<mesh::Range>& ranges) {
  std::vector<int64_t> shape;
  for (const mesh::Range& range : ranges) shape.push_back(range.size());
  HostTensor block = fusion::ZeroTensor(whole.dtype, shape);
  const auto size = static_cast<size_t>(DTypeBytes(whole.dtype));
  ForEachInBlock(whole.shape, ranges, [&](int64_t from, int64_t to) {
    std::memcpy(&block.bytes[static_cast<size_t>(to) * size], &whole.bytes[static_cast<size_t>(from) * size], size);
  });
  return block;
}

class SpmdEvaluator {
 public:
  SpmdEvaluator(const LocalProgram& program, fusion::SymbolValues symbols)
      : program_(program), symbols_(std::move(symbols)) {
    for (const ir::Mesh& mesh : program.graph->meshes())
      devices_.insert(mesh.mesh.devices().begin(), mesh.mesh.devices().end());
    for (const int64_t device : devices_) {
      fusion::SymbolValues own = symbols_;
      for (const ir::Mesh& mesh : program.graph->meshes()) {
        const std::optional<int64_t> position = mesh.mesh.PositionOf(device);
        for (const mesh::ParallelType type : mesh::kMeshTypes) {
          const std::string symbol = base::Cat("@", mesh.name, ".", mesh::ParallelTypeName(type).substr(5));
          own[symbol] = position ? mesh.mesh.Coordinate(*position, type) : 0;
        }
      }
      symbols_of_[device] = std::move(own);
    }
  }

  // Whole inputs to whole outputs. Errors: a guard that does not hold; kInternal for what a right plan never does.
  Result<std::vector<HostTensor>> Run(std::span<const HostTensor> inputs) {
    for (const ir::Guard& guard : program_.graph->guards) {
      HIR_ASSIGN(const int64_t left, fusion::ValueOf(guard.left, symbols_));
      HIR_ASSIGN(const int64_t right, fusion::ValueOf(guard.right, symbols_));
      if (guard.kind == ir::Guard::Kind::kEqual ? left != right : left > right) return InvalidArgument(guard.reason);
    }
    for (size_t i = 0; i < inputs.size(); ++i) HIR_TRY(Scatter(program_.inputs[i], inputs[i]));
    for (const ir::Op* op = program_.graph->body.first; op != nullptr; op = op->next) {
      if (Status s = RunOp(*op); !s.ok()) return s.WithContext(base::Cat("%", op->results[0]->name));
    }
    std::vector<HostTensor> outputs;
    for (const Boundary& output : program_.outputs) {
      HIR_ASSIGN(outputs.emplace_back(), Gather(output));
    }
    return outputs;
  }

 private:
  using Parts = std::map<int64_t, HostTensor>;  // By device.

  Status Scatter(const Boundary& input, const HostTensor& whole) {
    Parts& parts = parts_[input.local];
    if (!input.sharding) {
      for (const int64_t device : devices_) parts[device] = whole;
      return {};
    }
    const auto size = static_cast<size_t>(DTypeBytes(whole.dtype));
    for (const int64_t device : input.sharding->mesh.devices()) {
      const PartRange range = ElementsOf(*input.sharding, whole.shape, device);
      HostTensor& part = parts[device] = fusion::ZeroTensor(whole.dtype, range.block);
      std::ranges::fill(part.bytes, std::byte{0x55});  // Padding that whoever reads it can see.
      ForEachInPart(whole.shape, range, [&](int64_t from, int64_t to) {
        std::memcpy(&part.bytes[static_cast<size_t>(to) * size], &whole.bytes[static_cast<size_t>(from) * size], size);
      });
      HIR_TRY(CheckShape(*input.local, device));
    }
    return {};
  }

  Result<HostTensor> Gather(const Boundary& output) {
    HIR_ASSIGN(const std::vector<int64_t> shape, fusion::ShapeOf(*output.global, symbols_));
    HostTensor whole = fusion::ZeroTensor(output.global->dtype, shape);
    const auto size = static_cast<size_t>(DTypeBytes(whole.dtype));
    std::vector<bool> written(static_cast<size_t>(whole.num_elements()), false);
    bool differs = false;
    for (const int64_t device : output.sharding->mesh.devices()) {
      const PartRange range = ElementsOf(*output.sharding, shape, device);
      HIR_ASSIGN(const HostTensor* const part, PartOf(*output.local, device));
      if (part->shape != range.block) return Internal(base::Cat("output %", output.name));
      ForEachInPart(shape, range, [&](int64_t at, int64_t n) {
        const auto to = static_cast<size_t>(at);
        const std::byte* element = &part->bytes[static_cast<size_t>(n) * size];
        differs |= written[to] && std::memcmp(&whole.bytes[to * size], element, size) != 0;
        std::memcpy(&whole.bytes[to * size], element, size);
        written[to] = true;
      });
    }
    if (differs) return Internal(base::Cat("copies of output %", output.name, " differ"));
    for (const bool w : written) {
      if (!w) return Internal(base::Cat("a part of output %", output.name, " is nowhere"));
    }
    HIR_TRY(CheckStored(output));
    return whole;
  }

  // The rank stores the axes that the global type stores: its memory has the size that the daemon expects.
  Status CheckStored(const Boundary& output) {
    const std::vector<ir::Axis> global = ir::ValueAxes(*output.global);
    const std::vector<ir::Axis> local = ir::ValueAxes(*output.local->type);
    for (size_t i = 0; i < global.size(); ++i) {
      const bool at_most_one = local[i].extent->IsConst(1) || local[i].extent->IsConst(0);
      if (global[i].kind == local[i].kind || at_most_one) continue;
      return Internal(base::Cat("output %", output.name, " is ", ir::ToString(*output.global), ", a part is ",
                                ir::ToString(*output.local->type)));
    }
    return {};
  }

  Result<const HostTensor*> PartOf(const ir::Value& value, int64_t device) {
    const auto found = parts_[&value].find(device);
    if (found == parts_[&value].end()) return Internal(base::Cat("device ", device, " holds no part of %", value.name));
    return &found->second;
  }

  Status CheckShape(const ir::Value& value, int64_t device) {
    HIR_ASSIGN(const std::vector<int64_t> shape, fusion::ShapeOf(*value.type, symbols_of_[device]));
    if (shape == parts_[&value][device].shape) return {};
    return Internal(base::Cat("%", value.name, " on device ", device, " has shape [",
                              base::JoinInts(parts_[&value][device].shape, ", "), "], its type says [",
                              base::JoinInts(shape, ", "), "]"));
  }

  Status RunOp(const ir::Op& op) {
    const ir::Value& result = *op.results[0];
    if (result.type->kind == ir::TypeKind::kScalar) return {};  // The interpreter inlines scalars.
    if (result.layout == nullptr) return Internal("no layout");
    for (const int64_t device : result.layout->mesh->mesh.devices()) {
      if (fusion::IsCommunication(fusion::CodeOf(op))) {
        HIR_ASSIGN(parts_[&result][device], Communicate(op, device));
      } else {
        Status missing;
        const auto tensor_of = [&](const ir::Value* value) -> const HostTensor& {
          const Result<const HostTensor*> part = PartOf(*value, device);
          if (!part.ok()) missing = part.status();
          static const HostTensor none;
          return part.ok() ? **part : none;
        };
        for (const ir::Value* operand : op.operands) {
          if (operand->type->kind == ir::TypeKind::kTensor) HIR_TRY(PartOf(*operand, device).status());
        }
        HIR_ASSIGN(parts_[&result][device], fusion::InterpretOp(op, symbols_of_[device], tensor_of));
        HIR_TRY(missing);
      }
      HIR_TRY(CheckShape(result, device));
    }
    return {};
  }

  // What `device` has when the communication is over.
  Result<HostTensor> Communicate(const ir::Op& op, int64_t device) {
    const ir::Value& x = *op.operands[0];
    const fusion::FusionOp code = fusion::CodeOf(op);
    if (fusion::IsBetweenMeshes(code)) return BetweenMeshes(op, device);
    const mesh::DeviceMesh& mesh = op.MeshOf("mesh")->mesh;
    const mesh::ParallelType type = *mesh::ParseParallelType(op.Name("dim"));
    const int64_t own = mesh.Coordinate(*mesh.PositionOf(device), type);
    std::vector<const HostTensor*> parts;
    for (const int64_t peer : mesh.Team(device, type)) {
      HIR_ASSIGN(parts.emplace_back(), PartOf(x, peer));
    }
    if (parts.size() < 2) return Internal("a communication of one rank");
    if (code == fusion::FusionOp::kAllreduce) return Reduce(parts, op.Name("reduce"));
    if (code == fusion::FusionOp::kReduceScatter) return ChunkOf(Reduce(parts, op.Name("reduce")), own);
    std::vector<HostTensor> chunks;
    for (const HostTensor* part : parts) {
      chunks.push_back(code == fusion::FusionOp::kAllgather ? *part : ChunkOf(*part, own));
    }
    return Stacked(chunks);
  }

  Result<HostTensor> BetweenMeshes(const ir::Op& op, int64_t device) {
    const ir::Value& x = *op.operands[0];
    const mesh::DeviceMesh& from = op.MeshOf("from")->mesh;
    const mesh::DeviceMesh& to = op.MeshOf("to")->mesh;
    const fusion::FusionOp code = fusion::CodeOf(op);
    const std::optional<int64_t> position = to.PositionOf(device);
    if (!position) return Internal(base::Cat("device ", device, " receives nothing"));
    const auto at = static_cast<size_t>(*position);
    if (code == fusion::FusionOp::kBroadcastTo || code == fusion::FusionOp::kScatterTo) {
      const auto length = static_cast<size_t>(to.Size(mesh::ParallelType::kMeshX));
      HIR_ASSIGN(const HostTensor* const part, PartOf(x, from.devices()[at / length]));
      if (code == fusion::FusionOp::kBroadcastTo) return *part;
      return ChunkOf(*part, static_cast<int64_t>(at % length));
    }
    if (code == fusion::FusionOp::kSendRecv || code == fusion::FusionOp::kCollectivePermute) {
      HIR_ASSIGN(const HostTensor* const part, PartOf(x, from.devices()[at]));
      return *part;
    }
    std::vector<const HostTensor*> parts;
    const std::vector<std::vector<int64_t>> rows = RowsOf(from);
    for (const int64_t peer : rows[at]) {
      HIR_ASSIGN(parts.emplace_back(), PartOf(x, peer));
    }
    if (parts.size() < 2) return Internal("a communication of one rank");
    if (code == fusion::FusionOp::kReduceTo) return Reduce(parts, op.Name("reduce"));
    std::vector<HostTensor> chunks;
    for (const HostTensor* part : parts) chunks.push_back(*part);
    return Stacked(chunks);
  }

  static HostTensor Stacked(const std::vector<HostTensor>& chunks) {
    HostTensor stacked = chunks[0];
    stacked.shape.insert(stacked.shape.begin(), std::ssize(chunks));
    for (size_t i = 1; i < chunks.size(); ++i) {
      stacked.bytes.insert(stacked.bytes.end(), chunks[i].bytes.begin(), chunks[i].bytes.end());
    }
    return stacked;
  }

  // Chunk `index` of the leading axis, without that axis.
  static HostTensor ChunkOf(const HostTensor& x, int64_t index) {
    std::vector<mesh::Range> ranges;
    for (const int64_t extent : x.shape) ranges.push_back({0, extent});
    ranges[0] = {index, index + 1};
    HostTensor chunk = BlockOfTensor(x, ranges);
    chunk.shape.erase(chunk.shape.begin());
    return chunk;
  }

  static HostTensor Reduce(const std::vector<const HostTensor*>& parts, std::string_view reduce) {
    const auto combine = [&](auto a, auto b) -> decltype(a) {
      // Integers wrap: those of padding may be any.
      using Wide = std::conditional_t<std::is_integral_v<decltype(a)>, uint64_t, double>;
      const auto x = static_cast<Wide>(a), y = static_cast<Wide>(b);
      if (reduce == "sum" || reduce == "mean") return static_cast<decltype(a)>(x + y);
      if (reduce == "prod") return static_cast<decltype(a)>(x * y);
      return reduce == "min" ? std::min(a, b) : std::max(a, b);
    };
    if (!IsFloat(parts[0]->dtype)) {
      std::vector<int64_t> total = fusion::ToInts(*parts[0]);
      for (size_t i = 1; i < parts.size(); ++i) {
        const std::vector<int64_t> more = fusion::ToInts(*parts[i]);
        for (size_t k = 0; k < total.size(); ++k) total[k] = combine(total[k], more[k]);
      }
      return fusion::TensorOfInts(parts[0]->dtype, parts[0]->shape, total);
    }
    std::vector<double> total = fusion::ToDoubles(*parts[0]);
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::vector<double> more = fusion::ToDoubles(*parts[i]);
      for (size_t k = 0; k < total.size(); ++k) total[k] = combine(total[k], more[k]);
    }
    if (reduce == "mean") {
      for (double& element : total) element /= static_cast<double>(parts.size());
    }
    return fusion::TensorOf(parts[0]->dtype, parts[0]->shape, total);
  }

  const LocalProgram& program_;
  fusion::SymbolValues symbols_;
  std::set<int64_t> devices_;
  std::map<int64_t, fusion::SymbolValues> symbols_of_;
  std::map<const ir::Value*, Parts> parts_;
};

}  // namespace hir::plan
