#include "service/worker/loaded_program.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/ir/graph.h"
#include "host_ir/host_ops.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The daemon keeps the time of a run; here it only bounds what the daemon forgot.
constexpr base::Nanos kSlack = std::chrono::seconds(30);

constexpr size_t kNextNamed = 4;

// "allreduce #2097153" is number 1 of run 2, whose number its reader knows.
Status WithoutRuns(const Status& status) {
  std::string text(status.message());
  for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#', at + 1)) {
    const size_t end = std::min(text.find_first_not_of("0123456789", at + 1), text.size());
    const std::optional<int64_t> seq = base::ParseInt(std::string_view(text).substr(at + 1, end - at - 1));
    if (seq.has_value()) text.replace(at + 1, end - at - 1, base::Cat(*seq % LoadedProgram::kSeqsPerRun));
  }
  return {status.code(), std::move(text)};
}

// The names by which OpTime knows an op.
void Name(const ir::Op& op, pb::OpTime& time) {
  time.set_op(std::string(op.info->name));
  time.set_name(std::string(host::WorkNameOf(op)));
  if (op.info->name == "communication") time.set_seq(op.Int("seq"));
}

// The rounds of an op become one.
void AddUp(const std::vector<host::OpTime>& taken, pb::Measured& measured) {
  std::map<const ir::Op*, pb::OpTime*> by_op;
  for (const host::OpTime& one : taken) {
    pb::OpTime*& time = by_op[one.op];
    if (time == nullptr) Name(*one.op, *(time = measured.add_times()));
    time->set_us(time->us() + static_cast<double>(one.time.count()) / 1000);
  }
}

void Add(const host::OpSpan& from, pb::Measured& measured) {
  pb::OpSpan& span = *measured.add_spans();
  span.set_name(host::NameOf(*from.op));
  span.set_kind(std::string(from.op->info->name));
  span.set_stream(from.stream);
  span.set_queued(from.queued.count());
  span.set_queued_end(from.queued_end.count());
  span.set_began(from.began.count());
  span.set_ended(from.ended.count());
}

bool IsInAMesh(const ir::Graph& graph, int64_t rank) {
  return std::any_of(graph.meshes().begin(), graph.meshes().end(),
                     [&](const ir::Mesh& mesh) { return mesh.mesh.PositionOf(rank).has_value(); });
}

}  // namespace

Result<std::unique_ptr<LoadedProgram>> LoadedProgram::Load(const pb::Plan& plan, host::EvaluatorOptions options,
                                                           std::unique_ptr<device::KernelSource> kernels) {
  std::unique_ptr<LoadedProgram> loaded(new LoadedProgram());
  loaded->kernels_ = std::move(kernels);
  loaded->pool_ = options.pool;
  loaded->rank_ = static_cast<int>(options.rank);
  options.kernels = loaded->kernels_.get();
  HIR_ASSIGN(loaded->program_, host::HostProgram::Load(plan.host_program()));
  const ir::Graph& graph = loaded->program_->graph();
  if (static_cast<int>(loaded->program_->outputs().size()) != plan.outputs_size() ||
      static_cast<int>(graph.params.size()) < plan.inputs_size()) {
    return Internal(base::Cat("the host program has ", graph.params.size(), " parameters and ",
                              loaded->program_->outputs().size(), " outputs, the plan ", plan.inputs_size(), " and ",
                              plan.outputs_size()));
  }
  if (!IsInAMesh(graph, options.rank)) return loaded;
  HIR_ASSIGN(loaded->evaluator_, host::Evaluator::Prepare(*loaded->program_, options));
  ir::ForEachOp(graph.body, [&](const ir::Op* op) {
    if (op->info->name == "communication") {
      loaded->work_.push_back({op->Int("seq"), base::Cat(op->Name("type"), " #", op->Int("seq"))});
    } else if (op->info->name == "launch" || host::IsLibraryCall(host::CodeOf(*op))) {
      loaded->work_.push_back({std::nullopt, host::NameOf(*op)});
    }
  });
  loaded->arguments_.resize(graph.params.size());
  loaded->symbols_.resize(loaded->program_->symbols().size());
  return loaded;
}

Status LoadedProgram::Bind(const pb::Execute& execute, const Memory& memory) {
  if (!HasPart()) return {};
  HIR_TRY(Arguments(execute, memory));
  HIR_TRY(Symbols(execute));
  return evaluator_->Bind(arguments_, symbols_, &binding_);
}

Status LoadedProgram::Run(const pb::Execute& execute, bool& started, pb::Measured& measured) {
  if (!HasPart()) return {};
  started = true;
  const base::Nanos timeout = base::FromMs(execute.timeout_ms()) + kSlack;
  std::vector<host::OpTime> taken;
  std::vector<host::OpSpan> spans;
  const Status queued = evaluator_->Run(binding_, {.seq_base = execute.run() * kSeqsPerRun,
                                                   .times = execute.profile() ? &taken : nullptr,
                                                   .spans = execute.timeline() ? &spans : nullptr,
                                                   .wait_timeout = timeout});
  // Also after an error: what was queued before it uses the tensors still.
  const Status done = evaluator_->Synchronize(timeout);
  if (!queued.ok()) return WithoutRuns(queued);
  if (!done.ok()) return WithoutRuns(done);
  AddUp(taken, measured);
  for (const host::OpSpan& span : spans) Add(span, measured);
  pool_->ReleaseReplaced();
  return {};
}

int64_t LoadedProgram::ShardOf(const pb::TensorArg& arg) const {
  return rank_ < arg.shards_size() ? arg.shards(rank_) : 0;
}

Status LoadedProgram::Arguments(const pb::Execute& execute, const Memory& memory) {
  const std::vector<ir::Value*>& params = program_->graph().params;
  const auto check = [](int32_t index, size_t count) {
    return index >= 0 && static_cast<size_t>(index) < count
               ? Status()
               : Internal(base::Cat("argument ", index, " of a program that has ", count));
  };
  for (const pb::TensorArg& input : execute.inputs()) {
    HIR_TRY(check(input.index(), arguments_.size()));
    host::Argument& argument = arguments_[static_cast<size_t>(input.index())];
    argument = {};
    if (const int64_t shard = ShardOf(input); shard != 0) {
      HIR_ASSIGN(argument.buffer, memory(shard));
    }
  }
  for (const pb::TensorArg& output : execute.outputs()) {
    HIR_TRY(check(output.index(), program_->outputs().size()));
    const int param = program_->outputs()[static_cast<size_t>(output.index())];
    host::Argument& argument = arguments_[static_cast<size_t>(param)];
    argument = {};
    if (const int64_t shard = ShardOf(output); shard != 0) {
      HIR_ASSIGN(argument.buffer, memory(shard));
    }
  }
  for (const pb::ScalarArg& scalar : execute.scalars()) {
    HIR_TRY(check(scalar.index(), params.size()));
    const size_t index = static_cast<size_t>(scalar.index());
    const bool is_float = IsFloat(params[index]->type->dtype);
    arguments_[index].scalar_bits = is_float ? std::bit_cast<int64_t>(scalar.float_value()) : scalar.int_value();
  }
  return {};
}

Status LoadedProgram::Symbols(const pb::Execute& execute) {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const std::string_view name = program_->symbols()[i];
    bool found = false;
    for (const pb::Symbol& symbol : execute.symbols()) {
      if (symbol.name() != name) continue;
      symbols_[i] = symbol.value();
      found = true;
    }
    if (!found) return Internal(base::Cat("the run gives no value for ", name));
  }
  return {};
}

std::string LoadedProgram::NameOf(int64_t seq) const {
  const auto found = std::ranges::find(work_, std::optional(seq), &Work::seq);
  return found == work_.end() ? "" : found->name;
}

std::string LoadedProgram::NextAfter(int64_t seq) const {
  auto at = seq < 0 ? work_.begin() : std::ranges::find(work_, std::optional(seq), &Work::seq);
  if (at != work_.end() && seq >= 0) ++at;
  const auto end = std::find_if(at, work_.end(), [](const Work& work) { return work.seq.has_value(); });
  std::vector<std::string> names;
  for (; at != end && names.size() < kNextNamed; ++at) names.push_back(at->name);
  return base::Cat(base::Join(names, ", "), at != end ? ", ..." : "");
}

}  // namespace hir::service
