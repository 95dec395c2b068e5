// The getters of an op's attributes, and the edits of a block.
#include "csrc/base/text.h"
#include "csrc/ir/graph.h"

namespace hir::ir {
namespace {

// A misspelled name is a bug of ours: say which, and stop.
template <typename T>
const T& Get(const Op& op, std::string_view name, const char* kind) {
  for (const Attr& attr : op.attrs) {
    if (attr.name != name) continue;
    if (const T* value = std::get_if<T>(&attr.value)) return *value;
    break;
  }
  const std::string what = base::Cat("op ", op.info->name, " has an attribute ", name, " that is ", kind);
  base::CheckFailed(__FILE__, __LINE__, what.c_str());
}

}  // namespace

int64_t Op::Int(std::string_view name) const { return Get<int64_t>(*this, name, "an integer"); }
double Op::Float(std::string_view name) const { return Get<double>(*this, name, "a float"); }
bool Op::Bool(std::string_view name) const { return Get<bool>(*this, name, "a bool"); }
std::string_view Op::Name(std::string_view name) const {
  return Get<std::string_view>(*this, name, "a name or string");
}
std::span<const int64_t> Op::Ints(std::string_view name) const {
  return Get<std::span<const int64_t>>(*this, name, "a list of integers");
}
const Expr* Op::ExprOf(std::string_view name) const { return Get<const Expr*>(*this, name, "an extent"); }
std::span<const Expr* const> Op::Exprs(std::string_view name) const {
  return Get<std::span<const Expr* const>>(*this, name, "a list of extents");
}
const Mesh* Op::MeshOf(std::string_view name) const { return Get<const Mesh*>(*this, name, "a mesh"); }

void Block::InsertBefore(Op* position, Op* op) {
  HIR_CHECK(op->parent == nullptr);
  HIR_CHECK(position == nullptr || position->parent == this);
  op->parent = this;
  op->next = position;
  op->prev = position == nullptr ? last : position->prev;
  (op->prev == nullptr ? first : op->prev->next) = op;
  (position == nullptr ? last : position->prev) = op;
}

void Block::Erase(Op* op) {
  HIR_CHECK(op->parent == this);
  (op->prev == nullptr ? first : op->prev->next) = op->next;
  (op->next == nullptr ? last : op->next->prev) = op->prev;
  op->parent = nullptr;
  op->prev = nullptr;
  op->next = nullptr;
}

}  // namespace hir::ir
