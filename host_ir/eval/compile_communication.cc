// Communications: which team a rank is in, and its side of the transfer.
#include <algorithm>

#include "csrc/base/text.h"
#include "host_ir/eval/compile.h"
#include "host_ir/unroll.h"
#include "multidevice/mesh.h"

namespace hir::host {
namespace {

using comm::CommType;
using comm::ReduceOp;

CommType TypeOf(std::string_view name) {
  for (CommType type : comm::kAllCommTypes) {
    if (comm::CommTypeName(type) == name) return type;
  }
  HIR_CHECK(false);  // The type rule let only these through.
}

ReduceOp ReduceOf(std::string_view name) {
  for (ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
    if (comm::ReduceOpName(reduce) == name) return reduce;
  }
  return ReduceOp::kSum;  // "none"
}

// All devices of `mesh`, in its order.
std::vector<int64_t> WholeTeam(const mesh::DeviceMesh& mesh) { return {mesh.devices().begin(), mesh.devices().end()}; }

// The root first, the rest as in the mesh: the same on every rank.
std::vector<int64_t> BroadcastTeam(const mesh::DeviceMesh& from, const mesh::DeviceMesh& to) {
  std::vector<int64_t> team = {from.devices()[0]};
  for (int64_t device : to.devices()) {
    if (device != team[0]) team.push_back(device);
  }
  return team;
}

std::vector<int64_t> UnionTeam(const mesh::DeviceMesh& from, const mesh::DeviceMesh& to) {
  std::vector<int64_t> team(from.devices().begin(), from.devices().end());
  team.insert(team.end(), to.devices().begin(), to.devices().end());
  std::sort(team.begin(), team.end());
  team.erase(std::unique(team.begin(), team.end()), team.end());
  return team;
}

int64_t DeviceAt(const mesh::DeviceMesh& mesh, std::optional<int64_t> position) {
  return position.has_value() ? mesh.devices()[static_cast<size_t>(*position)] : comm::kNoRank;
}

}  // namespace

// The program is the same on all ranks, and so is where an alloc of constant size lies among those that others write;
// which part of it a rank receives into, its coordinates say.
void Compiler::FindWindow(const ir::Op& op, CommunicationCode& code) {
  if (code.desc.type != CommType::kCollectivePermute || code.desc.to == comm::kNoRank) return;
  const Region& region = RegionOf(*op.operands[1]);
  const ir::Op* const alloc = region.base->def;
  // One that is read by it may be written before it is sent.
  if (BaseOf(op.operands[0]) == region.base) return;
  // All members are asked for the window, and of an alloc's writers all have one team.
  const auto members = [](const ir::Op& of) { return UnionTeam(of.MeshOf("mesh")->mesh, of.MeshOf("to")->mesh); };
  const std::vector<int64_t> team = members(op);
  bool alike = std::ssize(team) == op.MeshOf("mesh")->mesh.num_devices() &&
               std::ssize(team) == op.MeshOf("to")->mesh.num_devices();
  ir::ForEachOp(graph_.body, [&](const ir::Op* other) {
    if (CodeOf(*other) != HostOp::kCommunication || other->Name("by") != "copies") return;
    if (BaseOf(other->operands[1]) == region.base) alike = alike && members(*other) == team;
  });
  if (!alike) return;
  if (alloc == nullptr || CodeOf(*alloc) != HostOp::kAlloc || !IsContiguous(pool_, region)) return;
  for (const ir::Axis& axis : alloc->results[0]->type->axes) {
    if (!axis.extent->IsConst()) return;
  }
  const Result<int64_t> put = ir::Evaluate(region.offset, [&](std::string_view symbol) {
    return RankSymbol(graph_, symbol, code.desc.to);  // Nothing of a loop's index.
  });
  if (!put.ok()) return;
  const auto known = std::ranges::find(code_.allocs, alloc, &AllocCode::op);
  HIR_CHECK(known != code_.allocs.end());
  code.window_alloc = static_cast<int>(known - code_.allocs.begin());
  code.put_bytes = *put * DTypeBytes(code.desc.dtype);
}

Status Compiler::CompileCommunication(const ir::Op& op) {
  const Part part = PartOf(op, rank_);
  if (!part.sends && !part.receives) return {};
  const mesh::DeviceMesh& from = op.MeshOf("mesh")->mesh;
  const mesh::DeviceMesh& to = op.MeshOf("to")->mesh;
  CommunicationCode code;
  comm::CommDesc& desc = code.desc;
  desc.type = TypeOf(op.Name("type"));
  desc.reduce = ReduceOf(op.Name("reduce"));
  desc.dtype = op.operands[0]->type->dtype;
  desc.seq = op.Int("seq");
  desc.by_copies = op.Name("by") == "copies";
  if (desc.type == CommType::kBroadcast) {
    code.team = BroadcastTeam(from, to);
    desc.root = code.team[0];
  } else if (desc.type == CommType::kScatter) {
    code.team = WholeTeam(to);
    desc.root = from.devices()[0];
  } else if (desc.type == CommType::kGather || desc.type == CommType::kReduce) {
    code.team = WholeTeam(from);
    desc.root = to.devices()[0];
  } else if (comm::HasHalves(desc.type)) {
    code.team = UnionTeam(from, to);
    desc.to = DeviceAt(to, from.PositionOf(rank_));
    desc.from = DeviceAt(from, to.PositionOf(rank_));
  } else {
    code.team = from.Team(rank_, *mesh::ParseParallelType(op.Name("dim")));
  }
  // `elements` below are those of src, where there is one. A scatter has one at its root alone.
  const bool chunked_src = desc.type == CommType::kReduceScatter || desc.type == CommType::kAllToAll ||
                           (desc.type == CommType::kScatter && part.sends);
  code.divisor = chunked_src ? std::ssize(code.team) : 1;
  if (part.sends) code.src = BufferOf(op, 0);
  if (part.receives) code.dst = BufferOf(op, 1);
  std::vector<const ir::Expr*> extents;
  for (const ViewAxis& axis : RegionOf(*op.operands[part.sends ? 0 : 1]).axes) extents.push_back(axis.extent);
  HIR_ASSIGN(code.elements, ProductSlot(extents));

  const ir::Expr* stream = op.ExprOf("stream");
  code.stream_end = code_.num_streams;
  if (stream->IsConst()) {
    code.stream_begin = static_cast<int>(stream->value);
    code.stream_end = code.stream_begin + 1;
  }
  if (desc.by_copies) FindWindow(op, code);
  code_.communications.push_back(std::move(code));
  return Add(op, Instr::Kind::kCommunication, code_.communications.size() - 1);
}

}  // namespace hir::host
