#include "csrc/base/text.h"
#include "csrc/ir/proto/program_proto.h"
#include "hostir/v1/program.pb.h"

namespace hir::ir {
namespace {

namespace v1 = hostir::v1;

void Write(const Expr* expr, v1::ProgramExtent& to) {
  if (expr->IsConst()) {
    to.set_value(expr->value);
  } else {
    to.set_text(ToString(expr));
  }
}

void Write(const Type& type, v1::ValueType& to) {
  switch (type.kind) {
    case TypeKind::kIndex: to.set_index(true); return;
    case TypeKind::kEvent: to.set_events(type.count); return;
    case TypeKind::kScalar: to.set_scalar(std::string(DTypeName(type.dtype))); return;
    case TypeKind::kTensor: break;
  }
  v1::TensorType& tensor = *to.mutable_tensor();
  tensor.set_dtype(std::string(DTypeName(type.dtype)));
  for (const Axis& axis : type.axes) {
    v1::ProgramAxis& written = *tensor.add_axes();
    switch (axis.kind) {
      case AxisKind::kIteration: break;
      case AxisKind::kBroadcast: written.set_kind(v1::ProgramAxis::BROADCAST); break;
      case AxisKind::kReduction: written.set_kind(v1::ProgramAxis::REDUCTION); break;
    }
    Write(axis.extent, *written.mutable_extent());
  }
}

void Write(const Attr& attr, AttrKind kind, v1::ProgramAttr& to) {
  to.set_name(std::string(attr.name));
  switch (kind) {
    case AttrKind::kInt: to.set_int_(std::get<int64_t>(attr.value)); break;
    case AttrKind::kFloat: to.set_float_(std::get<double>(attr.value)); break;
    case AttrKind::kBool: to.set_bool_(std::get<bool>(attr.value)); break;
    case AttrKind::kName: to.set_word(std::string(std::get<std::string_view>(attr.value))); break;
    case AttrKind::kString: to.set_string(std::string(std::get<std::string_view>(attr.value))); break;
    case AttrKind::kMesh: to.set_mesh(std::get<const Mesh*>(attr.value)->name); break;
    case AttrKind::kExpr: Write(std::get<const Expr*>(attr.value), *to.mutable_extent()); break;
    case AttrKind::kInts:
      to.mutable_ints();
      for (const int64_t value : std::get<std::span<const int64_t>>(attr.value)) to.mutable_ints()->add_values(value);
      break;
    case AttrKind::kExprs:
      to.mutable_extents();
      for (const Expr* expr : std::get<std::span<const Expr* const>>(attr.value)) {
        Write(expr, *to.mutable_extents()->add_values());
      }
      break;
  }
}

class Writer {
 public:
  explicit Writer(v1::Program& to) : to_(to) {}

  void Annotations(const Value& value) {
    const auto add = [&](v1::ProgramAnnotation::Kind kind, int64_t axis) -> v1::ProgramAnnotation& {
      v1::ProgramAnnotation& annotation = *to_.add_annotations();
      annotation.set_value(std::string(value.name));
      annotation.set_kind(kind);
      annotation.set_axis(axis);
      return annotation;
    };
    if (!value.stride_order.empty()) {
      v1::ProgramAnnotation& order = add(v1::ProgramAnnotation::STRIDE_ORDER, 0);
      for (const int64_t place : value.stride_order) order.add_order(place);
    }
    if (value.layout == nullptr) return;
    const Layout& layout = *value.layout;
    if (layout.mesh != nullptr) add(v1::ProgramAnnotation::MESH, 0).set_mesh(layout.mesh->name);
    for (const LoopTransform& step : layout.transforms) {
      switch (step.kind) {
        case LoopTransform::Kind::kOuterSplit:
          add(v1::ProgramAnnotation::OUTER_SPLIT, step.axis).set_factor(step.factor);
          break;
        case LoopTransform::Kind::kInnerSplit:
          add(v1::ProgramAnnotation::INNER_SPLIT, step.axis).set_factor(step.factor);
          break;
        case LoopTransform::Kind::kMerge: add(v1::ProgramAnnotation::MERGE, step.axis); break;
      }
    }
    for (size_t i = 0; i < layout.parallel.size(); ++i) {
      if (layout.parallel[i] == mesh::ParallelType::kSerial) continue;
      add(v1::ProgramAnnotation::PARALLELIZE, static_cast<int64_t>(i))
          .set_parallel_type(std::string(mesh::ParallelTypeName(layout.parallel[i])));
    }
  }

  void Param(const Value& value, v1::ProgramParam& to) {
    to.set_name(std::string(value.name));
    Write(*value.type, *to.mutable_type());
    Annotations(value);
  }

  void Ops(const Block& block, google::protobuf::RepeatedPtrField<v1::ProgramOp>& to) {
    for (const Op* op = block.first; op != nullptr; op = op->next) {
      v1::ProgramOp& written = *to.Add();
      written.set_name(std::string(op->info->name));
      written.set_location(std::string(op->location));
      for (const Value* operand : op->operands) written.add_operands(std::string(operand->name));
      for (const Value* result : op->results) {
        v1::ProgramResult& defined = *written.add_results();
        defined.set_name(std::string(result->name));
        Write(*result->type, *defined.mutable_type());
        Annotations(*result);
      }
      for (size_t i = 0; i < op->attrs.size(); ++i) Write(op->attrs[i], op->info->attrs[i].kind, *written.add_attrs());
      for (const Block* inner : op->blocks) {
        v1::ProgramBlock& nested = *written.add_blocks();
        for (const Value* arg : inner->args) Param(*arg, *nested.add_args());
        Ops(*inner, *nested.mutable_ops());
      }
    }
  }

 private:
  v1::Program& to_;
};

}  // namespace

void ToProto(const Graph& graph, v1::Program& program) {
  program.Clear();
  program.set_op_set(std::string(graph.ops().name));
  program.set_name(graph.name());
  program.set_segmentation(graph.segmentation);
  for (const Mesh& mesh : graph.meshes()) {
    v1::ProgramMesh& written = *program.add_meshes();
    written.set_name(mesh.name);
    for (const int64_t extent : mesh.mesh.shape()) written.mutable_mesh()->add_shape(extent);
    for (const int64_t device : mesh.mesh.devices()) written.mutable_mesh()->add_devices(device);
  }
  Writer writer(program);
  for (const Value* param : graph.params) writer.Param(*param, *program.add_params());
  writer.Ops(graph.body, *program.mutable_ops());
  for (const Output& output : graph.outputs) {
    v1::ProgramOutput& written = *program.add_outputs();
    written.set_value(std::string(output.value->name));
    if (output.alias != nullptr) written.set_alias(std::string(output.alias->name));
  }
}

}  // namespace hir::ir
