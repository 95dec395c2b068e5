// hostir explain.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "csrc/base/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/connection.h"
#include "tools/cli/json.h"
#include "tools/cli/picture.h"
#include "tools/cli/plan_items.h"
#include "tools/cli/segment_text.h"
#include "tools/cli/session.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

std::string Teams(const pb::CommunicationRecord& record) {
  std::vector<std::string> teams;
  for (const pb::RankList& team : record.team()) teams.push_back(Cat("[", base::Join(team.ranks(), ", "), "]"));
  return base::Join(teams, "; ");
}

// "#2", "#2 to #5": as in the host program, in pictures and in errors.
std::string Numbers(const pb::CommunicationRecord& record) {
  const std::string first = Cat("#", record.number());
  return record.count() < 2 ? first : Cat(first, " to #", record.number() + record.count() - 1);
}

std::string MemoryText(const pb::Explanation& plan) {
  if (plan.memory().empty()) return Cat("memory is not known: ", plan.memory_unknown(), "\n");
  std::vector<std::vector<std::string>> rows = {
      {"memory of rank", "inputs", "outputs", "intermediates", "live at once", "in all"}};
  for (const pb::RankMemory& memory : plan.memory()) {
    rows.push_back({base::Join(memory.ranks(), ", "), Bytes(memory.input_bytes()), Bytes(memory.output_bytes()),
                    Bytes(memory.pool_bytes()), Bytes(memory.live_bytes()), Bytes(memory.peak_bytes())});
  }
  return Table(rows);
}

std::string TimeText(const pb::Explanation& plan) {
  if (!plan.has_time()) return "";  // A daemon that does not know of it.
  const pb::PlanTime& time = plan.time();
  std::string out;
  if (!time.unknown().empty()) {
    out = Cat("the time of a run is not predicted: ", time.unknown(), "\n");
  } else {
    out = Cat("a run should take ", Micros(time.predicted_us()), " (by ", time.rates(), "): ", Micros(time.work_us()),
              " of kernels and products, ", Micros(time.communication_us()), " of communications\n");
  }
  if (time.runs() > 0)
    base::Append(out, Counted(time.runs(), "run"), " took ", Micros(time.least_us()), " or more, the last ",
                 Micros(time.last_us()), "\n");
  return out;
}

std::string TrafficText(const pb::Explanation& plan) {
  if (plan.traffic().least() <= 0) return "";
  const double times = static_cast<double>(plan.traffic().bytes()) / static_cast<double>(plan.traffic().least());
  return Cat("kernels and library calls move ", Fixed(times, 2), " times the bytes that they must\n");
}

std::string PlanText(const pb::ExplainReply& reply) {
  const pb::Explanation& plan = reply.explanation();
  const auto& predicted = plan.time().segments();
  int next = 0;  // Of those; views have none.
  std::vector<std::vector<std::string>> rows = {{"segment", "kind", "work", "reads", "writes", "bytes a rank"}};
  const bool has_costs = std::ranges::any_of(plan.segments(), [](const auto& s) { return !CostOf(s).empty(); });
  if (has_costs) rows[0].emplace_back("takes as long as");
  if (!predicted.empty()) rows[0].emplace_back("predicted");
  for (const pb::SegmentRecord& segment : plan.segments()) {
    rows.push_back({NameOf(segment), segment.kind(), WorkOf(segment), Names(segment.inputs()), Names(segment.outputs()),
                    AmountOf(segment)});
    if (has_costs) rows.back().push_back(CostOf(segment));
    if (predicted.empty()) continue;
    const bool has = segment.kind() != "view" && next < predicted.size();
    const double us = has ? predicted[next++].rank_us(0) : 0;
    rows.back().push_back(has && segment.kind() != "loop" ? Micros(us) : "");
  }
  std::string out = Table(rows);
  if (plan.communications().empty()) {
    out += "no communication\n";
  } else {
    rows = {{"communication", "tensor", "team", "bytes a rank"}};
    for (const pb::CommunicationRecord& record : plan.communications())
      rows.push_back({Cat(record.type(), " ", Numbers(record)), record.tensor(), Teams(record), Amount(record)});
    base::Append(out, "\n", Table(rows));
  }
  std::vector<std::string> guards;
  for (const pb::PlanGuard& guard : reply.guards())
    guards.push_back(guard.reason().empty() ? guard.condition() : Cat(guard.condition(), " (", guard.reason(), ")"));
  if (!guards.empty()) base::Append(out, "\nholds for sizes with: ", base::Join(guards, "; "), "\n");
  base::Append(out, "\n", MemoryText(plan), TrafficText(plan), TimeText(plan));
  for (const std::string& note : plan.notes()) base::Append(out, note, "\n");
  return out;
}

std::string Subtitle(const pb::ExplainReply& reply, const Options& options) {
  const pb::Explanation& plan = reply.explanation();
  std::string out =
      Cat(Counted(plan.segments_size(), "segment"), ", ", Counted(plan.communications_size(), "communication"));
  int64_t peak = 0;
  for (const pb::RankMemory& memory : plan.memory()) peak = std::max(peak, memory.peak_bytes());
  if (!plan.memory().empty()) base::Append(out, ", ", Bytes(peak), " of memory a rank");
  std::string sizes;
  for (const auto& [name, value] : options.sizes) base::Append(sizes, sizes.empty() ? "" : ", ", name, " = ", value);
  return sizes.empty() ? out : Cat(out, "; ", sizes);
}

Outcome WriteSvg(const pb::ExplainReply& reply, const Options& options, const std::string& name) {
  const Result<std::vector<PlanItem>> items = ItemsOf(reply);
  if (!items.ok()) return {items.status()};
  std::ofstream file(options.svg, std::ios::binary);
  file << DrawPlan({name, Subtitle(reply, options)}, *items);
  if (!file.flush()) return Usage(Unavailable(Cat("cannot write ", options.svg)));
  std::fputs(Cat(options.svg, ": ", Subtitle(reply, options), "\n").c_str(), stdout);
  return {};
}

Outcome Show(const pb::ExplainReply& reply, const Options& options) {
  const std::string name = std::filesystem::path(options.program).stem().string();
  if (!options.svg.empty()) return WriteSvg(reply, options, options.program == "-" ? "plan" : name);
  std::fputs((options.json ? ToJson(reply) + "\n" : PlanText(reply)).c_str(), stdout);
  return {};
}

}  // namespace

Outcome ExplainProgram(const Options& options) {
  if (options.reply) {
    const Result<std::string> text = ReadFile(options.program);
    if (!text.ok()) return Usage(text.status());
    pb::ExplainReply saved;
    if (!saved.ParseFromString(*text) || saved.explanation().host_ir().empty())
      return {InvalidArgument(Cat(options.program, ": a hostir.v1.ExplainReply is wanted"))};
    return Show(saved, options);
  }
  const Result<pb::ProgramSource> program = ReadProgram(options.program);
  if (!program.ok()) return Usage(program.status());
  Progress progress(options.progress);
  Connection connection;
  if (Outcome outcome = Connection::Open(options, progress, &connection); !outcome.ok()) return outcome;
  Result<pb::ExplainReply> reply = Internal("not asked");
  {
    const Progress::Stage stage(progress, Cat("planning ", options.program));
    reply = connection.client().Explain(*program, options.sizes);
  }
  if (!reply.ok()) return connection.Failed(reply.status().WithContext(options.program), false);
  return Show(*reply, options);
}

}  // namespace hir::cli
