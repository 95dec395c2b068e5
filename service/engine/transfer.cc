#include "service/engine/transfer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

ShardMap MapOf(const TensorSpec& spec, std::optional<int64_t> device) {
  if (!device.has_value()) return {spec, spec.stored_once};
  return ShardMap::OfShard(spec, static_cast<size_t>(*spec.sharding.mesh.PositionOf(*device)));
}

// The part that the device at `position` holds, its axes as they lie in memory; `whole`: what travels is that part
// alone.
SharedPart PartOf(const TensorSpec& spec, size_t position, bool whole, const SharedMemory* memory) {
  SharedPart part;
  part.device = spec.sharding.mesh.devices()[position];
  part.bytes = ShardBytes(spec);
  part.memory = memory;
  const mesh::PartRange range = mesh::ElementsOf(spec.sharding, spec.shape, part.device);
  for (size_t place = 0; place < spec.shape.size(); ++place) {
    const size_t axis = AxisInMemory(spec, place);
    const bool one = spec.stored_once[axis] || spec.shape[axis] == 1;  // On every device, also where it is split.
    part.stored.push_back(spec.stored_once[axis] ? 1 : range.block[axis]);
    if (one) {
      part.elements.push_back({0, std::min<int64_t>(1, spec.shape[axis])});
    } else if (whole) {
      part.elements.push_back({0, range.valid[axis].size()});
    } else {
      part.elements.push_back(range.valid[axis]);
    }
  }
  return part;
}

// The spec of what travels, a whole tensor or what `device` holds: its axes as they lie in memory.
TensorSpec SpecInMemory(const TensorSpec& spec, std::optional<int64_t> device) {
  TensorSpec out = spec;
  for (size_t place = 0; place < spec.shape.size(); ++place) {
    const size_t axis = AxisInMemory(spec, place);
    out.shape[place] = spec.shape[axis];
    if (device.has_value()) out.shape[place] = mesh::PartRangeOf(spec.sharding, spec.shape, *device).valid[axis].size();
    out.stored_once[place] = spec.stored_once[axis];
  }
  return out;
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

Status Upload::Expect(int64_t bytes) {
  if (bytes > map_.sent_bytes() - received_bytes_) {
    return InvalidArgument(
        base::Cat("the upload is longer than the ", map_.sent_bytes(), " bytes of ", ToString(spec_)));
  }
  HIR_TRY(shards_->charge.Grow(bytes * map_.copies()));
  store_.MakeRoom();
  if (store_.on_devices()) HIR_TRY(host_->staging.Grow(bytes * map_.copies()));
  return {};
}

void Upload::Write(std::string_view part) {
  map_.Scatter(received_bytes_, std::as_bytes(std::span(part)), addresses_);
  received_bytes_ += static_cast<int64_t>(part.size());
}

Status Upload::Reserve() {
  if (map_.repeats() || map_.sent_bytes() == 0) {
    return Status(Code::kFailedPrecondition, base::Cat("no memory is shared for ", ToString(spec_),
                                                       map_.repeats() ? ", whose elements are repeated: upload it"
                                                                      : ": it has no bytes; upload it"));
  }
  const int64_t bytes = map_.sent_bytes() * map_.copies();
  HIR_TRY(shards_->charge.Grow(bytes));
  store_.MakeRoom();
  if (store_.on_devices()) HIR_TRY(host_->staging.Grow(bytes));
  received_bytes_ = map_.sent_bytes();
  return {};
}

TensorSpec Upload::sent() const { return SpecInMemory(spec_, std::nullopt); }

std::vector<SharedPart> Upload::Parts() const {
  std::vector<SharedPart> parts;
  for (size_t position = 0; position < host_->memory.size(); ++position)
    parts.push_back(PartOf(spec_, position, false, &host_->memory[position]));
  return parts;
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
      device_(device),
      host_(std::move(host)),
      map_(MapOf(tensor_->spec(), device)),
      addresses_(host_->Addresses()),
      sent_(SpecInMemory(tensor_->spec(), device)) {}

std::vector<SharedPart> Download::Parts() const {
  const Result<std::vector<size_t>> positions = Positions(*tensor_, device_);
  HIR_CHECK(positions.ok());
  std::vector<SharedPart> parts;
  for (const size_t position : *positions)
    parts.push_back(PartOf(tensor_->spec(), position, device_.has_value(), &host_->memory[position]));
  return parts;
}

void Download::NoteReader(const std::string& session) {
  if (tensor_->shards().made_in != session) tensor_->shards().is_seen_by_others = true;
}

Status Download::AllowWrites(const std::string& session) {
  const ShardSet& shards = tensor_->shards();
  if (shards.made_in != session || shards.host() != host_) {
    return Status(Code::kPermissionDenied,
                  "writable: the tensor is not one that this session has made on CPU devices; share it for reading");
  }
  is_writable_ = true;
  return {};
}

std::string Download::Next(int64_t bytes_max) {
  std::string bytes(static_cast<size_t>(std::min(bytes_max, total_bytes() - sent_bytes_)), '\0');
  map_.Gather(sent_bytes_, std::as_writable_bytes(std::span(bytes)), addresses_);
  sent_bytes_ += static_cast<int64_t>(bytes.size());
  return bytes;
}

namespace {

Status CheckPastHost(const TensorSpec& spec, const std::vector<bool>& sent_once) {
  const auto by_host = [&](std::string_view why) -> Status {
    return {Code::kFailedPrecondition, base::Cat(ToString(spec), " goes by the host: ", why)};
  };
  const auto once = [](const std::vector<bool>& flags) { return std::ranges::find(flags, true) != flags.end(); };
  if (once(spec.stored_once) || once(sent_once)) return by_host("an axis has one element in memory");
  if (ShardBytes(spec) == 0) return by_host("it has no bytes");
  return {};
}

}  // namespace

Result<std::unique_ptr<DeviceTransfer>> DeviceTransfer::In(TensorStore& store, const std::string& session,
                                                           const TensorSpec& spec, const std::vector<bool>& sent_once,
                                                           bool lends) {
  HIR_TRY(store.CheckSession(session));
  if (!store.on_devices())
    return Status(Code::kFailedPrecondition, "the devices have no memory of their own: upload to the host's");
  if (lends) HIR_TRY(store.CheckLends(spec));
  const TensorStore::Use use = lends ? TensorStore::Use::kLent : TensorStore::Use::kOutput;
  HIR_ASSIGN(std::shared_ptr<ShardSet> shards, store.Allocate(session, spec, use));
  HIR_TRY(CheckPastHost(spec, sent_once));
  auto tensor = std::make_shared<Tensor>(spec, std::move(shards), TensorState::kReady);
  std::vector<size_t> positions(tensor->shards().shards().size());
  std::iota(positions.begin(), positions.end(), size_t{0});
  return std::unique_ptr<DeviceTransfer>(
      new DeviceTransfer(Way::kIn, std::move(tensor), std::nullopt, std::move(positions), lends));
}

Result<std::unique_ptr<DeviceTransfer>> DeviceTransfer::Out(std::shared_ptr<Tensor> tensor,
                                                            std::optional<int64_t> device) {
  HIR_TRY(CheckPastHost(tensor->spec(), {}));
  HIR_ASSIGN(std::vector<size_t> positions, Download::Positions(*tensor, device));
  return std::unique_ptr<DeviceTransfer>(
      new DeviceTransfer(Way::kOut, std::move(tensor), device, std::move(positions)));
}

DeviceTransfer::DeviceTransfer(Way way, std::shared_ptr<Tensor> tensor, std::optional<int64_t> device,
                               std::vector<size_t> positions, bool lends)
    : way_(way),
      lends_(lends),
      tensor_(std::move(tensor)),
      device_(device),
      positions_(std::move(positions)),
      sent_(SpecInMemory(tensor_->spec(), device)) {}

int64_t DeviceTransfer::total_bytes() const { return ShardBytes(tensor_->spec()) * std::ssize(positions_); }

std::vector<SharedPart> DeviceTransfer::Parts() const {
  std::vector<SharedPart> parts;
  for (const size_t position : positions_) {
    parts.push_back(PartOf(tensor_->spec(), position, device_.has_value(), nullptr));
    if (way_ == Way::kOut) continue;
    const ShardSet::Shard& shard = tensor_->shards().shards()[position];
    parts.back().within = shard.within;
    parts.back().offset = shard.offset;
  }
  return parts;
}

Status DeviceTransfer::Offer(std::vector<base::Fd> memory) {
  if (memory.size() != positions_.size())
    return InvalidArgument(base::Cat(memory.size(), " descriptors for ", positions_.size(), " shards"));
  memory_ = std::move(memory);
  return {};
}

std::vector<base::Fd> DeviceTransfer::TakeMemory() {
  HIR_CHECK(is_offered());
  std::vector<base::Fd> by_position(tensor_->shards().shards().size());
  for (size_t i = 0; i < memory_.size(); ++i) by_position[positions_[i]] = std::move(memory_[i]);
  memory_.clear();
  return by_position;
}

}  // namespace hir::service
