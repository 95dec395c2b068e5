#include "csrc/ir/builder.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"

namespace hir::ir {
namespace {

using base::Cat;

Status UnknownOp(const OpSet& set, std::string_view name) {
  if (!IsWord(name)) return InvalidArgument(Cat("an op's name is a word of at most ", kNameBytesMax, " letters"));
  std::vector<std::string_view> names;
  for (const OpInfo& info : set.ops) names.push_back(info.name);
  const std::string_view nearest = base::Nearest(name, names);
  const std::string suggestion = nearest.empty() ? "" : Cat("; did you mean ", nearest, "?");
  return InvalidArgument(Cat("no such op in the ", set.name, " op set", suggestion));
}

std::string Count(int64_t n, std::string_view what) { return Cat(n, " ", what, n == 1 ? "" : "s"); }

Status CheckCounts(const OpInfo& info, const Builder::OpSpec& spec) {
  const int64_t operands = std::ssize(spec.operands);
  if (info.num_operands != kVariadic && operands != info.num_operands) {
    return InvalidArgument(Cat("takes ", Count(info.num_operands, "operand"), ", got ", operands));
  }
  if (operands > kOperandsMax) {
    return ResourceExhausted(Cat("has ", operands, " operands; the limit is ", kOperandsMax));
  }
  for (const Value* operand : spec.operands) HIR_CHECK(operand != nullptr && operand->type != nullptr);
  return {};
}

// How many results the op will have: the row's number, or what the names or types given say.
Result<int> CountResults(const OpInfo& info, const Builder::OpSpec& spec) {
  const int64_t named = spec.result_names.empty() ? std::ssize(spec.declared) : std::ssize(spec.result_names);
  const int64_t given = named > 0 ? named : spec.num_results;
  if (info.num_results == kVariadic) {
    if (given > kOperandsMax) return ResourceExhausted(Cat("has ", given, " results; the limit is ", kOperandsMax));
    return static_cast<int>(std::max<int64_t>(given, 0));
  }
  if (given >= 0 && (named > 0 || spec.num_results >= 0) && given != info.num_results) {
    return InvalidArgument(Cat("makes ", Count(info.num_results, "result"), ", got ", Count(given, "name")));
  }
  return info.num_results;
}

// An axis of extent 1 may be declared as either kind: a size that turned out to be 1 only later left an iteration axis.
bool SameKind(const Axis& a, const Axis& b) {
  const bool reduced = a.kind == AxisKind::kReduction || b.kind == AxisKind::kReduction;
  return a.kind == b.kind || (!reduced && a.extent->IsConst(1) && b.extent->IsConst(1));
}

// Makes the inferred type of `result` and `declared` one.
Status MatchDeclared(Graph& graph, Value& result, const Type& declared) {
  const Type& inferred = *result.type;
  const std::string differ = Cat("declared ", ToString(declared), " but inferred ", ToString(inferred));
  const bool tensors = declared.kind == TypeKind::kTensor && inferred.kind == TypeKind::kTensor;
  if (!tensors) return Equal(declared, inferred) ? Status() : InvalidArgument(differ);
  if (declared.dtype != inferred.dtype || declared.axes.size() != inferred.axes.size()) return InvalidArgument(differ);
  for (size_t axis = 0; axis < declared.axes.size(); ++axis) {
    if (!SameKind(declared.axes[axis], inferred.axes[axis])) return InvalidArgument(differ);
    const Status status = Builder::Unify(graph, declared.axes[axis].extent, inferred.axes[axis].extent,
                                         Cat("axis ", axis, " as declared"));
    if (status.code() == Code::kInvalidArgument) return InvalidArgument(differ);
    HIR_TRY(status);
  }
  result.type = &declared;
  return {};
}

// The op's own inference has run; holds it against what was declared, and both against the limits.
Status SettleTypes(Graph& graph, Op& op, std::span<const Type* const> declared) {
  for (size_t i = 0; i < op.results.size(); ++i) {
    Value& result = *op.results[i];
    const Type* written = i < declared.size() ? declared[i] : nullptr;
    if (result.type == nullptr) result.type = written;
    if (result.type == nullptr) return InvalidArgument(Cat("the type of result ", i, " must be given"));
    if (written != nullptr && written != result.type) HIR_TRY(MatchDeclared(graph, result, *written));
    HIR_TRY(CheckType(*result.type));
  }
  return graph.exprs().status();
}

Result<Op*> MakeOp(Graph& graph, const OpInfo* info, const Builder::OpSpec& spec) {
  if (info == nullptr) return UnknownOp(graph.ops(), spec.name);
  HIR_TRY(CheckCounts(*info, spec));
  HIR_ASSIGN(const int num_results, CountResults(*info, spec));
  HIR_ASSIGN(const std::vector<Attr> attrs, MatchAttrs(graph, *info, spec.attrs));
  HIR_TRY(graph.exprs().status());
  Op* op = graph.NewOp(*info, spec.operands, attrs, num_results);
  std::vector<const Type*> declared(static_cast<size_t>(num_results));
  std::copy_n(spec.declared.begin(), std::min(declared.size(), spec.declared.size()), declared.begin());
  Status status = info->infer == nullptr ? Status() : info->infer(graph, *op, declared);
  if (status.ok()) status = SettleTypes(graph, *op, declared);
  if (!status.ok()) {
    graph.Discard(*op);
    return status;
  }
  op->location = graph.Copy(spec.location);
  op->line = spec.line;
  return op;
}

}  // namespace

Status WithLocation(const Status& status, std::string_view location) {
  if (status.ok() || location.empty()) return status;
  constexpr size_t kShownMax = 400;
  if (location.size() <= kShownMax) return {status.code(), Cat(status.message(), " (", location, ")")};
  size_t end = kShownMax;
  while (end > 0 && (static_cast<unsigned char>(location[end]) & 0xc0) == 0x80) --end;  // Not inside a character.
  return {status.code(), Cat(status.message(), " (", location.substr(0, end), "...)")};
}

Result<Op*> Builder::Add(const OpSpec& spec) {
  const OpInfo* info = spec.info != nullptr ? spec.info : graph_->ops().Find(spec.name);
  Result<Op*> made = MakeOp(*graph_, info, spec);
  if (!made.ok()) {
    const std::string_view name = info != nullptr ? info->name : IsWord(spec.name) ? spec.name : "op";
    return WithLocation(made.status().WithContext(name), spec.location);
  }
  Op* op = *made;
  block_->InsertBefore(position_, op);
  for (size_t i = 0; i < op->results.size(); ++i) {
    graph_->Rename(*op->results[i], i < spec.result_names.size() ? spec.result_names[i] : std::string_view());
  }
  return op;
}

Value* Builder::Make(std::string_view name, std::initializer_list<Value*> operands, std::initializer_list<Attr> attrs,
                     std::string_view result_name) {
  OpSpec spec = {.name = name, .operands = {operands.begin(), operands.size()}, .attrs = {attrs.begin(), attrs.size()}};
  if (!result_name.empty()) spec.result_names = {&result_name, 1};
  const Result<Op*> op = Add(spec);
  if (!op.ok()) base::CheckFailed(__FILE__, __LINE__, op.status().ToString().c_str());
  return (*op)->results.empty() ? nullptr : (*op)->results[0];
}

}  // namespace hir::ir
