#include "service/cluster/tickets.h"

#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr size_t kSecretBytesLeast = 32;
constexpr size_t kShown = 8;  // Of a ticket, in an error: it is a secret.

Status Wrong(const pb::Ticket& ticket) {
  return Internal(base::Cat("a ticket for ", ticket.shards_size(), " shards of ", ticket.bytes(), " bytes, of ",
                            ticket.secret().size(), " characters"));
}

}  // namespace

Status Tickets::Add(const pb::Grant& grant, const std::shared_ptr<KeptShards>& kept) {
  std::vector<int64_t> made;
  std::vector<Entry> entries;
  const auto add = [&]() -> Status {
    for (const pb::Ticket& ticket : grant.tickets()) {
      const bool one = ticket.writes() ? !ticket.shards().empty() : ticket.shards_size() == 1;
      if (!one || ticket.bytes() < 1 || ticket.secret().size() < kSecretBytesLeast) return Wrong(ticket);
      Entry& entry = entries.emplace_back();
      entry.writes = ticket.writes();
      entry.use.grant = grant.number();
      entry.use.kept = kept;
      entry.use.bytes = ticket.bytes();
      entry.use.receipt = ticket.receipt();
      for (const int64_t shard : ticket.shards()) {
        KeptShards::Memory memory = kept->Find(shard);
        if (ticket.writes() ? memory != nullptr : memory == nullptr || memory->bytes() != ticket.bytes())
          return Internal(base::Cat("a ticket to ", ticket.writes() ? "write" : "read", " shard ", shard, ", which is ",
                                    memory == nullptr ? "not " : "", "kept here"));
        if (ticket.writes()) {
          HIR_ASSIGN(memory, kept->GetForClient(shard, ticket.bytes()));
          made.push_back(shard);
        }
        entry.use.shards.push_back(shard);
        entry.use.memory.push_back(std::move(memory));
      }
    }
    return {};
  };
  if (Status status = add(); !status.ok()) {
    kept->Drop(made);
    return status;
  }
  const std::scoped_lock lock(mutex_);
  if (grants_.contains(grant.number())) {
    kept->Drop(made);
    return Internal(base::Cat("grant ", grant.number(), " is there already"));
  }
  if (tickets_.size() + entries.size() > kTicketsMax) {
    kept->Drop(made);
    return ResourceExhausted(base::Cat(tickets_.size(), " tickets are unused here, and at most ", kTicketsMax, " are"));
  }
  Granted& granted = grants_[grant.number()];
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& secret = grant.tickets(static_cast<int>(i)).secret();
    entries[i].use.is_over = granted.is_over;
    granted.secrets.push_back(secret);
    tickets_.emplace(secret, std::move(entries[i]));
  }
  return {};
}

Result<Tickets::Use> Tickets::Begin(std::string_view secret, bool writes, std::function<void()> stop) {
  const std::scoped_lock lock(mutex_);
  const auto found = tickets_.find(secret);
  if (found == tickets_.end() || found->second.writes != writes) {
    return Status(Code::kNotFound,
                  base::Cat("no ticket ", base::Quoted(secret.substr(0, kShown)), "... to ", writes ? "write" : "read",
                            " a shard here: it has been used, is over, or "
                            "never was; ask the head for another"));
  }
  Use use = std::move(found->second.use);
  tickets_.erase(found);
  use.number = ++last_use_;
  grants_[use.grant].stops.emplace(use.number, std::move(stop));
  return use;
}

void Tickets::End(const Use& use) {
  const std::scoped_lock lock(mutex_);
  const auto found = grants_.find(use.grant);
  if (!*use.is_over && found != grants_.end()) found->second.stops.erase(use.number);
}

void Tickets::End(Granted& granted) {
  *granted.is_over = true;
  for (const auto& [number, stop] : granted.stops) stop();
}

Result<std::string> Tickets::Written(const Use& use) {
  const std::scoped_lock lock(mutex_);
  if (*use.is_over) return Status(Code::kAborted, "the ticket was revoked while its bytes came");
  use.kept->SetWhole(use.shards, true);
  return use.receipt;
}

void Tickets::Revoke(int64_t number) {
  const std::scoped_lock lock(mutex_);
  const auto found = grants_.find(number);
  if (found == grants_.end()) return;
  End(found->second);
  for (const std::string& secret : found->second.secrets) tickets_.erase(secret);
  grants_.erase(found);
}

void Tickets::Clear() {
  const std::scoped_lock lock(mutex_);
  for (auto& [number, granted] : grants_) End(granted);
  tickets_.clear();
  grants_.clear();
}

}  // namespace hir::service
