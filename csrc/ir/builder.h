// The one way ops and layouts get into a graph: parser, proto converter, passes and lowering all go
// through here, so a program from the wire obeys exactly the rules of a program from text.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::ir {

// Limits beside kAxesMax of type.h. The parser and the proto converter hold kOpsMax, kParamsMax and
// kValuesMax against programs from outside; passes may make more.
inline constexpr int64_t kOpsMax = 65536;          // Ops of one program.
inline constexpr int64_t kValuesMax = 1 << 20;     // Values of one program.
inline constexpr int64_t kOperandsMax = 1024;      // Operands of one op, and results.
inline constexpr int64_t kMeshesMax = 256;         // Meshes of one program.
inline constexpr int64_t kTransformsMax = 64;      // Splits and merges of one layout.
inline constexpr int64_t kAnnotationsMax = 128;    // Commands of one layout.
inline constexpr int64_t kExtentBytesMax = 65536;  // Of the text of one extent.
inline constexpr int64_t kListMax = 65536;         // Elements of one attribute.
inline constexpr int64_t kNameBytesMax = 256;      // Of a value, a program, a mesh, a word attribute.
inline constexpr int64_t kParamsMax = 4096;        // Inputs of one program.

class Builder {
 public:
  // Appends to `block`, or inserts before `position` when it is not null.
  explicit Builder(Graph& graph) : Builder(graph, graph.body) {}
  Builder(Graph& graph, Block& block, Op* position = nullptr) : graph_(&graph), block_(&block), position_(position) {}

  Graph& graph() { return *graph_; }

  struct OpSpec {
    const OpInfo* info = nullptr;
    std::string_view name = {};  // Looked up when info is null.
    std::span<Value* const> operands = {};
    std::span<const Attr> attrs = {};                     // Any order; all of the row's but those with a fallback.
    std::span<const std::string_view> result_names = {};  // Empty: names are made up.
    std::span<const Type* const> declared = {};           // Empty, or one a result; null: infer.
    int num_results = -1;                                 // For a row with a variable number of results.
    std::string_view location = {};
    int line = 0;
  };
  // Checks the op against its row, infers its results, compares with what is declared, and inserts it.
  // Errors: kInvalidArgument "name: what is wrong (location)"; nothing is inserted. kUnimplemented likewise.
  //         An unknown op or attribute suggests the nearest name.
  Result<Op*> Add(const OpSpec& spec);

  // For code of ours whose arguments are right by construction: aborts where Add would fail.
  Value* Make(std::string_view name, std::initializer_list<Value*> operands, std::initializer_list<Attr> attrs = {},
              std::string_view result_name = {});

  // Makes `a` and `b` one extent: replaces a symbol by the other side throughout the graph (the
  // later-named symbol by the earlier), refuses two different constants, and otherwise records a
  // guard. `what` says for people where it comes from. Loop indices and coordinates are never
  // replaced, nor is an input's extent by sizes that no input has.
  // Errors: kInvalidArgument "what: 3 is not 4"; those of Graph::ReplaceSymbol.
  static Status Unify(Graph& graph, const Expr* a, const Expr* b, std::string_view what);

 private:
  Graph* graph_;
  Block* block_;
  Op* position_;
};

// `status` with " (location)" behind its message, when there is one; a long one is cut.
Status WithLocation(const Status& status, std::string_view location);

// One command on the layout of a value, as a user gives it; see docs/ir.md, "Layouts".
struct Annotation {
  enum class Kind : uint8_t {
    kMesh,         // mesh
    kOuterSplit,   // axis, factor
    kInnerSplit,   // axis, factor
    kMerge,        // axis (with the next)
    kParallelize,  // axis, type
    kShard,        // value axis, type: outer_split by the mesh's size along type, and parallelize
    kStrideOrder,  // order
  };
  Kind kind = Kind::kMesh;
  const Mesh* mesh = nullptr;
  int64_t axis = 0;  // In the loop domain so far; negative counts from the end.
  int64_t factor = 1;
  mesh::ParallelType type = mesh::ParallelType::kSerial;
  std::span<const int64_t> order = {};
  std::string_view location = {};
};
// Applies `annotation` to value.layout. Errors: kInvalidArgument (axis out of range with the range, a mesh type without
// a mesh or used twice, a mesh the value has not); the layout is unchanged. A stride order is the value's, not the
// layout's.
Status Annotate(Graph& graph, Value& value, const Annotation& annotation);

// Makes `annotations` the whole layout of `value`, and its stride order.
Status AnnotateAll(Graph& graph, Value& value, std::span<const Annotation> annotations);

// The leaves of the loop domain of `type` under `transforms`: each leaf's extent and where it comes from.
struct Leaf {
  const Expr* extent = nullptr;
  int logical = -1;       // The logical axis it is a part of, or -1 after a merge.
  bool outermost = true;  // Nothing of that logical axis is outside it.
};
std::vector<Leaf> LoopDomain(ExprPool& pool, const Type& type, std::span<const LoopTransform> transforms);

}  // namespace hir::ir
