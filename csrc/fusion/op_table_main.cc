// Prints the fusion op table, for the Python client: all of it as JSON, or the pointwise ops as
// Python methods. Reads the rows alone, so it builds before anything else does.
//   hir-op-table json > _op_table.json; hir-op-table python > _pointwise.py
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/ir/op_info.h"

namespace hir::fusion {
namespace {

using ir::AttrInfo;
using ir::AttrKind;
using ir::kVariadic;

struct Row {
  std::string_view name;
  int operands = 0;  // -1: any number.
  std::string_view kind;
  std::string_view doc;
  std::vector<AttrInfo> attrs;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc) \
  {mnemonic, operands, "pointwise", doc, {}},
#define OP(Name, mnemonic, operands, effects, doc, ...) \
  {mnemonic, operands, "op", doc, {__VA_ARGS__}},
#define COMPOSITE(Name, mnemonic, operands, doc, ...) \
  {mnemonic, operands, "op", doc, {__VA_ARGS__}},
#define COMM(Name, mnemonic, doc, ...) {mnemonic, 1, "communication", doc, {__VA_ARGS__}},
#include "csrc/fusion/fusion_ops.def"
  };
  return rows;
}

std::string_view KindName(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return "int";
    case AttrKind::kFloat: return "float";
    case AttrKind::kBool: return "bool";
    case AttrKind::kName: return "name";
    case AttrKind::kString: return "string";
    case AttrKind::kInts: return "ints";
    case AttrKind::kExpr: return "expr";
    case AttrKind::kExprs: return "exprs";
    case AttrKind::kMesh: return "mesh";
  }
  return {};
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string Json(const Row& row) {
  std::string attrs, optional;
  for (const AttrInfo& attr : row.attrs) {
    std::string& to = attr.fallback.empty() ? attrs : optional;
    to += (to.empty() ? "" : ", ") + Quoted(attr.name) + ": " + Quoted(KindName(attr.kind));
  }
  return "{\"name\": " + Quoted(row.name) + ", \"operands\": " + std::to_string(row.operands) +
         ", \"kind\": " + Quoted(row.kind) + ", \"doc\": " + Quoted(row.doc) + ", \"attrs\": {" +
         attrs + "}, \"optional\": {" + optional + "}}";
}

std::string JsonTable() {
  std::string out;
  for (const Row& row : Rows()) out += (out.empty() ? "[\n  " : ",\n  ") + Json(row);
  return out + "\n]\n";
}

// Operands are positional: x, y, z as in the documentation.
std::string PythonMethods() {
  std::string out =
      "\"\"\"Made by the build from the op table: the operations on single elements.\"\"\"\n\n"
      "from typing import Any\n\n\n"
      "class PointwiseOps:\n"
      "    def _record(self, name: str, operands: list[Any]) -> Any:\n"
      "        raise NotImplementedError\n";
  constexpr std::string_view kOperands[] = {"x", "y", "z", "w"};
  for (const Row& row : Rows()) {
    if (row.kind != "pointwise") continue;
    std::string parameters, names;
    for (int i = 0; i < row.operands; ++i) {
      const std::string name(kOperands[i]);
      parameters += name + ": Any, ";
      names += (i == 0 ? "" : ", ") + name;
    }
    const std::string op(row.name);
    out += "\n    def " + op + "(self, " + parameters + "/) -> Any:\n        \"\"\"" +
           std::string(row.doc) + "\"\"\"\n        return self._record(\"" + op + "\", [" + names +
           "])\n";
  }
  return out;
}

}  // namespace
}  // namespace hir::fusion

int main(int argc, char** argv) {
  const std::string_view form = argc == 2 ? argv[1] : "";
  if (form != "json" && form != "python") {
    std::fputs("usage: hir-op-table json|python\n", stderr);
    return 2;
  }
  const std::string out = form == "json" ? hir::fusion::JsonTable() : hir::fusion::PythonMethods();
  return std::fputs(out.c_str(), stdout) < 0 || std::fflush(stdout) != 0;
}
