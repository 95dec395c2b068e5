// Greedy merging, best gain first.
//
// State: groups as nodes of a DAG. A merge of P and C is legal when no path leads from one to the
// other except by a direct edge; then the result is acyclic. Candidates are edges P -> C and, when
// asked for, siblings (consumers of one value that stand next to each other). The candidate with
// the largest gain goes first; ties go to the lower topological index, so the answer depends on the
// program alone. A candidate whose gain is only known to be at most so much is asked for when it is
// first in that order, and takes its place by the answer. When no pair merges, each group is tried
// with all its consumers, then with all its producers, at once: a reduction whose result two ops use
// may fit only together with both. And with its only consumer and that one's: a maximum, a sum and what
// divides by it may pay together alone.
//
// Cost: a merge asks the predicate (or the bound, where there is one) for the edges of the merged
// group only. Nodes are kept in a topological order, so that paths are searched between the two ends
// alone, and what a merge makes void is found by its ends. 1,000 ops take tens of milliseconds plus
// the predicate's time.
#include "csrc/segment/segment.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/segment/group.h"

namespace hir::segment {
namespace {

struct Node {
  std::vector<int> ops;     // Positions in the program, ascending;
  Group group;              // of them.
  std::set<int> producers;  // Node numbers: a node's number is the position of its first op.
  std::set<int> consumers;
};

// Largest gain first, then the lowest numbers.
struct Candidate {
  Gain gain;
  int producer = 0;
  int consumer = 0;
  bool is_asked = true;  // `gain` is the predicate's answer, and not a bound of it.
  bool operator<(const Candidate& other) const {
    return std::tuple(-gain.bytes, -gain.launches, producer, consumer) <
           std::tuple(-other.gain.bytes, -other.gain.launches, other.producer, other.consumer);
  }
};

class Merger {
 public:
  Merger(const ir::Graph& graph, const ShouldMerge& should_merge, const Options& options)
      : graph_(graph), should_merge_(should_merge), options_(options), groups_(graph) {
    for (int i = 0; i < std::ssize(groups_.ops()); ++i) {
      nodes_[i].ops = {i};
      nodes_[i].group = groups_.Of(nodes_[i].ops);
      node_of_.push_back(i);
      place_.push_back(i);
      at_place_[i] = i;
      partners_.emplace_back();
      found_in_.push_back(0);
      is_member_.push_back(0);
      for (const ir::Value* operand : nodes_[i].group.inputs) {
        if (operand->def == nullptr) continue;
        const int producer = groups_.PositionOf(operand->def);
        nodes_[producer].consumers.insert(i);
        nodes_[i].producers.insert(producer);
      }
    }
  }

  Result<std::vector<Group>> Run() {
    JoinScalars();
    for (const auto& [number, node] : nodes_) AddCandidates(number);
    do {
      MergePairs();
    } while (MergeOneStar());
    HIR_TRY(failure_);
    return Ordered();
  }

 private:
  std::vector<int> Union(const std::vector<int>& numbers) const {
    std::vector<int> positions;
    for (int number : numbers) {
      const auto& ops = nodes_.at(number).ops;
      const auto before = std::ssize(positions);
      positions.insert(positions.end(), ops.begin(), ops.end());
      std::inplace_merge(positions.begin(), positions.begin() + before, positions.end());
    }
    return positions;
  }

  // After an error nothing is asked any more, and nothing merged.
  std::optional<Gain> Ask(const ShouldMerge& rule, int producer, const std::vector<int>& consumers) {
    if (!failure_.ok()) return std::nullopt;
    std::vector<int> all = consumers;
    all.push_back(producer);
    const Group& first = nodes_.at(producer).group;
    const Group several = consumers.size() == 1 ? Group() : groups_.Of(Union(consumers));
    const Group& second = consumers.size() == 1 ? nodes_.at(consumers[0]).group : several;
    const Group merged = groups_.Of(Union(all));
    const Result<std::optional<Gain>> gain = rule(first.View(graph_), second.View(graph_), merged.View(graph_));
    if (!gain.ok()) failure_ = gain.status();
    if (!gain.ok() || !*gain) return std::nullopt;
    const bool is_loss = (*gain)->bytes < 0 || ((*gain)->bytes == 0 && (*gain)->launches < 0);
    return is_loss ? std::nullopt : *gain;
  }

  std::optional<Gain> AskOfPair(const ShouldMerge& rule, int producer, int consumer) {
    const bool forward =
        nodes_.at(producer).consumers.contains(consumer) || !nodes_.at(consumer).consumers.contains(producer);
    return forward ? Ask(rule, producer, {consumer}) : Ask(rule, consumer, {producer});
  }

  void AskAndAdd(int producer, int consumer) {
    if (const auto gain = AskOfPair(should_merge_, producer, consumer)) Await({*gain, producer, consumer});
  }

  void Await(const Candidate& candidate) {
    candidates_.insert(candidate);
    awaiting_[{candidate.producer, candidate.consumer}] = candidate;
  }

  // Drops all pairs of which `number` is one.
  void Forget(int number) {
    std::set<int>& partners = partners_[static_cast<size_t>(number)];
    for (const int partner : partners) {
      const std::pair<int, int> pair = std::minmax(number, partner);
      added_.erase(pair);
      partners_[static_cast<size_t>(partner)].erase(number);
      const auto found = awaiting_.find(pair);
      if (found == awaiting_.end()) continue;
      candidates_.erase(found->second);
      awaiting_.erase(found);
    }
    partners.clear();
  }

  // A host scalar that one group reads belongs to it from the start: as a neighbour it would be asked about again with
  // every op that the group takes in. (400 sums with a constant each: 6 s, and 0.1 s of tensors.)
  void JoinScalars() {
    for (const ir::Op* op : groups_.ops()) {
      const bool is_scalar = std::ranges::all_of(
          op->results, [](const ir::Value* result) { return result->type->kind == ir::TypeKind::kScalar; });
      const int number = node_of_[static_cast<size_t>(groups_.PositionOf(op))];
      const std::set<int>& readers = nodes_.at(number).consumers;
      if (!is_scalar || readers.size() != 1) continue;
      const int reader = *readers.begin();
      if (Ask(should_merge_, number, {reader})) Join({number, reader});
    }
  }

  int PlaceOf(int number) const { return place_[static_cast<size_t>(number)]; }
  int LastPlace(const std::vector<int>& members) const {
    int last = -1;
    for (const int member : members) last = std::max(last, PlaceOf(member));
    return last;
  }

  // The nodes to which paths lead out of `members`, as far as paths from there may lead back: those in front of the
  // last member. One of `members` is the last of them where a path does lead back: the search ends there.
  std::vector<int> Behind(const std::vector<int>& members) {
    ++search_;
    const int last = LastPlace(members);
    for (const int member : members) is_member_[static_cast<size_t>(member)] = search_;
    std::vector<int> found;
    size_t next = 0;
    const auto follow = [&](int number, bool is_member) {  // Whether a path leads back.
      for (const int consumer : nodes_.at(number).consumers) {
        const auto at = static_cast<size_t>(consumer);
        const bool is_back = is_member_[at] == search_;
        if (is_back && is_member) continue;
        if (PlaceOf(consumer) > last || found_in_[at] == search_) continue;
        found_in_[at] = search_;
        found.push_back(consumer);
        if (is_back) return true;
      }
      return false;
    };
    for (const int member : members) {
      if (follow(member, true)) return found;
    }
    while (next < found.size()) {
      if (follow(found[next++], false)) return found;
    }
    return found;
  }

  // Whether a path leads out of `members` and back in: then they cannot become one node.
  bool MakesCycle(const std::vector<int>& members) {
    const std::vector<int> behind = Behind(members);
    return !behind.empty() && is_member_[static_cast<size_t>(behind.back())] == search_;
  }

  // Gives `members`, which become the node `into`, one place: in front of what is behind them, behind all else that
  // stands between them.
  void Replace(const std::vector<int>& members, int into) {
    Behind(members);
    int first = PlaceOf(members[0]);
    for (const int member : members) first = std::min(first, PlaceOf(member));
    std::vector<int> places, before, after;
    for (auto at = at_place_.find(first); at != at_place_.end() && at->first <= LastPlace(members); ++at) {
      places.push_back(at->first);
      if (std::ranges::count(members, at->second) > 0) continue;
      (found_in_[static_cast<size_t>(at->second)] == search_ ? after : before).push_back(at->second);
    }
    before.push_back(into);
    before.insert(before.end(), after.begin(), after.end());
    for (const int place : places) at_place_.erase(place);
    for (size_t i = 0; i < before.size(); ++i) {
      at_place_[places[i]] = before[i];
      place_[static_cast<size_t>(before[i])] = places[i];
    }
  }

  void AddCandidate(int a, int b) {
    const auto [producer, consumer] = std::minmax(a, b);
    if (producer == consumer || added_.contains({producer, consumer})) return;
    added_.insert({producer, consumer});
    partners_[static_cast<size_t>(producer)].insert(consumer);
    partners_[static_cast<size_t>(consumer)].insert(producer);
    if (options_.gain_at_most) {
      if (const std::optional<Gain> most = AskOfPair(options_.gain_at_most, producer, consumer))
        Await({*most, producer, consumer, /*is_asked=*/false});
    } else {
      AskAndAdd(producer, consumer);
    }
  }

  void AddCandidates(int number) {
    const std::set<int> consumers = nodes_.at(number).consumers;
    const std::set<int> producers = nodes_.at(number).producers;
    for (int consumer : consumers) AddCandidate(number, consumer);
    for (int producer : producers) AddCandidate(producer, number);
    if (options_.merge_siblings) AddSiblings(number);
    if (options_.merge_sinks && consumers.empty()) AddSinks(number);
  }

  // Groups without readers, each with the ones before and behind it: together they delay nobody.
  void AddSinks(int number) {
    int previous = -1;
    for (const auto& [other, node] : nodes_) {
      if (!node.consumers.empty()) continue;
      if (previous >= 0 && (other == number || previous == number)) AddCandidate(previous, other);
      previous = other;
    }
  }

  // Readers of one value, each with the next one in program order.
  void AddSiblings(int number) {
    for (const ir::Value* value : nodes_.at(number).group.inputs) {
      int previous = -1;
      for (const int position : groups_.ReadersOf(value)) {
        const int reader = node_of_[static_cast<size_t>(position)];
        if (previous >= 0 && reader != previous && (reader == number || previous == number))
          AddCandidate(previous, reader);
        previous = reader;
      }
    }
  }

  void MergePairs() {
    while (!candidates_.empty()) {
      const Candidate best = *candidates_.begin();
      candidates_.erase(candidates_.begin());
      awaiting_.erase({best.producer, best.consumer});
      if (MakesCycle({best.producer, best.consumer})) continue;
      if (best.is_asked) {
        Merge({best.producer, best.consumer});
      } else {
        AskAndAdd(best.producer, best.consumer);
      }
    }
  }

  // The one consumer of `node` and that one's only consumer, where there are such.
  std::set<int> ChainOf(const Node& node) const {
    if (node.consumers.size() != 1) return {};
    const int next = *node.consumers.begin();
    const std::set<int>& behind = nodes_.at(next).consumers;
    return behind.size() == 1 ? std::set<int>{next, *behind.begin()} : std::set<int>();
  }

  bool MergeOneStar() {
    for (const auto& [number, node] : nodes_) {
      const std::set<int> chain = ChainOf(node);
      for (const std::set<int>* neighbours : {&node.consumers, &node.producers, &chain}) {
        if (neighbours->size() < 2 || neighbours->size() > kStarMax) continue;
        std::vector<int> others(neighbours->begin(), neighbours->end());
        std::vector<int> all = others;
        all.push_back(number);
        if (!stars_asked_.insert({number, Union(all)}).second) continue;
        if (MakesCycle(all) || !Ask(should_merge_, number, others)) continue;
        Merge(all);
        return true;
      }
    }
    return false;
  }

  void Merge(const std::vector<int>& numbers) { AddCandidates(Join(numbers)); }

  // The number of the node that those of `numbers` become.
  int Join(const std::vector<int>& numbers) {
    const int into = *std::min_element(numbers.begin(), numbers.end());
    Replace(numbers, into);
    Node merged{.ops = Union(numbers), .group = {}, .producers = {}, .consumers = {}};
    merged.group = groups_.Of(merged.ops);
    const std::set<int> inside(numbers.begin(), numbers.end());
    for (int number : numbers) {
      const Node node = nodes_.at(number);
      for (int producer : node.producers) {
        nodes_.at(producer).consumers.erase(number);
        if (!inside.contains(producer)) merged.producers.insert(producer);
      }
      for (int consumer : node.consumers) {
        nodes_.at(consumer).producers.erase(number);
        if (!inside.contains(consumer)) merged.consumers.insert(consumer);
      }
      Forget(number);
    }
    for (int number : numbers) nodes_.erase(number);
    for (int position : merged.ops) node_of_[static_cast<size_t>(position)] = into;
    for (int producer : merged.producers) nodes_.at(producer).consumers.insert(into);
    for (int consumer : merged.consumers) nodes_.at(consumer).producers.insert(into);
    nodes_[into] = std::move(merged);
    return into;
  }

  // Kahn's order; of the ready nodes the one whose first op comes first.
  std::vector<Group> Ordered() const {
    std::map<int, size_t> missing;
    std::set<int> ready;
    for (const auto& [number, node] : nodes_) {
      missing[number] = node.producers.size();
      if (node.producers.empty()) ready.insert(number);
    }
    std::vector<Group> groups;
    while (!ready.empty()) {
      const int number = *ready.begin();
      ready.erase(ready.begin());
      groups.push_back(nodes_.at(number).group);
      for (int consumer : nodes_.at(number).consumers) {
        if (--missing[consumer] == 0) ready.insert(consumer);
      }
    }
    HIR_CHECK(groups.size() == nodes_.size());
    return groups;
  }

  static constexpr size_t kStarMax = 8;  // Neighbours merged at once; more is never one kernel.

  const ir::Graph& graph_;
  const ShouldMerge& should_merge_;
  const Options options_;
  Groups groups_;
  std::vector<int> node_of_;  // By op position.
  std::map<int, Node> nodes_;
  std::set<std::pair<int, int>> added_;  // Pairs that are candidates, or whose answer was no.
  std::set<Candidate> candidates_;
  std::map<std::pair<int, int>, Candidate> awaiting_;  // Those candidates, by their ends.
  std::vector<std::set<int>> partners_;                // By number: the other ends of its pairs in added_.
  std::vector<int> place_;                             // By number: in a topological order of the nodes.
  std::map<int, int> at_place_;                        // The nodes in that order.
  std::vector<int> found_in_, is_member_;              // By number: the last search of Behind that did so.
  int search_ = 0;
  Status failure_;                                          // The predicate's.
  std::set<std::pair<int, std::vector<int>>> stars_asked_;  // (centre, positions of all ops): never accepted later.
};

}  // namespace

Result<std::vector<Group>> Segment(const ir::Graph& graph, const ShouldMerge& should_merge, const Options& options) {
  return Merger(graph, should_merge, options).Run();
}

}  // namespace hir::segment
