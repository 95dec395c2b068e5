#include "service/engine/profile.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/base/trace.h"
#include "csrc/base/traceparent.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// "k0" of "k0.1" and "k0.workspace", "y" of "y: f32[8]".
std::string Upto(std::string_view text, char end) { return std::string(text.substr(0, text.find(end))); }

bool IsCall(const pb::OpTime& time) {
  return time.op() == "library" || time.op() == "index_sum" || time.op() == "attention" ||
         time.op() == "grouped_product";
}

// The rows of the plan, by what is known of an op: see Key.
class Rows {
 public:
  Rows(const Program& program, const Sizes& sizes, pb::RunProfile& profile) : profile_(profile) {
    const pb::Explanation& explanation = program.plan().explanation();
    for (const pb::SegmentRecord& segment : explanation.segments()) {
      if (segment.kind() == "view") continue;  // No work.
      pb::SegmentTime& row = Add(segment.name(), segment.kind());
      if (const auto bytes = program.Evaluate(segment.bytes(), sizes); bytes.ok()) row.set_bytes(*bytes);
      const int index = profile_.segments_size() - 1;
      if (segment.kind() == "kernel") index_[Cat("kernel ", segment.name())] = index;
      if (segment.kind() == "library") {
        for (const std::string& output : segment.outputs()) index_[Cat("library ", Upto(output, ':'))] = index;
      }
      if (segment.kind() == "communication")
        index_[Cat("communication ", segment.name().substr(segment.name().find('#') + 1))] = index;
    }
    for (const pb::CommunicationRecord& record : explanation.communications()) {
      const auto first = index_.find(Cat("communication ", record.number()));
      if (first != index_.end() && record.count() > 1) counts_[record.number()] = record.count();
    }
  }

  pb::SegmentTime& Of(const pb::OpTime& time) {
    std::string key = Key(time);
    // A product in parts, or in a loop, writes into %y.part0, %y.1, ... of %y.
    for (std::string name = key; IsCall(time) && !index_.contains(key) && name.rfind('.') < name.size();) {
      name.resize(name.rfind('.'));
      if (index_.contains(name)) key = name;
    }
    auto [found, is_new] = index_.try_emplace(std::move(key), profile_.segments_size());
    if (is_new) Add(Cat(time.op(), " ", time.name()), "host");
    return *profile_.mutable_segments(found->second);
  }

 private:
  // A kernel by its name, with its launches and the fills of its workspaces; a communication by its number; the rest by
  // what it writes.
  std::string Key(const pb::OpTime& time) const {
    if (time.op() == "communication") return Cat("communication ", FirstOf(time.seq()));
    std::string kernel = Cat("kernel ", Upto(time.name(), '.'));
    const bool is_of_kernel =
        time.op() == "launch" || (time.op() == "fill" && time.name().find('.') != std::string::npos);
    if (is_of_kernel && index_.contains(kernel)) return kernel;
    return Cat(IsCall(time) ? "library" : time.op(), " ", time.name());
  }

  // The first number of the communication that has `seq` as one of its.
  int64_t FirstOf(int64_t seq) const {
    const auto behind = counts_.upper_bound(seq);
    if (behind == counts_.begin()) return seq;
    const auto& [first, count] = *std::prev(behind);
    const uint64_t after = static_cast<uint64_t>(seq) - static_cast<uint64_t>(first);  // Numbers may be any.
    return after < static_cast<uint64_t>(count) ? first : seq;
  }

  pb::SegmentTime& Add(const std::string& name, const std::string& kind) {
    pb::SegmentTime& row = *profile_.add_segments();
    row.set_name(name);
    row.set_kind(kind);
    return row;
  }

  pb::RunProfile& profile_;
  std::map<std::string, int, std::less<>> index_;  // Into its segments.
  std::map<int64_t, int64_t> counts_;              // Of communications with several numbers, by the first.
};

// Ranks may say anything; times of a steady clock can be subtracted from one another, and a track follows the stream's.
bool IsSpan(const pb::OpSpan& span) {
  constexpr int kStreamsMax = 1 << 16;
  return span.stream() >= 0 && span.stream() < kStreamsMax &&
         std::min({span.queued(), span.queued_end(), span.began(), span.ended()}) >= 0;
}

}  // namespace

pb::RunProfile ProfileOf(const Program& program, const Sizes& sizes, std::span<const pb::Measured> measured) {
  pb::RunProfile profile;
  Rows rows(program, sizes, profile);
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    for (const pb::OpTime& time : measured[rank].times()) {
      pb::SegmentTime& row = rows.Of(time);
      row.mutable_rank_us()->Resize(static_cast<int>(measured.size()), 0);
      double& us = *row.mutable_rank_us()->Mutable(static_cast<int>(rank));
      us += time.us();
    }
  }
  for (pb::SegmentTime& row : *profile.mutable_segments())
    row.mutable_rank_us()->Resize(static_cast<int>(measured.size()), 0);
  return profile;
}

std::string TimelineOf(const Program& program, std::string_view trace, std::span<const pb::Measured> measured) {
  std::vector<base::TraceSpan> spans;
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    const std::string& parent = measured[rank].traceparent();
    const std::string_view id = base::IsTraceparent(parent) ? base::TraceIdOf(parent) : std::string_view();
    for (const pb::OpSpan& span : measured[rank].spans()) {
      if (!IsSpan(span)) continue;
      spans.push_back({.rank = static_cast<int64_t>(rank),
                       .stream = span.stream(),
                       .name = span.name(),
                       .kind = span.kind(),
                       .queued = base::Nanos(span.queued()),
                       .queued_end = base::Nanos(span.queued_end()),
                       .began = base::Nanos(span.began()),
                       .ended = base::Nanos(span.ended()),
                       .trace = std::string(id)});
    }
  }
  return base::TraceJson(program.plan().name(), spans, trace);
}

}  // namespace hir::service
