// hostir diff.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/connection.h"
#include "tools/cli/segment_text.h"
#include "tools/cli/session.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// Figures of one plan; nothing: not known without all sizes.
struct Totals {
  std::map<std::string, int64_t> kinds;  // Segments.
  std::optional<int64_t> bytes = 0;      // A rank reads and writes.
  std::optional<int64_t> communicated = 0;
  std::optional<int64_t> memory;  // Of the rank that needs most.
  std::optional<double> us;
};

// Nothing, too, where it would be more than any machine has.
void Add(std::optional<int64_t>& sum, std::optional<int64_t> bytes) {
  sum = sum && bytes ? base::CheckedAdd(*sum, *bytes) : std::nullopt;
}

Totals TotalsOf(const pb::Explanation& plan) {
  Totals totals;
  for (const pb::SegmentRecord& segment : plan.segments()) {
    ++totals.kinds[segment.kind()];
    if (segment.kind() != "kernel" && segment.kind() != "library") continue;
    const std::optional<int64_t> times =
        segment.loop().empty() ? std::optional(int64_t{1}) : base::ParseInt(segment.iterations());
    Add(totals.bytes,
        segment.has_bytes_value() && times ? base::CheckedMul(segment.bytes_value(), *times) : std::nullopt);
  }
  for (const pb::CommunicationRecord& record : plan.communications())
    Add(totals.communicated, record.has_bytes_value() ? std::optional(record.bytes_value()) : std::nullopt);
  for (const pb::RankMemory& memory : plan.memory())
    totals.memory = std::max(totals.memory.value_or(0), memory.peak_bytes());
  if (plan.has_time() && plan.time().unknown().empty()) totals.us = plan.time().predicted_us();
  return totals;
}

using Row = std::vector<std::string>;

std::string Ratio(double a, double b) { return a == b ? "" : a == 0 ? "new" : Fixed(b / a, 2); }

void AddCount(std::vector<Row>& rows, const std::string& what, int64_t a, int64_t b) {
  rows.push_back({what, Cat(a), Cat(b), Ratio(static_cast<double>(a), static_cast<double>(b))});
}

void AddBytes(std::vector<Row>& rows, const std::string& what, std::optional<int64_t> a, std::optional<int64_t> b) {
  const auto text = [](std::optional<int64_t> bytes) { return bytes ? Bytes(*bytes) : std::string("sizes?"); };
  const bool both = a && b;
  rows.push_back({what, text(a), text(b), both ? Ratio(static_cast<double>(*a), static_cast<double>(*b)) : ""});
}

std::string TotalsText(const Options& options, const Totals& a, const Totals& b) {
  std::vector<Row> rows = {{"", options.program, options.other, "ratio"}};
  const auto count = [](const Totals& totals, const char* kind) {
    const auto found = totals.kinds.find(kind);
    return found == totals.kinds.end() ? int64_t{0} : found->second;
  };
  for (const auto& [kind, what] : {std::pair{"kernel", "kernels"},
                                   {"library", "library calls"},
                                   {"view", "views"},
                                   {"communication", "communications"},
                                   {"loop", "loops"}}) {
    if (count(a, kind) + count(b, kind) > 0) AddCount(rows, what, count(a, kind), count(b, kind));
  }
  AddBytes(rows, "a rank reads and writes", a.bytes, b.bytes);
  if (a.communicated != 0 || b.communicated != 0) AddBytes(rows, "a rank communicates", a.communicated, b.communicated);
  if (a.memory && b.memory) AddBytes(rows, "memory of a rank", a.memory, b.memory);
  if (a.us && b.us) rows.push_back({"a run should take", Micros(*a.us), Micros(*b.us), Ratio(*a.us, *b.us)});
  return Table(rows);
}

// By what a segment is the same in two plans: its ops with the values that they make, whatever it is called.
std::string KeyOf(const pb::SegmentRecord& segment) {
  return Cat(segment.kind(), "\n", segment.loop(), "\n", segment.schedule(), "\n", base::Join(segment.ops(), "\n"),
             "\n->", base::Join(segment.outputs(), "\n"));
}

// Those of `plan` that `other` has not, in order.
void AddMissing(std::vector<Row>& rows, const char* mark, const pb::Explanation& plan, const pb::Explanation& other) {
  std::map<std::string, int> left;
  for (const pb::SegmentRecord& segment : other.segments()) ++left[KeyOf(segment)];
  for (const pb::SegmentRecord& segment : plan.segments()) {
    if (left[KeyOf(segment)]-- > 0) continue;
    rows.push_back({mark, NameOf(segment), segment.kind(), base::Join(segment.ops(), ", "), Names(segment.outputs()),
                    AmountOf(segment)});
  }
}

}  // namespace

Outcome ComparePlans(const Options& options) {
  if (options.program == "-" && options.other == "-")
    return Usage(InvalidArgument("one of the two programs may be standard input"));
  Progress progress(options.progress);
  std::vector<pb::ProgramSource> programs;
  for (const std::string& path : {options.program, options.other}) {
    Result<pb::ProgramSource> program = ReadProgram(path);
    if (!program.ok()) return Usage(program.status());
    programs.push_back(*std::move(program));
  }
  Connection connection;
  if (Outcome outcome = Connection::Open(options, progress, &connection); !outcome.ok()) return outcome;
  std::vector<pb::Explanation> plans;
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::string& path = i == 0 ? options.program : options.other;
    const Progress::Stage stage(progress, Cat("planning ", path));
    Result<pb::ExplainReply> reply = connection.client().Explain(programs[i], options.sizes);
    if (!reply.ok()) return connection.Failed(reply.status().WithContext(path), false);
    plans.push_back(std::move(*reply->mutable_explanation()));
  }
  std::string out = TotalsText(options, TotalsOf(plans[0]), TotalsOf(plans[1]));
  std::vector<Row> rows = {{"", "segment", "kind", "ops", "writes", "bytes a rank"}};
  AddMissing(rows, "-", plans[0], plans[1]);
  AddMissing(rows, "+", plans[1], plans[0]);
  base::Append(out, "\n", rows.size() > 1 ? Table(rows) : "the segments are the same\n");
  std::fputs(out.c_str(), stdout);
  return {};
}

}  // namespace hir::cli
