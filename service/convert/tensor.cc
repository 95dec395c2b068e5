#include "service/convert/tensor.h"

#include <string>
#include <utility>

#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

}  // namespace

static_assert(static_cast<int>(DType::kBool) + 1 == pb::DTYPE_BOOL);
static_assert(static_cast<int>(DType::kInt32) + 1 == pb::DTYPE_INT32);
static_assert(static_cast<int>(DType::kInt64) + 1 == pb::DTYPE_INT64);
static_assert(static_cast<int>(DType::kFloat16) + 1 == pb::DTYPE_FLOAT16);
static_assert(static_cast<int>(DType::kBFloat16) + 1 == pb::DTYPE_BFLOAT16);
static_assert(static_cast<int>(DType::kFloat32) + 1 == pb::DTYPE_FLOAT32);
static_assert(static_cast<int>(DType::kFloat64) + 1 == pb::DTYPE_FLOAT64);

Result<DType> FromProto(pb::DType dtype) {
  if (dtype < pb::DTYPE_BOOL || dtype > pb::DTYPE_FLOAT64) {
    return InvalidArgument(base::Cat("no dtype has the number ", static_cast<int>(dtype)));
  }
  return static_cast<DType>(static_cast<int>(dtype) - 1);
}

pb::DType ToProto(DType dtype) { return static_cast<pb::DType>(static_cast<int>(dtype) + 1); }

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
