// ProgramInputs: the arrays and numbers that a command brings to a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "hostir/v1/service.pb.h"
#include "tools/arrays/npy.h"
#include "tools/cli/options.h"

namespace hir::cli {

// What a daemon must be sent for one input.
struct InputBytes {
  ::hostir::v1::UploadHeader header;  // All but session and target.
  std::span<const std::byte> bytes;   // Of what is sent: in the file, or in `staging`.
  std::vector<std::byte> staging = {};
};

// From files, or made up. Movable.
class ProgramInputs {
 public:
  using Params = google::protobuf::RepeatedPtrField<::hostir::v1::PlanParam>;
  // Opens DIR/NAME.npy of every input of `params`, or makes them up with the sizes of `options`.
  // Errors: kNotFound: a file that is not there; kInvalidArgument naming input, file, and both sides of what does not
  // fit; a size that nothing gives, or that no input has; kResourceExhausted: more bytes than this machine has left.
  static Result<ProgramInputs> Open(const Params& params, const Options& options);

  int64_t total_bytes() const;  // Of what will be sent.
  // REQUIRES: the input is an array.
  Result<InputBytes> Read(int index) const;
  // REQUIRES: the input is a number.
  ::hostir::v1::RunArg Number(int index) const;

 private:
  Result<std::vector<int64_t>> ShapeOf(int index) const;
  Status CheckSizeNames() const;
  Status CheckFile(int index) const;
  void BindSizes();

  Params params_;
  std::vector<arrays::NpyFile> files_;  // One an input; none when they are made up.
  std::optional<int64_t> seed_;
  std::map<std::string, int64_t, std::less<>> sizes_;
};

}  // namespace hir::cli
