// Extents: int64 expressions over symbols, in one canonical form.
//
// A pool makes expressions and interns them, so that within one pool equal expressions are the same
// pointer. Sums and products are kept as polynomials with sorted terms; `/` rounds down, and
// division by a constant splits off what the constant divides ((8*i + 3) / 4 is 2*i). A constant
// that leaves int64, a division by the constant 0, or an expression over the limits below makes the
// pool overflowed() for good, and the result is some valid expression: whoever builds from
// untrusted input checks the flag. The limits bound the recursion and the work of all functions
// here.
//
// Ownership: nodes die with their pool. Threads: one at a time; finished nodes may be read by many.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"

namespace hir::ir {

inline constexpr uint32_t kExprNodesMax = 4096;  // Of one expression, written out as a tree.
inline constexpr uint32_t kExprDepthMax = 128;
inline constexpr size_t kExprPoolBytesMax = size_t{256} << 20;  // Of all expressions of one pool.

enum class ExprKind : uint8_t { kConst, kSymbol, kFloorDiv, kMod, kCeilDiv, kMin, kMax, kMul, kAdd };

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int64_t value = 0;                       // kConst: the value. kMul: the coefficient. kAdd: the constant term.
  std::string_view symbol = {};            // kSymbol: "i0", "%i" (a loop index), "@m.x" (a mesh coordinate).
  std::span<const Expr* const> args = {};  // kMul: atoms, sorted. kAdd: terms, sorted. Others: two.
  uint32_t nodes = 1;                      // Of the tree, this one included.
  uint32_t depth = 1;

  bool IsConst() const { return kind == ExprKind::kConst; }
  bool IsConst(int64_t v) const { return kind == ExprKind::kConst && value == v; }
};

class ExprPool {
 public:
  ExprPool();
  ExprPool(const ExprPool&) = delete;
  ExprPool& operator=(const ExprPool&) = delete;

  const Expr* Const(int64_t value);
  const Expr* Symbol(std::string_view name);
  const Expr* Add(const Expr* a, const Expr* b);
  const Expr* Sub(const Expr* a, const Expr* b);
  const Expr* Mul(const Expr* a, const Expr* b);
  const Expr* FloorDiv(const Expr* a, const Expr* b);
  const Expr* Mod(const Expr* a, const Expr* b);  // In [0, b) for b > 0.
  const Expr* CeilDiv(const Expr* a, const Expr* b);
  const Expr* Min(const Expr* a, const Expr* b);
  const Expr* Max(const Expr* a, const Expr* b);
  // a - b when that is one number whatever the symbols are. REQUIRES: both are of this pool.
  std::optional<int64_t> Difference(const Expr* a, const Expr* b) const;

  // `expr`, of this pool or another, rebuilt in this pool with `symbols` replaced. A symbol that is not a key stays.
  const Expr* Substitute(const Expr* expr, const std::unordered_map<std::string_view, const Expr*>& symbols);
  const Expr* Import(const Expr* expr) { return Substitute(expr, {}); }

  bool overflowed() const { return fault_ != Fault::kNone; }
  // OK unless overflowed(). kInvalidArgument "an extent overflows 64 bits" or "... divides by zero", or
  // kResourceExhausted naming the limit.
  Status status() const;
  // The symbols in the order they were first made.
  std::span<const Expr* const> symbols() const { return symbols_; }
  // Where `symbol` is in symbols(). REQUIRES: it is a symbol of this pool.
  size_t SymbolOrder(const Expr* symbol) const { return symbol_order_.at(symbol); }

 private:
  using Atoms = std::span<const Expr* const>;            // Sorted; in the arena or a node's own.
  using Terms = std::vector<std::pair<Atoms, int64_t>>;  // (atoms, coefficient)
  struct Poly {
    Terms terms;  // Sorted, no zero coefficients.
    int64_t constant = 0;
  };
  Poly ToPoly(const Expr* expr) const;
  const Expr* FromPoly(Poly poly);
  void AddTerm(Poly& poly, Atoms atoms, int64_t coefficient);
  // c * (x / c) + x mod c is x: an axis that was taken apart lies as it did.
  void JoinQuotients(Poly& poly);
  int64_t Checked(std::optional<int64_t> value);
  const Expr* Binary(ExprKind kind, const Expr* a, const Expr* b);
  const Expr* Intern(ExprKind kind, int64_t value, std::string_view symbol, std::span<const Expr* const> args);

  enum class Fault : uint8_t { kNone, kOverflow, kDivisionByZero, kNodes, kDepth, kPool };
  const Expr* Fail(Fault fault);  // The first fault stays.

  std::pmr::monotonic_buffer_resource arena_;
  std::unordered_multimap<size_t, const Expr*> interned_;  // By hash of contents.
  std::vector<const Expr*> symbols_;
  std::unordered_map<const Expr*, size_t> symbol_order_;
  const Expr* one_ = nullptr;
  size_t bytes_ = 0;
  Fault fault_ = Fault::kNone;
};

// A total order that depends on the contents alone, never on addresses.
int Compare(const Expr* a, const Expr* b);
// Equal contents; works across pools.
inline bool Equal(const Expr* a, const Expr* b) { return a == b || Compare(a, b) == 0; }

// The value with each symbol's value from `lookup` (nothing: unbound).
// Errors: kInvalidArgument for an unbound symbol, overflow, or division by zero.
Result<int64_t> Evaluate(const Expr* expr, const std::function<std::optional<int64_t>(std::string_view)>& lookup);

// Adds the symbols of `expr` that are not in `symbols` yet, in order of appearance.
void CollectSymbols(const Expr* expr, std::vector<std::string_view>& symbols);

// The canonical text: "4096", "i0", "4*i0*i1 + 3", "(i0 / 4)" inside products, "ceildiv(i0, 4)", "i0 mod 4".
std::string ToString(const Expr* expr);

}  // namespace hir::ir
