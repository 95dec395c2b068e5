#include "csrc/ir/attr.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <variant>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"

namespace hir::ir {

using base::Cat;

std::string_view AttrKindName(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return "an integer";
    case AttrKind::kFloat: return "a float";
    case AttrKind::kBool: return "true or false";
    case AttrKind::kName: return "a word";
    case AttrKind::kString: return "a string";
    case AttrKind::kInts: return "a list of integers";
    case AttrKind::kExpr: return "an extent";
    case AttrKind::kExprs: return "a list of extents";
    case AttrKind::kMesh: return "a mesh";
  }
  HIR_CHECK(false);
  return {};
}

bool IsName(std::string_view text) {
  return !text.empty() && std::ssize(text) <= kNameBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

bool IsWord(std::string_view text) { return IsName(text) && text[0] != '.' && (text[0] < '0' || text[0] > '9'); }

bool IsIdentifier(std::string_view text) { return IsWord(text) && text.find('.') == std::string_view::npos; }

bool Holds(const AttrValue& value, AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return std::holds_alternative<int64_t>(value);
    case AttrKind::kFloat: return std::holds_alternative<double>(value);
    case AttrKind::kBool: return std::holds_alternative<bool>(value);
    case AttrKind::kName:
    case AttrKind::kString: return std::holds_alternative<std::string_view>(value);
    case AttrKind::kInts: return std::holds_alternative<std::span<const int64_t>>(value);
    case AttrKind::kExpr: return std::holds_alternative<const Expr*>(value);
    case AttrKind::kExprs: return std::holds_alternative<std::span<const Expr* const>>(value);
    case AttrKind::kMesh: {
      const auto* mesh = std::get_if<const Mesh*>(&value);
      return mesh != nullptr && *mesh != nullptr;
    }
  }
  HIR_CHECK(false);
  return false;
}

namespace {

constexpr int64_t kExactInDouble = int64_t{1} << 53;

// What a caller may write for `kind` besides the kind itself.
AttrValue Convert(Graph& graph, const AttrValue& value, AttrKind kind) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    const bool exact = *number >= -kExactInDouble && *number <= kExactInDouble;
    if (kind == AttrKind::kFloat && exact) return static_cast<double>(*number);
    if (kind == AttrKind::kExpr) return graph.exprs().Const(*number);
  }
  if (const auto* numbers = std::get_if<std::span<const int64_t>>(&value); numbers && kind == AttrKind::kExprs) {
    std::vector<const Expr*> exprs;
    for (const int64_t number : *numbers) exprs.push_back(graph.exprs().Const(number));
    return std::span<const Expr* const>(graph.Copy(exprs));
  }
  return value;
}

std::string_view KindOf(const AttrValue& value) {
  constexpr AttrKind kKinds[] = {AttrKind::kInt,  AttrKind::kFloat, AttrKind::kBool,  AttrKind::kName,
                                 AttrKind::kInts, AttrKind::kExpr,  AttrKind::kExprs, AttrKind::kMesh};
  static_assert(std::size(kKinds) == std::variant_size_v<AttrValue>);
  return AttrKindName(kKinds[value.index()]);
}

Status CheckValue(const AttrInfo& row, const AttrValue& value) {
  if (!Holds(value, row.kind)) {
    return InvalidArgument(Cat("attribute ", row.name, " is ", AttrKindName(row.kind), ", got ", KindOf(value)));
  }
  if (row.kind == AttrKind::kName && !IsWord(std::get<std::string_view>(value))) {
    return InvalidArgument(
        Cat("attribute ", row.name, " is a word of letters, digits, _ and ., at most ", kNameBytesMax));
  }
  size_t length = 0;
  if (const auto* ints = std::get_if<std::span<const int64_t>>(&value)) length = ints->size();
  if (const auto* exprs = std::get_if<std::span<const Expr* const>>(&value)) length = exprs->size();
  if (length > static_cast<size_t>(kListMax)) {
    return ResourceExhausted(Cat("attribute ", row.name, " has ", length, " elements; the limit is ", kListMax));
  }
  return {};
}

}  // namespace

Status UnknownAttr(const OpInfo& info, std::string_view name) {
  std::vector<std::string_view> names;
  for (int i = 0; i < info.num_attrs(); ++i) names.push_back(info.attrs[i].name);
  if (names.empty()) return InvalidArgument(Cat("takes no attributes, got ", name));
  const std::string_view nearest = base::Nearest(name, names);
  if (!nearest.empty()) return InvalidArgument(Cat("no attribute ", name, "; did you mean ", nearest, "?"));
  return InvalidArgument(Cat("no attribute ", name, "; it has ", base::Join(names, ", ")));
}

Result<std::vector<Attr>> MatchAttrs(Graph& graph, const OpInfo& info, std::span<const Attr> attrs) {
  std::vector<Attr> matched;
  for (int i = 0; i < info.num_attrs(); ++i) matched.push_back({info.attrs[i].name, {}});
  std::vector<bool> seen(matched.size());
  for (const Attr& attr : attrs) {
    const auto at = std::find_if(matched.begin(), matched.end(), [&](const Attr& m) { return m.name == attr.name; });
    if (at == matched.end()) return UnknownAttr(info, attr.name);
    const auto i = static_cast<size_t>(at - matched.begin());
    if (seen[i]) return InvalidArgument(Cat("attribute ", attr.name, " is given twice"));
    seen[i] = true;
    at->value = Convert(graph, attr.value, info.attrs[i].kind);
    HIR_TRY(CheckValue(info.attrs[i], at->value));
  }
  for (size_t i = 0; i < matched.size(); ++i) {
    if (seen[i]) continue;
    if (info.attrs[i].fallback.empty()) return InvalidArgument(Cat("missing attribute ", matched[i].name));
    matched[i].value = info.attrs[i].fallback;
  }
  return matched;
}

bool EqualAttrs(const Op& a, const Op& b) {
  HIR_CHECK(a.info == b.info);
  const auto equal = [](const Attr& x, const Attr& y) {
    if (x.value.index() != y.value.index()) return false;
    return std::visit(
        [&y](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          const T& other = std::get<T>(y.value);
          if constexpr (std::is_same_v<T, std::span<const int64_t>> ||
                        std::is_same_v<T, std::span<const Expr* const>>) {
            return std::equal(value.begin(), value.end(), other.begin(),
                              other.end());  // Extents are interned.
          } else if constexpr (std::is_same_v<T, double>) {
            return std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(other);  // NaN is itself; -0 is not 0.
          } else {
            return value == other;
          }
        },
        x.value);
  };
  return std::equal(a.attrs.begin(), a.attrs.end(), b.attrs.begin(), b.attrs.end(), equal);
}

}  // namespace hir::ir
