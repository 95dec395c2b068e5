#include "tests/property/stream_annotations.h"

#include <algorithm>
#include <optional>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/fusion/passes/stream_axes.h"

namespace hir::testing {
namespace {

using fusion::StreamAxis;
using Kind = StreamAxis::Kind;

constexpr int64_t kIterationsMax = 24;  // Of one loop: some are cut by the verifier's unrolling, most are not.

class Annotator {
 public:
  Annotator(GeneratedProgram& program, uint64_t seed) : program_(program), rng_(seed * 7919 + 17) {}

  StreamTally Run() {
    for (ir::Op* op = program_.graph->body.first; op != nullptr; op = op->next) {
      ir::Value& result = *op->results[0];
      if (result.type->kind != ir::TypeKind::kTensor || fusion::IsComposite(fusion::CodeOf(*op))) continue;
      std::vector<StreamAxis> streams = FromOperand(*op);
      if (streams.empty() && rng_.OneIn(3)) streams = Fresh(*op);
      if (!streams.empty()) Set(result, streams);
    }
    return tally_;
  }

 private:
  int64_t Size(const ir::Expr* extent) const { return *fusion::ValueOf(extent, program_.sizes); }

  // Those of an operand, where each chunk of the result comes from one of its.
  std::vector<StreamAxis> FromOperand(const ir::Op& op) {
    const fusion::StreamMap map(op);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ir::Value& operand = *op.operands[i];
      if (operand.type->kind != ir::TypeKind::kTensor || operand.def == nullptr || rng_.OneIn(4)) continue;
      std::vector<StreamAxis> carried;
      const std::vector<StreamAxis> theirs = *fusion::StreamAxesOf(operand);
      for (const StreamAxis& stream : theirs) {
        if (const auto own = Forward(op, map, static_cast<int>(i), stream)) carried.push_back(*own);
      }
      if (!carried.empty() && Ordered(carried)) return carried;
    }
    return {};
  }

  std::optional<StreamAxis> Forward(const ir::Op& op, const fusion::StreamMap& map, int operand, StreamAxis stream) {
    const StreamAxis wanted = stream;
    const ir::Type& from = *op.operands[static_cast<size_t>(operand)]->type;
    for (int& axis : stream.axes) {
      std::optional<int> found;
      for (size_t to = 0; to < op.results[0]->type->axes.size(); ++to) {
        StreamAxis one = {.axes = {static_cast<int>(to)}, .kind = stream.kind, .factor = stream.factor};
        if (!Fits(op, map, one)) continue;
        const int value_axis = map.Needed(operand, one)[0];
        if (value_axis >= 0 && ir::LogicalIndex(from, value_axis) == axis) found = static_cast<int>(to);
      }
      if (!found) return std::nullopt;
      axis = *found;
    }
    for (size_t i = 1; i < stream.axes.size(); ++i) {
      if (stream.axes[i] != stream.axes[i - 1] + 1) return std::nullopt;
    }
    return Fits(op, map, stream) ? std::optional(stream) : std::nullopt;
  }

  static bool Ordered(const std::vector<StreamAxis>& streams) {
    for (size_t i = 1; i < streams.size(); ++i) {
      if (streams[i].axes[0] <= streams[i - 1].axes.back()) return false;
    }
    return true;
  }

  bool Fits(const ir::Op& op, const fusion::StreamMap& map, const StreamAxis& stream) const {
    const ir::Value& result = *op.results[0];
    int64_t iterations = 1;
    for (const int axis : stream.axes) {
      const ir::Axis& own = result.type->axes[static_cast<size_t>(axis)];
      const int64_t size = Size(own.extent);
      const bool reduced = own.kind == ir::AxisKind::kReduction;
      if (map.IsReduced(axis) != reduced || (reduced && stream.axes.size() > 1)) return false;
      if (stream.kind == Kind::kDealt && (size == 0 || size % stream.factor != 0)) return false;
      if (stream.kind == Kind::kWhole) iterations *= size;
      if (stream.kind == Kind::kChunks) iterations *= (size + stream.factor - 1) / stream.factor;
    }
    return iterations <= kIterationsMax && map.CanCompute(stream);
  }

  std::vector<StreamAxis> Fresh(const ir::Op& op) {
    const fusion::StreamMap map(op);
    const auto rank = std::ssize(op.results[0]->type->axes);
    std::vector<StreamAxis> streams;
    int64_t axis = rank == 0 ? 0 : rng_.Below(rank);
    // A product's rows with gaps, and partial sums of them in a loop inside: what libraries do not know.
    const bool gaps = (op.info->effects & ir::kLibrary) != 0 && rank >= 2 && rng_.OneIn(3);
    if (gaps) axis = rank - 2;
    while (axis < rank && streams.size() < 2) {
      StreamAxis stream = {.axes = {static_cast<int>(axis)}};
      stream.kind = gaps && streams.empty() ? Kind::kDealt : static_cast<Kind>(rng_.Below(4));
      stream.factor = stream.kind == Kind::kWhole ? 1 : rng_.Between(1, 5);
      if (stream.kind == Kind::kWhole && axis + 1 < rank && rng_.OneIn(2)) {
        stream.axes.push_back(static_cast<int>(++axis));
      }
      if (Fits(op, map, stream)) streams.push_back(stream);
      axis += rng_.Between(1, 2);
      if (!streams.empty() && !rng_.OneIn(2)) break;
    }
    return streams;
  }

  void Set(ir::Value& value, const std::vector<StreamAxis>& streams) {
    fusion::Placement placement = {nullptr, std::vector<fusion::Types>(value.type->axes.size())};
    if (value.layout != nullptr) {
      placement = *fusion::PlacementOf(value);
      if (fusion::StreamsWithin(placement, streams) != streams) return;
    }
    for (const StreamAxis& stream : streams) {  // Turns are whole of what a device holds.
      if (stream.kind != Kind::kDealt || program_.graph->meshes().empty()) continue;
      const auto axis = static_cast<size_t>(stream.axes[0]);
      if (placement.mesh == nullptr) return;
      const int64_t parts = fusion::Ways(*placement.mesh, placement.axes[axis]) * stream.factor;
      if (Size(value.type->axes[axis].extent) % parts != 0) return;
    }
    ir::Value probe = value;
    probe.layout = fusion::LayoutFor(*program_.graph, *value.type, placement, streams);
    const auto read = fusion::StreamAxesOf(probe);
    if (!read.ok() || *read != streams) return;
    value.layout = probe.layout;
    ++tally_.values;
    tally_.nested += streams.size() > 1 ? 1 : 0;
    for (const StreamAxis& stream : streams) {
      const ir::Axis& axis = value.type->axes[static_cast<size_t>(stream.axes[0])];
      tally_.partial += axis.kind == ir::AxisKind::kReduction ? 1 : 0;
      tally_.merged += stream.axes.size() > 1 ? 1 : 0;
      switch (stream.kind) {
        case Kind::kWhole: ++tally_.whole; break;
        case Kind::kWays: ++tally_.ways; break;
        case Kind::kChunks: ++tally_.chunks; break;
        case Kind::kDealt: ++tally_.dealt; break;
      }
    }
  }

  GeneratedProgram& program_;
  base::Prng rng_;
  StreamTally tally_;
};

}  // namespace

void StreamTally::Add(const StreamTally& other) {
  values += other.values, whole += other.whole, ways += other.ways, chunks += other.chunks;
  dealt += other.dealt, merged += other.merged, nested += other.nested, partial += other.partial;
}

std::string StreamTally::Describe() const {
  return base::Cat("values with stream axes ", values, ": element by element ", whole, ", in n chunks ", ways,
                   ", in chunks of n ", chunks, ", dealt ", dealt, ", merged ", merged, ", nested ", nested,
                   ", of partial results ", partial);
}

int StreamsOf(uint64_t seed) {
  constexpr int kStreams[] = {1, 2, 3, 8};
  return kStreams[seed % std::size(kStreams)];
}

StreamTally AnnotateStreams(GeneratedProgram& program, uint64_t seed) { return Annotator(program, seed).Run(); }

}  // namespace hir::testing
