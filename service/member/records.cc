#include "service/member/records.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/convert/tensor.h"
#include "service/member/json.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr size_t kValueBytesMax = size_t{1} << 20;  // etcd takes requests of 1.5 MiB.

constexpr std::string_view kState = "/state/";
constexpr std::string_view kDrained = "drained/";

// Its key behind "/hostir/NAME/state/".
std::string_view NameIn(const Kv::Entry& entry) {
  const std::string_view key = entry.key;
  const size_t at = key.find(kState);
  return at == std::string_view::npos ? std::string_view() : key.substr(at + kState.size());
}

std::string SessionKey(const std::string& session) { return "sessions/" + session; }
// No name has a space.
std::string NameKey(const std::string& owner, const std::string& name) { return base::Cat("names/", owner, " ", name); }

void Fill(const TensorSpec& spec, const std::vector<ShardSet::Shard>& shards, pb::TensorRecord& record) {
  ToProto(spec, record.mutable_spec());
  for (const ShardSet::Shard& shard : shards) {
    pb::TensorRecord::Shard& said = *record.add_shards();
    said.set_device(shard.device);
    said.set_id(shard.id);
    said.set_bytes(shard.bytes);
  }
}

Result<Inheritance::Tensor> TensorOf(const pb::TensorRecord& record, int64_t num_devices, const WhyLost& why_lost) {
  const pb::TensorSpec& spec = record.spec();
  Inheritance::Tensor tensor;
  HIR_ASSIGN(tensor.spec.dtype, FromProto(spec.dtype()));
  tensor.spec.shape.assign(spec.shape().begin(), spec.shape().end());
  tensor.spec.stored_once = FlagsFromProto(spec.stored_once(), spec.shape_size());
  if (spec.has_sharding()) {
    HIR_ASSIGN(tensor.spec.sharding, FromProto(spec.sharding(), tensor.spec.shape.size()));
  }
  tensor.spec.memory_order.assign(spec.memory_order().begin(), spec.memory_order().end());
  HIR_TRY(CheckSpec(tensor.spec, num_devices));
  const int64_t bytes = ShardBytes(tensor.spec);
  const std::span<const int64_t> devices = tensor.spec.sharding.mesh.devices();
  if (std::ssize(devices) != record.shards_size())
    return Status(Code::kDataLoss, base::Cat(record.shards_size(), " shards on ", devices.size(), " devices"));
  for (int i = 0; i < record.shards_size(); ++i) {
    const pb::TensorRecord::Shard& shard = record.shards(i);
    if (shard.device() != devices[static_cast<size_t>(i)] || shard.bytes() != bytes || shard.id() < 1)
      return Status(Code::kDataLoss, base::Cat("shard ", shard.id(), " is none of ", ToString(tensor.spec)));
    tensor.shards.push_back({shard.device(), shard.id(), shard.bytes()});
    if (tensor.lost.ok() && shard.bytes() > 0) tensor.lost = why_lost(shard.device(), shard.id());
  }
  return tensor;
}

}  // namespace

void Records::Inherit(const Inheritance& inheritance) {
  for (const Inheritance::Session& session : inheritance.sessions) sessions_.insert(session.id);
  for (const Inheritance::Handle& handle : inheritance.handles) {
    if (handle.tensor.lost.ok()) Remember(handle.session, handle.handle, handle.tensor.spec, handle.tensor.shards);
  }
}

void Records::Remember(const std::string& session, const std::string& handle, const TensorSpec& spec,
                       const std::vector<ShardSet::Shard>& shards) {
  if (!sessions_.contains(session)) return;
  pb::TensorRecord record;
  record.set_session(session);
  record.set_handle(handle);
  Fill(spec, shards, record);
  remembered_->Add(std::move(record));
}

void Records::Opened(const std::string& session, const std::string& principal, int64_t lease_ms) {
  if (lease_ms <= 0) return;  // It ends with its client's connection.
  sessions_.insert(session);
  pb::SessionRecord record;
  record.set_principal(principal);
  record.set_lease_ms(lease_ms);
  keep_(SessionKey(session), ToJson(record));
}

void Records::Closed(const std::string& session) {
  if (sessions_.erase(session) > 0) keep_(SessionKey(session), std::nullopt);
}

void Records::Added(const std::string& session, const std::string& handle, const Tensor& tensor) {
  Remember(session, handle, tensor.spec(), tensor.shards().shards());
}

void Records::Freed(const std::string& handle) { remembered_->Forget(handle); }

void Records::Named(const std::string& owner, const std::string& name, bool everyone, const Tensor* tensor,
                    const std::string* program) {
  pb::NameRecord record;
  record.set_owner(owner);
  record.set_name(name);
  record.set_everyone(everyone);
  if (tensor != nullptr) Fill(tensor->spec(), tensor->shards().shards(), *record.mutable_tensor());
  if (program != nullptr) record.set_program(*program);
  std::string json = ToJson(record);
  if (json.size() > kValueBytesMax) {
    spdlog::warn("name={} does not outlive this head: its text has {} bytes, and etcd takes {}", base::Quoted(name),
                 json.size(), kValueBytesMax);
    return Withdrawn(owner, name);
  }
  keep_(NameKey(owner, name), std::move(json));
}

void Records::Withdrawn(const std::string& owner, const std::string& name) { keep_(NameKey(owner, name), {}); }

void Records::Drained(int64_t node, bool drained) {
  keep_(base::Cat(kDrained, node), drained ? std::optional<std::string>("true") : std::nullopt);
}

std::set<int64_t> DrainedOf(const std::vector<Kv::Entry>& kept) {
  std::set<int64_t> nodes;
  for (const Kv::Entry& entry : kept) {
    const std::string_view key = NameIn(entry);
    if (!key.starts_with(kDrained)) continue;
    if (const auto node = base::ParseInt(key.substr(kDrained.size()))) nodes.insert(*node);
  }
  return nodes;
}

Inheritance InheritanceOf(const std::vector<Kv::Entry>& kept, const pb::Directory& directory, int64_t num_devices,
                          const WhyLost& why_lost) {
  Inheritance inheritance;
  const auto drop = [](std::string_view what, const Status& why) {
    spdlog::error("{} of a head before is dropped error={}", what, base::Quoted(why.ToString()));
  };
  for (const Kv::Entry& entry : kept) {
    const std::string_view key = NameIn(entry);
    if (key.starts_with("sessions/")) {
      pb::SessionRecord record;
      if (const Status parsed = ParseEntry(entry, record); !parsed.ok()) {
        drop(entry.key, parsed);
        continue;
      }
      inheritance.sessions.push_back(
          {std::string(key.substr(std::string_view("sessions/").size())), record.principal(), record.lease_ms()});
    } else if (key.starts_with("names/")) {
      pb::NameRecord record;
      if (const Status parsed = ParseEntry(entry, record); !parsed.ok()) {
        drop(entry.key, parsed);
        continue;
      }
      Inheritance::Name name = {.owner = record.owner(), .name = record.name(), .everyone = record.everyone()};
      name.program = record.program();
      if (record.has_tensor()) {
        Result<Inheritance::Tensor> tensor = TensorOf(record.tensor(), num_devices, why_lost);
        if (!tensor.ok()) {
          drop(entry.key, tensor.status());
          continue;
        }
        name.tensor = *std::move(tensor);
      }
      inheritance.names.push_back(std::move(name));
    }
  }
  for (const pb::TensorRecord& record : directory.tensors()) {
    Result<Inheritance::Tensor> tensor = TensorOf(record, num_devices, why_lost);
    if (!tensor.ok()) {
      drop("a tensor", tensor.status());
      continue;
    }
    inheritance.handles.push_back({record.session(), record.handle(), *std::move(tensor)});
  }
  return inheritance;
}

}  // namespace hir::service
