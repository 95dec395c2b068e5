#include "service/member/election.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/text.h"
#include "service/member/json.h"
#include "service/store/store.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr int kSteps = 16;  // Of one look; others may change what it has seen.
// Limits of one transaction: etcd takes 128 operations, and 1.5 MiB.
constexpr size_t kWritesMax = 64;
constexpr size_t kWriteBytesMax = size_t{1} << 20;

std::string NodeKey(int64_t number) {
  std::string digits = base::Cat(number);
  return base::Cat("nodes/", std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0'), digits);
}

}  // namespace

Election::Election(ElectionOptions options, Kv& kv, const base::Clock& clock)
    : options_(std::move(options)), kv_(kv), clock_(clock) {}

std::string Election::Key(std::string_view name) const { return base::Cat("/hostir/", options_.cluster, "/", name); }

Status Election::Look(bool stands) {
  if (lease_ != 0 && clock_.Now() - kept_alive_ >= options_.lease / 4) {
    const base::Nanos asked = clock_.Now();
    HIR_ASSIGN(const bool is_alive, kv_.KeepAlive(lease_));
    if (is_alive) kept_alive_ = asked;
    if (!is_alive) lease_ = 0;
  }
  if (lease_ == 0) {
    is_live_ = false;
    const base::Nanos asked = clock_.Now();
    HIR_ASSIGN(lease_, kv_.Grant(options_.lease));
    kept_alive_ = asked;
  }
  for (int step = 0; step < kSteps; ++step) {
    const Result<bool> more = Step(stands);
    if (more.status().code() == Code::kNotFound) {  // Its lease: it was over before what was to be under it.
      lease_ = 0;
      return {};
    }
    HIR_TRY(more.status());
    if (!*more) return {};
  }
  return Unavailable("etcd: what others write there does not come to rest");
}

void Election::Depose() {
  if (std::exchange(own_term_, 0) == 0) return;
  was_deposed_ = true;
  view_.heads = false;
  view_.nodes.clear();
  unwritten_.clear();
}

void Election::Leave() {
  if (lease_ != 0) (void)kv_.Revoke(std::exchange(lease_, 0));
  own_term_ = 0;
  view_.heads = false;
}

Result<bool> Election::Step(bool stands) {
  if (view_.own < 0 || !is_live_) return Register();
  HIR_ASSIGN(const bool more, LookForHead(stands));
  if (more || own_term_ == 0) return more;
  if (view_.nodes.empty()) HIR_TRY(ListNodes());
  HIR_TRY(Write());
  return false;
}

Result<bool> Election::Register() {
  HIR_ASSIGN(const std::vector<Kv::Entry> lead, kv_.List(Key("lead/cluster")));
  if (lead.empty()) {
    pb::ClusterRecord cluster;
    cluster.set_id(RandomId());
    cluster.set_size(options_.size);
    const std::string key = Key("lead/cluster");
    HIR_TRY(kv_.Commit({.when = {{.key = key}}, .puts = {{key, ToJson(cluster)}}}).status());
    return true;
  }
  HIR_ASSIGN(const pb::ClusterRecord cluster, FromEntry<pb::ClusterRecord>(lead.front()));
  if (cluster.size() != options_.size) {
    return Status(Code::kFailedPrecondition, base::Cat("the cluster ", options_.cluster, " has ", cluster.size(),
                                                       " nodes, and --cluster-size is ", options_.size));
  }
  view_.cluster_id = cluster.id();
  HIR_ASSIGN(const std::vector<Kv::Entry> entries, kv_.List(Key("nodes/")));
  std::vector<std::string> others;
  const Kv::Entry* own = nullptr;
  for (const Kv::Entry& entry : entries) {
    HIR_ASSIGN(const pb::NodeRecord record, FromEntry<pb::NodeRecord>(entry));
    if (record.address() == options_.self.address()) own = &entry;
    others.push_back(record.address());
  }
  const std::string json = ToJson(options_.self);
  for (int64_t number = 0; number < options_.size; ++number) {
    const std::string key = Key(NodeKey(number));
    const auto there = std::ranges::find(entries, key, &Kv::Entry::key);
    if (own != nullptr ? own->key != key : there != entries.end()) continue;
    Kv::Transaction take = {.when = {{.key = key}},
                            .puts = {{key, json}, {Key(base::Cat("live/", number)), options_.self.address(), lease_}}};
    if (own != nullptr) take.when.front().value = own->value;
    HIR_ASSIGN(const bool taken, kv_.Commit(take));
    if (!taken) return true;
    view_.own = number;
    is_live_ = true;
    return true;
  }
  return Status(Code::kFailedPrecondition, base::Cat("the cluster ", options_.cluster, " has its ", options_.size,
                                                     " nodes: ", base::Join(others, ", "),
                                                     "; to have this one in place of another, erase that one's key (",
                                                     "etcdctl del ", Key(NodeKey(0)), " of the first)"));
}

Result<bool> Election::LookForHead(bool stands) {
  const std::string head_key = Key("lead/head");
  const std::string term_key = Key("lead/term");
  HIR_ASSIGN(const std::vector<Kv::Entry> lead, kv_.List(Key("lead/")));
  const auto find = [&](const std::string& key) { return std::ranges::find(lead, key, &Kv::Entry::key); };
  const auto head = find(head_key);
  const auto term = find(term_key);
  if (term != lead.end()) view_.term = std::max(view_.term, base::ParseInt(term->value).value_or(0));
  view_.head.reset();
  if (head != lead.end()) {
    HIR_ASSIGN(view_.head, FromEntry<pb::HeadRecord>(*head));
    view_.term = std::max(view_.term, view_.head->term());
  }
  if (view_.term > own_term_) Depose();  // Another was elected while this one was away.
  const bool is_new = own_term_ == 0;
  if (head != lead.end() && head->lease == lease_) {
    if (is_new) HIR_TRY(Begin(*view_.head));  // It was elected, and never heard.
    return false;
  }
  if (is_new && (head != lead.end() || !stands || was_deposed_)) return false;
  // A head that is there now is this one, under a lease that is over in a moment.
  pb::HeadRecord record;
  record.set_term(is_new ? view_.term + 1 : own_term_);
  record.set_node(view_.own);
  record.set_address(options_.self.address());
  record.set_listen(options_.listen);
  Kv::Transaction stand = {.when = {{.key = head_key}, {.key = term_key}},
                           .puts = {{head_key, ToJson(record), lease_}, {term_key, base::Cat(record.term())}}};
  if (head != lead.end()) stand.when[0].value = head->value;
  if (term != lead.end()) stand.when[1].value = term->value;
  HIR_ASSIGN(const bool elected, kv_.Commit(stand));
  if (elected && is_new) HIR_TRY(Begin(record));
  return true;
}

Status Election::Begin(const pb::HeadRecord& head) {
  HIR_ASSIGN(view_.kept, kv_.List(Key("state/")));
  unwritten_.clear();  // Of an earlier headship, if anything.
  own_term_ = view_.term = head.term();
  view_.heads = true;
  view_.head = head;
  return {};
}

Status Election::ListNodes() {
  HIR_ASSIGN(const std::vector<Kv::Entry> entries, kv_.List(Key("nodes/")));
  std::vector<pb::NodeRecord> nodes;
  for (const Kv::Entry& entry : entries) {
    HIR_ASSIGN(pb::NodeRecord record, FromEntry<pb::NodeRecord>(entry));
    nodes.push_back(std::move(record));
  }
  view_.num_registered = std::ssize(nodes);
  if (view_.num_registered >= options_.size) view_.nodes = std::move(nodes);
  return {};
}

Status Election::Write() {
  while (!unwritten_.empty()) {
    Kv::Transaction write = {.when = {{.key = Key("lead/head"), .lease = lease_}}};
    auto next = unwritten_.begin();
    for (size_t count = 0, bytes = 0; count < kWritesMax && next != unwritten_.end(); ++count, ++next) {
      bytes += next->first.size() + (next->second ? next->second->size() : 0);
      if (count > 0 && bytes > kWriteBytesMax) break;
      const std::string key = Key(base::Cat("state/", next->first));
      if (next->second) {
        write.puts.push_back({key, *next->second});
      } else {
        write.erased.push_back(key);
      }
    }
    HIR_ASSIGN(const bool written, kv_.Commit(write));
    if (!written) return {};  // The next look sees why.
    unwritten_.erase(unwritten_.begin(), next);
  }
  return {};
}

}  // namespace hir::service
