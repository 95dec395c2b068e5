#include "service/rpc/explain.h"

#include <set>
#include <string>

#include "csrc/base/text.h"
#include "service/rpc/plan_memory.h"
#include "service/rpc/plan_time.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// Sets `value` of anything with `bytes` and `bytes_value`, when the sizes say enough.
template <typename Record>
void SetBytes(const Program& program, const Sizes& sizes, Record& record) {
  const Result<int64_t> value = program.Evaluate(record.bytes(), sizes);
  if (value.ok()) record.set_bytes_value(*value);
}

}  // namespace

Status CheckNames(const Program& program, const Sizes& sizes) {
  const std::set<std::string, std::less<>> symbols = program.Symbols();
  for (const auto& [symbol, value] : sizes) {
    if (!symbols.contains(symbol)) {
      return InvalidArgument(base::Cat(program.plan().name(), " has no size ", symbol.substr(0, 64), "; its sizes are ",
                                       symbols.empty() ? "constants" : base::Join(symbols, ", ")));
    }
    if (value < 0) return InvalidArgument(base::Cat(symbol, " = ", value, "; a size is 0 or more"));
  }
  return {};
}

Status ExplainProgram(const Program& program, const Sizes& sizes, const host::Rates* rates,
                      const std::optional<RunTimes::Taken>& taken, pb::ExplainReply* reply) {
  const pb::Plan& plan = program.plan();
  HIR_TRY(CheckNames(program, sizes));
  const bool all_known = sizes.size() == program.Symbols().size();
  HIR_TRY(all_known ? program.CheckSizes(sizes) : program.CheckBytes(sizes));
  reply->set_program_id(program.id());
  *reply->mutable_explanation() = plan.explanation();
  *reply->mutable_inputs() = plan.inputs();
  *reply->mutable_outputs() = plan.outputs();
  *reply->mutable_guards() = plan.guards();
  pb::Explanation& explanation = *reply->mutable_explanation();
  for (pb::SegmentRecord& segment : *explanation.mutable_segments()) SetBytes(program, sizes, segment);
  for (pb::CommunicationRecord& record : *explanation.mutable_communications()) SetBytes(program, sizes, record);
  SetMemory(program, sizes, &explanation);
  SetTime(program, sizes, rates, taken, &explanation);
  return {};
}

}  // namespace hir::service
