#include "multidevice/plan/between_meshes.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "csrc/base/check.h"

namespace hir::plan {
namespace {

using mesh::DeviceMesh;
using mesh::ParallelType;
using mesh::Sharding;

// Devices by the number of the block they hold, in mesh order; blocks are numbered row-major over the axes.
class Holders {
 public:
  explicit Holders(const Sharding& sharding) : sharding_(sharding) {
    int64_t blocks = 1;
    for (size_t axis = 0; axis < sharding.axes.size(); ++axis) blocks *= sharding.Ways(axis);
    devices_.resize(static_cast<size_t>(blocks));
    for (const int64_t device : sharding.mesh.devices()) {
      const int64_t block = NumberOf(mesh::BlockOf(sharding, device));
      devices_[static_cast<size_t>(block)].push_back(device);
      block_.emplace(device, block);
    }
  }

  int64_t NumberOf(const std::vector<int64_t>& block) const {
    int64_t number = 0;
    for (size_t axis = 0; axis < block.size(); ++axis) number = number * sharding_.Ways(axis) + block[axis];
    return number;
  }
  const std::vector<int64_t>& Of(int64_t block) const { return devices_[static_cast<size_t>(block)]; }
  bool Holds(int64_t device, int64_t block) const {
    const auto found = block_.find(device);
    return found != block_.end() && found->second == block;
  }
  int64_t BlockOfDevice(int64_t device) const { return block_.at(device); }
  int64_t num_blocks() const { return std::ssize(devices_); }

 private:
  const Sharding& sharding_;
  std::vector<std::vector<int64_t>> devices_;
  std::unordered_map<int64_t, int64_t> block_;
};

// The extents of the mesh dimensions that split `axis`, outermost first.
std::vector<int64_t> ChainOf(const Sharding& sharding, size_t axis) {
  std::vector<int64_t> chain;
  for (const ParallelType type : sharding.axes[axis]) chain.push_back(sharding.mesh.Size(type));
  return chain;
}

// Whether each block of `fine` along `axis` is one of equally many chunks of one of `coarse`, numbered in order. Uneven
// blocks are only where the splits of `coarse` come first, and at most one more: two are not chunks of one size.
bool Refines(const Sharding& fine, const Sharding& coarse, size_t axis, const TensorSize& size) {
  const int64_t ways = fine.Ways(axis);
  if (ways % coarse.Ways(axis) != 0) return false;
  if (size.IsEven(axis, ways)) return true;
  const std::vector<int64_t> inner = ChainOf(fine, axis), outer = ChainOf(coarse, axis);
  return outer.size() <= inner.size() && inner.size() <= outer.size() + 1 &&
         std::equal(outer.begin(), outer.end(), inner.begin());
}

bool RefinesAll(const Sharding& fine, const Sharding& coarse, const TensorSize& size) {
  for (size_t axis = 0; axis < fine.axes.size(); ++axis) {
    if (!Refines(fine, coarse, axis, size)) return false;
  }
  return true;
}

std::vector<int64_t> WaysOf(const Sharding& sharding) {
  std::vector<int64_t> ways;
  for (size_t axis = 0; axis < sharding.axes.size(); ++axis) ways.push_back(sharding.Ways(axis));
  return ways;
}

// One row a team.
DeviceMesh MeshOfTeams(const std::vector<std::vector<int64_t>>& teams) {
  std::vector<int64_t> devices;
  for (const auto& team : teams) devices.insert(devices.end(), team.begin(), team.end());
  const auto columns = static_cast<int64_t>(teams[0].size());
  const auto rows = static_cast<int64_t>(teams.size());
  return *DeviceMesh::Make(rows == 1 ? std::vector<int64_t>{columns} : std::vector<int64_t>{rows, columns}, devices);
}

DeviceMesh MeshOfDevices(const std::vector<int64_t>& devices) {
  return *DeviceMesh::Make({std::ssize(devices)}, devices);
}

// The known mesh where it lists the same devices, whatever its shape: it has a name, and positions are all that counts.
DeviceMesh NamedOr(const DeviceMesh& known, DeviceMesh made) {
  return std::ranges::equal(known.devices(), made.devices()) ? known : made;
}

class Between {
 public:
  Between(const Sharding& from, const Sharding& to, const TensorSize& size) : from_(from), to_(to), size_(size) {}

  std::optional<Step> Run() {
    for (size_t axis = 0; axis < from_.axes.size(); ++axis) {  // Positions are to mean the same.
      if (from_.axes[axis].dealt != to_.axes[axis].dealt) return std::nullopt;
    }
    const std::vector<int64_t> before = WaysOf(from_), after = WaysOf(to_);
    if (before == after && RefinesAll(from_, to_, size_) && RefinesAll(to_, from_, size_)) {
      if (!from_.partial.empty()) return Reduce();
      if (std::optional<Step> step = Pairs()) return step;
      return Broadcast();
    }
    if (!from_.partial.empty()) return std::nullopt;
    if (RefinesAll(from_, to_, size_)) return Gather();
    if (RefinesAll(to_, from_, size_)) return Scatter();
    return std::nullopt;
  }

 private:
  Step Make(StepKind kind) const { return {.kind = kind, .after = to_}; }

  // For each device of `to` one of `from` with the same block, none twice, itself where it can be.
  std::optional<Step> Pairs() {
    const Holders held(from_), wanted(to_);
    const std::span<const int64_t> devices = to_.mesh.devices();
    std::vector<int64_t> sources(devices.size(), -1);
    std::set<int64_t> used;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (!held.Holds(devices[i], wanted.BlockOfDevice(devices[i]))) continue;
      sources[i] = devices[i];
      used.insert(devices[i]);
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      if (sources[i] >= 0) continue;
      for (const int64_t source : held.Of(wanted.BlockOfDevice(devices[i]))) {
        if (!used.insert(source).second) continue;
        sources[i] = source;
        break;
      }
      if (sources[i] < 0) return std::nullopt;
    }
    if (std::ranges::equal(sources, devices)) return Make(StepKind::kRelabel);
    // One sender to many receivers that need no pairs of their own: a broadcast.
    if (held.num_blocks() == 1 && devices.size() > 1 && !AnyKeeps(sources)) return std::nullopt;
    const bool permutes = std::ranges::all_of(devices, [&](int64_t device) { return used.contains(device); });
    Step step = Make(permutes && devices.size() > 1 ? StepKind::kCollectivePermute : StepKind::kSendRecv);
    step.from = NamedOr(from_.mesh, MeshOfDevices(sources));
    step.to = to_.mesh;
    return step;
  }

  bool AnyKeeps(const std::vector<int64_t>& sources) const {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] == to_.mesh.devices()[i]) return true;
    }
    return false;
  }

  // One holder of each block to all who want it.
  std::optional<Step> Broadcast() {
    const Holders held(from_), wanted(to_);
    std::vector<int64_t> roots;
    std::vector<std::vector<int64_t>> teams;
    for (int64_t block = 0; block < wanted.num_blocks(); ++block) {
      const std::vector<int64_t>& team = wanted.Of(block);
      const std::vector<int64_t>& holders = held.Of(block);
      const auto inside =
          std::ranges::find_if(holders, [&](int64_t device) { return std::ranges::count(team, device) > 0; });
      roots.push_back(inside != holders.end() ? *inside : holders[0]);
      teams.push_back(team);
    }
    Step step = Make(StepKind::kBroadcast);
    step.from = NamedOr(from_.mesh, MeshOfDevices(roots));
    step.to = MeshOfTeams(teams);
    return step;
  }

  // The numbers, in `fine`, of the blocks that make up block `block` of `coarse`, in the order of chunks.
  static std::vector<int64_t> BlocksWithin(const Holders& fine, const std::vector<int64_t>& block,
                                           const std::vector<int64_t>& chunks) {
    int64_t count = 1;
    for (const int64_t n : chunks) count *= n;
    std::vector<int64_t> numbers;
    for (int64_t chunk = 0; chunk < count; ++chunk) {
      std::vector<int64_t> own(block.size());
      int64_t rest = chunk;
      for (size_t axis = block.size(); axis-- > 0;) {
        own[axis] = block[axis] * chunks[axis] + rest % chunks[axis];
        rest /= chunks[axis];
      }
      numbers.push_back(fine.NumberOf(own));
    }
    return numbers;
  }

  static std::vector<int64_t> ChunksOf(const Sharding& fine, const Sharding& coarse) {
    std::vector<int64_t> chunks;
    for (size_t axis = 0; axis < fine.axes.size(); ++axis) chunks.push_back(fine.Ways(axis) / coarse.Ways(axis));
    return chunks;
  }

  std::optional<Step> Gather() {
    const Holders held(from_);
    Step step = Make(StepKind::kGather);
    step.chunks = ChunksOf(from_, to_);
    const std::span<const int64_t> roots = to_.mesh.devices();
    std::vector<std::vector<int64_t>> blocks, teams;
    std::set<int64_t> used;
    for (const int64_t root : roots) {  // A root takes its own part itself.
      blocks.push_back(BlocksWithin(held, mesh::BlockOf(to_, root), step.chunks));
      teams.emplace_back(blocks.back().size(), -1);
      for (size_t i = 0; i < blocks.back().size(); ++i) {
        if (!held.Holds(root, blocks.back()[i])) continue;
        teams.back()[i] = root;
        used.insert(root);
      }
    }
    for (size_t k = 0; k < roots.size(); ++k) {
      for (size_t i = 0; i < teams[k].size(); ++i) {
        if (teams[k][i] >= 0) continue;
        for (const int64_t holder : held.Of(blocks[k][i])) {
          if (!used.insert(holder).second) continue;
          teams[k][i] = holder;
          break;
        }
        if (teams[k][i] < 0) return std::nullopt;
      }
    }
    step.from = MeshOfTeams(teams);
    step.to = to_.mesh;
    return step;
  }

  std::optional<Step> Scatter() {
    const Holders held(from_), wanted(to_);
    Step step = Make(StepKind::kScatter);
    step.chunks = ChunksOf(to_, from_);
    std::vector<std::vector<int64_t>> teams;
    std::vector<int64_t> team_block, roots;
    for (int64_t block = 0; block < held.num_blocks(); ++block) {
      const std::vector<int64_t> parts = BlocksWithin(wanted, mesh::BlockOf(from_, held.Of(block)[0]), step.chunks);
      const size_t copies = wanted.Of(parts[0]).size();
      for (size_t copy = 0; copy < copies; ++copy) {
        std::vector<int64_t>& team = teams.emplace_back();
        team_block.push_back(block);
        for (const int64_t part : parts) team.push_back(wanted.Of(part)[copy]);
      }
    }
    std::set<int64_t> used;
    roots.assign(teams.size(), -1);
    for (const bool inside : {true, false}) {
      for (size_t k = 0; k < teams.size(); ++k) {
        if (roots[k] >= 0) continue;
        for (const int64_t holder : held.Of(team_block[k])) {
          if (inside && std::ranges::count(teams[k], holder) == 0) continue;
          if (!used.insert(holder).second) continue;
          roots[k] = holder;
          break;
        }
      }
    }
    if (std::ranges::count(roots, -1) > 0) return std::nullopt;
    step.from = NamedOr(from_.mesh, MeshOfDevices(roots));
    step.to = MeshOfTeams(teams);
    return step;
  }

  // A root is one of those that hold a partial result.
  std::optional<Step> Reduce() {
    const DeviceMesh& mesh = from_.mesh;
    const Holders held(from_), wanted(to_);
    std::vector<std::vector<int64_t>> teams;
    std::set<int64_t> used;
    for (const int64_t root : to_.mesh.devices()) {
      if (!held.Holds(root, wanted.BlockOfDevice(root))) return std::nullopt;
      std::vector<int64_t>& team = teams.emplace_back();
      for (const int64_t device : mesh.devices()) {
        if (!DiffersInPartialAlone(root, device)) continue;
        if (!used.insert(device).second) return std::nullopt;
        team.push_back(device);
      }
    }
    Step step = Make(StepKind::kReduce);
    step.from = MeshOfTeams(teams);
    step.to = to_.mesh;
    return step;
  }

  bool DiffersInPartialAlone(int64_t a, int64_t b) const {
    const DeviceMesh& mesh = from_.mesh;
    return std::ranges::all_of(mesh::kMeshTypes, [&](ParallelType type) {
      return std::ranges::count(from_.partial, type) > 0 ||
             mesh.Coordinate(*mesh.PositionOf(a), type) == mesh.Coordinate(*mesh.PositionOf(b), type);
    });
  }

  const Sharding& from_;
  const Sharding& to_;
  const TensorSize& size_;
};

// `sharding` on the devices whose coordinates along `types` are 0.
Sharding OnFirstOf(const Sharding& sharding, const std::vector<ParallelType>& types) {
  const DeviceMesh& mesh = sharding.mesh;
  std::vector<int64_t> shape(mesh.shape().begin(), mesh.shape().end()), devices;
  for (const ParallelType type : types) {
    if (mesh.Has(type))
      shape[shape.size() - 1 - static_cast<size_t>(static_cast<int>(type) - static_cast<int>(ParallelType::kMeshX))] =
          1;
  }
  for (int64_t position = 0; position < mesh.num_devices(); ++position) {
    if (std::ranges::all_of(types, [&](ParallelType type) { return mesh.Coordinate(position, type) == 0; }))
      devices.push_back(mesh.devices()[static_cast<size_t>(position)]);
  }
  Sharding result = sharding;
  result.mesh = *DeviceMesh::Make(shape, devices);
  result.partial.clear();
  return result;
}

// `arrivals`, each with the axes in the order of `from` and in that of `to`.
std::vector<Sharding> InOrdersOf(const Sharding& from, const Sharding& to, const std::vector<Sharding>& arrivals) {
  std::vector<Sharding> ordered;
  for (const Sharding* order : {&from, &to}) {
    for (Sharding arrival : arrivals) {
      for (size_t axis = 0; axis < arrival.axes.size(); ++axis) arrival.axes[axis].dealt = order->axes[axis].dealt;
      if (std::ranges::find(ordered, arrival) == ordered.end()) ordered.push_back(std::move(arrival));
    }
  }
  return ordered;
}

std::vector<ParallelType> UnusedTypes(const Sharding& sharding) {
  std::vector<ParallelType> unused;
  for (const ParallelType type : mesh::kMeshTypes) {
    if (sharding.mesh.Size(type) == 1) continue;
    if (std::ranges::none_of(sharding.axes, [&](const auto& types) { return std::ranges::count(types, type) > 0; }))
      unused.push_back(type);
  }
  return unused;
}

}  // namespace

std::optional<Step> StepBetween(const Sharding& from, const Sharding& to, const TensorSize& size) {
  return Between(from, to, size).Run();
}

std::vector<Sharding> Arrivals(const Sharding& from, const Sharding& to, const TensorSize& size) {
  // Every way to give each dimension of the new mesh an axis that is split before or after, or none.
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < to.axes.size(); ++axis) {
    if (!size.axes[axis].is_stored_once && (!from.axes[axis].empty() || !to.axes[axis].empty())) axes.push_back(axis);
  }
  std::vector<Sharding> arrivals = {Sharding::Replicated(to.mesh, to.axes.size())};
  std::vector<ParallelType> order(std::begin(mesh::kMeshTypes), std::end(mesh::kMeshTypes));
  do {
    std::vector<Sharding> some = {arrivals[0]};
    for (const ParallelType type : order) {
      if (to.mesh.Size(type) == 1) continue;
      const size_t count = some.size();
      for (size_t i = 0; i < count; ++i) {
        for (const size_t axis : axes) {
          Sharding more = some[i];
          more.axes[axis].push_back(type);
          const int64_t ways = more.Ways(axis);
          const bool even = from.Ways(axis) % ways == 0 || to.Ways(axis) % ways == 0 ||
                            (size.axes[axis].is_known && size.IsEven(axis, ways));
          if (even) some.push_back(std::move(more));
        }
      }
    }
    for (Sharding& one : some) {
      if (std::ranges::find(arrivals, one) == arrivals.end()) arrivals.push_back(std::move(one));
    }
  } while (std::next_permutation(order.begin(), order.end()));
  arrivals = InOrdersOf(from, to, arrivals);
  const size_t count = arrivals.size();
  for (size_t i = 0; i < count; ++i) {
    if (const auto unused = UnusedTypes(arrivals[i]); !unused.empty())
      arrivals.push_back(OnFirstOf(arrivals[i], unused));
  }
  if (!from.partial.empty()) arrivals.push_back(OnFirstOf(from, from.partial));
  return arrivals;
}

}  // namespace hir::plan
