#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/proto/program_proto.h"
#include "csrc/ir/verify.h"
#include "hostir/v1/program.pb.h"

namespace hir::ir {
namespace {

namespace v1 = hostir::v1;
using base::Cat;

Status TooMany(std::string_view what, int64_t limit) {
  return ResourceExhausted(Cat("the program has more than ", limit, " ", what));
}

// For messages: text of a client, cut and without what a terminal or a log would act on.
std::string Shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > 40 ? out + "..." : out;
}

// Reads one program into a graph. Errors of members are without location; the functions for whole things add it.
class Reader {
 public:
  Reader(Graph& graph, const v1::Program& program) : graph_(graph), program_(program) {}

  Status Run() {
    HIR_TRY(Segmentation());
    HIR_TRY(Meshes());
    if (program_.params_size() > kParamsMax) return TooMany("inputs", kParamsMax);
    for (const v1::ProgramParam& param : program_.params()) {
      HIR_TRY(
          WithLocation(Param(param, [&](const Type* type) { graph_.AddParam(param.name(), type); }), param.location()));
    }
    HIR_TRY(Ops(program_.ops(), graph_.body, 0));
    HIR_TRY(Annotations());
    if (program_.outputs_size() > kParamsMax) return TooMany("outputs", kParamsMax);
    for (const v1::ProgramOutput& output : program_.outputs()) {
      HIR_TRY(WithLocation(Return(output).WithContext("return"), output.location()));
    }
    return {};
  }

 private:
  Status Segmentation() {
    if (!program_.segmentation().empty() && !IsWord(program_.segmentation()))
      return InvalidArgument(Cat("segmentation '", Shown(program_.segmentation()), "' is no word"));
    graph_.segmentation = program_.segmentation();
    return {};
  }

  Status Meshes() {
    if (program_.meshes_size() > kMeshesMax) return TooMany("meshes", kMeshesMax);
    for (const v1::ProgramMesh& given : program_.meshes()) {
      if (!IsIdentifier(given.name())) {
        return InvalidArgument(Cat("mesh '", Shown(given.name()), "': a mesh's name is letters, digits and _"));
      }
      const auto& shape = given.mesh().shape();
      const auto& devices = given.mesh().devices();
      Result<mesh::DeviceMesh> mesh =
          mesh::DeviceMesh::Make({shape.begin(), shape.end()}, {devices.begin(), devices.end()});
      HIR_TRY(mesh.status().WithContext(Cat("mesh @", given.name())));
      if (meshes_.contains(given.name())) return InvalidArgument(Cat("mesh @", given.name(), " is defined twice"));
      meshes_.emplace(given.name(), graph_.AddMesh(*mesh, given.name()));
    }
    return {};
  }

  Status CheckNew(const std::string& name) const {
    if (!IsName(name)) {
      return InvalidArgument(
          Cat("'", Shown(name), "' cannot name a value: letters, digits, _ and ., at most ", kNameBytesMax));
    }
    if (graph_.FindValue(name) != nullptr) return InvalidArgument(Cat("%", name, " is defined twice"));
    return std::ssize(graph_.values()) < kValuesMax ? Status() : TooMany("values", kValuesMax);
  }

  template <typename Add>
  Status Param(const v1::ProgramParam& param, const Add& add) {
    HIR_TRY(CheckNew(param.name()));
    HIR_ASSIGN(const Type* const type, TypeOf(param.type(), param.name()));
    if (type == nullptr) return InvalidArgument(Cat(param.name(), ": an input needs a type"));
    add(type);
    return {};
  }

  Result<const Expr*> ExtentOf(const v1::ProgramExtent& extent) {
    const Expr* expr = nullptr;
    switch (extent.extent_case()) {
      case v1::ProgramExtent::kValue: expr = graph_.exprs().Const(extent.value()); break;
      case v1::ProgramExtent::kText: {
        HIR_ASSIGN(expr, ParseExtent(extent.text(), graph_, meshes_));
        break;
      }
      case v1::ProgramExtent::EXTENT_NOT_SET: return InvalidArgument("an extent is neither number nor text");
    }
    HIR_TRY(graph_.exprs().status());
    return expr;
  }

  Result<DType> DTypeOf(const std::string& name) const {
    const std::optional<DType> dtype = ParseDType(name);
    if (dtype) return *dtype;
    return InvalidArgument(Cat("'", Shown(name), "' is no dtype (", kDTypeNames, ")"));
  }

  // Null when `type` says nothing.
  Result<const Type*> TypeOf(const v1::ValueType& type, std::string_view value) {
    Result<const Type*> made = MakeType(type);
    if (!made.ok()) return made.status().WithContext(value);
    if (*made != nullptr) HIR_TRY(CheckType(**made).WithContext(value));
    return *made;
  }

  Result<const Type*> MakeType(const v1::ValueType& type) {
    switch (type.kind_case()) {
      case v1::ValueType::KIND_NOT_SET: return nullptr;
      case v1::ValueType::kIndex: return graph_.Index();
      case v1::ValueType::kEvents: return graph_.Event(type.events());
      case v1::ValueType::kScalar: {
        HIR_ASSIGN(const DType dtype, DTypeOf(type.scalar()));
        return graph_.Scalar(dtype);
      }
      case v1::ValueType::kTensor: break;
    }
    HIR_ASSIGN(const DType dtype, DTypeOf(type.tensor().dtype()));
    if (type.tensor().axes_size() > kAxesMax) {
      return ResourceExhausted(Cat("a tensor has ", type.tensor().axes_size(), " axes; the limit is ", kAxesMax));
    }
    std::vector<Axis> axes;
    for (const v1::ProgramAxis& axis : type.tensor().axes()) {
      HIR_ASSIGN(const Expr* const extent, ExtentOf(axis.extent()));
      AxisKind kind = AxisKind::kIteration;
      if (axis.kind() == v1::ProgramAxis::BROADCAST) kind = AxisKind::kBroadcast;
      if (axis.kind() == v1::ProgramAxis::REDUCTION) kind = AxisKind::kReduction;
      if (!v1::ProgramAxis::Kind_IsValid(axis.kind())) return InvalidArgument(Cat("no axis kind ", int{axis.kind()}));
      axes.push_back({kind, extent});
    }
    return graph_.Tensor(dtype, axes);
  }

  Status Ops(const google::protobuf::RepeatedPtrField<v1::ProgramOp>& ops, Block& block, int depth) {
    for (const v1::ProgramOp& op : ops) {
      if (++num_ops_ > kOpsMax) return TooMany("ops", kOpsMax);
      HIR_TRY(BuildOp(op, block, depth));
    }
    return {};
  }

  // The Builder adds name and location to its own errors, `fail` to ours.
  Status BuildOp(const v1::ProgramOp& op, Block& block, int depth) {
    const OpInfo* info = graph_.ops().Find(op.name());
    const auto fail = [&](const Status& status) {
      return WithLocation(status.WithContext(IsWord(op.name()) ? op.name() : "op"), op.location());
    };
    std::vector<Value*> operands;
    if (op.operands_size() > kOperandsMax) {
      return fail(ResourceExhausted(Cat("has ", op.operands_size(), " operands; the limit is ", kOperandsMax)));
    }
    for (const std::string& name : op.operands()) {
      Result<Value*> operand = Use(name);
      if (!operand.ok()) return fail(operand.status());
      operands.push_back(*operand);
    }
    std::vector<std::string_view> names;
    std::vector<const Type*> declared;
    if (const Status status = Results(op, names, declared); !status.ok()) return fail(status);
    std::vector<Attr> attrs;
    for (const v1::ProgramAttr& attr : op.attrs()) {
      if (info == nullptr) break;
      const Status status =
          std::ssize(attrs) > kAttrsMax ? InvalidArgument("has too many attributes") : AddAttr(*info, attr, attrs);
      if (!status.ok()) return fail(status);
    }
    Builder builder(graph_, block);
    HIR_ASSIGN(Op* const built, builder.Add({.info = info,
                                             .name = op.name(),
                                             .operands = operands,
                                             .attrs = attrs,
                                             .result_names = names,
                                             .declared = declared,
                                             .num_results = static_cast<int>(names.size()),
                                             .location = op.location()}));
    if (op.blocks_size() != info->num_blocks) {
      return fail(InvalidArgument(Cat("takes ", info->num_blocks, " blocks, got ", op.blocks_size())));
    }
    for (int i = 0; i < op.blocks_size(); ++i) {
      if (depth >= kNestingMax) return fail(ResourceExhausted(Cat("blocks are nested deeper than ", kNestingMax)));
      Block& inner = *built->blocks[static_cast<size_t>(i)];
      if (op.blocks(i).args_size() > kAxesMax) {
        return fail(ResourceExhausted(Cat("a block has more than ", kAxesMax, " arguments")));
      }
      for (const v1::ProgramParam& arg : op.blocks(i).args()) {
        const Status status = Param(arg, [&](const Type* type) { graph_.AddBlockArg(inner, arg.name(), type); });
        if (!status.ok()) return fail(status);
      }
      HIR_TRY(Ops(op.blocks(i).ops(), inner, depth + 1));
    }
    return {};
  }

  Status Results(const v1::ProgramOp& op, std::vector<std::string_view>& names, std::vector<const Type*>& declared) {
    if (op.results_size() > kOperandsMax) {
      return ResourceExhausted(Cat("has ", op.results_size(), " results; the limit is ", kOperandsMax));
    }
    for (const v1::ProgramResult& result : op.results()) {
      HIR_TRY(CheckNew(result.name()));
      if (std::find(names.begin(), names.end(), result.name()) != names.end()) {
        return InvalidArgument(Cat("%", result.name(), " is defined twice"));
      }
      names.push_back(result.name());
      HIR_ASSIGN(declared.emplace_back(), TypeOf(result.type(), result.name()));
    }
    return {};
  }

  // The value of `attr` as MatchAttrs takes it: its kind must fit, which MatchAttrs checks.
  Status AddAttr(const OpInfo& info, const v1::ProgramAttr& attr, std::vector<Attr>& attrs) {
    const AttrInfo* row = std::find_if(info.attrs, info.attrs + info.num_attrs(),
                                       [&](const AttrInfo& known) { return known.name == attr.name(); });
    if (row == info.attrs + info.num_attrs()) {
      return IsWord(attr.name()) ? UnknownAttr(info, attr.name()) : InvalidArgument("an attribute's name is no word");
    }
    Result<AttrValue> value = ValueOf(attr, row->kind);
    HIR_TRY(value.status().WithContext(Cat("attribute ", row->name)));
    attrs.push_back({row->name, *value});
    return {};
  }

  Result<AttrValue> ValueOf(const v1::ProgramAttr& attr, AttrKind kind) {
    switch (attr.value_case()) {
      case v1::ProgramAttr::kInt: return AttrValue(int64_t{attr.int_()});
      case v1::ProgramAttr::kFloat: return AttrValue(attr.float_());
      case v1::ProgramAttr::kBool: return AttrValue(attr.bool_());
      case v1::ProgramAttr::kWord: return AttrValue(std::string_view(attr.word()));
      case v1::ProgramAttr::kString: return AttrValue(std::string_view(attr.string()));
      case v1::ProgramAttr::kMesh: {
        HIR_ASSIGN(const Mesh* const mesh, MeshOf(attr.mesh()));
        return AttrValue(mesh);
      }
      case v1::ProgramAttr::kInts: {
        const auto& values = attr.ints().values();
        return AttrValue(std::span<const int64_t>(values.data(), static_cast<size_t>(values.size())));
      }
      case v1::ProgramAttr::kExtent: {
        HIR_ASSIGN(const Expr* const extent, ExtentOf(attr.extent()));
        return AttrValue(extent);
      }
      case v1::ProgramAttr::kExtents: return ExtentsOf(attr.extents(), kind);
      case v1::ProgramAttr::VALUE_NOT_SET: break;
    }
    return InvalidArgument("has no value");
  }

  // A client that knows no kinds may send plain integers as extents.
  Result<AttrValue> ExtentsOf(const v1::ProgramExtents& extents, AttrKind kind) {
    if (extents.values_size() > kListMax) {
      return ResourceExhausted(Cat("has ", extents.values_size(), " elements; the limit is ", kListMax));
    }
    std::vector<const Expr*> exprs;
    std::vector<int64_t> ints;
    for (const v1::ProgramExtent& extent : extents.values()) {
      HIR_ASSIGN(exprs.emplace_back(), ExtentOf(extent));
      if (exprs.back()->IsConst()) ints.push_back(exprs.back()->value);
    }
    if (kind == AttrKind::kInts && ints.size() == exprs.size()) {
      return AttrValue(std::span<const int64_t>(graph_.Copy(ints)));
    }
    return AttrValue(std::span<const Expr* const>(graph_.Copy(exprs)));
  }

  Result<Value*> Use(const std::string& name) const {
    Value* value = graph_.FindValue(name);
    if (value != nullptr) return value;
    return InvalidArgument(Cat("undefined value %", Shown(name)));
  }

  Result<const Mesh*> MeshOf(const std::string& name) const {
    const auto found = meshes_.find(name);
    if (found != meshes_.end()) return found->second;
    return InvalidArgument(Cat("undefined mesh @", Shown(name)));
  }

  // Commands of one value may lie anywhere among the others; together, in order, they are its layout.
  Status Annotations() {
    std::vector<std::pair<Value*, std::vector<Annotation>>> by_value;
    std::vector<int> index(graph_.values().size(), -1);
    for (const v1::ProgramAnnotation& given : program_.annotations()) {
      Result<Value*> value = Use(given.value());
      HIR_TRY(WithLocation(value.status().WithContext("annotation"), given.location()));
      Result<Annotation> annotation = Read(given);
      HIR_TRY(WithLocation(annotation.status().WithContext((*value)->name), given.location()));
      int& at = index[static_cast<size_t>((*value)->id)];
      if (at < 0) {
        at = static_cast<int>(by_value.size());
        by_value.emplace_back(*value, std::vector<Annotation>());
      }
      std::vector<Annotation>& commands = by_value[static_cast<size_t>(at)].second;
      commands.push_back(*annotation);
      if (std::ssize(commands) > kAnnotationsMax) {
        return WithLocation(
            ResourceExhausted(Cat((*value)->name, ": a layout has more than ", kAnnotationsMax, " commands")),
            given.location());
      }
    }
    for (const auto& [value, commands] : by_value) HIR_TRY(AnnotateAll(graph_, *value, commands));
    return {};
  }

  Result<Annotation> Read(const v1::ProgramAnnotation& given) const {
    using Kind = Annotation::Kind;
    constexpr std::pair<v1::ProgramAnnotation::Kind, Kind> kKinds[] = {
        {v1::ProgramAnnotation::MESH, Kind::kMesh},
        {v1::ProgramAnnotation::OUTER_SPLIT, Kind::kOuterSplit},
        {v1::ProgramAnnotation::INNER_SPLIT, Kind::kInnerSplit},
        {v1::ProgramAnnotation::MERGE, Kind::kMerge},
        {v1::ProgramAnnotation::PARALLELIZE, Kind::kParallelize},
        {v1::ProgramAnnotation::SHARD, Kind::kShard},
        {v1::ProgramAnnotation::STRIDE_ORDER, Kind::kStrideOrder}};
    const auto* kind =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto& k) { return k.first == given.kind(); });
    if (kind == std::end(kKinds)) return InvalidArgument(Cat("no annotation kind ", int{given.kind()}));
    if (given.order_size() > kAxesMax)
      return ResourceExhausted(Cat("a stride order has more than ", kAxesMax, " axes"));
    Annotation annotation = {
        .kind = kind->second, .axis = given.axis(), .factor = given.factor(), .location = given.location()};
    annotation.order = {given.order().data(), static_cast<size_t>(given.order_size())};
    if (annotation.kind == Kind::kMesh) {
      HIR_ASSIGN(annotation.mesh, MeshOf(given.mesh()));
    }
    if (annotation.kind == Kind::kParallelize || annotation.kind == Kind::kShard) {
      const auto type = mesh::ParseParallelType(given.parallel_type());
      if (!type) {
        return InvalidArgument(
            Cat("'", Shown(given.parallel_type()), "' is no parallel type (mesh_x, mesh_y, mesh_z, stream or serial)"));
      }
      annotation.type = *type;
    }
    return annotation;
  }

  Status Return(const v1::ProgramOutput& given) {
    Output output;
    HIR_ASSIGN(output.value, Use(given.value()));
    if (!given.alias().empty()) {
      HIR_ASSIGN(output.alias, Use(given.alias()));
    }
    graph_.outputs.push_back(output);
    return {};
  }

  Graph& graph_;
  const v1::Program& program_;
  MeshNames meshes_;
  int64_t num_ops_ = 0;
};

}  // namespace

Result<std::unique_ptr<Graph>> FromProto(const v1::Program& program, const OpSet& ops) {
  if (program.op_set() != ops.name) {
    return InvalidArgument(Cat("expected a ", ops.name, " program, got '", Shown(program.op_set()), "'"));
  }
  if (!IsName(program.name())) {
    return InvalidArgument(
        Cat("'", Shown(program.name()), "' cannot name a program: letters, digits, _ and ., at most ", kNameBytesMax));
  }
  const size_t bytes = program.ByteSizeLong();
  if (bytes > kTextBytesMax) {
    return ResourceExhausted(Cat("the program has ", bytes, " bytes; the limit is ", kTextBytesMax));
  }
  auto graph = std::make_unique<Graph>(ops, program.name());
  HIR_TRY(Reader(*graph, program).Run());
  HIR_ASSIGN(std::unique_ptr<Graph> settled, Settle(std::move(graph)));
  HIR_TRY(Verify(*settled));
  return settled;
}

}  // namespace hir::ir
