#include "host_ir/order.h"

#include <algorithm>

namespace hir::host {

bool AtMost(const Clock& a, const Clock& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] > (i < b.size() ? b[i] : 0)) return false;
  }
  return true;
}

void Join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

int Order::Id(const ir::Expr* stream) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].name == stream) return static_cast<int>(i);
  }
  streams_.push_back({stream, host_, 0});
  return static_cast<int>(streams_.size()) - 1;
}

Point Order::Queue(const ir::Expr* stream) {
  const int id = Id(stream);
  Stream& s = streams_[static_cast<size_t>(id)];
  ++s.position;
  if (s.clock.size() <= static_cast<size_t>(id)) s.clock.resize(static_cast<size_t>(id) + 1, 0);
  s.clock[static_cast<size_t>(id)] = s.position;
  return {id, s.position};
}

bool Order::Before(const Point& point, const ir::Expr* stream) {
  const Clock& clock = Ahead(stream);
  const auto id = static_cast<size_t>(point.stream);
  return id < clock.size() && clock[id] >= point.position;
}

void Order::Record(const ir::Value* event, const ir::Expr* index, const ir::Expr* stream) {
  const Clock clock = Ahead(stream);
  const auto [at, added] = by_name_.emplace(std::pair(event->id, index), events_.size());
  if (added) events_.push_back({event, index, {}});
  events_[at->second].clock = clock;
  symbolic_ |= !index->IsConst();
  if (!symbolic_) return;
  for (Event& e : events_) {
    if (e.event != event || e.index == index || (e.index->IsConst() && index->IsConst())) continue;
    // Perhaps the same event: a wait for it then gets one of the two.
    for (size_t i = 0; i < e.clock.size(); ++i) e.clock[i] = std::min(e.clock[i], i < clock.size() ? clock[i] : 0);
  }
}

const Clock* Order::Recorded(const ir::Value* event, const ir::Expr* index) const {
  const auto found = by_name_.find(std::pair(event->id, index));
  return found == by_name_.end() ? nullptr : &events_[found->second].clock;
}

bool Order::Wait(const ir::Value* event, const ir::Expr* index, const ir::Expr* stream) {
  const Clock* clock = Recorded(event, index);
  if (clock != nullptr) After(stream, *clock);
  return clock != nullptr;
}

void Order::After(const ir::Expr* stream, const Clock& clock) {
  Join(streams_[static_cast<size_t>(Id(stream))].clock, clock);
}

bool Order::HostWait(const ir::Value* event, const ir::Expr* index) {
  const Clock* clock = Recorded(event, index);
  if (clock == nullptr) return false;
  Join(host_, *clock);
  for (Stream& s : streams_) Join(s.clock, host_);
  return true;
}

}  // namespace hir::host
