// Code: a host program for one rank, as flat arrays: what the ops' names, values and expressions
// become before a run.
//
// Slots: expressions have int64 slots (expr_code.h); every tensor value has a buffer slot, the
// parameters first.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "host_ir/eval/expr_code.h"
#include "host_ir/eval/host_program.h"
#include "host_ir/unroll.h"
#include "multidevice/comm/communicator.h"

namespace hir::host {

// One step of a run. `at` indexes the array of Code that belongs to the kind.
struct Instr {
  enum class Kind : uint8_t {
    kView,
    kLaunch,
    kLibrary,
    kCommunication,
    kGroupBegin,
    kGroupEnd,
    kFill,
    kRecord,
    kWait,
    kLoop,
    kNext,
    kBranch,
  };
  Kind kind = Kind::kLaunch;
  int at = 0;
  int stream = 0;  // Slot of the stream's number, of what is queued.
  int index = 0;   // kRecord, kWait: slot of the event's index. kBranch: slot of the condition.
  int target =
      0;  // kLoop: the instruction after its kNext. kNext: after its kLoop. kBranch: taken when the condition is 0.
  const ir::Op* op = nullptr;  // For messages.
};

// A reference into a base: address = base + offset * element. Its checks are that 0 <= from <= to
// <= extent.
struct ViewCode {
  int dst = 0;  // Buffer slots.
  int base = 0;
  int offset = 0;  // Expression slots.
  int elements = 0;
  int64_t element_bytes = 0;
  struct Check {
    int from = 0, to = 0, extent = 0;
  };
  std::vector<Check> checks = {};
  std::vector<std::pair<int, int>> equal = {};  // Pairs of slots that must agree: a reshape's element counts.
  const ir::Op* op = nullptr;
};

struct LaunchCode {
  std::string kernel = {};
  std::vector<int> buffers = {};  // In slot order: inputs, outputs, workspaces.
  std::vector<int> extents = {};  // Expression slots.
  std::vector<int> scalars = {};  // Parameter indices.
  int grid = 0;
  int args = 0;  // Where its arguments start in a binding's argument array.
};

struct TensorCode {
  int buffer = 0;
  DType dtype = DType::kFloat32;
  std::vector<int> extents = {}, strides = {};  // Expression slots; as seen and as stored.
};

struct ProductCode {
  std::string op = {};
  std::string epilogue = {};
  bool tf32 = false;
};

struct IndexSumCode {
  int64_t axis = 0;
};

struct AttentionCode {
  std::vector<std::string> results = {};
  bool causal = false;
  int diagonal = 0;  // Expression slot.
  double scale = 1;
};

struct GroupedProductCode {
  bool outer = false;
  int first = 0;  // Expression slot.
};

using CallCode = std::variant<ProductCode, IndexSumCode, AttentionCode, GroupedProductCode>;

struct LibraryCode {
  std::string name = {};  // For people.
  CallCode what = {};
  std::vector<TensorCode> inputs = {};
  std::vector<TensorCode> outputs = {};
};

struct CommunicationCode {
  comm::CommDesc desc = {};              // Type, root, reduce, dtype, to, from, seq are final; the rest is filled in.
  std::vector<int64_t> team = {};        // Ranks in order; one rank: a copy, or nothing.
  std::vector<comm::TeamId> teams = {};  // By stream; made at prepare for the streams it may run on.
  int stream_begin = 0;                  // It runs on streams in [stream_begin, stream_end).
  int stream_end = 0;
  // For copies into an alloc of constant size, at a place that is the same in every run: the alloc, and where in
  // that of rank `to` src goes. -1: dst is no such.
  int window_alloc = -1;
  int64_t put_bytes = 0;
  int src = -1, dst = -1;  // Buffer slots; -1: this rank has no such side.
  int elements = 0;        // Slot of the elements of src (of dst without src) ...
  int64_t divisor = 1;     // ... which hold this many counts.
};

struct FillCode {
  int buffer = 0;
  uint64_t pattern = 0;
  int pattern_bytes = 1;
};

struct LoopCode {
  int index = 0, begin = 0, end = 0;  // Slots.
  int64_t step = 1;
  int level = 0;  // Of the expressions that depend on its index.
};

struct AllocCode {
  int buffer = 0;
  int elements = 0;  // Slot.
  int64_t element_bytes = 1;
  const ir::Op* op = nullptr;
};

struct Code {
  ExprCode exprs;
  std::vector<std::pair<int, int64_t>> rank_symbols = {};  // Slots and values.
  std::vector<int> symbols = {};                           // Slots of HostProgram::symbols(), in order.
  std::vector<TensorCode> params = {};                     // In order; buffer -1 for a host scalar or index.
  std::vector<bool> param_used, param_written;             // On this rank.
  std::vector<int> param_replaced;                         // The input in whose memory it may lie; -1: it does not.
  int num_buffers = 0, num_args = 0, num_streams = 1;

  std::vector<Instr> instrs = {};
  std::vector<ViewCode> views = {};
  std::vector<int> bind_views = {};  // Those outside loops: resolved when sizes bind. Others are instructions.
  std::vector<LaunchCode> launches = {};
  std::vector<LibraryCode> libraries = {};
  std::vector<CommunicationCode> communications = {};
  std::vector<FillCode> fills = {};
  std::vector<LoopCode> loops = {};
  std::vector<AllocCode> allocs = {};
  std::vector<int64_t> events = {};  // Counts, one a live event op; Instr::at indexes it.
};

// Errors: kUnimplemented for what only the text form knows, naming the op.
Result<Code> Compile(const HostProgram& program, int64_t rank);

}  // namespace hir::host
