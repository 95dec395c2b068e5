#include "csrc/ir/print.h"

#include "csrc/base/text.h"
#include "csrc/ir/lexer.h"

namespace hir::ir {
namespace {

using base::Append;
using base::Cat;

constexpr size_t kLineColumns = 100;  // A program's head that is longer has one parameter a line.

std::string TypedName(const Value& value) {
  std::string out = Cat("%", value.name);
  if (value.type != nullptr) Append(out, ": ", ToString(*value.type));
  std::string lies = value.layout == nullptr ? "" : ToString(*value.layout);
  if (!value.stride_order.empty())
    Append(lies, lies.empty() ? "" : ", ", "stride_order(", base::JoinInts(value.stride_order, ", "), ")");
  if (value.layout != nullptr || !lies.empty()) Append(out, " {", lies, "}");
  return out;
}

template <typename Range, typename Text>
std::string List(const Range& range, const Text& text) {
  std::string out;
  for (const auto& element : range) Append(out, out.empty() ? "" : ", ", text(element));
  return out;
}

std::string ValueText(const AttrValue& value, AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return Cat(std::get<int64_t>(value));
    case AttrKind::kFloat: return base::FormatDouble(std::get<double>(value));
    case AttrKind::kBool: return std::get<bool>(value) ? "true" : "false";
    case AttrKind::kName: return std::string(std::get<std::string_view>(value));
    case AttrKind::kString: return Quote(std::get<std::string_view>(value));
    case AttrKind::kInts: return Cat("[", base::JoinInts(std::get<std::span<const int64_t>>(value), ", "), "]");
    case AttrKind::kExpr: return ToString(std::get<const Expr*>(value));
    case AttrKind::kExprs:
      return Cat("[", List(std::get<std::span<const Expr* const>>(value), [](const Expr* e) { return ToString(e); }),
                 "]");
    case AttrKind::kMesh: return Cat("@", std::get<const Mesh*>(value)->name);
  }
  HIR_CHECK(false);
  return {};
}

void PrintBlock(std::string& out, const Block& block, const std::string& indent) {
  for (const Op* op = block.first; op != nullptr; op = op->next) {
    Append(out, indent, Print(*op));
    for (const Block* inner : op->blocks) {
      out += " {";
      if (!inner->args.empty()) {
        Append(out, " |", List(inner->args, [](const Value* v) { return TypedName(*v); }), "|");
      }
      out += '\n';
      PrintBlock(out, *inner, indent + "  ");
      Append(out, indent, "}");
    }
    out += '\n';
  }
}

}  // namespace

std::string Print(const Op& op) {
  std::string out = List(op.results, [](const Value* v) { return TypedName(*v); });
  if (!out.empty()) out += " = ";
  Append(out, op.info->name, "(", List(op.operands, [](const Value* v) { return Cat("%", v->name); }), ")");
  std::string attrs;
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrInfo& row = op.info->attrs[i];
    const std::string value = ValueText(op.attrs[i].value, row.kind);
    if (!row.fallback.empty() && value == row.fallback) continue;  // As when it is not written.
    Append(attrs, attrs.empty() ? " {" : ", ", op.attrs[i].name, "=", value);
  }
  return attrs.empty() ? out : out + attrs + "}";
}

std::string Print(const Graph& graph) {
  std::string out;
  for (const Mesh& mesh : graph.meshes()) Append(out, "mesh @", mesh.name, " = ", mesh.mesh.ToString(), "\n");
  if (!graph.segmentation.empty()) Append(out, "segmentation ", graph.segmentation, "\n");
  const std::string head = Cat(graph.ops().name, " @", graph.name(), "(");
  const std::string params = List(graph.params, [](const Value* v) { return TypedName(*v); });
  if (head.size() + params.size() + 3 <= kLineColumns) {
    Append(out, head, params, ") {\n");
  } else {
    out += head;
    for (const Value* param : graph.params) Append(out, param->index == 0 ? "\n    " : ",\n    ", TypedName(*param));
    out += ") {\n";
  }
  PrintBlock(out, graph.body, "  ");
  if (!graph.outputs.empty()) {
    Append(out, "  return ",
           List(graph.outputs,
                [](const Output& output) {
                  return output.alias == nullptr ? Cat("%", output.value->name)
                                                 : Cat("%", output.value->name, " alias %", output.alias->name);
                }),
           "\n");
  }
  return out + "}\n";
}

}  // namespace hir::ir
