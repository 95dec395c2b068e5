#include "service/engine/transfer.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

ShardMap MapOf(const TensorSpec& spec, std::optional<int64_t> device) {
  if (!device.has_value()) return {spec, spec.stored_once};
  return ShardMap::OfShard(spec, static_cast<size_t>(*spec.sharding.mesh.PositionOf(*device)));
}

}  // namespace

Result<std::unique_ptr<Upload>> Upload::Begin(TensorStore& store, std::string session, const TensorSpec& spec,
                                              const std::vector<bool>& sent_once) {
  HIR_TRY(store.CheckSession(session));
  if (sent_once.size() != spec.shape.size()) {
    return InvalidArgument(base::Cat(sent_once.size(), " sent-once flags for ", spec.shape.size(), " axes"));
  }
  for (size_t axis = 0; axis < spec.shape.size() && axis < spec.stored_once.size(); ++axis) {
    if (spec.stored_once[axis] && !sent_once[axis] && spec.shape[axis] > 1) {
      return InvalidArgument(base::Cat("axis ", axis, " is stored once: send an array whose stride there is 0"));
    }
  }
  HIR_ASSIGN(std::shared_ptr<ShardSet> shards, store.Allocate(session, spec, TensorStore::Use::kUpload));
  return std::unique_ptr<Upload>(new Upload(store, std::move(session), spec, sent_once, std::move(shards)));
}

Upload::Upload(TensorStore& store, std::string session, TensorSpec spec, const std::vector<bool>& sent_once,
               std::shared_ptr<ShardSet> shards)
    : store_(store),
      session_(std::move(session)),
      spec_(std::move(spec)),
      map_(spec_, sent_once),
      shards_(std::move(shards)),
      host_(shards_->host()),
      addresses_(host_->Addresses()) {}

Status Upload::Add(std::string_view chunk) {
  const int64_t bytes = static_cast<int64_t>(chunk.size());
  if (bytes > map_.sent_bytes() - received_bytes_) {
    return InvalidArgument(
        base::Cat("the upload is longer than the ", map_.sent_bytes(), " bytes of ", ToString(spec_)));
  }
  HIR_TRY(shards_->charge.Grow(bytes * map_.copies()));
  store_.MakeRoom();
  if (store_.on_devices()) HIR_TRY(host_->staging.Grow(bytes * map_.copies()));
  map_.Scatter(received_bytes_, std::as_bytes(std::span(chunk)), addresses_);
  received_bytes_ += bytes;
  return {};
}

Result<Upload::Stored> Upload::End() {
  if (received_bytes_ != map_.sent_bytes()) {
    return InvalidArgument(base::Cat("the upload ended after ", received_bytes_, " of the ", map_.sent_bytes(),
                                     " bytes of ", ToString(spec_)));
  }
  // Padding was not sent, but is there.
  const int64_t padding = ShardBytes(spec_) * spec_.sharding.mesh.num_devices() - received_bytes_ * map_.copies();
  HIR_TRY(shards_->charge.Grow(padding));
  store_.MakeRoom();
  if (store_.on_devices()) HIR_TRY(host_->staging.Grow(padding));
  Stored stored;
  stored.tensor = std::make_shared<Tensor>(spec_, shards_, TensorState::kReady);
  HIR_ASSIGN(stored.handle, store_.AddHandle(session_, stored.tensor));
  return stored;
}

Result<std::vector<size_t>> Download::Positions(const Tensor& tensor, std::optional<int64_t> device) {
  const TensorSpec& spec = tensor.spec();
  if (!device.has_value()) return ShardMap(spec, spec.stored_once).SourcePositions();
  const auto position = spec.sharding.mesh.PositionOf(*device);
  if (!position.has_value()) {
    return InvalidArgument(base::Cat("device ", *device, " holds no shard: the tensor lies ", Describe(spec.sharding)));
  }
  return std::vector<size_t>{static_cast<size_t>(*position)};
}

Download::Download(std::shared_ptr<Tensor> tensor, std::optional<int64_t> device, std::shared_ptr<HostShards> host)
    : tensor_(std::move(tensor)),
      host_(std::move(host)),
      map_(MapOf(tensor_->spec(), device)),
      addresses_(host_->Addresses()),
      shape_(tensor_->spec().shape) {
  if (!device.has_value()) return;
  const TensorSpec& spec = tensor_->spec();
  shape_.clear();
  for (const mesh::Range& range : mesh::PartRangeOf(spec.sharding, spec.shape, *device).valid)
    shape_.push_back(range.size());
}

std::string Download::Next(int64_t bytes_max) {
  std::string bytes(static_cast<size_t>(std::min(bytes_max, total_bytes() - sent_bytes_)), '\0');
  map_.Gather(sent_bytes_, std::as_writable_bytes(std::span(bytes)), addresses_);
  sent_bytes_ += static_cast<int64_t>(bytes.size());
  return bytes;
}

}  // namespace hir::service
