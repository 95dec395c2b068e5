// The row of an op table: what the generic parts (printer, parser, builder, verifier core, proto
// converter) know of an op.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "csrc/base/status.h"

namespace hir::ir {

class Graph;
struct Op;
struct Type;
struct Attr;

enum class AttrKind : uint8_t {
  kInt,     // 3
  kFloat,   // 0.5, inf, nan
  kBool,    // true
  kName,    // mesh_x, f32, sum: a word
  kString,  // "text"
  kInts,    // [0, 1]
  kExpr,    // i0 / 4
  kExprs,   // [i0, 4096]
  kMesh,    // @m
};

struct AttrInfo {
  std::string_view name = {};
  AttrKind kind = AttrKind::kInt;
  // The word that a kName attribute is where nobody writes it; empty: it must be written.
  std::string_view fallback = {};
};

// What an op does beyond computing its results; 0 for a pure function.
enum Effect : uint32_t {
  kPure = 0,
  kReads = 1,     // reads buffers
  kWrites = 2,    // writes buffers
  kComm = 4,      // communicates: keeps its order among all kComm ops
  kSyncs = 8,     // orders streams
  kLibrary = 16,  // runs as one library call: a segment of its own
  kLoop = 32,     // runs as a loop on the host: a segment of its own
};

inline constexpr int kVariadic = -1;
inline constexpr int kAttrsMax = 12;

// Sets the types of op.results (and may set their layouts) from operands and attributes, which are
// in place and of the right kinds. `declared` has one entry a result: the type written by the user,
// or null. The builder compares the two afterwards, so most ops ignore it. Errors:
// kInvalidArgument, without the op's name (the builder adds it).
using InferFn = Status (*)(Graph& graph, Op& op, std::span<const Type* const> declared);

struct OpInfo {
  std::string_view name = {};
  uint16_t code = 0;
  int num_operands = 0;  // or kVariadic
  int num_results = 0;   // or kVariadic
  int num_blocks = 0;
  uint32_t effects = 0;
  std::string_view doc = {};
  InferFn infer = nullptr;
  AttrInfo attrs[kAttrsMax] = {};

  int num_attrs() const {
    int n = 0;
    while (n < kAttrsMax && !attrs[n].name.empty()) ++n;
    return n;
  }
};

struct OpSet {
  std::string_view name = {};  // "fusion", "host": the first word of a program
  std::span<const OpInfo> ops = {};
  // Checks a whole graph beyond what Verify of ir knows; null when there is nothing.
  Status (*verify)(const Graph& graph) = nullptr;

  // Whether whoever builds a program writes the types of results, because inference may need them (host programs).
  bool declares = false;

  const OpInfo* Find(std::string_view name) const;  // Null when there is no such op.
};

}  // namespace hir::ir
