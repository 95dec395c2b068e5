#include "csrc/ir/parse.h"

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parser.h"
#include "csrc/ir/verify.h"

namespace hir::ir {

using base::Cat;

Result<std::unique_ptr<Graph>> Parse(std::string_view text, const OpSet& ops) {
  if (text.size() > kTextBytesMax) {
    return ResourceExhausted(Cat("the text has ", text.size(), " bytes; the limit is ", kTextBytesMax));
  }
  HIR_ASSIGN(std::unique_ptr<Graph> parsed, Parser(text, ops).Program());
  HIR_ASSIGN(std::unique_ptr<Graph> graph, Settle(std::move(parsed)));
  HIR_TRY(Verify(*graph));
  return graph;
}

Result<std::unique_ptr<Graph>> Parser::Program() {
  while (token_.IsWord("mesh")) HIR_TRY(MeshLine());
  std::string_view segmentation;
  if (token_.IsWord("segmentation")) {
    Advance();
    HIR_ASSIGN(segmentation, Take(TokenKind::kWord, "a rule's name"));
  }
  if (!segmentation.empty() && !IsWord(segmentation)) return Fail("the name of a rule for segments is too long");
  if (!token_.IsWord(ops_->name))
    return Expected(Cat("'", ops_->name, "', the first word of a ", ops_->name, " program"));
  Advance();
  const Token name = token_;
  HIR_TRY(Take(TokenKind::kAt, "the program's @name").status());
  if (!IsName(name.text))
    return At(name.line, InvalidArgument(Cat("a program's name has at most ", kNameBytesMax, " letters")));
  owned_ = std::make_unique<Graph>(*ops_, std::string(name.text));
  graph_ = owned_.get();
  graph_->segmentation = segmentation;
  HIR_TRY(AddMeshes());
  HIR_TRY(Params());
  HIR_TRY(Expect('{'));
  HIR_TRY(Statements(graph_->body, 0));
  if (token_.IsWord("return")) HIR_TRY(Return());
  HIR_TRY(Expect('}'));
  if (token_.kind != TokenKind::kEnd) return Expected("the end of the text");
  return std::move(owned_);
}

Status Parser::MeshLine() {
  Advance();
  const int line = token_.line;
  HIR_ASSIGN(const std::string_view name, Take(TokenKind::kAt, "a mesh's @name"));
  if (!IsIdentifier(name)) return At(line, InvalidArgument("a mesh's name is letters, digits and _"));
  for (const auto& [known, mesh] : declared_meshes_) {
    if (known == name) return At(line, InvalidArgument(Cat("mesh @", name, " is defined twice")));
  }
  if (std::ssize(declared_meshes_) >= kMeshesMax) {
    return At(line, ResourceExhausted(Cat("the program has more than ", kMeshesMax, " meshes")));
  }
  HIR_TRY(Expect('='));
  std::vector<int64_t> shape;
  HIR_ASSIGN(std::vector<int64_t> devices, MeshRows(shape, 0));
  Result<mesh::DeviceMesh> mesh = mesh::DeviceMesh::Make(std::move(shape), std::move(devices));
  HIR_TRY(At(line, mesh.status().WithContext(Cat("mesh @", name))));
  declared_meshes_.emplace_back(name, *std::move(mesh));
  return {};
}

// One bracketed list; `shape[depth]` is its length, or becomes it.
Result<std::vector<int64_t>> Parser::MeshRows(std::vector<int64_t>& shape, size_t depth) {
  HIR_TRY(Expect('['));
  if (depth >= mesh::DeviceMesh::kRankMax)
    return Fail(Cat("a mesh has 1 to ", mesh::DeviceMesh::kRankMax, " dimensions"));
  const bool first = shape.size() == depth;
  if (first) shape.push_back(0);
  const bool nested = token_.Is('[');
  if (!first && nested != (shape.size() > depth + 1)) return Fail("the rows of a mesh differ in depth");
  std::vector<int64_t> devices;
  int64_t count = 0;
  while (!token_.Is(']')) {
    if (count > 0) HIR_TRY(Expect(','));
    if (nested) {
      HIR_ASSIGN(const std::vector<int64_t> row, MeshRows(shape, depth + 1));
      devices.insert(devices.end(), row.begin(), row.end());
    } else {
      HIR_ASSIGN(const int64_t device, Integer("a device"));
      devices.push_back(device);
    }
    ++count;
    if (std::ssize(devices) > mesh::DeviceMesh::kDevicesMax || count > mesh::DeviceMesh::kDevicesMax) {
      return At(token_.line,
                ResourceExhausted(Cat("a mesh has more than ", mesh::DeviceMesh::kDevicesMax, " devices")));
    }
  }
  if (first) shape[depth] = count;
  if (shape[depth] != count) return Fail(Cat("a row of the mesh has ", count, " entries, another ", shape[depth]));
  Advance();
  return devices;
}

Status Parser::AddMeshes() {
  for (const auto& [name, mesh] : declared_meshes_) meshes_.emplace(name, graph_->AddMesh(mesh, name));
  return {};
}

Status Parser::Params() {
  HIR_TRY(Expect('('));
  while (!token_.Is(')')) {
    if (!graph_->params.empty()) HIR_TRY(Expect(','));
    const int line = token_.line;
    HIR_ASSIGN(const std::string_view name, NewName());
    if (std::ssize(graph_->params) >= kParamsMax) {
      return At(line, ResourceExhausted(Cat("the program has more than ", kParamsMax, " inputs")));
    }
    HIR_TRY(Expect(':'));
    HIR_ASSIGN(const Type* const type, TypeText());
    Value* const param = graph_->AddParam(name, type);
    std::vector<Annotation> annotations;
    HIR_TRY(Layout(annotations));
    HIR_TRY(Annotations(*param, annotations, line));
  }
  Advance();
  return {};
}

Status Parser::Return() {
  Advance();
  do {
    HIR_ASSIGN(Value* const value, ValueUse());
    Output output = {.value = value};
    if (token_.IsWord("alias")) {
      Advance();
      HIR_ASSIGN(output.alias, ValueUse());
    }
    graph_->outputs.push_back(output);
    if (std::ssize(graph_->outputs) > kParamsMax) {
      return At(token_.line, ResourceExhausted(Cat("the program has more than ", kParamsMax, " outputs")));
    }
  } while (Accept(','));
  return {};
}

bool Parser::Accept(char c) {
  if (!token_.Is(c)) return false;
  Advance();
  return true;
}

Status Parser::Expect(char c) { return Accept(c) ? Status() : Expected(Cat("'", c, "'")); }

Status Parser::Expected(std::string_view what) const {
  return Fail(Cat("expected ", what, ", got ", Describe(token_)));
}

Status Parser::At(int line, const Status& status) const {
  return with_lines_ ? status.WithContext(Cat("line ", line)) : status;
}

Result<std::string_view> Parser::Take(TokenKind kind, std::string_view what) {
  if (token_.kind != kind) return Expected(what);
  const std::string_view text = token_.text;
  Advance();
  return text;
}

Result<int64_t> Parser::Integer(std::string_view what) {
  const bool negative = Accept('-');
  if (token_.kind != TokenKind::kInt) return Expected(what);
  const uint64_t magnitude = token_.integer;
  if (!negative && magnitude > INT64_MAX) return Fail("an integer does not fit in 64 bits");
  Advance();
  return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
}

Result<double> Parser::Float(std::string_view what) {
  const bool negative = Accept('-');
  double value = token_.number;
  if (token_.IsWord("inf")) {
    value = std::numeric_limits<double>::infinity();
  } else if (token_.IsWord("nan")) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (token_.kind != TokenKind::kFloat && token_.kind != TokenKind::kInt) {
    return Expected(what);
  }
  Advance();
  return negative ? -value : value;
}

Result<Value*> Parser::ValueUse() {
  if (token_.kind != TokenKind::kValue) return Expected("a value like %x");
  Value* const value = graph_->FindValue(token_.text);
  if (value == nullptr) {
    std::vector<std::string_view> recent;  // Enough to suggest from.
    const std::vector<Value*>& values = graph_->values();
    for (size_t i = values.size(); i-- > 0 && recent.size() < 1000;) recent.push_back(values[i]->name);
    const std::string_view nearest = base::Nearest(token_.text, recent);
    return Fail(
        Cat("undefined value ", Describe(token_), nearest.empty() ? "" : Cat("; did you mean %", nearest, "?")));
  }
  Advance();
  return value;
}

Result<std::string_view> Parser::NewName() {
  if (token_.kind != TokenKind::kValue) return Expected("a value like %x");
  if (!IsName(token_.text)) return Fail(Cat("a value's name has at most ", kNameBytesMax, " letters"));
  if (graph_->FindValue(token_.text) != nullptr) return Fail(Cat("%", token_.text, " is defined twice"));
  if (std::ssize(graph_->values()) >= kValuesMax) {
    return At(token_.line, ResourceExhausted(Cat("the program has more than ", kValuesMax, " values")));
  }
  return Take(TokenKind::kValue, "a value");
}

Result<const Mesh*> Parser::MeshUse() {
  if (token_.kind != TokenKind::kAt) return Expected("a mesh like @m");
  const auto found = meshes_.find(token_.text);
  if (found == meshes_.end()) return Fail(Cat("undefined mesh ", Describe(token_)));
  Advance();
  return found->second;
}

}  // namespace hir::ir
