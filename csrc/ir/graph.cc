// Values, ops and meshes of a graph. Types and symbols: graph_types.cc.
#include "csrc/ir/graph.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"

namespace hir::ir {

using base::Cat;

Graph::Graph(const OpSet& ops, std::string name) : ops_(&ops), name_(name.empty() ? "main" : std::move(name)) {
  // A file's name may become a program's: what the text form cannot hold becomes '_'.
  std::replace_if(
      name_.begin(), name_.end(),
      [](char c) {
        return !IsName({&c, 1});
      },
      '_');
}

std::string_view Graph::Copy(std::string_view text) {
  const std::span<char> copy = Copy(std::span<const char>(text));
  return {copy.data(), copy.size()};
}

const Mesh* Graph::AddMesh(const mesh::DeviceMesh& mesh, std::string_view name) {
  for (const Mesh& known : meshes_) {
    if (known.mesh == mesh) return &known;
  }
  const std::string base(name.empty() ? "m" : name);
  std::string unique = base;
  for (int i = 1; FindMesh(unique) != nullptr; ++i) unique = Cat(base, "_", i);
  return &meshes_.emplace_back(Mesh{unique, mesh});
}

const Mesh* Graph::FindMesh(std::string_view name) const {
  for (const Mesh& mesh : meshes_) {
    if (mesh.name == name) return &mesh;
  }
  return nullptr;
}

namespace {

// "y.3" is a variation of "y".
std::string_view BaseName(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) return name;
  for (const char c : name.substr(dot + 1)) {
    if (c < '0' || c > '9') return name;
  }
  return name.substr(0, dot);
}

}  // namespace

bool Graph::IsErased(const Value& value) const {
  for (const Op* op = value.def; op != nullptr; op = op->parent->owner) {
    if (op->parent == nullptr) return true;
  }
  return false;
}

Value* Graph::FindValue(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() || IsErased(*found->second) ? nullptr : found->second;
}

std::string_view Graph::FreeName(std::string_view name) {
  const std::string made_up = name.empty() ? Cat("v", values_.size()) : std::string();
  if (name.empty()) name = made_up;
  if (FindValue(name) == nullptr) return Copy(name);
  const std::string_view base = BaseName(name);
  auto next = next_suffix_.find(base);
  if (next == next_suffix_.end()) next = next_suffix_.emplace(Copy(base), 1).first;
  for (;; ++next->second) {
    const std::string variation = Cat(base, ".", next->second);
    if (FindValue(variation) == nullptr) return Copy(variation);
  }
}

void Graph::Rename(Value& value, std::string_view name) {
  if (const auto old = by_name_.find(value.name); old != by_name_.end() && old->second == &value) by_name_.erase(old);
  value.name = FreeName(name);
  by_name_.erase(value.name);  // Of an erased value, perhaps; the key must be the new name's memory.
  by_name_.emplace(value.name, &value);
}

void Graph::TakeName(Value& value, Value& from) {
  const std::string_view name = from.name;
  Rename(value, {});
  Rename(from, {});
  Rename(value, name);
}

Value* Graph::NewValue(std::string_view name, const Type* type) {
  auto* value = New(Value{.type = type});
  value->id = static_cast<int>(values_.size());
  Rename(*value, name);
  values_.push_back(value);
  return value;
}

Value* Graph::AddParam(std::string_view name, const Type* type) {
  Value* value = NewValue(name, type);
  value->index = static_cast<int>(params.size());
  params.push_back(value);
  return value;
}

Value* Graph::AddBlockArg(Block& block, std::string_view name, const Type* type) {
  Value* value = NewValue(name, type);
  value->index = static_cast<int>(block.args.size());
  std::vector<Value*> args(block.args.begin(), block.args.end());
  args.push_back(value);
  block.args = Copy(args);
  return value;
}

Op* Graph::NewOp(const OpInfo& info, std::span<Value* const> operands, std::span<const Attr> attrs, int num_results) {
  Op* op = New(Op{.info = &info});
  op->operands = Copy(operands);
  std::vector<Value*> results;
  for (int i = 0; i < num_results; ++i) {
    results.push_back(New(Value{.id = static_cast<int>(values_.size()), .def = op, .index = i}));
    values_.push_back(results.back());
  }
  op->results = Copy(results);
  op->attrs = Copy(attrs);
  for (Attr& attr : op->attrs) {
    if (auto* text = std::get_if<std::string_view>(&attr.value)) *text = Copy(*text);
    if (auto* ints = std::get_if<std::span<const int64_t>>(&attr.value)) *ints = Copy(*ints);
    if (auto* expr = std::get_if<const Expr*>(&attr.value)) {
      *expr = Resolve(*expr);
      expr_attrs_.push_back(&attr);
      CountTerms(attr);
    }
    if (auto* exprs = std::get_if<std::span<const Expr* const>>(&attr.value)) {
      std::vector<const Expr*> resolved;
      for (const Expr* expr : *exprs) resolved.push_back(Resolve(expr));
      *exprs = Copy(resolved);
      expr_attrs_.push_back(&attr);
      CountTerms(attr);
    }
  }
  std::vector<Block*> blocks;
  for (int i = 0; i < info.num_blocks; ++i) blocks.push_back(New(Block{.owner = op}));
  op->blocks = Copy(blocks);
  return op;
}

void Graph::Discard(Op& op) {
  HIR_CHECK(op.parent == nullptr);
  for (size_t i = op.results.size(); i-- > 0 && !values_.empty() && values_.back() == op.results[i];)
    values_.pop_back();
}

std::vector<std::vector<Op*>> UsesOf(const Graph& graph) {
  std::vector<std::vector<Op*>> uses(graph.values().size());
  ForEachOp(graph.body, [&](Op* op) {
    for (const Value* operand : op->operands) {
      std::vector<Op*>& of = uses[static_cast<size_t>(operand->id)];
      if (of.empty() || of.back() != op) of.push_back(op);
    }
  });
  return uses;
}

void ReplaceUses(Graph& graph, Value* from, Value* to) {
  ForEachOp(graph.body, [&](Op* op) { std::replace(op->operands.begin(), op->operands.end(), from, to); });
  for (Output& output : graph.outputs) {
    if (output.value == from) output.value = to;
  }
}

}  // namespace hir::ir
