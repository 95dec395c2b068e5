// Types and layouts.
#include "csrc/base/text.h"
#include "csrc/ir/parser.h"

namespace hir::ir {

using base::Cat;

Result<Axis> Parser::AxisText() {
  if (!token_.IsWord("b") && !token_.IsWord("r")) {
    HIR_ASSIGN(const Expr* const extent, Extent());
    return Axis{AxisKind::kIteration, extent};
  }
  const bool broadcast = token_.IsWord("b");
  Advance();
  if (broadcast && !token_.Is(':')) return Axis{AxisKind::kBroadcast, graph_->exprs().Const(1)};
  HIR_TRY(Expect(':'));
  HIR_ASSIGN(const Expr* const extent, Extent());
  return Axis{broadcast ? AxisKind::kBroadcast : AxisKind::kReduction, extent};
}

Result<const Type*> Parser::TypeText() {
  const int line = token_.line;
  if (token_.IsWord("index")) {
    Advance();
    return graph_->Index();
  }
  if (token_.IsWord("event")) {
    Advance();
    HIR_TRY(Expect('['));
    HIR_ASSIGN(const int64_t count, Integer("how many events"));
    HIR_TRY(Expect(']'));
    const Type* type = graph_->Event(count);
    HIR_TRY(At(line, CheckType(*type)));
    return type;
  }
  const std::optional<DType> dtype = token_.kind == TokenKind::kWord ? ParseDType(token_.text) : std::nullopt;
  if (!dtype) return Expected(base::Cat("a type (", kDTypeNames, ", index or event)"));
  Advance();
  if (!Accept('[')) return graph_->Scalar(*dtype);
  std::vector<Axis> axes;
  while (!token_.Is(']')) {
    if (!axes.empty()) HIR_TRY(Expect(','));
    HIR_ASSIGN(const Axis axis, AxisText());
    axes.push_back(axis);
    if (std::ssize(axes) > kAxesMax) {
      return At(line, ResourceExhausted(Cat("a tensor has more than ", kAxesMax, " axes")));
    }
  }
  Advance();
  const Type* type = graph_->Tensor(*dtype, axes);
  HIR_TRY(At(line, CheckType(*type)));
  return type;
}

Status Parser::Layout(std::vector<Annotation>& annotations) {
  if (!Accept('{')) return {};
  do {
    if (token_.IsWord("mesh")) {
      Advance();
      HIR_TRY(Expect('='));
      HIR_ASSIGN(const Mesh* const mesh, MeshUse());
      annotations.push_back({.kind = Annotation::Kind::kMesh, .mesh = mesh});
    } else {
      HIR_ASSIGN(const Annotation command, LayoutCommand());
      annotations.push_back(command);
    }
    if (std::ssize(annotations) > kAnnotationsMax) {
      return At(token_.line, ResourceExhausted(Cat("a layout has more than ", kAnnotationsMax, " commands")));
    }
  } while (Accept(','));
  return Expect('}');
}

// outer_split(1, 4), inner_split(1, 4), merge(0), parallelize(1, mesh_x), shard(0, mesh_x), stride_order(1, 0)
Result<Annotation> Parser::LayoutCommand() {
  using Kind = Annotation::Kind;
  constexpr std::pair<std::string_view, Kind> kCommands[] = {{"outer_split", Kind::kOuterSplit},
                                                             {"inner_split", Kind::kInnerSplit},
                                                             {"merge", Kind::kMerge},
                                                             {"parallelize", Kind::kParallelize},
                                                             {"shard", Kind::kShard},
                                                             {"stride_order", Kind::kStrideOrder}};
  Annotation annotation;
  bool known = false;
  for (const auto& [word, kind] : kCommands) {
    if (!token_.IsWord(word)) continue;
    annotation.kind = kind;
    known = true;
  }
  if (!known) return Expected("mesh=, outer_split, inner_split, merge, parallelize, shard or stride_order");
  Advance();
  HIR_TRY(Expect('('));
  if (annotation.kind == Kind::kStrideOrder) {
    std::vector<int64_t> order;
    while (!token_.Is(')')) {
      if (!order.empty()) HIR_TRY(Expect(','));
      HIR_ASSIGN(const int64_t at, Integer("an axis"));
      order.push_back(at);
      if (std::ssize(order) > kAxesMax) return Expected("at most 16 axes");
    }
    annotation.order = graph_->Copy(order);
  } else {
    HIR_ASSIGN(annotation.axis, Integer("an axis"));
  }
  if (annotation.kind == Kind::kOuterSplit || annotation.kind == Kind::kInnerSplit) {
    HIR_TRY(Expect(','));
    HIR_ASSIGN(annotation.factor, Integer("a factor"));
  }
  if (annotation.kind == Kind::kParallelize || annotation.kind == Kind::kShard) {
    HIR_TRY(Expect(','));
    const auto type = token_.kind == TokenKind::kWord ? mesh::ParseParallelType(token_.text) : std::nullopt;
    if (!type) return Expected("a parallel type (mesh_x, mesh_y, mesh_z, stream or serial)");
    annotation.type = *type;
    Advance();
  }
  HIR_TRY(Expect(')'));
  return annotation;
}

Status Parser::Annotations(Value& value, std::span<const Annotation> annotations, int line) {
  return annotations.empty() ? Status() : At(line, AnnotateAll(*graph_, value, annotations));
}

}  // namespace hir::ir
