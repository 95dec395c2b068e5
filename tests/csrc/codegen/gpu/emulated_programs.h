// Fusion programs whose GPU kernels run in the emulator, compared with the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/decompose_ops.h"
#include "csrc/ir/parse.h"
#include "tests/csrc/codegen/gpu/emulator.h"
#include "tests/csrc/codegen/guarded_memory.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen::gpu {

class EmulatedPrograms {
 public:
  explicit EmulatedPrograms(uint64_t seed) : prng_(seed) {}

  // All ops of `text` as one kernel; every third time sizes are not known when it is planned.
  void Add(const std::string& text, const SymbolValues& symbols, bool special = false) {
    auto graph = ir::Parse(text, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    std::vector<HostTensor> inputs;
    for (const ir::Value* param : (*graph)->params) {
      const auto shape = fusion::ShapeOf(*param->type, symbols);
      ASSERT_TRUE(shape.ok()) << shape.status().ToString();
      std::vector<int64_t> stored = *shape;
      const std::vector<ir::Axis> axes = ir::ValueAxes(*param->type);
      for (size_t i = 0; i < axes.size(); ++i) {
        if (axes[i].kind == ir::AxisKind::kBroadcast) stored[i] = 1;
      }
      inputs.push_back(fusion::WrittenOut(RandomTensor(prng_, param->type->dtype, stored, special), *shape));
    }
    ASSERT_TRUE(fusion::DecomposeOps(**graph).ok());
    std::vector<ir::Op*> ops;
    ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
    std::vector<segment::Group> groups = {segment::MakeGroup(**graph, ops)};
    const Verdict verdict = Accepts(groups[0].View(**graph));
    EXPECT_TRUE(verdict.accepted) << verdict.reason << "\n" << text;
    AddGroups(text, std::move(*graph), std::move(inputs), {}, std::move(groups));
  }

  // `tolerances`: one an output; empty: by dtype.
  void AddGroups(std::string what, std::unique_ptr<ir::Graph> graph, std::vector<HostTensor> inputs,
                 std::vector<double> tolerances, std::vector<segment::Group> groups) {
    Program program = {.what = std::move(what),
                       .graph = std::move(graph),
                       .inputs = std::move(inputs),
                       .tolerances = std::move(tolerances)};
    const auto symbols = fusion::BindSymbols(*program.graph, program.inputs);
    ASSERT_TRUE(symbols.ok()) << symbols.status().ToString();
    program.symbols = *symbols;
    Sizes sizes;
    if (programs_.size() % 3 != 2) {
      for (const auto& [symbol, value] : program.symbols) sizes[std::string(symbol)] = value;
    }
    for (segment::Group& group : groups) {
      Piece piece;
      const segment::GroupView view = group.View(*program.graph);
      const bool is_library = (group.ops[0]->info->effects & ir::kLibrary) != 0;
      if (!is_library && Accepts(view).accepted) {
        auto plan = Plan(view, "g", kHopper, sizes);
        ASSERT_TRUE(plan.ok()) << plan.status().ToString() << "\n" << program.what;
        piece.plan = std::move(*plan);
        for (const ir::Output& output : program.graph->outputs) {
          if (groups.size() > 1 || output.alias == nullptr) continue;  // Others may read the input.
          if (AllowInPlace(piece.plan, *output.alias, *output.value)) piece.in_place[output.value] = output.alias;
        }
        num_in_place_ += piece.in_place.size();
        const auto number = emulator_.Add(piece.plan);
        ASSERT_TRUE(number.ok()) << number.status().ToString() << "\n" << program.what;
        piece.number = *number;
      }
      piece.group = std::move(group);
      program.pieces.push_back(std::move(piece));
    }
    programs_.push_back(std::move(program));
  }

  size_t size() const { return programs_.size(); }
  size_t num_in_place() const { return num_in_place_; }  // Outputs that are written where an input is.
  Status Build() { return emulator_.Build(); }
  // REQUIRES: Build. Of the program that was added as the `number`-th.
  Result<std::vector<HostTensor>> Outputs(size_t number) { return Run(programs_[number]); }

  void Check() {
    const Status built = Build();
    ASSERT_TRUE(built.ok()) << built.ToString();
    for (Program& program : programs_) {
      const auto want = fusion::Interpret(*program.graph, program.inputs);
      ASSERT_TRUE(want.ok()) << want.status().ToString() << "\n" << program.what;
      const auto got = Run(program);
      ASSERT_TRUE(got.ok()) << got.status().ToString() << "\n" << program.what;
      for (size_t i = 0; i < got->size(); ++i) Compare(program, i, (*got)[i], (*want)[i]);
      if (::testing::Test::HasFailure()) {
        for (const Piece& piece : program.pieces) {
          if (piece.number >= 0) ADD_FAILURE() << emulator_.TextOf(piece.number);
        }
        return;  // One program is enough to read.
      }
    }
  }

  base::Prng& prng() { return prng_; }

 private:
  struct Piece {
    segment::Group group;
    KernelPlan plan;
    int number = -1;                                             // -1: the interpreter's.
    std::map<const ir::Value*, const ir::Value*> in_place = {};  // Outputs that lie in an input.
  };
  struct Program {
    std::string what;
    std::unique_ptr<ir::Graph> graph;
    std::vector<HostTensor> inputs;
    std::vector<double> tolerances;
    SymbolValues symbols = {};
    std::vector<Piece> pieces = {};
  };
  // Bytes at an address that is a multiple of 64, or off by one element: a view.
  struct Memory {
    std::vector<std::byte> bytes;
    size_t offset = 0;
    std::byte* data() { return bytes.data() + offset; }
  };

  static constexpr size_t kRedZone = 64;

  Memory Place(std::span<const std::byte> contents, DType dtype, bool shifted) {
    Memory memory;
    memory.bytes.assign(contents.size() + 3 * kRedZone, std::byte{0x5a});
    const auto address = reinterpret_cast<uintptr_t>(memory.bytes.data());
    memory.offset = (kRedZone - address % kRedZone) % kRedZone;
    if (shifted) memory.offset += static_cast<size_t>(DTypeBytes(dtype));
    std::memcpy(memory.data(), contents.data(), contents.size());
    return memory;
  }

  Result<std::vector<HostTensor>> Run(Program& program) {
    std::map<const ir::Value*, HostTensor> whole;
    for (size_t i = 0; i < program.inputs.size(); ++i) whole[program.graph->params[i]] = program.inputs[i];
    for (Piece& piece : program.pieces) {
      if (piece.number < 0) {
        for (const ir::Op* op : piece.group.ops) {
          HIR_ASSIGN(whole[op->results[0]],
                     fusion::InterpretOp(*op, program.symbols,
                                         [&](const ir::Value* value) -> const HostTensor& { return whole.at(value); }));
        }
        continue;
      }
      HIR_TRY(RunPiece(program, piece, whole));
    }
    std::vector<HostTensor> outputs;
    for (const ir::Output& output : program.graph->outputs) outputs.push_back(whole.at(output.value));
    return outputs;
  }

  Status RunPiece(Program& program, Piece& piece, std::map<const ir::Value*, HostTensor>& whole) {
    const bool shifted = prng_.OneIn(4);
    std::vector<Memory> workspaces;
    for (const Workspace& workspace : piece.plan.workspaces) {
      HIR_ASSIGN(const int64_t bytes, fusion::ValueOf(workspace.bytes, program.symbols));
      workspaces.push_back(
          Place(std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0xa5}), DType::kFloat64, false));
    }
    std::map<const ir::Value*, Memory> memories;
    const auto place_of = [&](const ir::Value* value) {
      const auto found = piece.in_place.find(value);
      return found == piece.in_place.end() ? value : found->second;
    };
    for (const auto& [output, input] : piece.in_place) {  // A kernel need not read it.
      const HostTensor tensor = fusion::Stored(*input->type, whole.at(input));
      memories[input] = Place(tensor.bytes, tensor.dtype, shifted);
    }
    std::map<const ir::Value*, GuardedMemory> guarded;  // The other inputs.
    std::map<const ir::Value*, HostTensor> shapes;
    for (size_t k = 0; k < piece.plan.launches.size(); ++k) {
      const Launch& launch = piece.plan.launches[k];
      for (const ir::Value* input : launch.inputs) {
        if (memories.contains(input) || guarded.contains(input)) continue;
        guarded.emplace(input, GuardedMemory(fusion::Stored(*input->type, whole.at(input)).bytes, shifted));
      }
      for (const ir::Value* output : launch.outputs) {
        if (shapes.contains(output)) continue;
        HIR_ASSIGN(std::vector<int64_t> shape, fusion::ShapeOf(*output->type, program.symbols));
        const std::vector<ir::Axis> axes = ir::ValueAxes(*output->type);
        for (size_t i = 0; i < shape.size(); ++i) {
          if (axes[i].kind == ir::AxisKind::kBroadcast) shape[i] = 1;
        }
        HostTensor tensor = fusion::ZeroTensor(output->type->dtype, shape);
        std::memset(tensor.bytes.data(), 0x7b, tensor.bytes.size());  // A kernel writes every byte.
        if (place_of(output) == output) memories[output] = Place(tensor.bytes, tensor.dtype, shifted);
        shapes[output] = std::move(tensor);
      }
      std::vector<int64_t> args;
      const auto pass = [&](auto& memory) { args.push_back(reinterpret_cast<int64_t>(memory.data())); };
      for (const ir::Value* input : launch.inputs) {
        const auto apart = guarded.find(input);
        apart != guarded.end() ? pass(apart->second) : pass(memories.at(input));
      }
      for (const ir::Value* output : launch.outputs) pass(memories.at(place_of(output)));
      for (const int workspace : launch.workspaces) pass(workspaces[static_cast<size_t>(workspace)]);
      for (const ir::Expr* extent : launch.extents) {
        HIR_ASSIGN(const int64_t value, fusion::ValueOf(extent, program.symbols));
        args.push_back(value);
      }
      for (const ir::Value* scalar : launch.scalars) {
        const HostTensor& value = whole.at(scalar);
        args.push_back(IsFloat(value.dtype) ? std::bit_cast<int64_t>(fusion::ToDoubles(value)[0])
                                            : fusion::ToInts(value)[0]);
      }
      HIR_ASSIGN(const int64_t grid, fusion::ValueOf(launch.grid, program.symbols));
      emulator_.Run(piece.number, static_cast<int>(k), args, grid);
    }
    for (const ir::Value* output : piece.group.outputs) {
      if (output->type->kind != ir::TypeKind::kTensor) continue;
      HostTensor tensor = shapes.at(output);
      Memory& memory = memories.at(place_of(output));
      std::memcpy(tensor.bytes.data(), memory.data(), tensor.bytes.size());
      for (size_t i = 0; i < memory.bytes.size(); ++i) {
        const bool is_own = i >= memory.offset && i < memory.offset + tensor.bytes.size();
        EXPECT_TRUE(is_own || memory.bytes[i] == std::byte{0x5a}) << "written outside of it";
      }
      HIR_ASSIGN(const std::vector<int64_t> shape, fusion::ShapeOf(*output->type, program.symbols));
      whole[output] = fusion::WrittenOut(tensor, shape);
    }
    return {};
  }

  static void Compare(const Program& program, size_t output, const HostTensor& got, const HostTensor& want) {
    if (program.tolerances.empty()) {
      ExpectNear(got, want, base::Cat("output ", output, "\n", program.what));
      return;
    }
    const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                        std::fabs(a[i] - b[i]) <= program.tolerances[output];
      ASSERT_TRUE(same) << "output " << output << ", element " << i << " is " << a[i] << ", not " << b[i] << "\n"
                        << program.what;
    }
  }

  base::Prng prng_;
  Emulator emulator_;
  std::vector<Program> programs_;
  size_t num_in_place_ = 0;
};

}  // namespace hir::codegen::gpu
