// Ops and blocks.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/parser.h"

namespace hir::ir {

using base::Cat;

// What is left of the '='.
struct Parser::Names {
  std::vector<std::string_view> names;
  std::vector<const Type*> declared;
  std::vector<std::vector<Annotation>> layouts;
};

Status Parser::Statements(Block& block, int depth) {
  while (!token_.Is('}') && !token_.IsWord("return")) HIR_TRY(Statement(block, depth));
  return {};
}

Status Parser::Statement(Block& block, int depth) {
  if (++num_ops_ > kOpsMax) {
    return At(token_.line, ResourceExhausted(Cat("the program has more than ", kOpsMax, " ops")));
  }
  Names left;
  if (token_.kind == TokenKind::kValue) HIR_TRY(Results(left));
  const int line = token_.line;
  HIR_ASSIGN(const std::string_view name, Take(TokenKind::kWord, "an op"));
  const OpInfo* info = ops_->Find(name);
  Builder builder(*graph_, block);
  if (info == nullptr) return At(line, builder.Add({.name = name}).status());
  HIR_TRY(Expect('('));
  std::vector<Value*> operands;
  HIR_TRY(Operands(operands));
  std::vector<Attr> attrs;
  if (token_.Is('{') && (info->num_attrs() > 0 || info->num_blocks == 0)) HIR_TRY(Attrs(*info, attrs));
  std::string location;
  if (token_.IsWord("at")) {
    Advance();
    HIR_ASSIGN(const std::string_view inside, Take(TokenKind::kString, "a location in quotes"));
    Result<std::string> unescaped = Unescape(inside);
    HIR_TRY(At(line, unescaped.status()));
    location = *unescaped;
  }
  Result<Op*> op = builder.Add({.info = info,
                                .operands = operands,
                                .attrs = attrs,
                                .result_names = left.names,
                                .declared = left.declared,
                                .num_results = static_cast<int>(left.names.size()),
                                .location = location,
                                .line = line});
  HIR_TRY(At(line, op.status()));
  for (size_t i = 0; i < left.layouts.size(); ++i) HIR_TRY(Annotations(*(*op)->results[i], left.layouts[i], line));
  for (Block* inner : (*op)->blocks) HIR_TRY(InnerBlock(*inner, depth));
  return {};
}

Status Parser::Results(Names& left) {
  do {
    HIR_ASSIGN(const std::string_view name, NewName());
    if (std::find(left.names.begin(), left.names.end(), name) != left.names.end()) {
      return Fail(Cat("%", name, " is defined twice"));
    }
    left.names.push_back(name);
    if (std::ssize(left.names) > kOperandsMax) {
      return At(token_.line, ResourceExhausted(Cat("an op has more than ", kOperandsMax, " results")));
    }
    left.declared.push_back(nullptr);
    if (Accept(':')) {
      HIR_ASSIGN(left.declared.back(), TypeText());
    }
    HIR_TRY(Layout(left.layouts.emplace_back()));
  } while (Accept(','));
  return Expect('=');
}

Status Parser::Operands(std::vector<Value*>& operands) {
  while (!token_.Is(')')) {
    if (!operands.empty()) HIR_TRY(Expect(','));
    HIR_ASSIGN(Value* const operand, ValueUse());
    operands.push_back(operand);
    if (std::ssize(operands) > kOperandsMax) {
      return At(token_.line, ResourceExhausted(Cat("an op has more than ", kOperandsMax, " operands")));
    }
  }
  Advance();
  return {};
}

Status Parser::Attrs(const OpInfo& info, std::vector<Attr>& attrs) {
  HIR_TRY(Expect('{'));
  while (!token_.Is('}')) {
    if (!attrs.empty()) HIR_TRY(Expect(','));
    const int line = token_.line;
    HIR_ASSIGN(const std::string_view name, Take(TokenKind::kWord, "an attribute"));
    const auto fail = [&](const Status& status) { return At(line, status.WithContext(info.name)); };
    const AttrInfo* row = std::find_if(info.attrs, info.attrs + info.num_attrs(),
                                       [&](const AttrInfo& attr) { return attr.name == name; });
    if (row == info.attrs + info.num_attrs()) {
      return fail(IsWord(name) ? UnknownAttr(info, name) : InvalidArgument("an attribute's name is too long"));
    }
    if (std::any_of(attrs.begin(), attrs.end(), [&](const Attr& attr) { return attr.name == name; })) {
      return fail(InvalidArgument(Cat("attribute ", name, " is given twice")));
    }
    HIR_TRY(Expect('='));
    HIR_ASSIGN(const AttrValue value, AttrValueOf(*row));
    attrs.push_back({row->name, value});
  }
  Advance();
  return {};
}

Result<AttrValue> Parser::AttrValueOf(const AttrInfo& row) {
  const std::string what = Cat(AttrKindName(row.kind), " for ", row.name);
  switch (row.kind) {
    case AttrKind::kInt: {
      HIR_ASSIGN(const int64_t value, Integer(what));
      return AttrValue(value);
    }
    case AttrKind::kFloat: {
      HIR_ASSIGN(const double value, Float(what));
      return AttrValue(value);
    }
    case AttrKind::kBool: {
      const bool value = token_.IsWord("true");
      if (!value && !token_.IsWord("false")) return Expected(what);
      Advance();
      return AttrValue(value);
    }
    case AttrKind::kName: {
      HIR_ASSIGN(const std::string_view value, Take(TokenKind::kWord, what));
      return AttrValue(value);
    }
    case AttrKind::kString: {
      const int line = token_.line;
      HIR_ASSIGN(const std::string_view inside, Take(TokenKind::kString, what));
      const Result<std::string> value = Unescape(inside);
      HIR_TRY(At(line, value.status()));
      return AttrValue(graph_->Copy(*value));
    }
    case AttrKind::kMesh: {
      HIR_ASSIGN(const Mesh* const value, MeshUse());
      return AttrValue(value);
    }
    case AttrKind::kExpr: {
      HIR_ASSIGN(const Expr* const value, Extent());
      return AttrValue(value);
    }
    case AttrKind::kInts:
    case AttrKind::kExprs: break;
  }
  if (!Accept('[')) return Expected(what);
  std::vector<int64_t> ints;
  std::vector<const Expr*> exprs;
  while (!token_.Is(']')) {
    const size_t count = ints.size() + exprs.size();
    if (count > 0) HIR_TRY(Expect(','));
    if (static_cast<int64_t>(count) >= kListMax) {
      return At(token_.line, ResourceExhausted(Cat("attribute ", row.name, " has more than ", kListMax, " elements")));
    }
    if (row.kind == AttrKind::kInts) {
      HIR_ASSIGN(const int64_t value, Integer("an integer"));
      ints.push_back(value);
    } else {
      HIR_ASSIGN(const Expr* const value, Extent());
      exprs.push_back(value);
    }
  }
  Advance();
  if (row.kind == AttrKind::kInts) return AttrValue(std::span<const int64_t>(graph_->Copy(ints)));
  return AttrValue(std::span<const Expr* const>(graph_->Copy(exprs)));
}

Status Parser::InnerBlock(Block& block, int depth) {
  if (depth >= kNestingMax) {
    return At(token_.line, ResourceExhausted(Cat("blocks are nested deeper than ", kNestingMax)));
  }
  HIR_TRY(Expect('{'));
  if (Accept('|')) {
    do {
      HIR_ASSIGN(const std::string_view name, NewName());
      HIR_TRY(Expect(':'));
      HIR_ASSIGN(const Type* const type, TypeText());
      if (std::ssize(block.args) >= kAxesMax) {
        return At(token_.line, ResourceExhausted(Cat("a block has more than ", kAxesMax, " arguments")));
      }
      graph_->AddBlockArg(block, name, type);
    } while (Accept(','));
    HIR_TRY(Expect('|'));
  }
  HIR_TRY(Statements(block, depth + 1));
  return Expect('}');
}

}  // namespace hir::ir
