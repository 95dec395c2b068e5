// The one IR substrate: a Graph of uniform ops described by an op table. Fusion programs and host
// programs are graphs over two tables.
//
// Ownership: nodes live in the Graph's arena and die with it. Pointers between nodes are plain and
// stable; never null unless said. Nodes are trivially destructible, so erasing an op only unlinks
// it. Threads: one at a time while it is changed; many may read.
#pragma once

#include <deque>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "csrc/ir/expr.h"
#include "csrc/ir/op_info.h"
#include "csrc/ir/type.h"

namespace hir::ir {

struct Block;

struct Value {
  int id = 0;                  // Dense within the graph; never reused.
  std::string_view name = {};  // Without the %; unique in the graph.
  const Type* type = nullptr;
  const Layout* layout = nullptr;  // Null: not decided (fusion), or none needed (host).
  Op* def = nullptr;               // Null for a parameter or block argument.
  int index = 0;                   // Among the results of `def`, the parameters, or the block's arguments.
  // Where the program takes or returns it: axis i has the stride_order[i]-th smallest stride. Empty: row-major.
  std::span<const int64_t> stride_order = {};
};

inline bool IsTensor(const Value& value) { return value.type->kind == TypeKind::kTensor; }

using AttrValue = std::variant<int64_t, double, bool, std::string_view, std::span<const int64_t>, const Expr*,
                               std::span<const Expr* const>, const Mesh*>;

struct Attr {
  std::string_view name = {};
  AttrValue value = {};
};

struct Op {
  const OpInfo* info = nullptr;
  std::span<Value*> operands = {};
  std::span<Value*> results = {};
  std::span<Attr> attrs = {};  // In the order of info->attrs; every attribute is present.
  std::span<Block*> blocks = {};
  Op* prev = nullptr;
  Op* next = nullptr;
  Block* parent = nullptr;         // Null when erased.
  std::string_view location = {};  // The user's "mlp.py:12: y = fd.ops.linear(x, w)", or empty.
  int line = 0;                    // In the text this op was parsed from; 0 when built in memory.

  // The attribute `name`. It must be in the table row of this op with a matching kind.
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  bool Bool(std::string_view name) const;
  std::string_view Name(std::string_view name) const;  // kName and kString.
  std::span<const int64_t> Ints(std::string_view name) const;
  const Expr* ExprOf(std::string_view name) const;
  std::span<const Expr* const> Exprs(std::string_view name) const;
  const Mesh* MeshOf(std::string_view name) const;
};
static_assert(std::is_trivially_destructible_v<Op> && std::is_trivially_destructible_v<Value>);

struct Block {
  Op* first = nullptr;
  Op* last = nullptr;
  std::span<Value*> args = {};
  Op* owner = nullptr;  // Null for the graph's body.

  void InsertBefore(Op* position, Op* op);  // A null position appends. REQUIRES: op is in no block.
  void Erase(Op* op);                       // Unlinks. REQUIRES: op is in this block.
};

// A value the program returns. With `alias`, an input whose memory it takes over.
struct Output {
  Value* value = nullptr;
  Value* alias = nullptr;
};

// A condition on the sizes that bind to a program, found while building or planning it.
struct Guard {
  enum class Kind : uint8_t { kEqual, kAtMost };
  Kind kind = Kind::kEqual;
  const Expr* left = nullptr;
  const Expr* right = nullptr;
  std::string reason;  // For people: "x: axis 0 is sharded 4 ways over mesh_x".
};

class Graph {
 public:
  Graph(const OpSet& ops, std::string name);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const OpSet& ops() const { return *ops_; }
  const std::string& name() const { return name_; }
  ExprPool& exprs() { return exprs_; }
  const ExprPool& exprs() const { return exprs_; }

  Block body;
  std::vector<Value*> params;
  std::vector<Output> outputs;
  std::vector<Guard> guards;
  std::string segmentation;  // By which rule it is cut, by name; empty: the planner's own. A word.

  // The mesh equal to `mesh`, added under `name` (made unique; "m" when empty) if there is none yet.
  const Mesh* AddMesh(const mesh::DeviceMesh& mesh, std::string_view name = {});
  const Mesh* FindMesh(std::string_view name) const;  // Null when there is none.
  const std::deque<Mesh>& meshes() const { return meshes_; }

  // Makes a value named `name`, or a free variation of it ("y", "y.1"); `name` may be empty ("v7").
  // The name of a value whose op was erased is free.
  Value* NewValue(std::string_view name, const Type* type);
  Value* AddParam(std::string_view name, const Type* type);
  Value* AddBlockArg(Block& block, std::string_view name, const Type* type);
  Value* FindValue(std::string_view name) const;     // Null when there is none, or its op was erased.
  void Rename(Value& value, std::string_view name);  // To `name` or a free variation.
  // `value` takes the name of `from`, which gets another: for an op that stands in for one about to be erased.
  void TakeName(Value& value, Value& from);
  const std::vector<Value*>& values() const { return values_; }  // By id; erased ops' values included.

  // Copies into the arena.
  std::string_view Copy(std::string_view text);
  template <typename T>
  std::span<T> Copy(std::span<const T> values) {
    static_assert(std::is_trivially_destructible_v<T>);
    T* copy = static_cast<T*>(arena_.allocate((values.size() + 1) * sizeof(T), alignof(T)));
    std::uninitialized_copy(values.begin(), values.end(), copy);
    return {copy, values.size()};
  }
  template <typename T>
  std::span<T> Copy(const std::vector<T>& values) {
    return Copy(std::span<const T>(values));
  }
  template <typename T>
  T* New(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (arena_.allocate(sizeof(T), alignof(T))) T(value);
  }

  // Types; a tensor's is interned, its extents of exprs(). Symbols replaced before are replaced here too, so extents
  // read before a Unify may be used after it.
  const Type* Tensor(DType dtype, std::span<const Axis> axes);
  const Type* Scalar(DType dtype);
  const Type* Index();
  const Type* Event(int64_t count);

  // An op that is in no block yet, with `num_results` fresh unnamed results of null type and the
  // row's number of empty blocks. Builders call this.
  Op* NewOp(const OpInfo& info, std::span<Value* const> operands, std::span<const Attr> attrs, int num_results);

  // Takes back the results of `op`, made by NewOp and never inserted.
  void Discard(Op& op);

  // Replaces the symbol `name` by `expr` in every type, attribute and guard, for good.
  // Errors: the graph is then half changed and only good for destruction. kInvalidArgument for a
  // negative extent, a guard that cannot hold, or overflow; kResourceExhausted when a program makes
  // matching its sizes too much work.
  Status ReplaceSymbol(std::string_view name, const Expr* expr);
  // `expr` with all symbols replaced that ReplaceSymbol was called for.
  const Expr* Resolve(const Expr* expr);

  bool has_replaced() const { return !replaced_.empty(); }
  // Whether `symbol` is by itself an extent of an input: what a run's sizes are read from.
  bool IsInputSize(const Expr* symbol);

  // Adds a guard unless it is there already or always holds. Errors: kInvalidArgument when it can never hold.
  Status AddGuard(Guard guard);

 private:
  bool IsErased(const Value& value) const;
  std::string_view FreeName(std::string_view name);
  Status CheckGuards();
  Status Spend(int64_t work);  // Of what matching sizes may cost.
  void CountTerms(const Attr& attr);

  const OpSet* ops_;
  std::string name_;
  std::pmr::monotonic_buffer_resource arena_;
  ExprPool exprs_;
  std::deque<Mesh> meshes_;
  std::vector<Value*> values_;
  std::unordered_map<std::string_view, Value*> by_name_;        // Lookups only, like all maps here.
  std::unordered_map<std::string_view, int64_t> next_suffix_;   // Of "y": the n to try for "y.n".
  std::vector<Type*> types_;                                    // Tensors with a symbol in an extent.
  std::unordered_multimap<size_t, Type*> interned_;             // Tensor types by hash.
  std::vector<Attr*> expr_attrs_;                               // All that hold extents.
  std::unordered_map<std::string_view, const Expr*> replaced_;  // By ReplaceSymbol.
  std::unordered_map<const Expr*, const Expr*> resolved_;       // What Resolve found; until the next replacement.
  std::unordered_set<const Expr*> input_sizes_;                 // For IsInputSize, of the first num_scanned_params_.
  size_t num_scanned_params_ = 0;
  int64_t terms_ = 0;         // Of all extents in types_, expr_attrs_ and guards.
  int64_t replace_work_ = 0;  // Terms looked at by ReplaceSymbol.
};

// Replaces `from` by `to` wherever it is an operand or an output.
void ReplaceUses(Graph& graph, Value* from, Value* to);

// For each value id, the ops that read it (each once), in program order, nested blocks included.
std::vector<std::vector<Op*>> UsesOf(const Graph& graph);

// Calls `visit(op)` for every op, in program order; an op before the ops of its blocks. The op itself may be erased.
template <typename Visit>
void ForEachOp(const Block& block, const Visit& visit) {
  for (Op* op = block.first; op != nullptr;) {
    Op* const next = op->next;
    const std::span<Block*> blocks = op->blocks;
    visit(op);
    for (Block* inner : blocks) ForEachOp(*inner, visit);
    op = next;
  }
}

}  // namespace hir::ir
