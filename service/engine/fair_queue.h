// FairQueue: what waits for its turn, by who asked. Turns go to the principal that has used the least time, within it
// to the session that has (of equals the one whose first item is the smallest), and within that in the order they came:
// a session's runs read each other's outputs. Several turns may be under way at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"

namespace hir::service {

// The one who asks: a user of this machine, and one of its sessions.
struct Owner {
  std::string principal = {};
  std::string session = {};

  bool operator==(const Owner&) const = default;
};

// The time each has used, beside that of others. Who was idle gets no credit for that; who had more than a share waits
// ten seconds for it at most.
class Shares {
 public:
  // `name` gets a turn.
  void Start(std::string_view name) {
    floor_ = Used(name);
    One& one = used_[std::string(name)];
    one.used = floor_;
    ++one.turns;
    std::erase_if(used_, [&](const auto& other) {  // As if unknown.
      return other.second.turns == 0 && other.second.used <= floor_;
    });
  }
  // A turn of its is over, which took so long.
  void Charge(std::string_view name, base::Nanos time) {
    const auto found = used_.find(name);
    if (found == used_.end()) return;
    found->second.used = std::min(found->second.used + time, floor_ + kDebtMax);
    found->second.turns = std::max<int64_t>(0, found->second.turns - 1);
  }
  base::Nanos Used(std::string_view name) const {
    const auto found = used_.find(name);
    return found == used_.end() ? floor_ : std::max(found->second.used, floor_);
  }
  void Forget(std::string_view name) {
    if (const auto found = used_.find(name); found != used_.end()) used_.erase(found);
  }
  bool empty() const { return used_.empty(); }

 private:
  static constexpr base::Nanos kDebtMax = std::chrono::seconds(10);
  struct One {
    base::Nanos used = {};
    int64_t turns = 0;  // Under way.
  };
  base::Nanos floor_ = {};  // What the latest to get a turn had used.
  std::map<std::string, One, std::less<>> used_;
};

// Threads: one at a time.
template <typename Item>
class FairQueue {
 public:
  void Push(const Owner& owner, Item item, int64_t size = 0) {
    waiting_[owner.principal][owner.session].push_back({std::move(item), size});
    ++size_;
  }

  // The next, whose turn begins; nothing: nobody waits.
  struct Turn {
    Owner owner;
    Item item;
  };
  std::optional<Turn> Pop() {
    return Pop([](const std::string&, const std::string&) { return true; });
  }
  // The next of those that `may(principal, session)` says may have one.
  template <typename May>
  std::optional<Turn> Pop(const May& may) {
    const auto principal = Least(waiting_, principals_, [&](const auto& one) {
      return std::ranges::any_of(one.second, [&](const auto& session) { return may(one.first, session.first); });
    });
    if (principal == waiting_.end()) return std::nullopt;
    const auto session = Least(principal->second, sessions_[principal->first],
                               [&](const auto& one) { return may(principal->first, one.first); });
    Turn turn = {{principal->first, session->first}, std::move(session->second.front().item)};
    session->second.pop_front();
    if (session->second.empty()) principal->second.erase(session);
    if (principal->second.empty()) waiting_.erase(principal);
    --size_;
    Start(turn.owner);
    return turn;
  }
  // A turn that did not wait here begins.
  void Start(const Owner& owner) {
    principals_.Start(owner.principal);
    sessions_[owner.principal].Start(owner.session);
  }
  // The turn took so long.
  void Charge(const Owner& owner, base::Nanos time) {
    principals_.Charge(owner.principal, time);
    if (const auto found = sessions_.find(owner.principal); found != sessions_.end())
      found->second.Charge(owner.session, time);
  }

  // The session has ended, and is known no more: its items that wait, in order.
  std::vector<Item> Remove(const Owner& owner) {
    std::vector<Item> removed;
    if (const auto principal = waiting_.find(owner.principal); principal != waiting_.end()) {
      if (const auto session = principal->second.find(owner.session); session != principal->second.end()) {
        for (Waiting& one : session->second) removed.push_back(std::move(one.item));
        principal->second.erase(session);
      }
      if (principal->second.empty()) waiting_.erase(principal);
    }
    size_ -= static_cast<int64_t>(removed.size());
    if (const auto shares = sessions_.find(owner.principal); shares != sessions_.end()) {
      shares->second.Forget(owner.session);
      if (shares->second.empty()) sessions_.erase(shares);
    }
    return removed;
  }
  // The owner's first item that `is_meant`, which waits no longer; nothing: there is none.
  template <typename IsMeant>
  std::optional<Item> RemoveOne(const Owner& owner, IsMeant is_meant) {
    const auto principal = waiting_.find(owner.principal);
    if (principal == waiting_.end()) return std::nullopt;
    const auto session = principal->second.find(owner.session);
    if (session == principal->second.end()) return std::nullopt;
    const auto found = std::ranges::find_if(session->second, is_meant, &Waiting::item);
    if (found == session->second.end()) return std::nullopt;
    std::optional<Item> removed = std::move(found->item);
    session->second.erase(found);
    if (session->second.empty()) principal->second.erase(session);
    if (principal->second.empty()) waiting_.erase(principal);
    --size_;
    return removed;
  }
  std::vector<Item> RemoveAll() {
    std::vector<Item> removed;
    while (std::optional<Turn> turn = Pop()) removed.push_back(std::move(turn->item));
    return removed;
  }

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  std::map<std::string, int64_t> sizes() const {  // By principal: of those that wait.
    std::map<std::string, int64_t> sizes;
    for (const auto& [principal, sessions] : waiting_) {
      for (const auto& [session, items] : sessions) sizes[principal] += std::ssize(items);
    }
    return sizes;
  }
  // Whether anything is there of others than `owner`.
  bool HasOthers(const Owner& owner) const { return size_of(owner) < size_; }
  int64_t size_of(const Owner& owner) const {
    const auto principal = waiting_.find(owner.principal);
    if (principal == waiting_.end()) return 0;
    const auto session = principal->second.find(owner.session);
    return session == principal->second.end() ? 0 : static_cast<int64_t>(session->second.size());
  }

 private:
  struct Waiting {
    Item item;
    int64_t size;
  };
  using Session = std::deque<Waiting>;
  using Principal = std::map<std::string, Session>;
  static int64_t SizeOf(const Session& session) { return session.front().size; }
  static int64_t SizeOf(const Principal&) { return 0; }

  // The one that used the least among those that may have a turn; of equals the smallest, then the first by name.
  template <typename All, typename May>
  static auto Least(All& all, const Shares& shares, const May& may) {
    auto least = all.end();
    std::pair<base::Nanos, int64_t> least_key;
    for (auto one = all.begin(); one != all.end(); ++one) {
      if (!may(*one)) continue;
      const std::pair<base::Nanos, int64_t> key = {shares.Used(one->first), SizeOf(one->second)};
      if (least != all.end() && key >= least_key) continue;
      least = one;
      least_key = key;
    }
    return least;
  }

  std::map<std::string, Principal> waiting_;  // Nothing empty.
  int64_t size_ = 0;
  Shares principals_;
  std::map<std::string, Shares, std::less<>> sessions_;  // By principal.
};

}  // namespace hir::service
