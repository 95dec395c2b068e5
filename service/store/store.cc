#include "service/store/store.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

constexpr size_t kFreedMax = 1024;
constexpr size_t kNameBytesMax = 256;

// Whether value * times is at most max, without computing it.
bool Fits(int64_t value, int64_t times, int64_t max) { return times == 0 || value <= max / times; }

Status CheckName(const std::string& name) {
  const auto is_fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:").find(c) != std::string_view::npos;
  };
  if (!name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), is_fit)) return {};
  return InvalidArgument(base::Cat("the name ", base::Quoted(name.substr(0, 64)), ": want 1 to ", kNameBytesMax,
                                   " letters, digits and _-./:"));
}

}  // namespace

std::string RandomId() {
  constexpr size_t kBytes = 16;
  // 256 is what the kernel gives whole, whatever happens; a run of many outputs asks seldom.
  thread_local std::array<unsigned char, 256> drawn = {};
  thread_local size_t used = drawn.size();
  if (used == drawn.size()) {
    HIR_CHECK(getrandom(drawn.data(), drawn.size(), 0) == static_cast<ssize_t>(drawn.size()));
    used = 0;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out(2 * kBytes, '0');
  for (size_t i = 0; i < kBytes; ++i) {
    unsigned char& byte = drawn[used++];
    out[2 * i] = kDigits[byte >> 4];
    out[2 * i + 1] = kDigits[byte & 15];
    byte = 0;  // Nobody reads an id here that was given out.
  }
  return out;
}

TensorStore::TensorStore(StoreOptions options, std::shared_ptr<ReleasedShards> released)
    : options_(options),
      released_(std::move(released)),
      pool_(std::make_shared<ShardPool>(options.recycled_bytes_max, released_)),
      bytes_("tensor_bytes_max", "bytes of tensors", options.tensor_bytes_max),
      staging_("staging_bytes_max", "bytes of tensors on their way to and from devices", options.staging_bytes_max),
      journal_(options_.journal),
      next_shard_(options_.first_shard) {
  for (const StoreNode& node : options_.nodes) {
    node_of_.insert(node_of_.end(), static_cast<size_t>(node.num_devices), of_nodes_.size());
    of_nodes_.push_back(std::make_unique<Budget>(base::Cat("tensor_bytes_max of ", node.name), "bytes of tensors there",
                                                 node.bytes_max));
  }
}

Result<std::vector<Charge>> TensorStore::ChargeNodes(std::span<const int64_t> devices, int64_t bytes) {
  std::vector<Charge> charges(of_nodes_.size());
  for (const int64_t device : devices) {
    if (of_nodes_.empty()) break;
    const size_t node = node_of_[static_cast<size_t>(device)];
    if (charges[node].amount() == 0) {
      HIR_ASSIGN(charges[node], of_nodes_[node]->Take(bytes));
    } else {
      HIR_TRY(charges[node].Grow(bytes));
    }
  }
  return charges;
}

Result<std::string> TensorStore::OpenSession(std::string principal, int64_t lease_ms) {
  const std::scoped_lock lock(mutex_);
  std::string id = RandomId();
  HIR_TRY(AddSession(id, principal));
  if (journal_ != nullptr) journal_->Opened(id, principal, lease_ms);
  return id;
}

void TensorStore::EndJournal() {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(journal_, nullptr) != nullptr) released_->End();
}

Status TensorStore::AddSession(std::string id, std::string principal) {
  if (static_cast<int64_t>(sessions_.size()) >= options_.sessions_max) {
    return ResourceExhausted(base::Cat("sessions_max = ", options_.sessions_max, ": all are in use; close some"));
  }
  std::unique_ptr<Principal>& quota = principals_[principal];
  if (quota == nullptr) quota = std::make_unique<Principal>(options_, bytes_);
  if (quota->num_sessions >= options_.principal_sessions_max) {
    return ResourceExhausted(base::Cat("principal_sessions_max = ", options_.principal_sessions_max, ": ", principal,
                                       " has as many sessions; close some"));
  }
  ++quota->num_sessions;
  pool_->Open(id);
  sessions_.emplace(std::move(id), Session{std::move(principal), quota.get(), {}, {}});
  return {};
}

std::vector<std::shared_ptr<Tensor>> TensorStore::Inherit(const Inheritance& inheritance) {
  const std::scoped_lock lock(mutex_);
  const std::shared_ptr<Journal> journal = std::exchange(journal_, nullptr);  // It knows.
  for (const Inheritance::Session& session : inheritance.sessions) (void)AddSession(session.id, session.principal);
  std::map<int64_t, std::shared_ptr<Tensor>> made;  // By the first of their shards.
  const auto make = [&](const Inheritance::Tensor& of, const std::string& principal) -> std::shared_ptr<Tensor> {
    if (const auto there = made.find(of.shards.front().id); there != made.end()) return there->second;
    int64_t bytes = 0;
    for (const ShardSet::Shard& shard : of.shards) bytes += shard.bytes;
    std::unique_ptr<Principal>& quota = principals_[principal];
    if (quota == nullptr) quota = std::make_unique<Principal>(options_, bytes_);
    Result<Charge> charge = quota->bytes.Take(of.lost.ok() ? bytes : 0);
    if (!charge.ok()) return nullptr;
    auto shards = std::make_shared<ShardSet>(of.shards, nullptr, released_);
    shards->charge = *std::move(charge);
    if (Result<std::vector<Charge>> of_nodes = ChargeNodes(of.spec.sharding.mesh.devices(), of.shards.front().bytes);
        of_nodes.ok() && of.lost.ok())
      shards->node_charges = *std::move(of_nodes);
    auto tensor = std::make_shared<Tensor>(of.spec, std::move(shards), TensorState::kReady);
    if (!of.lost.ok()) tensor->readiness()->Lose(of.lost);
    return made.emplace(of.shards.front().id, std::move(tensor)).first->second;
  };
  for (const Inheritance::Handle& handle : inheritance.handles) {
    const auto session = sessions_.find(handle.session);
    if (session == sessions_.end()) continue;
    std::shared_ptr<Tensor> tensor = make(handle.tensor, session->second.principal);
    if (tensor != nullptr) (void)Insert(session->second, handle.handle, std::move(tensor));
  }
  for (const Inheritance::Name& name : inheritance.names) {
    Name given = {.published = {}, .charge = {}, .everyone = name.everyone};
    if (!name.tensor.shards.empty()) {
      given.published.tensor = make(name.tensor, name.owner);
      if (given.published.tensor == nullptr) continue;
    }
    std::unique_ptr<Principal>& quota = principals_[name.owner];
    if (quota == nullptr) quota = std::make_unique<Principal>(options_, bytes_);
    if (given.published.tensor == nullptr) {
      Result<Charge> charge = quota->bytes.Take(std::ssize(name.program));
      if (!charge.ok()) continue;
      given.charge = *std::move(charge);
      given.published.program = std::make_shared<const std::string>(name.program);
    }
    (void)SetName(name.owner, *quota, name.name, given);
  }
  std::vector<std::shared_ptr<Tensor>> tensors;
  for (auto& [shard, tensor] : made) tensors.push_back(std::move(tensor));
  journal_ = journal;
  return tensors;
}

std::string TensorStore::PrincipalOf(std::string_view session) const {
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? "" : found->second.principal;
}

void TensorStore::CloseSession(std::string_view session) {
  Session closed;  // Its tensors go when the lock is released.
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  pool_->Close(session);  // Before its tensors go, which would come there.
  closed = std::move(found->second);
  sessions_.erase(found);
  --closed.quota->num_sessions;
  for (const auto& [handle, tensor] : closed.tensors) {
    Uncount(*closed.quota, tensor.get());
    if (journal_ != nullptr) journal_->Freed(handle);
  }
  if (journal_ != nullptr) journal_->Closed(std::string(session));
}

Status TensorStore::CheckSession(std::string_view session) const {
  const std::scoped_lock lock(mutex_);
  return FindSession(session).status();
}

Result<const TensorStore::Session*> TensorStore::FindSession(std::string_view session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) {
    return Status(Code::kFailedPrecondition,
                  session.empty() ? "no session: call Connect first" : "no such session: its Connect stream has ended");
  }
  return &found->second;
}

Result<std::shared_ptr<ShardSet>> TensorStore::Allocate(std::string_view session, const TensorSpec& spec, Use use) {
  HIR_TRY(CheckSpec(spec, options_.num_devices));
  const int64_t bytes = ShardBytes(spec);
  const mesh::DeviceMesh& mesh = spec.sharding.mesh;
  if (!Fits(bytes, mesh.num_devices(), options_.tensor_bytes_max)) {
    return ResourceExhausted(base::Cat("tensor_bytes_max = ", options_.tensor_bytes_max, ": ", ToString(spec),
                                       " takes ", bytes, " bytes on each of ", mesh.num_devices(),
                                       " devices; start the daemon with a higher limit"));
  }
  if (use == Use::kOutput && options_.on_devices) {
    HIR_ASSIGN(std::shared_ptr<ShardSet> in_lent, AllocateInLent(session, mesh, bytes));
    if (in_lent != nullptr) return in_lent;
  }
  Budget* budget = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    HIR_ASSIGN(const Session* found, FindSession(session));
    budget = &found->quota->bytes;
  }
  HIR_ASSIGN(Charge charge, budget->Take(use == Use::kUpload ? 0 : bytes * mesh.num_devices()));
  HIR_ASSIGN(std::vector<Charge> node_charges, ChargeNodes(mesh.devices(), bytes));
  MakeRoom();
  ShardSet::Recycle recycle;
  if (use == Use::kOutput && !options_.on_devices && bytes > 0) {
    recycle = [pool = pool_, session = std::string(session)](std::vector<ShardSet::Shard> shards,
                                                             std::shared_ptr<HostShards> host) {
      pool->Keep(session, {std::move(shards), std::move(host)});
    };
    if (auto kept = pool_->Take(session, mesh.devices(), bytes)) {
      auto set =
          std::make_shared<ShardSet>(std::move(kept->shards), std::move(kept->host), released_, std::move(recycle));
      set->made_in = session;
      set->charge = std::move(charge);
      return set;
    }
  }
  int64_t id = 0;
  {
    const std::scoped_lock lock(mutex_);
    id = next_shard_;
    next_shard_ += mesh.num_devices();
  }
  std::vector<ShardSet::Shard> shards;
  for (const int64_t device : mesh.devices()) shards.push_back({device, id++, bytes});
  std::shared_ptr<HostShards> host;
  if (use == Use::kUpload || !options_.on_devices) {
    Result<std::shared_ptr<HostShards>> created = Create(shards.size(), bytes);
    if (created.status().code() == Code::kResourceExhausted && pool_->bytes() > 0) {
      pool_->Trim(0);
      created = Create(shards.size(), bytes);
    }
    HIR_ASSIGN(host, std::move(created));
  }
  auto set = std::make_shared<ShardSet>(std::move(shards), std::move(host), released_, std::move(recycle));
  if (!options_.on_devices) set->made_in = session;
  set->is_lent = use == Use::kLent;
  set->charge = std::move(charge);
  set->node_charges = std::move(node_charges);
  return set;
}

Result<std::shared_ptr<ShardSet>> TensorStore::AllocateInLent(std::string_view session, const mesh::DeviceMesh& mesh,
                                                              int64_t bytes) {
  const std::shared_ptr<ShardSet> none;
  if (mesh.num_devices() != 1 || bytes == 0) return none;
  const int64_t device = mesh.devices()[0];
  const std::scoped_lock lock(mutex_);
  HIR_TRY(FindSession(session).status());
  std::vector<std::shared_ptr<LentMemory>>& lent = sessions_.find(session)->second.lent;
  std::erase_if(lent, [](const auto& memory) { return memory->tensor().condition().state != TensorState::kReady; });
  for (const std::shared_ptr<LentMemory>& memory : lent) {
    if (memory->device() != device) continue;
    std::shared_ptr<const LentPlace> place = memory->Take(bytes);
    if (place == nullptr) continue;
    const ShardSet::Shard shard = {device, next_shard_++, bytes, place->shard(), place->offset()};
    auto set = std::make_shared<ShardSet>(std::vector{shard}, nullptr, released_);
    set->lent = std::move(place);
    return set;
  }
  return none;
}

Status TensorStore::CheckLends(const TensorSpec& spec) const {
  if (!options_.on_devices || spec.sharding.mesh.num_devices() != 1)
    return Status(Code::kFailedPrecondition, base::Cat(ToString(spec), " cannot be lent: it is not whole on one GPU"));
  if (!options_.nodes.empty())
    return Status(Code::kFailedPrecondition, "memory is lent to a daemon of one node, not to a cluster");
  return {};
}

Status TensorStore::Lend(std::string_view session, std::shared_ptr<Tensor> tensor) {
  const std::scoped_lock lock(mutex_);
  HIR_TRY(FindSession(session).status());
  sessions_.find(session)->second.lent.push_back(std::make_shared<LentMemory>(std::move(tensor)));
  return {};
}

Result<std::shared_ptr<HostShards>> TensorStore::Create(size_t count, int64_t bytes) {
  auto host = std::make_shared<HostShards>();
  HIR_ASSIGN(host->staging, staging_.Take(0));
  for (size_t i = 0; i < count; ++i) {
    HIR_ASSIGN(SharedMemory memory, SharedMemory::Create(bytes));
    host->memory.push_back(std::move(memory));
  }
  return host;
}

Result<std::shared_ptr<HostShards>> TensorStore::AllocateCopy(const ShardSet& shards,
                                                              std::span<const size_t> positions) {
  auto host = std::make_shared<HostShards>();
  host->memory.resize(shards.shards().size());
  HIR_ASSIGN(host->staging, staging_.Take(0));
  for (const size_t position : positions) {
    const int64_t bytes = shards.shards()[position].bytes;
    HIR_TRY(host->staging.Grow(bytes));
    HIR_ASSIGN(host->memory[position], SharedMemory::Create(bytes));
  }
  return host;
}

Status TensorStore::Count(Principal& quota, const Tensor* tensor) {
  if (num_handles_ >= options_.tensors_max) {
    return ResourceExhausted(base::Cat("tensors_max = ", options_.tensors_max, ": all handles are in use; free some"));
  }
  if (quota.num_handles >= options_.principal_tensors_max) {
    return ResourceExhausted(base::Cat("principal_tensors_max = ", options_.principal_tensors_max,
                                       ": all handles of this user are in use; free some"));
  }
  ++num_handles_;
  ++quota.num_handles;
  if (tensor != nullptr) ++handles_[tensor];
  return {};
}

void TensorStore::Uncount(Principal& quota, const Tensor* tensor) {
  --num_handles_;
  --quota.num_handles;
  if (tensor != nullptr && --handles_[tensor] == 0) handles_.erase(tensor);
}

Result<std::string> TensorStore::AddHandle(std::string_view session, std::shared_ptr<Tensor> tensor) {
  const std::scoped_lock lock(mutex_);
  HIR_TRY(FindSession(session).status());
  std::string handle = RandomId();
  const Tensor& added = *tensor;
  HIR_TRY(Insert(sessions_.find(session)->second, handle, std::move(tensor)));
  if (journal_ != nullptr) journal_->Added(std::string(session), handle, added);
  return handle;
}

Status TensorStore::Insert(Session& session, const std::string& handle, std::shared_ptr<Tensor> tensor) {
  HIR_TRY(Count(*session.quota, tensor.get()));
  session.tensors.emplace(handle, std::move(tensor));
  return {};
}

Result<std::shared_ptr<Tensor>> TensorStore::FindIn(const Session& session, std::string_view handle) {
  if (const auto found = session.tensors.find(std::string(handle)); found != session.tensors.end()) {
    return found->second;
  }
  if (std::find(session.freed.begin(), session.freed.end(), handle) != session.freed.end()) {
    return Status(Code::kFailedPrecondition, base::Cat("handle ", handle, " was freed"));
  }
  return Status(Code::kNotFound, base::Cat("no handle \"", handle.substr(0, 64), "\" in this session"));
}

Result<std::shared_ptr<Tensor>> TensorStore::Find(std::string_view session, std::string_view handle) const {
  const std::scoped_lock lock(mutex_);
  HIR_ASSIGN(const Session* found, FindSession(session));
  return FindIn(*found, handle);
}

Result<TensorStore::Freed> TensorStore::Free(std::string_view session, std::span<const std::string> handles,
                                             bool those_there) {
  Freed freed;
  const std::scoped_lock lock(mutex_);
  HIR_TRY(FindSession(session).status());
  Session& found = sessions_.find(session)->second;
  for (const std::string& handle : handles) {
    if (!those_there) HIR_TRY(FindIn(found, handle).status());
  }
  for (const std::string& handle : handles) {
    const auto at = found.tensors.find(handle);
    if (at == found.tensors.end()) continue;  // Named twice, or gone.
    Uncount(*found.quota, at->second.get());
    std::erase_if(found.lent, [&](const auto& memory) { return &memory->tensor() == at->second.get(); });
    freed.push_back(std::move(at->second));
    found.tensors.erase(at);
    if (journal_ != nullptr) journal_->Freed(handle);
    found.freed.push_back(handle);
    if (found.freed.size() > kFreedMax) found.freed.pop_front();
  }
  return freed;
}

bool TensorStore::Replace(std::string_view session, std::string_view handle, const std::shared_ptr<Tensor>& old,
                          std::shared_ptr<Tensor> made) {
  const std::scoped_lock lock(mutex_);
  const auto of = sessions_.find(session);
  // A later daemon could not tell what was in it when this one ended.
  if (of == sessions_.end() || journal_ != nullptr) return false;
  const auto at = of->second.tensors.find(std::string(handle));
  if (at == of->second.tensors.end() || at->second != old || handles_[old.get()] != 1) return false;
  if (old.use_count() > 2) return false;  // The handle's and the caller's are there.
  const ShardSet& shards = old->shards();
  if (shards.is_lent || shards.is_seen_by_others) return false;
  const std::shared_ptr<HostShards> host = shards.host();
  // On devices it is on its way there. Else somebody reads it who has another pointer than the set's and this one.
  if (host != nullptr && (options_.on_devices || host.use_count() > 2)) return false;
  handles_.erase(old.get());
  ++handles_[made.get()];
  at->second = std::move(made);
  return true;
}

void TensorStore::PutBack(std::string_view session, std::string_view handle, std::shared_ptr<Tensor> old) {
  const std::scoped_lock lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return;
  const auto at = of->second.tensors.find(std::string(handle));
  if (at == of->second.tensors.end()) return;
  if (--handles_[at->second.get()] == 0) handles_.erase(at->second.get());
  ++handles_[old.get()];
  at->second = std::move(old);
}

Status TensorStore::SetName(const std::string& owner, Principal& quota, const std::string& name, Name& given) {
  const auto at = named_.find({owner, name});
  if (at != named_.end()) Uncount(quota, at->second.published.tensor.get());
  if (Status status = Count(quota, given.published.tensor.get()); !status.ok()) return status;
  if (journal_ != nullptr)
    journal_->Named(owner, name, given.everyone, given.published.tensor.get(), given.published.program.get());
  if (at == named_.end()) {
    named_.emplace(std::pair(owner, name), std::exchange(given, {}));
  } else {
    std::swap(at->second, given);
  }
  return {};
}

Status TensorStore::Publish(std::string_view session, std::string_view handle, const std::string& name, bool everyone) {
  HIR_TRY(CheckName(name));
  Name given;  // What had the name goes when the lock is released.
  const std::scoped_lock lock(mutex_);
  HIR_ASSIGN(const Session* found, FindSession(session));
  HIR_ASSIGN(given.published.tensor, FindIn(*found, handle));
  given.everyone = everyone;
  return SetName(found->principal, *found->quota, name, given);
}

Status TensorStore::PublishProgram(std::string_view session, std::string text, const std::string& name, bool everyone) {
  HIR_TRY(CheckName(name));
  Name given;  // As above.
  const std::scoped_lock lock(mutex_);
  HIR_ASSIGN(const Session* found, FindSession(session));
  HIR_ASSIGN(given.charge, found->quota->bytes.Take(std::ssize(text)));
  given.published.program = std::make_shared<const std::string>(std::move(text));
  given.everyone = everyone;
  return SetName(found->principal, *found->quota, name, given);
}

Result<TensorStore::Published> TensorStore::FindNamed(std::string_view session, std::string_view owner,
                                                      std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  HIR_ASSIGN(const Session* found, FindSession(session));
  const std::string of(owner.empty() ? found->principal : owner);
  const auto at = named_.find({of, std::string(name)});
  if (at != named_.end() && (of == found->principal || at->second.everyone)) return at->second.published;
  return Status(Code::kNotFound, base::Cat("nothing is named ", base::Quoted(name.substr(0, 64)), " of ",
                                           base::Quoted(of.substr(0, 64)), " that ", found->principal, " may read"));
}

Status TensorStore::Withdraw(std::string_view session, std::string_view name) {
  Name gone;  // It goes when the lock is released.
  const std::scoped_lock lock(mutex_);
  HIR_ASSIGN(const Session* found, FindSession(session));
  const auto at = named_.find({found->principal, std::string(name)});
  if (at == named_.end()) {
    return Status(Code::kNotFound, base::Cat("nothing is named ", base::Quoted(name.substr(0, 64)), " of ",
                                             base::Quoted(found->principal)));
  }
  Uncount(*found->quota, at->second.published.tensor.get());
  gone = std::move(at->second);
  if (journal_ != nullptr) journal_->Withdrawn(found->principal, at->first.second);
  named_.erase(at);
  return {};
}

Result<std::vector<TensorStore::Named>> TensorStore::Names(std::string_view session) const {
  const std::scoped_lock lock(mutex_);
  HIR_ASSIGN(const Session* found, FindSession(session));
  std::vector<Named> names;
  for (const auto& [key, name] : named_) {
    if (key.first == found->principal || name.everyone)
      names.push_back({key.first, key.second, name.everyone, name.published});
  }
  return names;
}

int64_t TensorStore::num_tensors() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(handles_.size());
}

std::map<std::string, int64_t> TensorStore::sessions_by_principal() const {
  std::map<std::string, int64_t> sessions;
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, session] : sessions_) ++sessions[session.principal];
  return sessions;
}

int64_t TensorStore::num_sessions() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(sessions_.size());
}

}  // namespace hir::service
