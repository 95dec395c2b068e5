// Fuzz target: what a planner or a worker that has gone mad says of a plan, in the daemon: frames of a Plan, the sizes
// (a MakePlan) that it is used with, and what ranks measured of it. The daemon refuses it or does as it would: explains
// it, makes outputs of it, tells times and a timeline. What is not refused names nothing that is not there.
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "host_ir/predict/rates.h"
#include "hostir/v1/worker.pb.h"
#include "service/convert/tensor.h"
#include "service/engine/profile.h"
#include "service/engine/program.h"
#include "service/planner/pipeline.h"
#include "service/rpc/explain.h"
#include "service/store/store.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/no_code.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;

enum Kind { kPlan, kSizes, kMeasured };

Kinds MessageKinds() {
  static const std::array<const google::protobuf::Message*, 3> kinds = {
      &pb::Plan::default_instance(), &pb::MakePlan::default_instance(), &pb::Measured::default_instance()};
  return kinds;
}

// The engine relies on this when a run makes the outputs of a plan.
void CheckOutputs(const service::Program& program, const service::Sizes& sizes) {
  static service::TensorStore store({.num_devices = 4, .tensor_bytes_max = int64_t{1} << 20},
                                    std::make_shared<service::ReleasedShards>([] {}));
  static const std::string session = *store.OpenSession();
  const pb::Plan& plan = program.plan();
  const auto is_tensor = [&](int input) {
    return input >= 0 && input < plan.inputs_size() && !plan.inputs(input).scalar();
  };
  for (int i = 0; i < plan.outputs_size(); ++i) {
    const pb::PlanParam& output = plan.outputs(i);
    if (output.has_same_as_input()) {
      if (!is_tensor(output.same_as_input())) Found("an output is an input that there is not");
    } else if (output.has_same_as_output()) {
      if (output.same_as_output() < 0 || output.same_as_output() >= i) Found("an output is a later one");
    } else {
      if (output.has_alias_input() && !is_tensor(output.alias_input())) Found("an output replaces no input");
      const Result<std::shared_ptr<const service::TensorSpec>> spec = program.OutputSpec(i, sizes);
      if (spec.ok()) (void)store.Allocate(session, **spec, service::TensorStore::Use::kOutput).ok();
    }
  }
}

void Use(const service::Program& program, service::Sizes sizes, const std::vector<pb::Measured>& measured) {
  pb::ExplainReply reply;
  static const host::Rates rates = {};
  (void)service::ExplainProgram(program, sizes, &rates, {}, &reply).ok();
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    std::vector<int64_t> shape;
    for (const std::string& extent : program.plan().inputs(static_cast<int>(i)).shape()) {
      const auto value = program.Evaluate(extent, sizes);
      shape.push_back(value.ok() ? *value : 4);
    }
    const auto spec = program.InputSpec(static_cast<int>(i), program.inputs()[i].dtype, shape);
    // A tensor like it, which a client may have put.
    if (spec.ok() && service::CheckSpec(*spec, 4).ok()) (void)program.Fits(static_cast<int>(i), *spec, sizes).ok();
  }
  if (program.CheckSizes(sizes).ok()) {
    (void)program.Serves(sizes).ok();
    CheckOutputs(program, sizes);
  }
  (void)service::ProfileOf(program, sizes, measured);
  (void)service::TimelineOf(program, "", measured);
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const std::string& text : Corpus("tests/corpus")) {
    pb::ProgramSource source;
    source.set_text(text);
    const service::PipelineOptions options = {.num_devices = 8, .backend = "cpu", .compile = NoCode};
    const auto plan = service::MakePlan(source, options);
    if (!plan.ok() || plan->ByteSizeLong() > 16384) continue;
    std::string& seed = seeds.emplace_back();
    AddFrame(seed, kPlan, *plan);
    pb::MakePlan sizes;
    (*sizes.mutable_sizes())["i0"] = 8;
    (*sizes.mutable_sizes())["i1"] = 4;
    AddFrame(seed, kSizes, sizes);
    pb::Measured measured;
    for (const pb::SegmentRecord& segment : plan->explanation().segments()) {
      pb::OpTime& time = *measured.add_times();
      time.set_op(segment.kind() == "kernel" ? "launch" : segment.kind());
      time.set_name(segment.name());
      time.set_us(1.5);
      pb::OpSpan& span = *measured.add_spans();
      span.set_name(segment.name());
      span.set_kind("launch");
      span.set_queued(1000);
      span.set_ended(2000);
    }
    AddFrame(seed, kMeasured, measured);
  }
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<std::string> seeds = Seeds();
  const std::string& donor = seeds[static_cast<size_t>(prng.Below(std::ssize(seeds)))];
  const std::array<std::string_view, 8> words = {"i0", "i1", "i0 * i1", "0", "i0 / i1", "i0 mod 4", "launch", "4096"};
  return MutatedFrames(prng, input, donor, MessageKinds(), words);
}

void RunOne(std::string_view input) {
  std::vector<pb::Measured> measured;
  service::Sizes sizes;
  std::shared_ptr<const service::Program> program;
  for (const Frame& frame : FramesOf(input, MessageKinds())) {
    if (frame.kind == kMeasured) measured.push_back(static_cast<const pb::Measured&>(*frame.message));
    if (frame.kind == kSizes) {
      const auto& asked = static_cast<const pb::MakePlan&>(*frame.message);
      sizes = {asked.sizes().begin(), asked.sizes().end()};
    }
    if (frame.kind == kPlan) {
      auto made = service::Program::Make("id", 1, static_cast<const pb::Plan&>(*frame.message));
      if (made.ok()) program = *std::move(made);
    }
  }
  if (program != nullptr) Use(*program, sizes, measured);
}

}  // namespace hir::fuzz
