#include "host_ir/order.h"

#include <algorithm>

namespace hir::host {
namespace {

bool Precedes(const Stretch& a, const Stretch& b) {
  return a.stream != b.stream ? a.stream < b.stream : a.from < b.from;
}

void Append(Clock& clock, const Stretch& next) {
  const bool touches = !clock.empty() && clock.back().stream == next.stream && next.from <= clock.back().to + 1;
  if (touches) {
    clock.back().to = std::max(clock.back().to, next.to);
  } else {
    clock.push_back(next);
  }
}

}  // namespace

bool AtMost(const Clock& a, const Clock& b) {
  size_t at = 0;
  for (const Stretch& part : a) {
    const auto before = [&part](const Stretch& s) {
      return s.stream != part.stream ? s.stream < part.stream : s.to < part.from;
    };
    while (at < b.size() && before(b[at])) ++at;
    if (at == b.size() || b[at].stream != part.stream || b[at].from > part.from || b[at].to < part.to) return false;
  }
  return true;
}

void Join(Clock& into, const Clock& from) {
  if (AtMost(from, into)) return;
  Clock both;
  both.reserve(into.size() + from.size());
  size_t i = 0, j = 0;
  while (i < into.size() || j < from.size()) {
    const bool first = j == from.size() || (i < into.size() && Precedes(into[i], from[j]));
    Append(both, first ? into[i++] : from[j++]);
  }
  into = std::move(both);
}

void Meet(Clock& into, const Clock& from) {
  if (AtMost(into, from)) return;
  Clock both;
  size_t i = 0, j = 0;
  while (i < into.size() && j < from.size()) {
    const Stretch &a = into[i], &b = from[j];
    if (a.stream != b.stream) {
      ++(a.stream < b.stream ? i : j);
      continue;
    }
    const Stretch shared = {a.stream, std::max(a.from, b.from), std::min(a.to, b.to)};
    if (shared.from <= shared.to) both.push_back(shared);
    ++(a.to < b.to ? i : j);
  }
  into = std::move(both);
}

bool Holds(const Clock& clock, const Point& point) {
  return std::any_of(clock.begin(), clock.end(), [&point](const Stretch& part) {
    return part.stream == point.stream && part.from <= point.position && point.position <= part.to;
  });
}

int Order::Id(const ir::Expr* stream) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].name == stream) return static_cast<int>(i);
  }
  streams_.push_back({stream, {}, 0});
  return static_cast<int>(streams_.size()) - 1;
}

Point Order::Queue(const ir::Expr* stream) {
  const int id = Id(stream);
  Stream& s = streams_[static_cast<size_t>(id)];
  ++s.position;
  Join(s.clock, {{id, s.position, s.position}});
  return {id, s.position};
}

bool Order::Before(const Point& point, const ir::Expr* stream) { return Holds(Ahead(stream), point); }

void Order::Record(int event, const ir::Expr* index, const ir::Expr* stream) {
  const Clock clock = Ahead(stream);
  const auto [at, added] = by_name_.emplace(std::pair(event, index), events_.size());
  if (added) events_.push_back({event, index, {}});
  events_[at->second].clock = clock;
  symbolic_ |= !index->IsConst();
  if (!symbolic_) return;
  for (Event& e : events_) {
    if (e.event != event || e.index == index || (e.index->IsConst() && index->IsConst())) continue;
    Meet(e.clock, clock);  // Perhaps the same event: a wait for it then gets one of the two.
  }
}

const Clock* Order::Recorded(int event, const ir::Expr* index) const {
  const auto found = by_name_.find(std::pair(event, index));
  return found == by_name_.end() ? nullptr : &events_[found->second].clock;
}

bool Order::Wait(int event, const ir::Expr* index, const ir::Expr* stream) {
  const Clock* clock = Recorded(event, index);
  if (clock != nullptr) After(stream, *clock);
  return clock != nullptr;
}

void Order::After(const ir::Expr* stream, const Clock& clock) {
  Join(streams_[static_cast<size_t>(Id(stream))].clock, clock);
}

void Order::MayEnd(Ends& ends) const {
  ends.streams.resize(streams_.size());  // Those that appeared since had waited for nothing then.
  ends.events.resize(events_.size());
  ends.positions.resize(streams_.size(), 0);
  Clock later;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const int from = ends.positions[i] + 1;
    if (from <= streams_[i].position) later.push_back({static_cast<int>(i), from, streams_[i].position});
    ends.positions[i] = streams_[i].position;
  }
  const auto update = [&later](Clock& known, const Clock& here) {
    Join(known, later);
    Meet(known, here);
  };
  for (size_t i = 0; i < streams_.size(); ++i) update(ends.streams[i], streams_[i].clock);
  for (size_t i = 0; i < events_.size(); ++i) update(ends.events[i], events_[i].clock);
}

bool Order::Follow(const Step& step) {
  const HostOp code = CodeOf(*step.op);
  if (code == HostOp::kRecord) Record(step.op->operands[0]->id, step.index, step.stream);
  if (code == HostOp::kWait) Wait(step.op->operands[0]->id, step.index, step.stream);
  if (step.turn == Turn::kBegins) {
    Ends& ends = loops_.emplace_back();
    for (const Stream& s : streams_) ends.streams.push_back(s.clock);
    for (const Event& e : events_) ends.events.push_back(e.clock);
    for (const Stream& s : streams_) ends.positions.push_back(s.position);
  } else if (step.turn != Turn::kNone) {
    MayEnd(loops_.back());
  }
  if (step.turn == Turn::kEnds) {
    Ends& ends = loops_.back();
    for (size_t i = 0; i < streams_.size(); ++i) streams_[i].clock = std::move(ends.streams[i]);
    for (size_t i = 0; i < events_.size(); ++i) events_[i].clock = std::move(ends.events[i]);
    loops_.pop_back();
  }
  return code == HostOp::kRecord || code == HostOp::kWait || step.turn != Turn::kNone;
}

}  // namespace hir::host
