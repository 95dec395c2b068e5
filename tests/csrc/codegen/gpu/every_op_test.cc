// Goal: what runs on CPU ranks runs on GPU ranks: every op of the table, for every element type that it takes, is
// planned for both, and for GPUs compiles to a cubin or is a product that cuBLASLt has. Method: for each op one program
// that applies it to inputs of each type; ops that are more than a formula as tests/golden/ir/every_op.hir has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/library/abilities.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::codegen::gpu {
namespace {

using base::Cat;

// An op with "T" where its element type goes: "%x: T[i0, 8]" ... and "add(%x, %y)".
struct Form {
  std::vector<std::string> params;
  std::string call;
  bool makes_scalar = false;  // A host scalar, which has no code of its own: a tensor is multiplied by it.
};

std::string Replaced(const std::string& text, const std::string& what, const std::string& by) {
  return std::regex_replace(text, std::regex(what), by);
}

// Of ops that are more than a formula, by name.
const std::map<std::string, Form>& GoldenForms() {
  static const std::map<std::string, Form> forms = [] {
    std::ostringstream text;
    text << std::ifstream("tests/golden/ir/every_op.hir").rdbuf();
    const std::string program = text.str().substr(0, text.str().find("// ----"));
    const auto graph = ir::Parse(program, fusion::kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    std::map<std::string, Form> made;
    if (!graph.ok()) return made;
    ir::ForEachOp((*graph)->body, [&](const ir::Op* op) {
      if (fusion::IsPointwise(fusion::CodeOf(*op)) && fusion::CodeOf(*op) != fusion::FusionOp::kCast) return;
      Form form;
      for (const ir::Value* operand : op->operands) {
        const DType first = op->operands[0]->type->dtype;
        ir::Type type = *operand->type;
        const std::vector<ir::Axis> axes = ir::ValueAxes(type);
        type.axes = axes;
        std::string words = ToString(type);
        if (operand->type->kind == ir::TypeKind::kTensor && operand->type->dtype == first)
          words = Cat("T", words.substr(words.find('[')));
        const std::string param = Cat("%", operand->name, ": ", words);
        if (std::ranges::find(form.params, param) == form.params.end()) form.params.push_back(param);
      }
      form.makes_scalar = op->results[0]->type->kind == ir::TypeKind::kScalar;
      const std::string line = ir::Print(*op);
      form.call = Replaced(Replaced(line.substr(line.find(" = ") + 3), "dtype=\\w+", "dtype=T"), "-inf", "1.0");
      // A size that a program takes is an input's.
      const std::regex size("\\bi\\d\\b");
      const std::string params = base::Join(form.params, " ");
      for (std::sregex_iterator at(form.call.begin(), form.call.end(), size), end; at != end; ++at) {
        if (params.find(at->str()) == std::string::npos)
          form.params.push_back(Cat("%of_", at->str(), ": T[", at->str(), "]"));
      }
      made.emplace(op->info->name, form);
    });
    for (const auto& [name, like] : {std::pair{"min", "max"}, {"prod", "sum"}}) {
      Form form = made.at(like);
      form.call = Cat(name, form.call.substr(form.call.find('(')));
      made.emplace(name, form);
    }
    return made;
  }();
  return forms;
}

std::vector<Form> FormsOf(const ir::OpInfo& info) {
  const auto code = static_cast<fusion::FusionOp>(info.code);
  if (!fusion::IsPointwise(code) || code == fusion::FusionOp::kCast) {
    const auto found = GoldenForms().find(std::string(info.name));
    EXPECT_NE(found, GoldenForms().end()) << "tests/golden/ir/every_op.hir lacks " << info.name;
    return found == GoldenForms().end() ? std::vector<Form>() : std::vector{found->second};
  }
  const std::string name(info.name);
  if (info.num_operands == 1) return {{{"%x: T[i0, 8]"}, name + "(%x)"}};
  if (info.num_operands == 2) {
    return {{{"%x: T[i0, 8]", "%y: T[i0, 8]"}, name + "(%x, %y)"},
            {{"%x: T[i0, 8]", "%y: T[8]"}, name + "(%y, %x)"},
            {{"%x: T[i0, 8]", "%s: f64"}, name + "(%x, %s)"}};
  }
  if (info.num_operands == 4) {
    return {{{"%x: T[i0, 8]", "%y: T[i0, 8]", "%z: T[i0, 8]", "%w: T[8]"}, name + "(%x, %y, %z, %w)"}};
  }
  return {{{"%x: T[i0, 8]", "%y: T[i0, 8]", "%z: T[i0, 8]"}, name + "(%x, %y, %z)"},
          {{"%x: bool[i0, 8]", "%y: T[i0, 8]", "%z: T[i0, 8]"}, name + "(%x, %y, %z)"}};
}

// The form for each of `types`, side by side: names and sizes get the type's.
std::string Program(const Form& form, const std::vector<DType>& types) {
  std::vector<std::string> params, returned;
  std::string ops;
  for (const DType dtype : types) {
    const std::string suffix(DTypeName(dtype));
    const auto own = [&](const std::string& text) {
      const std::string typed = Replaced(text, "\\bT\\b", suffix);
      return Replaced(Replaced(typed, "%(\\w+)", "%$1_" + suffix), "\\bi(\\d)\\b", "i$1_" + suffix);
    };
    for (const std::string& param : form.params) params.push_back(own(param));
    base::Append(ops, "  %", form.makes_scalar ? "scalar_" : "out_", suffix, " = ", own(form.call), "\n");
    if (form.makes_scalar) {
      const std::string tensor = own(form.params[0].substr(0, form.params[0].find(':')));
      base::Append(ops, "  %out_", suffix, " = mul(", tensor, ", %scalar_", suffix, ")\n");
    }
    returned.push_back(Cat("%out_", suffix));
  }
  return Cat("fusion @f(", base::Join(params, ", "), ") {\n", ops, "  return ", base::Join(returned, ", "), "\n}\n");
}

Result<host::ProgramPlan> Planned(const std::string& text, const Target& target) {
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  return host::PlanProgram(std::move(graph), {.target = target});
}

// Empty, or what is wrong on a GPU with a program that is right on a CPU.
std::string Fault(const std::string& text, DType dtype) {
  const auto cpu = Planned(text, {}), gpu = Planned(text, kHopper);
  if (!cpu.ok()) return Cat("CPU: ", cpu.status().ToString());
  if (!gpu.ok()) return Cat("GPU: ", gpu.status().ToString());
  for (const host::LoweredSegment& segment : gpu->segments) {
    if (segment.kind == host::SegmentKind::kLibrary && segment.name != "index_sum" &&
        !segment.name.starts_with("grouped_") &&  // Of every type.
        !library::HasProducts(library::Provider::kCublasLt, dtype))
      return Cat(segment.name, " is a call that cuBLASLt lacks");
  }
  for (const KernelPlan& kernel : gpu->kernels) {
    const auto source = EmitCuda(kernel);
    if (!source.ok()) return Cat("GPU: ", source.status().ToString());
  }
  return {};
}

class EveryOp : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryOp, RunsOnGpusAsOnCpus) {
  const ir::OpInfo& info = *fusion::kFusionOps.Find(GetParam());
  Compiler compiler({.architecture = 90, .cache_directory = {}});
  int taken = 0;
  const std::vector<Form> forms = FormsOf(info);
  for (const Form& form : forms) {
    std::vector<DType> types;
    for (const DType dtype : kAllDTypes) {
      const std::string text = Program(form, {dtype});
      if (!ir::Parse(text, fusion::kFusionOps).ok()) continue;  // A type that the op refuses.
      types.push_back(dtype);
      EXPECT_EQ(Fault(text, dtype), "") << text;
    }
    taken += static_cast<int>(types.size());
    // One form is enough for the compiler.
    if (&form != &forms[0] || types.empty() || HasFailure() || !NvrtcVersion().ok()) continue;
    const auto plan = Planned(Program(form, types), kHopper);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    for (const KernelPlan& kernel : plan->kernels) {
      const auto artifact = compiler.Compile(kernel);
      EXPECT_TRUE(artifact.ok()) << artifact.status().ToString() << "\n" << Program(form, types);
    }
  }
  EXPECT_GT(taken, 0) << "no form of " << GetParam() << " is a program";
}

std::vector<std::string> Ops() {
  std::vector<std::string> names;
  for (const ir::OpInfo& info : fusion::kFusionOps.ops) {
    const auto code = static_cast<fusion::FusionOp>(info.code);
    // A constant is a host scalar: it has no code of its own.
    if (!fusion::IsPlanned(code) && code != fusion::FusionOp::kConstant) names.emplace_back(info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(Ops()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::codegen::gpu
