#include "csrc/fusion/passes/stream_axes.h"

#include <algorithm>
#include <map>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::fusion {
namespace {

using base::Cat;
using mesh::ParallelType;
using Split = ir::LoopTransform::Kind;
using Kind = StreamAxis::Kind;

// A leaf of a loop domain: a chain of splits leaves on each axis parts, outermost first.
struct Part {
  std::vector<int> axes;  // Logical; several: of a merge.
  enum class Form : uint8_t {
    kAll,     // The axis itself, or all of a merge.
    kWays,    // `factor` blocks.
    kChunks,  // Blocks of `factor`.
    kRest,    // What is in a block: the innermost part.
    kOther,
  };
  Form form = Form::kAll;
  int64_t factor = 0;
  // Of a rest: the split that made it, and whether it was one of the whole axis.
  std::optional<ir::LoopTransform> split = {};
  bool of_all = false;
  int split_number = -1;  // Of the last split that made it, among the transforms; -1: none did.
};

Part Other(const Part& part) { return {part.axes, Part::Form::kOther}; }

std::pair<Part, Part> SplitPart(const Part& part, const ir::LoopTransform& step) {
  using Form = Part::Form;
  const bool outer = step.kind == Split::kOuterSplit;
  if (part.form == Form::kAll || part.form == Form::kRest) {
    Part rest = {part.axes, Form::kRest};
    rest.split = step;
    rest.of_all = part.form == Form::kAll;
    return {{part.axes, outer ? Form::kWays : Form::kChunks, step.factor}, rest};
  }
  if (part.form == Form::kWays && part.factor % step.factor == 0) {
    const int64_t other = part.factor / step.factor;
    return {{part.axes, Form::kWays, outer ? step.factor : other},
            {part.axes, Form::kWays, outer ? other : step.factor}};
  }
  return {Other(part), Other(part)};
}

// `held`: numbers of the splits of which a device holds one part, and whether that is the inner one; of those splits no
// more is left than what a device holds.
std::vector<Part> PartsOf(const ir::Value& value, const std::map<size_t, bool>& held) {
  std::vector<Part> parts;
  for (size_t i = 0; i < value.type->axes.size(); ++i) parts.push_back({.axes = {static_cast<int>(i)}});
  const std::span<const ir::LoopTransform> transforms = value.layout->transforms;
  for (size_t number = 0; number < transforms.size(); ++number) {
    const ir::LoopTransform& step = transforms[number];
    const int step_axes = step.kind == Split::kMerge ? 2 : 1;
    HIR_CHECK(step.axis >= 0 && step.axis + step_axes <= static_cast<int>(parts.size()));
    const auto at = parts.begin() + step.axis;
    if (step.kind == Split::kMerge) {
      const bool whole = at->form == Part::Form::kAll && (at + 1)->form == Part::Form::kAll;
      if (!whole) at->form = Part::Form::kOther;
      at->axes.insert(at->axes.end(), (at + 1)->axes.begin(), (at + 1)->axes.end());
      parts.erase(at + 1);
      continue;
    }
    if (const auto device = held.find(number); device != held.end()) {
      const Part of_devices = Other(*at);
      parts.insert(device->second ? at : at + 1, of_devices);
      continue;
    }
    auto [outside, inside] = SplitPart(*at, step);
    outside.split_number = inside.split_number = static_cast<int>(number);
    *at = outside;
    parts.insert(at + 1, inside);
  }
  return parts;
}

std::vector<Part> PartsOf(const ir::Value& value) {
  std::map<size_t, bool> held;
  const std::vector<Part> parts = PartsOf(value, held);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!mesh::IsMesh(value.layout->parallel[i]) || parts[i].split_number < 0) continue;
    const ir::LoopTransform& step = value.layout->transforms[static_cast<size_t>(parts[i].split_number)];
    const bool outer = parts[i].form == Part::Form::kWays;
    if (outer || (parts[i].form == Part::Form::kRest && step.kind == Split::kInnerSplit))
      held.emplace(static_cast<size_t>(parts[i].split_number), outer);
  }
  return held.empty() ? parts : PartsOf(value, held);
}

// A split of merged axes as loops over each: where its chunks are so many of the outermost axis, or so many times as
// many of it are whole and the next is cut. Nothing where chunks begin and end inside of rows.
std::optional<std::vector<StreamAxis>> OfMerged(const ir::Type& type, Part part) {
  std::vector<StreamAxis> streams;
  const auto extent = [&](size_t i) { return type.axes[static_cast<size_t>(part.axes[i])].extent; };
  while (true) {
    const bool last = part.axes.size() == 1;
    const ir::Expr* const outer = extent(0);
    if (part.form == Part::Form::kWays) {
      if (last || (outer->IsConst() && outer->value > 0 && outer->value % part.factor == 0)) {
        streams.push_back({{part.axes[0]}, Kind::kWays, part.factor});
        return streams;
      }
      if (!outer->IsConst() || outer->value == 0 || part.factor % outer->value != 0) return std::nullopt;
      part.factor /= outer->value;
    } else if (part.form == Part::Form::kChunks) {
      int64_t row = 1;
      for (size_t i = 1; i < part.axes.size(); ++i) {
        if (!extent(i)->IsConst() || extent(i)->value == 0) return std::nullopt;
        row *= extent(i)->value;
      }
      if (part.factor % row == 0) {
        streams.push_back({{part.axes[0]}, Kind::kChunks, part.factor / row});
        return streams;
      }
      if (row % part.factor != 0) return std::nullopt;
    } else {
      return std::nullopt;
    }
    streams.push_back({{part.axes[0]}, Kind::kWhole, 1});
    part.axes.erase(part.axes.begin());
  }
}

std::string AxesText(const std::vector<int>& axes) {
  return Cat(axes.size() == 1 ? "axis " : "the merged axes ",
             base::JoinInts(std::vector<int64_t>(axes.begin(), axes.end()), ", "));
}

Status NotBuilt(const ir::Value& value, const Part& part) {
  return Unimplemented(Cat(value.name, ": of ", AxesText(part.axes), " of ", ir::ToString(*value.type),
                           " a part is parallel on stream that is no row of chunks: a stream axis is an axis, merged "
                           "axes, the outer part of a split of an axis (outside of it only mesh and stream parts of "
                           "that axis), or the inner part of its only split; use outer_split(axis, number of chunks) "
                           "or inner_split(axis, elements of a chunk) and parallelize the outer part"));
}

}  // namespace

std::string Describe(const StreamAxis& stream) {
  const std::string text = AxesText(stream.axes);
  switch (stream.kind) {
    case Kind::kWhole: return Cat(text, ", element by element");
    case Kind::kWays: return Cat(text, " in ", stream.factor, stream.factor == 1 ? " chunk" : " chunks");
    case Kind::kChunks: return Cat(text, " in chunks of ", stream.factor);
    case Kind::kDealt:
      return Cat(text, " dealt in turns to ", stream.factor, stream.factor == 1 ? " chunk" : " chunks");
  }
  HIR_CHECK(false);
  return {};
}

Result<std::vector<StreamAxis>> StreamAxesOf(const ir::Value& value) {
  std::vector<StreamAxis> streams;
  if (value.layout == nullptr) return streams;
  const std::span<const ParallelType> parallel = value.layout->parallel;
  if (std::ranges::find(parallel, ParallelType::kStream) == parallel.end()) return streams;
  const std::vector<Part> parts = PartsOf(value);
  std::vector<int> outside(value.type->axes.size(), 0);  // Serial parts of an axis that are outside of what follows.
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const auto first = static_cast<size_t>(part.axes[0]);
    if (parallel[i] == ParallelType::kSerial) {
      for (const int axis : part.axes) ++outside[static_cast<size_t>(axis)];
      continue;
    }
    if (parallel[i] != ParallelType::kStream) continue;
    StreamAxis stream = {.axes = part.axes};
    if (part.axes.size() > 1) {
      for (const int axis : part.axes) {
        if (value.type->axes[static_cast<size_t>(axis)].kind == ir::AxisKind::kReduction) return NotBuilt(value, part);
      }
      if (part.form != Part::Form::kAll) {
        const std::optional<std::vector<StreamAxis>> apart = OfMerged(*value.type, part);
        if (!apart || outside[first] > 0) return NotBuilt(value, part);
        streams.insert(streams.end(), apart->begin(), apart->end());
        continue;
      }
    } else if (outside[first] == 0) {
      switch (part.form) {
        case Part::Form::kAll:
        case Part::Form::kRest: break;
        case Part::Form::kWays: stream.kind = Kind::kWays; break;
        case Part::Form::kChunks: stream.kind = Kind::kChunks; break;
        case Part::Form::kOther: return NotBuilt(value, part);
      }
      if (stream.kind != Kind::kWhole) stream.factor = part.factor;
    } else {
      const ir::Expr* const extent = value.type->axes[first].extent;
      if (!part.split || outside[first] > 1) return NotBuilt(value, part);
      stream.kind = Kind::kDealt;
      stream.factor = part.split->factor;
      if (part.split->kind == Split::kOuterSplit) {
        const bool known = part.of_all && extent->IsConst() && extent->value > 0;
        if (!known || extent->value % part.split->factor != 0) return NotBuilt(value, part);
        stream.factor = extent->value / part.split->factor;
      }
    }
    streams.push_back(std::move(stream));
  }
  return streams;
}

std::vector<StreamAxis> StreamsOfElements(const ir::Value& value, std::vector<StreamAxis> streams) {
  const std::span<const ir::Axis> axes = value.type->axes;
  const auto is_reduction = [](const ir::Axis& axis) { return axis.kind == ir::AxisKind::kReduction; };
  std::erase_if(streams,
                [&](const StreamAxis& stream) { return is_reduction(axes[static_cast<size_t>(stream.axes[0])]); });
  for (StreamAxis& stream : streams) {
    for (int& axis : stream.axes)
      axis -= static_cast<int>(std::count_if(axes.begin(), axes.begin() + axis, is_reduction));
  }
  return streams;
}

Chunks ChunksOf(ir::ExprPool& pool, const StreamAxis& stream, const ir::Expr* extent) {
  extent = pool.Import(extent);
  const ir::Expr* const factor = pool.Const(stream.factor);
  switch (stream.kind) {
    case Kind::kWhole: return {extent, pool.Const(1), pool.Const(0)};
    case Kind::kDealt: return {factor, pool.FloorDiv(extent, factor), pool.Const(0)};
    case Kind::kChunks: return {pool.FloorDiv(extent, factor), factor, pool.Mod(extent, factor)};
    case Kind::kWays: {
      const ir::Expr* const size = pool.Max(pool.CeilDiv(extent, factor), pool.Const(1));
      return {pool.FloorDiv(extent, size), size, pool.Mod(extent, size)};
    }
  }
  HIR_CHECK(false);
  return {};
}

StreamMap::StreamMap(const ir::Op& op) : op_(&op), links_(AxesOf(op)) {}

bool StreamMap::IsReduced(int axis) const {
  return std::ranges::any_of(links_, [&](const AxisLink& link) {
    return link.result_axis == axis &&
           (link.relation == AxisRelation::kReduced || link.relation == AxisRelation::kContracted);
  });
}

bool StreamMap::CanCompute(const StreamAxis& stream) const {
  const auto along = [&](int axis) {
    return std::ranges::all_of(links_, [&](const AxisLink& link) {
      if (link.result_axis != axis) return true;
      const std::vector<ir::Axis> axes = ir::ValueAxes(*op_->operands[static_cast<size_t>(link.operand)]->type);
      const ir::Axis& from = axes[static_cast<size_t>(link.operand_axis)];
      const ir::Axis& to = op_->results[0]->type->axes[static_cast<size_t>(axis)];
      switch (link.relation) {
        case AxisRelation::kSame:
        case AxisRelation::kBroadcast:
        case AxisRelation::kReduced:
        case AxisRelation::kContracted: return true;
        case AxisRelation::kGathered: return stream.kind != Kind::kDealt;
        // A chunk is so many of the outermost ones.
        case AxisRelation::kSplitOuter:
          return stream.kind == Kind::kWays && to.extent->IsConst() && to.extent->value % stream.factor == 0;
        case AxisRelation::kMergedOuter:
          return stream.kind == Kind::kWays && from.extent->IsConst() && from.extent->value % stream.factor == 0;
        case AxisRelation::kMergedInner: return stream.kind == Kind::kWays;
        case AxisRelation::kSliced:
        case AxisRelation::kPadded:
        case AxisRelation::kConcatenated:
        case AxisRelation::kSplitInner:
        case AxisRelation::kOpaque: return false;
      }
      return false;
    });
  };
  if (IsCommunication(CodeOf(*op_))) {  // Its leading axis, where that has no link, is one of ranks.
    const auto linked = [&](int axis) {
      return std::ranges::any_of(links_, [&](const AxisLink& link) { return link.result_axis == axis; });
    };
    if (!std::ranges::all_of(stream.axes, linked)) return false;
  }
  // An op that counts along the axis counts in steps of one, and a library call is made for one beginning.
  const bool is_call = (op_->info->effects & ir::kLibrary) != 0;
  const auto counts = [&](int axis) { return CountsAlong(*op_, static_cast<size_t>(axis)); };
  if ((stream.kind == Kind::kDealt || is_call) && std::ranges::any_of(stream.axes, counts)) return false;
  return std::ranges::all_of(stream.axes, along);
}

std::optional<int> StreamMap::OperandAxis(int operand, int axis) const {
  for (const AxisLink& link : links_) {
    if (link.operand != operand || link.result_axis != axis) continue;
    switch (link.relation) {
      case AxisRelation::kSame:
      case AxisRelation::kBroadcast: {
        const std::vector<ir::Axis> axes = ir::ValueAxes(*op_->operands[static_cast<size_t>(operand)]->type);
        const ir::Expr* const from = axes[static_cast<size_t>(link.operand_axis)].extent;
        const ir::Expr* const to = op_->results[0]->type->axes[static_cast<size_t>(axis)].extent;
        if (from->IsConst(1) && !to->IsConst(1)) continue;  // Stretched: every chunk reads the same element.
        return link.operand_axis;
      }
      case AxisRelation::kReduced:
      case AxisRelation::kContracted:
      case AxisRelation::kSplitOuter:
      case AxisRelation::kMergedOuter: return link.operand_axis;
      case AxisRelation::kMergedInner:
      case AxisRelation::kGathered:
      case AxisRelation::kSliced:
      case AxisRelation::kPadded:
      case AxisRelation::kConcatenated:
      case AxisRelation::kSplitInner:
      case AxisRelation::kOpaque: break;
    }
  }
  return std::nullopt;
}

std::vector<int> StreamMap::Needed(int operand, const StreamAxis& stream) const {
  std::vector<int> axes;
  for (const int axis : stream.axes) axes.push_back(OperandAxis(operand, axis).value_or(-1));
  return axes;
}

}  // namespace hir::fusion
