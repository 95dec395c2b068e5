#include "service/planner/plan_message.h"

#include <algorithm>
#include <set>
#include <string>

#include "csrc/base/text.h"
#include "csrc/ir/print.h"
#include "host_ir/pipeline/traffic.h"
#include "service/convert/tensor.h"

namespace hir::service {
namespace {

namespace v1 = ::hostir::v1;
using base::Cat;

template <typename Record>
void SetBytes(const ir::Expr* bytes, Record* record) {
  record->set_bytes(ir::ToString(bytes));
  if (bytes->IsConst()) record->set_bytes_value(bytes->value);
}

std::string Typed(const ir::Value& value) { return Cat(value.name, ": ", ir::ToString(*value.type)); }

void SetCost(const codegen::Cost& cost, v1::KernelCost* out) {
  out->set_bytes(cost.bytes);
  out->set_again(cost.again);
  out->set_arithmetic(cost.arithmetic);
  out->set_idle(cost.idle);
  out->set_of_launches(cost.of_launches);
  out->set_total(cost.Total());
}

// The program that `segment` is a part of.
const ir::Graph& GraphOf(const host::ProgramPlan& plan, const host::LoweredSegment& segment) {
  if (segment.loop == nullptr) return *plan.local.graph;
  return segment.in_rest ? *segment.loop->rest_body.segments.graph : *segment.loop->body.segments.graph;
}

void AddSegment(const host::ProgramPlan& plan, size_t index, const codegen::Target& target, const codegen::Sizes& sizes,
                v1::Explanation* out) {
  ir::ExprPool pool;
  const host::LoweredSegment& segment = plan.segments[index];
  const segment::Group& group = *segment.group;
  v1::SegmentRecord* record = out->add_segments();
  const bool communicates = segment.kind == host::SegmentKind::kCommunication;
  record->set_name(communicates ? Cat(segment.name, " #", segment.first_seq) : segment.name);
  record->set_kind(std::string(host::SegmentKindName(segment.kind)));
  record->set_schedule(segment.schedule);
  for (std::string& op : host::OpsOf(segment)) record->add_ops(Cat("%", op));
  if (segment.loop != nullptr) {
    record->set_loop(segment.loop->name);
    record->set_iterations(ir::ToString(segment.in_rest ? segment.loop->rest : segment.loop->iterations));
  }
  for (const ir::Value* value : group.inputs) record->add_inputs(Typed(*value));
  for (const ir::Value* value : group.outputs) record->add_outputs(Typed(*value));
  record->set_launches(segment.launches);
  SetBytes(host::BytesOf(pool, plan, segment), record);
  if (segment.kind != host::SegmentKind::kKernel) return;
  const auto cost = codegen::Acceptance(target, sizes).CostOf(group.View(GraphOf(plan, segment)));
  if (cost) SetCost(*cost, record->mutable_cost());
}

void AddCommunication(const host::QueuedCommunication& queued, v1::Explanation* out) {
  const plan::Communication& communication = *queued.communication;
  v1::CommunicationRecord* record = out->add_communications();
  record->set_number(queued.first);
  record->set_count(queued.count);
  record->set_type(std::string(communication.type));
  for (const std::vector<int64_t>& ranks : communication.teams) {
    v1::RankList* team = record->add_team();
    team->mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  SetBytes(communication.bytes, record);
  record->set_tensor(communication.tensor);
  record->set_reason(communication.reason);
}

// "f32[i0, 8] {stride_order(0, 1)}"
std::string TypeText(const plan::Boundary& param) {
  const std::vector<int64_t>& order = param.memory_order;
  std::vector<int64_t> places(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    places[static_cast<size_t>(order[place])] = std::ssize(order) - 1 - static_cast<int64_t>(place);
  const std::string type = ir::ToString(*param.global);
  return order.empty() ? type : Cat(type, " {stride_order(", base::JoinInts(places, ", "), ")}");
}

void SetParam(const plan::Boundary& param, v1::PlanParam* out) {
  out->set_name(param.name);
  out->set_type(TypeText(param));
  out->set_dtype(ToProto(param.global->dtype));
  out->set_scalar(param.global->kind == ir::TypeKind::kScalar);
  if (out->scalar()) return;
  for (const ir::Axis& axis : ir::ValueAxes(*param.global)) {
    out->add_shape(ir::ToString(axis.extent));
    out->add_stored_once(axis.kind == ir::AxisKind::kBroadcast);
  }
  out->mutable_memory_order()->Add(param.memory_order.begin(), param.memory_order.end());
  const mesh::DimensionForm form = mesh::ToDimensionForm(*param.sharding);
  v1::Sharding* sharding = out->mutable_sharding();
  sharding->mutable_mesh()->mutable_shape()->Add(form.shape.begin(), form.shape.end());
  sharding->mutable_mesh()->mutable_devices()->Add(form.devices.begin(), form.devices.end());
  sharding->mutable_axis_of_dimension()->Add(form.axis_of_dimension.begin(), form.axis_of_dimension.end());
  for (const bool dealt : form.dealt) sharding->add_dealt(dealt);
}

void SetSharedMemory(const ir::Graph& local, size_t index, v1::PlanParam* out) {
  const auto index_of_param = [&](const ir::Value* value) {
    return static_cast<int32_t>(std::find(local.params.begin(), local.params.end(), value) - local.params.begin());
  };
  const ir::Output& output = local.outputs[index];
  if (output.value->def == nullptr) out->set_same_as_input(index_of_param(output.value));
  for (size_t earlier = 0; earlier < index; ++earlier) {
    if (local.outputs[earlier].value != output.value || output.value->def == nullptr) continue;
    out->set_same_as_output(static_cast<int32_t>(earlier));
    break;
  }
  if (output.alias != nullptr) out->set_alias_input(index_of_param(output.alias));
}

std::string Condition(const ir::Guard& guard) {
  const bool equal = guard.kind == ir::Guard::Kind::kEqual;
  return Cat(ir::ToString(guard.left), equal ? " == " : " <= ", ir::ToString(guard.right));
}

// `replans`: the conditions of the plan's schedules, and of blocks that are even or not; the others are the program's.
void AddGuard(const ir::Guard& guard, const std::set<std::string>& replans, v1::Plan* out) {
  v1::PlanGuard* message = out->add_guards();
  const bool equal = guard.kind == ir::Guard::Kind::kEqual;
  message->set_left(ir::ToString(guard.left));
  message->set_right(ir::ToString(guard.right));
  message->set_condition(Condition(guard));
  message->set_replans(replans.contains(message->condition()));
  message->set_kind(equal ? v1::PlanGuard::KIND_EQUAL : v1::PlanGuard::KIND_AT_MOST);
  message->set_reason(guard.reason);
}

}  // namespace

v1::Plan ToMessage(host::ProgramPlan& plan, const codegen::Target& target, const codegen::Sizes& sizes) {
  v1::Plan out;
  out.set_name(plan.host->name());
  out.set_host_program(ir::Print(*plan.host));
  for (const plan::Boundary& param : plan.local.inputs) SetParam(param, out.add_inputs());
  for (size_t i = 0; i < plan.local.outputs.size(); ++i) {
    SetParam(plan.local.outputs[i], out.add_outputs());
    SetSharedMemory(*plan.local.graph, i, out.mutable_outputs(static_cast<int>(i)));
    out.mutable_outputs(static_cast<int>(i))->set_in_place(plan.host->outputs[i].alias != nullptr);
  }
  std::set<std::string> replans;
  for (const codegen::KernelPlan& kernels : plan.kernels) {
    for (const ir::Guard& guard : kernels.guards) replans.insert(Condition(guard));
  }
  for (const ir::Guard& guard : plan.local.evenness) replans.insert(Condition(guard));
  for (const ir::Guard& guard : plan.host->guards) AddGuard(guard, replans, &out);
  ir::ExprPool pool;
  for (const auto& [symbol, size] : plan.pinned) {
    const ir::Guard guard = {ir::Guard::Kind::kEqual, pool.Symbol(symbol), pool.Const(size),
                             base::Cat("planned for ", symbol, " = ", size)};
    AddGuard(guard, {Condition(guard)}, &out);
  }
  v1::Explanation* explanation = out.mutable_explanation();
  for (size_t i = 0; i < plan.segments.size(); ++i) AddSegment(plan, i, target, sizes, explanation);
  for (const host::QueuedCommunication& queued : host::CommunicationsInQueueOrder(plan))
    AddCommunication(queued, explanation);
  if (const std::optional<host::Traffic> traffic = host::TrafficOf(plan, sizes)) {
    explanation->mutable_traffic()->set_bytes(traffic->bytes);
    explanation->mutable_traffic()->set_least(traffic->floor);
  }
  for (std::string& note : plan.notes) explanation->add_notes(std::move(note));
  std::set<int64_t> devices;
  for (const ir::Mesh& mesh : plan.host->meshes())
    devices.insert(mesh.mesh.devices().begin(), mesh.mesh.devices().end());
  if (devices.empty()) devices.insert(0);
  out.mutable_devices()->Add(devices.begin(), devices.end());
  explanation->set_host_ir(out.host_program());
  explanation->set_fusion(ir::Print(*plan.global));
  return out;
}

}  // namespace hir::service
