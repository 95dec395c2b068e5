// What ranks queue on the fake CUDA driver, and what it orders: which work comes after which by streams, events and the
// words that ranks give and take; and which of it touches the same bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/dtype.h"
#include "csrc/base/text.h"
#include "multidevice/comm/peer/kernels_text.h"
#include "tests/csrc/device/cuda/fake_driver.h"

namespace hir::comm {

struct QueuedOp {
  struct Touch {
    uint64_t memory = 0;
    int64_t from = 0, to = 0;
    bool writes = false;
  };
  device::FakeQueued queued;
  std::vector<Touch> touches = {};  // Words are none of them.
};

// REQUIRES: what it names is mapped.
inline QueuedOp MakeQueuedOp(const device::FakeQueued& queued) {
  using Kind = device::FakeQueued::Kind;
  QueuedOp op = {queued};
  const auto touch = [&op](const device::FakePlace& place, int64_t bytes, bool writes) {
    if (place.memory != 0) op.touches.push_back({place.memory, place.offset, place.offset + bytes, writes});
  };
  if (queued.kind == Kind::kCopy) touch(queued.src, queued.bytes, false);
  if (queued.kind == Kind::kCopy || queued.kind == Kind::kFill) touch(queued.dst, queued.bytes, true);
  if (queued.kind == Kind::kLaunch) {
    HIR_CHECK(queued.kernel == "hir_peer_reduce");
    const auto slot = [&queued](int64_t i) { return queued.slots[static_cast<size_t>(i)]; };
    const auto at = [](int64_t address) { return device::PlaceOf(reinterpret_cast<const void*>(address)); };
    const int64_t bytes = slot(kReduceCount) * DTypeBytes(static_cast<DType>(slot(kReduceDType)));
    for (int64_t rank = 0; rank < slot(kReduceRanks); ++rank) touch(at(slot(kReduceSrcs + rank)), bytes, false);
    touch(at(slot(kReduceDst)), bytes, true);
  }
  return op;
}

// An op, by its rank and its place among what that rank queued.
struct OpName {
  size_t rank = 0;
  size_t index = 0;
  auto operator<=>(const OpName&) const = default;
};

class WordTrace {
 public:
  using Kind = device::FakeQueued::Kind;

  // by_rank: in the order of queueing. given: the words that are 1 in the beginning.
  WordTrace(std::vector<std::vector<QueuedOp>> by_rank, std::set<device::FakePlace> given)
      : by_rank_(std::move(by_rank)), given_(std::move(given)) {
    std::map<const void*, size_t> streams;
    for (size_t rank = 0; rank < by_rank_.size(); ++rank) {
      for (size_t i = 0; i < by_rank_[rank].size(); ++i) {
        const OpName op = {rank, i};
        const size_t stream = streams.emplace(At(op).stream, streams.size()).first->second;
        streams_.resize(streams.size());
        streams_[stream].push_back(op);
        points_[op] = {stream, streams_[stream].size()};
      }
    }
    for (const auto& [a, at] : points_) {
      for (const auto& [b, other] : points_) {
        if (b < a && at.stream != other.stream && Touch(a, b)) conflicts_.emplace_back(b, a);
      }
    }
  }

  size_t num_conflicts() const { return conflicts_.size(); }
  size_t num_given() const { return given_.size(); }
  const device::FakeQueued& At(const OpName& op) const { return by_rank_[op.rank][op.index].queued; }
  // All ops of the kind, by rank, in the order of queueing.
  std::vector<OpName> All(Kind kind) const {
    std::vector<OpName> all;
    for (const auto& [op, point] : points_) {
      if (At(op).kind == kind) all.push_back(op);
    }
    return all;
  }
  // The record that the wait is for; nothing where there was none before.
  std::optional<OpName> RecordOf(const OpName& wait, std::optional<OpName> dropped = {}) const {
    for (OpName op = wait; op.index-- > 0;) {
      if (At(op).kind == Kind::kRecord && At(op).event == At(wait).event && op != dropped) return op;
    }
    return std::nullopt;
  }

  struct Outcome {
    bool stuck = false;         // Something waits for what never comes.
    std::string conflict = {};  // Two ops in no order that touch the same bytes, one of them writing.
    bool fine() const { return !stuck && conflict.empty(); }
  };
  // Without the op `dropped`. Where that is a take, the word stays as it was: the next take of it finds what the
  // dropped one would have found.
  Outcome Run(std::optional<OpName> dropped) const {
    const std::map<OpName, Clock> clocks = Clocks(Edges(dropped));
    if (clocks.size() < points_.size()) return {.stuck = true};
    for (const auto& [a, b] : conflicts_) {
      if (a == dropped || b == dropped || Ordered(clocks, a, b)) continue;
      return {.conflict = base::Cat(Name(a), " and ", Name(b))};
    }
    return {};
  }
  // Whether words mean what they are taken for, without the op `dropped`, which is none of a word: a rank's own streams
  // and events put its takes of one word in order, and its gives; and who gives again is behind who took before.
  Outcome RunWords(std::optional<OpName> dropped) const {
    const auto all = Clocks(Edges(dropped)), own = Clocks(EventEdges(dropped));
    if (all.size() < points_.size()) return {.stuck = true};
    const auto takes = Words(Kind::kTakeWord, {}), gives = Words(Kind::kWriteWord, {});
    for (const auto& [word, ops] : takes) {
      const auto given = gives.find(word);
      for (const OpName& take : ops) {
        if (const std::string apart = Unordered(own, take, ops); !apart.empty()) return {.conflict = apart};
        if (given == gives.end()) continue;
        if (const std::string apart = Unordered(all, take, given->second); !apart.empty()) return {.conflict = apart};
      }
    }
    for (const auto& [word, ops] : gives) {
      for (const OpName& give : ops) {
        if (const std::string apart = Unordered(own, give, ops); !apart.empty()) return {.conflict = apart};
      }
    }
    return {};
  }

  std::string Name(const OpName& op) const {
    static constexpr const char* kKinds[] = {"take", "give", "copy", "fill", "launch", "record", "wait"};
    const device::FakeQueued& queued = At(op);
    return base::Cat("rank ", op.rank, " op ", op.index, " (", kKinds[static_cast<size_t>(queued.kind)], " at ",
                     queued.dst.offset, ", stream ", points_.at(op).stream, ")");
  }

 private:
  using Clock = std::vector<size_t>;  // One a stream: so much of it is over.
  struct Point {
    size_t stream = 0;
    size_t position = 0;  // From 1.
  };

  bool Touch(const OpName& a, const OpName& b) const {
    for (const QueuedOp::Touch& x : by_rank_[a.rank][a.index].touches) {
      for (const QueuedOp::Touch& y : by_rank_[b.rank][b.index].touches) {
        if (x.memory == y.memory && x.from < y.to && y.from < x.to && (x.writes || y.writes)) return true;
      }
    }
    return false;
  }
  bool Ordered(const std::map<OpName, Clock>& clocks, const OpName& a, const OpName& b) const {
    const auto before = [&](const OpName& x, const OpName& y) {
      return clocks.at(y)[points_.at(x).stream] >= points_.at(x).position;
    };
    return before(a, b) || before(b, a);
  }

  // "" when all of `ops` are in an order with `a`.
  std::string Unordered(const std::map<OpName, Clock>& clocks, const OpName& a, const std::vector<OpName>& ops) const {
    for (const OpName& b : ops) {
      if (!Ordered(clocks, a, b)) return base::Cat(Name(a), " and ", Name(b));
    }
    return {};
  }

  // The gives, or takes, of each word: one rank gives it, and one takes it.
  std::map<device::FakePlace, std::vector<OpName>> Words(Kind kind, std::optional<OpName> dropped) const {
    std::map<device::FakePlace, std::vector<OpName>> words;
    for (const OpName& op : All(kind)) {
      if (op != dropped) words[At(op).dst].push_back(op);
    }
    return words;
  }

  // What each op waits for besides its stream; nothing where that never comes.
  using EdgeMap = std::map<OpName, std::optional<OpName>>;
  EdgeMap Edges(std::optional<OpName> dropped) const {
    EdgeMap edges = EventEdges(dropped);
    const auto gives = Words(Kind::kWriteWord, dropped);
    for (const auto& [word, takes] : Words(Kind::kTakeWord, dropped)) {
      const size_t given = given_.contains(word) ? 1 : 0;
      const auto of_word = gives.find(word);
      const size_t num_gives = of_word == gives.end() ? 0 : of_word->second.size();
      for (size_t i = given; i < takes.size(); ++i) {
        edges[takes[i]] = i - given < num_gives ? std::optional(of_word->second[i - given]) : std::nullopt;
      }
    }
    return edges;
  }
  EdgeMap EventEdges(std::optional<OpName> dropped) const {
    EdgeMap edges;
    for (const OpName& wait : All(Kind::kWait)) {
      const std::optional<OpName> record = wait == dropped ? std::nullopt : RecordOf(wait, dropped);
      if (record) edges[wait] = record;
    }
    return edges;
  }

  // What is over when an op is; of those that come to an end.
  std::map<OpName, Clock> Clocks(const EdgeMap& edges) const {
    std::map<OpName, Clock> clocks;
    std::vector<size_t> next(streams_.size());
    std::vector<Clock> now(streams_.size(), Clock(streams_.size()));
    const auto step = [&](size_t stream) {
      const OpName op = streams_[stream][next[stream]];
      if (const auto edge = edges.find(op); edge != edges.end()) {
        const auto over = edge->second ? clocks.find(*edge->second) : clocks.end();
        if (over == clocks.end()) return false;
        for (size_t s = 0; s < now.size(); ++s) now[stream][s] = std::max(now[stream][s], over->second[s]);
      }
      now[stream][stream] = ++next[stream];
      clocks[op] = now[stream];
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stream = 0; stream < streams_.size(); ++stream) {
        while (next[stream] < streams_[stream].size() && step(stream)) moved = true;
      }
    }
    return clocks;
  }

  const std::vector<std::vector<QueuedOp>> by_rank_;
  const std::set<device::FakePlace> given_;
  std::map<OpName, Point> points_;
  std::vector<std::vector<OpName>> streams_;
  std::vector<std::pair<OpName, OpName>> conflicts_;
};

}  // namespace hir::comm
