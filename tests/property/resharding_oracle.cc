#include "tests/property/resharding_oracle.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/ir/print.h"
#include "tests/property/program_generator.h"

namespace hir::testing {
namespace {

using base::Cat;
using mesh::DeviceMesh;

DeviceMesh Make(std::vector<int64_t> shape, std::vector<int64_t> devices) {
  return *DeviceMesh::Make(std::move(shape), std::move(devices));
}

std::vector<DeviceMesh> Meshes(int64_t num_devices) {
  std::vector<DeviceMesh> meshes = {Make({2}, {0, 1}),          Make({3}, {2, 0, 1}), Make({4}, {3, 1, 0, 2}),
                                    Make({2, 2}, {2, 0, 3, 1}), Make({2}, {3, 2}),    Make({2, 3}, {0, 1, 2, 3, 4, 5})};
  std::erase_if(meshes, [&](const DeviceMesh& m) { return *std::ranges::max_element(m.devices()) >= num_devices; });
  return meshes;
}

// What a size is beside the mesh.
std::string_view KindOfSize(const ReshardingPair& pair, const std::vector<int64_t>& shape) {
  const int64_t ways = std::max(pair.from_mesh.num_devices(), pair.to_mesh.num_devices());
  const int64_t extent = *std::ranges::min_element(shape);
  if (extent == 0) return "zero";
  if (extent < ways) return "smaller than the mesh";
  return std::ranges::all_of(shape, [&](int64_t n) { return n % ways == 0; }) ? "divisible" : "uneven";
}

std::string ShapeText(const DeviceMesh& mesh) { return base::JoinInts(mesh.shape(), "x"); }

// p[i] from row i of the input, which is reduced along its last axis.
std::vector<int64_t> Reduced(const std::vector<int64_t>& input, size_t rows, int64_t length,
                             std::string_view reduction) {
  std::vector<int64_t> result;
  for (size_t row = 0; row < rows; ++row) {
    const size_t begin = row * static_cast<size_t>(length);
    int64_t value = input[begin];
    for (size_t i = begin + 1; i < begin + static_cast<size_t>(length); ++i) {
      const auto product = static_cast<uint64_t>(value) * static_cast<uint64_t>(input[i]);  // Wraps.
      value = reduction == "sum"    ? value + input[i]
              : reduction == "prod" ? static_cast<int64_t>(product)
              : reduction == "min"  ? std::min(value, input[i])
                                    : std::max(value, input[i]);
    }
    result.push_back(value);
  }
  return result;
}

std::string PlacedText(const plan::Placed& placed) {
  std::vector<std::string> axes;
  for (const fusion::Types& types : placed) {
    std::vector<std::string_view> names;
    for (const mesh::ParallelType type : types) names.push_back(mesh::ParallelTypeName(type));
    axes.push_back(names.empty() ? "-" : Cat(types.is_dealt() ? "dealt " : "", base::Join(names, "+")));
  }
  return base::Join(axes, ", ");
}

void AddPairs(const DeviceMesh& from, const DeviceMesh& to, size_t rank,
              const std::vector<std::vector<int64_t>>& shapes, std::vector<ReshardingPair>& pairs) {
  const int64_t ways = std::max(from.num_devices(), to.num_devices());
  const char* const reductions[] = {"sum", "prod", "min", "max"};
  std::vector<std::vector<int64_t>> whole_turns = shapes;  // Also of each rank's part.
  whole_turns.push_back(std::vector<int64_t>(rank, ways * ways));
  // One axis dealt, over the last dimension.
  const auto with_dealt = [](const DeviceMesh& mesh, std::vector<plan::Placed> placements) {
    for (plan::Placed& placed : plan::DealtPlacements(mesh, placements)) {
      const auto dealt = std::ranges::find_if(placed, &mesh::AxisSplit::is_dealt);
      if (std::ranges::count_if(placed, &mesh::AxisSplit::is_dealt) == 1 &&
          dealt->front() == mesh::ParallelType::kMeshX)
        placements.push_back(std::move(placed));
    }
    return placements;
  };
  for (const plan::Placed& a : with_dealt(from, plan::AllPlacements(from, rank, true))) {
    for (const plan::Placed& b : with_dealt(to, plan::AllPlacements(to, rank, false))) {
      const size_t n = pairs.size();
      pairs.push_back({.from_mesh = from,
                       .to_mesh = to,
                       .from = a,
                       .to = b,
                       .shapes = plan::IsDealt(a) || plan::IsDealt(b) ? whole_turns : shapes,
                       .what = {.shape = {},
                                .symbolic = n % 3 != 0,
                                .reduced = n % 5 == 0 ? ways : ways + 1,
                                .reduction = reductions[n % 4]}});
    }
  }
}

std::string Describe(const ReshardingPair& pair, const std::vector<int64_t>& shape) {
  return Cat(PlacedText(pair.from), " on ", pair.from_mesh.ToString(), " to ", PlacedText(pair.to), " on ",
             pair.to_mesh.ToString(), ", ", pair.what.reduction, " over ", pair.what.reduced, " of [",
             base::JoinInts(shape, ", "), "]", pair.what.symbolic ? ", symbolic" : "");
}

Status CheckOne(const ReshardingPair& pair, const std::vector<int64_t>& shape, const RankRunOptions& options,
                const codegen::Target& target, PairTally& tally) {
  plan::Case what = pair.what;
  what.shape = shape;
  plan::PairProgram program = plan::MakePair(what, pair.from_mesh, pair.from, pair.to_mesh, pair.to);
  Result<host::ProgramPlan> planned = host::PlanProgram(
      std::move(program.graph),
      {.num_devices = options.num_ranks, .target = target, .sizes = {program.sizes.begin(), program.sizes.end()}});
  if (!plan::HasWholeTurns(pair.from, shape) || !plan::HasWholeTurns(pair.to, shape)) {
    const bool refused = planned.status().code() == Code::kInvalidArgument &&
                         planned.status().message().find("in whole turns") != std::string::npos;
    if (!refused) return Internal(Cat("not refused: ", planned.status().ToString()));
    ++tally.refused;
    return {};
  }
  HIR_ASSIGN(host::ProgramPlan plan, std::move(planned));
  int64_t rows = 1;
  for (const int64_t extent : shape) rows *= extent;
  const fusion::HostTensor expected = fusion::TensorOfInts(
      DType::kInt64, shape,
      Reduced(fusion::ToInts(program.input), static_cast<size_t>(rows), what.reduced, what.reduction));
  const PartCheck equal = [](size_t, const fusion::HostTensor& got, const fusion::HostTensor& want) {
    return Difference(got, want, 0);
  };
  if (Status s = CheckOnRanks(plan, {&program.input, 1}, {&expected, 1}, equal, options); !s.ok())
    return {s.code(), Cat(s.message(), "\n", ir::Print(*plan.host))};
  tally.communications += std::ssize(plan.local.communications);
  for (const plan::Communication& c : plan.local.communications) ++tally.types[std::string(c.type)];
  return {};
}

}  // namespace

std::vector<ReshardingPair> AllReshardingPairs(int64_t num_devices) {
  std::vector<ReshardingPair> pairs;
  const std::vector<DeviceMesh> meshes = Meshes(num_devices);
  for (const DeviceMesh& from : meshes) {
    for (const DeviceMesh& to : meshes) {
      const int64_t ways = std::max(from.num_devices(), to.num_devices());
      for (const size_t rank : {1, 2, 3}) {
        if (from == to || rank == 1) {
          AddPairs(from, to, rank, plan::SizesAround(rank, ways), pairs);
        } else if (rank == 2) {
          AddPairs(from, to, rank, {{2 * ways + 1, ways - 1}}, pairs);  // Both uneven.
        }
      }
    }
  }
  return pairs;
}

PairSample DrawPairs(std::vector<ReshardingPair> all, size_t count, uint64_t seed) {
  const char* const wanted = std::getenv("HOSTIR_PAIRS");
  const std::string_view range = wanted == nullptr ? "" : wanted;
  if (const size_t dash = range.find('-'); dash != std::string_view::npos) {
    const auto first = base::ParseInt(range.substr(0, dash));
    const auto last = base::ParseInt(range.substr(dash + 1));
    // A sample of nothing would pass.
    HIR_CHECK(first && last && 0 <= *first && *first < *last && *last <= std::ssize(all));
    return {.pairs = {all.begin() + *first, all.begin() + *last}, .of = all.size(), .seed = seed};
  }
  if (const char* text = std::getenv("HOSTIR_SEED"))
    seed = static_cast<uint64_t>(base::ParseInt(text).value_or(static_cast<int64_t>(seed)));
  if (wanted != nullptr) count = static_cast<size_t>(base::ParseInt(range).value_or(std::ssize(all)));
  PairSample sample = {.pairs = std::move(all), .of = 0, .seed = seed};
  sample.of = sample.pairs.size();
  if (count >= sample.of) return sample;
  base::Prng prng(seed);
  for (size_t i = sample.of; i-- > 1;)
    std::swap(sample.pairs[i], sample.pairs[static_cast<size_t>(prng.Below(static_cast<int64_t>(i) + 1))]);
  // Every third between meshes, every sixth of what is dealt, as long as there are any of each.
  enum Kind : size_t { kPlain, kBetween, kDealt };
  const Kind order[] = {kPlain, kPlain, kBetween, kPlain, kDealt, kBetween};
  std::vector<ReshardingPair> of_kind[3], drawn;
  for (ReshardingPair& pair : sample.pairs) {
    const bool dealt = plan::IsDealt(pair.from) || plan::IsDealt(pair.to);
    const Kind kind = dealt ? kDealt : pair.from_mesh == pair.to_mesh ? kPlain : kBetween;
    of_kind[kind].push_back(std::move(pair));
  }
  size_t taken[3] = {};
  for (size_t slot = 0; drawn.size() < sample.of; ++slot) {
    const Kind kind = order[slot % std::size(order)];
    if (taken[kind] < of_kind[kind].size()) drawn.push_back(std::move(of_kind[kind][taken[kind]++]));
  }
  drawn.erase(drawn.begin() + static_cast<std::ptrdiff_t>(count), drawn.end());
  sample.pairs = std::move(drawn);
  return sample;
}

std::string PairTally::Describe(std::string_view backend, const PairSample& sample) const {
  std::string text =
      Cat(pairs, " of ", sample.of, " pairs (seed ", sample.seed, "), ", runs, " pairs x sizes equal on ", backend,
          ", ", refused, " more refused as they should be, ", communications, " communications");
  for (const auto* counts : {&meshes, &sizes, &types}) {
    const char* separator = "\n  ";
    for (const auto& [name, n] : *counts) base::Append(text, std::exchange(separator, ", "), name, ": ", n);
  }
  return text;
}

Status CheckPair(const ReshardingPair& pair, const RankRunOptions& options, const codegen::Target& target,
                 PairTally& tally) {
  for (const std::vector<int64_t>& shape : pair.shapes) {
    const int64_t refused = tally.refused;
    if (Status s = CheckOne(pair, shape, options, target, tally); !s.ok()) return s.WithContext(Describe(pair, shape));
    if (tally.refused > refused) continue;
    ++tally.runs;
    if (plan::IsDealt(pair.from) || plan::IsDealt(pair.to)) ++tally.meshes["dealt"];
    ++tally.meshes[pair.from_mesh == pair.to_mesh ? ShapeText(pair.from_mesh) : "between meshes"];
    ++tally.sizes[std::string(KindOfSize(pair, shape))];
  }
  ++tally.pairs;
  return {};
}

}  // namespace hir::testing
