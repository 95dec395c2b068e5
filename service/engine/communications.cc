#include "service/engine/communications.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The type of each communication, by its number.
std::map<int64_t, std::string_view> TypesOf(const Program& program) {
  std::map<int64_t, std::string_view> types;
  for (const pb::CommunicationRecord& record : program.plan().explanation().communications()) {
    for (int64_t i = 0; i < std::max<int64_t>(1, record.count()); ++i) types[record.number() + i] = record.type();
  }
  return types;
}

// "Allreduce #3": 3.
std::optional<int64_t> NumberIn(std::string_view name) {
  const size_t at = name.find('#');
  return at == std::string_view::npos ? std::nullopt : base::ParseInt(name.substr(at + 1));
}

}  // namespace

void Count(const Communications& communications) {
  for (const CommunicatedBytes& one : communications) one.type->bytes.Add(one.bytes);
}

std::shared_ptr<const Communications> CommunicationBytes::Of(const Program& program, const Sizes& sizes) {
  const auto& records = program.plan().explanation().communications();
  if (records.empty()) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] = known_.try_emplace({program.number(), sizes});
  if (!is_new) return found->second;
  auto made = std::make_shared<Communications>();
  for (const pb::CommunicationRecord& record : records) {
    int64_t ranks = 0;
    for (const pb::RankList& team : record.team()) ranks += team.ranks_size();
    const Result<int64_t> bytes = program.Evaluate(record.bytes(), sizes);
    if (bytes.ok()) made->push_back({&metrics_.communications.Of(record.type()), *bytes * ranks});
  }
  order_.push_back(found->first);
  const std::shared_ptr<const Communications> result = found->second = std::move(made);
  if (order_.size() > kKept) {
    known_.erase(order_.front());
    order_.pop_front();
  }
  return result;
}

void CountTimes(const Program& program, std::span<const pb::Measured> measured, Metrics& metrics) {
  const std::map<int64_t, std::string_view> types = TypesOf(program);
  const auto count = [&](std::optional<int64_t> number, base::Nanos time) {
    const auto found = number ? types.find(*number) : types.end();
    if (found != types.end()) metrics.communications.Of(found->second).time.Add(time);
  };
  for (const pb::Measured& rank : measured) {
    for (const pb::OpTime& time : rank.times()) {
      if (time.op() == "communication") count(time.seq(), base::Nanos(static_cast<int64_t>(time.us() * 1e3)));
    }
    for (const pb::OpSpan& span : rank.spans()) {
      if (span.kind() == "communication") count(NumberIn(span.name()), base::Nanos(span.ended() - span.began()));
    }
  }
}

}  // namespace hir::service
