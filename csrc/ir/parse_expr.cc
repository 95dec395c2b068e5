// Extents. sum := term {(+|-) term}; term := product {mod product}; product := factor {(*|/) factor}.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/parser.h"

namespace hir::ir {

using base::Cat;

bool IsSymbolName(std::string_view name) {
  constexpr std::string_view kReserved[] = {"b", "r", "mod", "ceildiv", "min", "max"};
  return IsIdentifier(name) && std::find(std::begin(kReserved), std::end(kReserved), name) == std::end(kReserved);
}

Result<const Expr*> Parser::Extent() {
  const int line = token_.line;
  HIR_ASSIGN(const Expr* const expr, Sum());
  HIR_TRY(At(line, graph_->exprs().status()));
  return graph_->Resolve(expr);
}

Result<const Expr*> Parser::Sum() {
  // Parentheses and calls come through here: the one place where extents nest.
  if (++expr_depth_ > static_cast<int>(kExprDepthMax)) {
    return At(token_.line, ResourceExhausted(Cat("an extent is nested deeper than ", kExprDepthMax)));
  }
  HIR_ASSIGN(const Expr* sum, ModTerm());
  while (token_.Is('+') || token_.Is('-')) {
    const bool plus = token_.Is('+');
    Advance();
    HIR_ASSIGN(const Expr* const term, ModTerm());
    sum = plus ? graph_->exprs().Add(sum, term) : graph_->exprs().Sub(sum, term);
    HIR_TRY(At(token_.line,
               graph_->exprs().status()));  // At once: a long sum of a bad extent is not worth reading.
  }
  --expr_depth_;
  return sum;
}

Result<const Expr*> Parser::ModTerm() {
  HIR_ASSIGN(const Expr* term, Product());
  while (token_.IsWord("mod")) {
    Advance();
    HIR_ASSIGN(const Expr* const by, Product());
    term = graph_->exprs().Mod(term, by);
    HIR_TRY(At(token_.line, graph_->exprs().status()));
  }
  return term;
}

Result<const Expr*> Parser::Product() {
  HIR_ASSIGN(const Expr* product, Factor());
  while (token_.Is('*') || token_.Is('/')) {
    const bool times = token_.Is('*');
    Advance();
    HIR_ASSIGN(const Expr* const by, Factor());
    product = times ? graph_->exprs().Mul(product, by) : graph_->exprs().FloorDiv(product, by);
    HIR_TRY(At(token_.line, graph_->exprs().status()));
  }
  return product;
}

Result<const Expr*> Parser::Factor() {
  bool negative = false;
  while (Accept('-')) negative = !negative;
  const Expr* factor = nullptr;
  if (token_.kind == TokenKind::kInt) {
    if (token_.integer > INT64_MAX) return Fail("an integer does not fit in 64 bits");
    factor = graph_->exprs().Const(static_cast<int64_t>(token_.integer));
    Advance();
  } else if (Accept('(')) {
    HIR_ASSIGN(factor, Sum());
    HIR_TRY(Expect(')'));
  } else if (token_.kind == TokenKind::kWord) {
    const bool call = token_.text == "ceildiv" || token_.text == "min" || token_.text == "max";
    HIR_ASSIGN(factor, call ? Call() : Symbol());
  } else if (token_.kind == TokenKind::kAt) {
    HIR_ASSIGN(factor, Coordinate());
  } else if (token_.kind == TokenKind::kValue) {
    HIR_ASSIGN(const Value* const index, ValueUse());
    if (index->type->kind != TypeKind::kIndex) {
      return Fail(
          Cat("%", index->name, " in an extent is ", ToString(*index->type), "; only a loop index may be there"));
    }
    factor = graph_->exprs().Symbol(Cat("%", index->name));
  } else {
    return Expected("an extent");
  }
  return negative ? graph_->exprs().Mul(graph_->exprs().Const(-1), factor) : factor;
}

Result<const Expr*> Parser::Call() {
  const std::string_view name = token_.text;
  Advance();
  HIR_TRY(Expect('('));
  HIR_ASSIGN(const Expr* const a, Sum());
  HIR_TRY(Expect(','));
  HIR_ASSIGN(const Expr* const b, Sum());
  HIR_TRY(Expect(')'));
  ExprPool& pool = graph_->exprs();
  return name == "ceildiv" ? pool.CeilDiv(a, b) : name == "min" ? pool.Min(a, b) : pool.Max(a, b);
}

Result<const Expr*> Parser::Symbol() {
  const std::string_view name = token_.text;
  if (!IsIdentifier(name)) {
    return Fail(Cat(Describe(token_), " is no name of a size: letters, digits and _, at most ", kNameBytesMax));
  }
  if (!IsSymbolName(name)) return Fail(Cat(Describe(token_), " is a word of the syntax and cannot name a size"));
  Advance();
  return graph_->exprs().Symbol(name);
}

Result<const Expr*> Parser::Coordinate() {
  const size_t dot = token_.text.rfind('.');
  const std::string_view part = dot == std::string_view::npos ? "" : token_.text.substr(dot + 1);
  if (part != "x" && part != "y" && part != "z" && part != "in") {
    return Expected("a mesh coordinate like @m.x, @m.y, @m.z or @m.in");
  }
  const auto mesh = meshes_.find(token_.text.substr(0, dot));
  if (mesh == meshes_.end())
    return Fail(Cat("undefined mesh @", std::string(token_.text.substr(0, std::min<size_t>(dot, 40)))));
  Advance();
  return graph_->exprs().Symbol(Cat("@", mesh->second->name, ".", part));
}

Result<const Expr*> Parser::WholeExpr() {
  with_lines_ = false;
  HIR_ASSIGN(const Expr* const expr, Extent());
  if (token_.kind != TokenKind::kEnd) return Expected("the end of the extent");
  return expr;
}

Result<const Expr*> ParseExtent(std::string_view text, Graph& graph, const MeshNames& meshes) {
  if (std::ssize(text) > kExtentBytesMax) {
    return ResourceExhausted(Cat("an extent's text has ", text.size(), " bytes; the limit is ", kExtentBytesMax));
  }
  return Parser(text, graph, meshes).WholeExpr();
}

}  // namespace hir::ir
