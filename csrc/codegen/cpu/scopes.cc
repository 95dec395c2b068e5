#include "csrc/codegen/cpu/scopes.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::codegen::cpu {

using base::Append;

namespace {

bool IsOneTrip(const V& begin, const V& end, const V& step) {
  for (const V* bound : {&begin, &end, &step}) {
    if (bound->name[0] == '%') return false;
  }
  const int64_t first = std::stoll(begin.name), last = std::stoll(end.name);
  return first < last && last - first <= std::stoll(step.name);
}

}  // namespace

Scopes::Scopes(Writer& writer, int num_variables)
    : writer_(writer),
      levels_(1),
      variable_level_(static_cast<size_t>(num_variables), -1),
      variable_bit_(static_cast<size_t>(num_variables), 0) {}

bool Scopes::AddVariable(int variable) {
  if (std::ranges::find(region_variables_, variable) != region_variables_.end()) return false;
  variable_bit_[static_cast<size_t>(variable)] = static_cast<int>(region_variables_.size() & 63);
  region_variables_.push_back(variable);
  return true;
}

void Scopes::Define(int variable, const V& value, size_t level) {
  variable_level_[static_cast<size_t>(variable)] = static_cast<int>(level);
  variable_value_[variable] = value;
}

size_t Scopes::LevelOf(uint64_t variables) const {
  size_t level = (variables & kRowBit) != 0 ? row_level_ : 0;
  for (size_t i = 0; i < region_variables_.size(); ++i) {
    if (((variables >> i) & 1) == 0) continue;
    const int at = variable_level_[static_cast<size_t>(region_variables_[i])];
    HIR_CHECK(at >= 0);
    level = std::max(level, static_cast<size_t>(at));
  }
  return level;
}

std::string& Scopes::CodeAt(size_t level) {
  return level + 1 >= levels_.size() ? levels_.back().body : levels_[level + 1].before;
}
Scopes::Memo& Scopes::MemoAt(size_t level) {
  return level + 1 >= levels_.size() ? levels_.back().body_memo : levels_[level + 1].before_memo;
}
const V* Scopes::Find(const Key& key, size_t level) const {
  const auto in_body = levels_[level].body_memo.find(key);
  if (in_body != levels_[level].body_memo.end()) return &in_body->second;
  if (level + 1 >= levels_.size()) return nullptr;
  const auto before = levels_[level + 1].before_memo.find(key);
  return before == levels_[level + 1].before_memo.end() ? nullptr : &before->second;
}

void Scopes::EmitLoop(const V& begin, const V& end, const V& step, const std::function<void(const V&)>& body) {
  if (IsOneTrip(begin, end, step)) {  // What is known of its variable is known in this loop alone.
    levels_.back().body_memo.clear();
    body(begin);
    levels_.back().body_memo.clear();
    return;
  }
  const V at = {writer_.NewName(), Ty::kI64, 1};
  levels_.emplace_back();
  body(at);
  const Level inner = std::move(levels_.back());
  levels_.pop_back();
  std::string& code = Here();
  const std::string before = writer_.NewLabel(), ready = writer_.NewLabel(), top = writer_.NewLabel(),
                    latch = writer_.NewLabel(), exit = writer_.NewLabel();
  const std::string next = writer_.NewName();
  const V any = writer_.Compare(code, "slt", begin, end);
  Append(code, "  br i1 ", any.name, ", label %", before, ", label %", exit, "\n", before, ":\n", inner.before,
         "  br label %", ready, "\n", ready, ":\n  br label %", top, "\n", top, ":\n  ", at.name, " = phi i64 [ ",
         begin.name, ", %", ready, " ], [ ", next, ", %", latch, " ]\n", inner.body, "  br label %", latch, "\n", latch,
         ":\n  ", next, " = add nsw i64 ", at.name, ", ", step.name, "\n");
  const V more = writer_.Compare(code, "slt", {next, Ty::kI64, 1}, end);
  Append(code, "  br i1 ", more.name, ", label %", top, ", label %", exit, "\n", exit, ":\n");
}

}  // namespace hir::codegen::cpu
