// The recursive-descent parser of the text form: one class, in parse.cc, parse_op.cc, parse_type.cc
// and parse_expr.cc. Private to csrc/ir.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"
#include "csrc/ir/lexer.h"
#include "csrc/ir/parse.h"

namespace hir::ir {

class Parser {
 public:
  // For a whole program of `ops`.
  Parser(std::string_view text, const OpSet& ops) : lexer_(text), ops_(&ops) { Advance(); }
  // For a part of the text form, into an existing graph; `meshes` are the names that may be used.
  Parser(std::string_view text, Graph& graph, const MeshNames& meshes)
      : lexer_(text), ops_(&graph.ops()), graph_(&graph), meshes_(meshes) {
    Advance();
  }

  Result<std::unique_ptr<Graph>> Program();
  Result<const Expr*> WholeExpr();  // An extent and nothing behind it; errors without a line.

 private:
  // parse.cc
  Status MeshLine();
  Result<std::vector<int64_t>> MeshRows(std::vector<int64_t>& shape, size_t depth);
  Status Params();
  Status Return();
  Status AddMeshes();
  // parse_op.cc
  Status Statements(Block& block, int depth);
  Status Statement(Block& block, int depth);
  struct Names;
  Status Results(Names& names);
  Status Operands(std::vector<Value*>& operands);
  Status Attrs(const OpInfo& info, std::vector<Attr>& attrs);
  Result<AttrValue> AttrValueOf(const AttrInfo& row);
  Status InnerBlock(Block& block, int depth);
  // parse_type.cc
  Result<const Type*> TypeText();
  Result<Axis> AxisText();
  Status Layout(std::vector<Annotation>& annotations);
  Result<Annotation> LayoutCommand();
  Status Annotations(Value& value, std::span<const Annotation> annotations, int line);
  // parse_expr.cc
  Result<const Expr*> Extent();  // A sum, checked against the pool's limits.
  Result<const Expr*> Sum();
  Result<const Expr*> ModTerm();
  Result<const Expr*> Product();
  Result<const Expr*> Factor();
  Result<const Expr*> Call();
  Result<const Expr*> Symbol();
  Result<const Expr*> Coordinate();

  // Tokens.
  void Advance() { token_ = lexer_.Next(); }
  bool Accept(char c);
  Status Expect(char c);
  Result<std::string_view> Take(TokenKind kind, std::string_view what);
  Result<int64_t> Integer(std::string_view what);
  Result<double> Float(std::string_view what);
  Result<Value*> ValueUse();
  Result<std::string_view> NewName();  // A %name that no value has.
  Result<const Mesh*> MeshUse();
  Status Fail(std::string message) const { return At(token_.line, InvalidArgument(std::move(message))); }
  Status Expected(std::string_view what) const;
  Status At(int line, const Status& status) const;

  Lexer lexer_;
  Token token_;
  const OpSet* ops_;
  std::unique_ptr<Graph> owned_;
  Graph* graph_ = nullptr;
  std::vector<std::pair<std::string, mesh::DeviceMesh>> declared_meshes_;
  MeshNames meshes_;  // Equal meshes may have several names in the text.
  int64_t num_ops_ = 0;
  int expr_depth_ = 0;
  bool with_lines_ = true;
};

}  // namespace hir::ir
