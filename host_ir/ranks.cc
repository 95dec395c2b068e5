// Which ranks run a host program alike, and what part each has in a communication.
#include <algorithm>
#include <map>
#include <optional>

#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/unroll.h"
#include "multidevice/mesh.h"

namespace hir::host {
namespace {

using mesh::ParallelType;

bool IsRankSymbol(std::string_view symbol) { return symbol == "rank" || symbol.starts_with('@'); }

// A place in a row that turns around: which chunk that is can be told when it is known.
bool HasMod(const ir::Expr* expr) {
  return expr->kind == ir::ExprKind::kMod || std::ranges::any_of(expr->args, HasMod);
}

// The rank symbols that conditions use, or `mod`s in the indices of views, and the membership of every mesh, once each.
std::vector<std::string> DecidingSymbols(const ir::Graph& graph) {
  std::vector<std::string> symbols;
  for (const ir::Mesh& mesh : graph.meshes()) symbols.push_back(base::Cat("@", mesh.name, ".in"));
  std::vector<std::string_view> used;
  ir::ForEachOp(graph.body, [&used](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kIf) ir::CollectSymbols(op->ExprOf("cond"), used);
    if (CodeOf(*op) != HostOp::kViewSelect || !HasMod(op->ExprOf("index"))) return;
    ir::CollectSymbols(op->ExprOf("index"), used);
  });
  for (std::string_view symbol : used) {
    const bool known = std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
    if (IsRankSymbol(symbol) && !known) symbols.emplace_back(symbol);
  }
  return symbols;
}

// The rank that sends for all, or receives for all; nothing where there is none.
std::optional<int64_t> RootOf(const ir::Op& communication) {
  const std::string_view type = communication.Name("type");
  if (type == "broadcast" || type == "scatter") return communication.MeshOf("mesh")->mesh.devices()[0];
  if (type == "gather" || type == "reduce") return communication.MeshOf("to")->mesh.devices()[0];
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> RankSymbol(const ir::Graph& graph, std::string_view symbol, int64_t rank) {
  if (symbol == "rank") return rank;
  const size_t dot = symbol.rfind('.');
  if (!symbol.starts_with('@') || dot == std::string_view::npos) return std::nullopt;
  const ir::Mesh* mesh = graph.FindMesh(symbol.substr(1, dot - 1));
  if (mesh == nullptr) return std::nullopt;
  const std::optional<int64_t> position = mesh->mesh.PositionOf(rank);
  const std::string_view what = symbol.substr(dot + 1);
  if (what == "in") return position.has_value() ? 1 : 0;
  const auto type = what == "x"   ? ParallelType::kMeshX
                    : what == "y" ? ParallelType::kMeshY
                    : what == "z" ? ParallelType::kMeshZ
                                  : ParallelType::kSerial;
  if (type == ParallelType::kSerial) return std::nullopt;
  return position.has_value() ? mesh->mesh.Coordinate(*position, type) : 0;
}

std::vector<RankClass> RankClasses(const ir::Graph& graph) {
  std::vector<int64_t> ranks;
  for (const ir::Mesh& mesh : graph.meshes()) {
    ranks.insert(ranks.end(), mesh.mesh.devices().begin(), mesh.mesh.devices().end());
  }
  if (ranks.empty()) ranks.push_back(0);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<int64_t> roots;  // A root is in a class of its own.
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) != HostOp::kCommunication) return;
    if (const std::optional<int64_t> root = RootOf(*op)) roots.push_back(*root);
  });

  const std::vector<std::string> symbols = DecidingSymbols(graph);
  std::map<std::vector<int64_t>, size_t> seen;  // What decides, and the class of which it holds.
  std::vector<RankClass> classes;
  for (int64_t rank : ranks) {
    std::vector<int64_t> key;
    for (const std::string& symbol : symbols) key.push_back(RankSymbol(graph, symbol, rank).value_or(0));
    for (int64_t root : roots) key.push_back(root == rank ? 1 : 0);
    const auto [found, is_new] = seen.emplace(key, classes.size());
    if (!is_new) {
      classes[found->second].ranks.push_back(rank);
      continue;
    }
    RankClass& ranks_alike = classes.emplace_back();
    ranks_alike.rank = rank;
    ranks_alike.ranks = {rank};
    for (size_t i = 0; i < symbols.size(); ++i) ranks_alike.symbols.emplace_back(symbols[i], key[i]);
  }
  return classes;
}

RankClass ClassOfOne(const ir::Graph& graph, int64_t rank) {
  RankClass one = {rank, {rank}, {{"rank", rank}}};
  for (const ir::Mesh& mesh : graph.meshes()) {
    for (std::string_view what : {"in", "x", "y", "z"}) {
      const std::string symbol = base::Cat("@", mesh.name, ".", what);
      one.symbols.emplace_back(symbol, *RankSymbol(graph, symbol, rank));
    }
  }
  return one;
}

Part PartOf(const ir::Op& op, int64_t rank) {
  const mesh::DeviceMesh& from = op.MeshOf("mesh")->mesh;
  const mesh::DeviceMesh& to = op.MeshOf("to")->mesh;
  const std::string_view type = op.Name("type");
  const bool one_sends = type == "broadcast" || type == "scatter";
  const bool one_receives = type == "gather" || type == "reduce";
  return {one_sends ? from.devices()[0] == rank : from.PositionOf(rank).has_value(),
          one_receives ? to.devices()[0] == rank : to.PositionOf(rank).has_value()};
}

Status Refuse(const ir::Op& op, int rule, std::string_view text) {
  const std::string where = op.line > 0 ? base::Cat("line ", op.line, ": ") : std::string();
  return InvalidArgument(base::Cat(where, op.info->name, ": (H", rule, ") ", text));
}

}  // namespace hir::host
