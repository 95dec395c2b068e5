// Specs and shardings to and from the wire. What comes from the wire is untrusted.
#pragma once

#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "hostir/v1/tensor.pb.h"
#include "service/store/tensor.h"

namespace hir::service {

// Errors of these: kInvalidArgument naming the value. Whether a spec makes sense: CheckSpec.
Result<DType> FromProto(::hostir::v1::DType dtype);
Result<mesh::Sharding> FromProto(const ::hostir::v1::Sharding& sharding, size_t axes);
// `flags`, or as many false as there are axes when there are none.
std::vector<bool> FlagsFromProto(const ::google::protobuf::RepeatedField<bool>& flags, int axes);

::hostir::v1::DType ToProto(DType dtype);
void ToProto(const mesh::Sharding& sharding, ::hostir::v1::Sharding* out);
void ToProto(const TensorSpec& spec, ::hostir::v1::TensorSpec* out);
void ToProto(const std::string& handle, const Tensor& tensor, ::hostir::v1::Tensor* out);

}  // namespace hir::service
