#include "tests/fuzz/mutate_program.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/proto/program_proto.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_message.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;

int Pick(base::Prng& prng, int n) { return static_cast<int>(prng.Below(n)); }

std::string FreshName(const pb::Program& program) { return base::Cat("f", program.ops_size(), "_"); }

// A value that is defined before the op `end`.
std::string ValueBefore(base::Prng& prng, const pb::Program& program, int end) {
  const int params = program.params_size();
  for (int tries = 0; tries < 8 && params + end > 0; ++tries) {
    // Late values more often: else nothing reads them.
    const int at = prng.OneIn(2) ? params + end - 1 - Pick(prng, std::min(4, params + end)) : Pick(prng, params + end);
    if (at < params) return program.params(at).name();
    const pb::ProgramOp& op = program.ops(at - params);
    if (op.results_size() > 0) return op.results(Pick(prng, op.results_size())).name();
  }
  return "x";
}

void InferResults(pb::Program& program) {
  for (pb::ProgramOp& op : *program.mutable_ops()) {
    for (pb::ProgramResult& result : *op.mutable_results()) result.clear_type();
  }
}

// A copy of an op of `from` at the end, on values of `program`, with an output for its first result.
void AddOp(base::Prng& prng, pb::Program& program, const pb::Program& from) {
  if (from.ops_size() == 0) return;
  const int end = program.ops_size();
  const std::string name = FreshName(program);
  pb::ProgramOp op = from.ops(Pick(prng, from.ops_size()));
  for (std::string& operand : *op.mutable_operands()) operand = ValueBefore(prng, program, end);
  int number = 0;
  for (pb::ProgramResult& result : *op.mutable_results()) {
    result.set_name(base::Cat(name, number++));
    result.clear_type();
  }
  *program.add_ops() = std::move(op);
  if (number > 0) program.add_outputs()->set_value(name + "0");
}

void ChangeExtent(base::Prng& prng, pb::Program& program) {
  if (program.params_size() == 0) return;
  pb::ProgramParam& param = *program.mutable_params(Pick(prng, program.params_size()));
  if (!param.type().has_tensor() || param.type().tensor().axes_size() == 0) return;
  pb::TensorType& type = *param.mutable_type()->mutable_tensor();
  pb::ProgramExtent& extent = *type.mutable_axes(Pick(prng, type.axes_size()))->mutable_extent();
  constexpr int64_t kExtents[] = {0, 1, 2, 3, 4, 6, 7, 8, 64, 1000, 1 << 20, int64_t{1} << 40};
  constexpr std::string_view kTexts[] = {"i0", "i1", "i2", "i0 * 2", "i0 + i1", "i0 / 2", "ceildiv(i0, 4)"};
  if (prng.OneIn(3)) {
    extent.set_text(std::string(kTexts[Pick(prng, std::ssize(kTexts))]));
  } else {
    extent.set_value(kExtents[Pick(prng, std::ssize(kExtents))]);
  }
}

void Annotate(base::Prng& prng, pb::Program& program) {
  pb::ProgramAnnotation annotation;
  if (program.annotations_size() > 0 && !prng.OneIn(3)) {
    annotation = program.annotations(Pick(prng, program.annotations_size()));
  } else {
    constexpr std::string_view kTypes[] = {"mesh_x", "mesh_y", "stream", "serial"};
    annotation.set_kind(static_cast<pb::ProgramAnnotation::Kind>(1 + Pick(prng, 7)));
    if (program.meshes_size() > 0) annotation.set_mesh(program.meshes(Pick(prng, program.meshes_size())).name());
    annotation.set_axis(Pick(prng, 3));
    annotation.set_factor(1 + Pick(prng, 4));
    annotation.set_parallel_type(std::string(kTypes[Pick(prng, std::ssize(kTypes))]));
  }
  if (prng.OneIn(2)) annotation.set_value(ValueBefore(prng, program, program.ops_size()));
  *program.add_annotations() = std::move(annotation);
}

void ChangeOp(base::Prng& prng, pb::Program& program, const pb::Program& donor) {
  if (program.ops_size() == 0) return;
  const int at = Pick(prng, program.ops_size());
  pb::ProgramOp& op = *program.mutable_ops(at);
  if (op.operands_size() > 0 && prng.OneIn(2)) {
    *op.mutable_operands(Pick(prng, op.operands_size())) = ValueBefore(prng, program, at);
    return;
  }
  // Another op of as many operands.
  for (int tries = 0; tries < 10 && donor.ops_size() > 0; ++tries) {
    const pb::ProgramOp& other = donor.ops(Pick(prng, donor.ops_size()));
    if (other.operands_size() != op.operands_size() || other.results_size() != op.results_size()) continue;
    op.set_name(other.name());
    *op.mutable_attrs() = other.attrs();
    return;
  }
}

// A dtype of a param, or a word of an attribute, as another one has it.
void ChangeType(base::Prng& prng, pb::Program& program) {
  constexpr std::string_view kTypes[] = {"bool", "i32", "i64", "f16", "bf16", "f32", "f64"};
  const std::string type(kTypes[Pick(prng, std::ssize(kTypes))]);
  if (program.params_size() == 0) return;
  pb::ValueType& of = *program.mutable_params(Pick(prng, program.params_size()))->mutable_type();
  if (of.has_tensor()) of.mutable_tensor()->set_dtype(type);
  if (of.has_scalar()) of.set_scalar(type);
}

}  // namespace

std::vector<pb::Program> CorpusMessages(std::span<const std::string> texts) {
  std::vector<pb::Program> programs;
  for (const std::string& text : texts) {
    const auto graph = ir::Parse(text, OpSetOf(text));
    if (graph.ok()) ir::ToProto(**graph, programs.emplace_back());
  }
  return programs;
}

std::string MutatedProgram(base::Prng& prng, const std::string& input, std::span<const pb::Program> donors) {
  const pb::Program& donor = donors[static_cast<size_t>(prng.Below(std::ssize(donors)))];
  pb::Program program;
  if (!program.ParseFromString(input) || prng.OneIn(100)) program = donor;
  switch (prng.Below(9)) {
    case 0: AddOp(prng, program, donor); break;
    case 1: AddOp(prng, program, program); break;
    case 2: ChangeOp(prng, program, donor); break;
    case 3: ChangeOp(prng, program, program); break;
    case 4: ChangeExtent(prng, program); break;
    case 5: Annotate(prng, program); break;
    case 6: ChangeType(prng, program); break;
    default: MutateMessage(prng, program);
  }
  if (!prng.OneIn(4)) InferResults(program);
  return program.SerializeAsString();
}

}  // namespace hir::fuzz
