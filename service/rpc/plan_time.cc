#include "service/rpc/plan_time.h"

#include <map>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "host_ir/predict/predict.h"
#include "service/engine/profile.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The iterations of an op become one, as they do in a profile.
pb::Measured AsMeasured(const host::Prediction& prediction) {
  pb::Measured measured;
  std::map<const ir::Op*, pb::OpTime*> by_op;  // For lookups alone.
  for (const host::PredictedOp& op : prediction.ops) {
    pb::OpTime*& time = by_op[op.op];
    if (time == nullptr) {
      time = measured.add_times();
      time->set_op(std::string(op.op->info->name));
      time->set_name(std::string(host::WorkNameOf(*op.op)));
      if (host::CodeOf(*op.op) == host::HostOp::kCommunication) time->set_seq(op.op->Int("seq"));
    }
    time->set_us(time->us() + (op.ended - op.began) * 1e6);
  }
  return measured;
}

Status Predict(const Program& program, const Sizes& sizes, const host::Rates* rates, pb::PlanTime& time) {
  if (rates == nullptr) {
    return {Code::kFailedPrecondition,
            "nobody measured these devices: hostir-eval --calibrate FILE, then hostird --rates=FILE"};
  }
  if (sizes.size() != program.Symbols().size())
    return InvalidArgument("it depends on sizes; explain with a value for each");
  HIR_ASSIGN(const std::unique_ptr<ir::Graph> graph, ir::Parse(program.plan().host_program(), host::kHostOps));
  HIR_ASSIGN(const host::Prediction prediction, host::Predict(*graph, {sizes.begin(), sizes.end()}, *rates));
  time.set_predicted_us(prediction.seconds * 1e6);
  time.set_work_us(prediction.work_seconds * 1e6);
  time.set_communication_us(prediction.communication_seconds * 1e6);
  time.set_rank(prediction.rank);
  time.set_rates(base::Cat(rates->device, ", ", rates->ranks, rates->ranks == 1 ? " rank" : " ranks"));
  const pb::Measured measured = AsMeasured(prediction);
  *time.mutable_segments() = ProfileOf(program, sizes, {&measured, 1}).segments();
  return {};
}

}  // namespace

void SetTime(const Program& program, const Sizes& sizes, const host::Rates* rates,
             const std::optional<RunTimes::Taken>& taken, pb::Explanation* explanation) {
  pb::PlanTime& time = *explanation->mutable_time();
  if (const Status status = Predict(program, sizes, rates, time); !status.ok())
    time.set_unknown(std::string(status.message()));
  if (!taken) return;
  time.set_runs(taken->runs);
  time.set_least_us(static_cast<double>(taken->least.count()) / 1e3);
  time.set_last_us(static_cast<double>(taken->last.count()) / 1e3);
}

}  // namespace hir::service
