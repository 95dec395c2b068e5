#include "service/convert/tensor.h"

#include <iterator>
#include <string>
#include <utility>

#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The wire has numbers of its own: a new type gets the next one, whatever its place in the order of promotion.
constexpr std::pair<DType, pb::DType> kNumbers[] = {
    {DType::kBool, pb::DTYPE_BOOL},       {DType::kInt32, pb::DTYPE_INT32},       {DType::kInt64, pb::DTYPE_INT64},
    {DType::kFloat16, pb::DTYPE_FLOAT16}, {DType::kBFloat16, pb::DTYPE_BFLOAT16}, {DType::kFloat32, pb::DTYPE_FLOAT32},
    {DType::kFloat64, pb::DTYPE_FLOAT64}, {DType::kUInt8, pb::DTYPE_UINT8},       {DType::kInt8, pb::DTYPE_INT8},
};
static_assert(std::size(kNumbers) == std::size(kAllDTypes));

}  // namespace

Result<DType> FromProto(pb::DType dtype) {
  for (const auto& [own, number] : kNumbers) {
    if (number == dtype) return own;
  }
  return InvalidArgument(base::Cat("no dtype has the number ", static_cast<int>(dtype)));
}

pb::DType ToProto(DType dtype) {
  for (const auto& [own, number] : kNumbers) {
    if (own == dtype) return number;
  }
  HIR_CHECK(false);
  return pb::DTYPE_UNSPECIFIED;
}

Result<mesh::Sharding> FromProto(const pb::Sharding& sharding, size_t axes) {
  const mesh::DimensionForm form = {{sharding.mesh().shape().begin(), sharding.mesh().shape().end()},
                                    {sharding.mesh().devices().begin(), sharding.mesh().devices().end()},
                                    {sharding.axis_of_dimension().begin(), sharding.axis_of_dimension().end()},
                                    {sharding.dealt().begin(), sharding.dealt().end()}};
  return mesh::FromDimensionForm(form, axes);
}

void ToProto(const mesh::Sharding& sharding, pb::Sharding* out) {
  const mesh::DimensionForm form = mesh::ToDimensionForm(sharding);
  out->mutable_mesh()->mutable_shape()->Add(form.shape.begin(), form.shape.end());
  out->mutable_mesh()->mutable_devices()->Add(form.devices.begin(), form.devices.end());
  out->mutable_axis_of_dimension()->Add(form.axis_of_dimension.begin(), form.axis_of_dimension.end());
  for (const bool dealt : form.dealt) out->add_dealt(dealt);
}

std::vector<bool> FlagsFromProto(const google::protobuf::RepeatedField<bool>& flags, int axes) {
  if (flags.empty()) return std::vector<bool>(static_cast<size_t>(axes));
  return {flags.begin(), flags.end()};
}

void ToProto(const TensorSpec& spec, pb::TensorSpec* out) {
  out->set_dtype(ToProto(spec.dtype));
  for (const int64_t extent : spec.shape) out->add_shape(extent);
  for (const bool once : spec.stored_once) out->add_stored_once(once);
  ToProto(spec.sharding, out->mutable_sharding());
  out->mutable_memory_order()->Add(spec.memory_order.begin(), spec.memory_order.end());
}

void ToProto(const std::string& handle, const Tensor& tensor, pb::Tensor* out) {
  out->set_handle(handle);
  ToProto(tensor.spec(), out->mutable_spec());
  const Readiness::Condition condition = tensor.condition();
  switch (condition.state) {
    case TensorState::kPending: out->set_state(pb::TENSOR_STATE_PENDING); break;
    case TensorState::kReady: out->set_state(pb::TENSOR_STATE_READY); break;
    case TensorState::kPoisoned: out->set_state(pb::TENSOR_STATE_POISONED); break;
    case TensorState::kLost: out->set_state(pb::TENSOR_STATE_LOST); break;
  }
  if (!condition.error.ok()) ToProto(condition.error, out->mutable_error());
  out->set_stored_bytes(tensor.stored_bytes());
  const ShardSet& shards = tensor.shards();
  if (shards.shards().size() != 1 || shards.shards().front().bytes == 0) return;
  const ShardSet::Shard& shard = shards.shards().front();
  if (shard.within != 0) {
    out->set_memory(shard.within);
    out->set_memory_offset(shard.offset);
  } else if (shards.is_lent || (!shards.made_in.empty() && shards.host() != nullptr)) {
    out->set_memory(shard.id);
  }
}

}  // namespace hir::service
