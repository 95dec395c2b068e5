// ProgramSession: a program on a daemon with its inputs there: what run and bench have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hostir/v1/recording.pb.h"
#include "tools/cli/connection.h"
#include "tools/cli/inputs.h"

namespace hir::cli {

// The bytes of the file at `path`; "-" is standard input. kNotFound.
Result<std::string> ReadFile(const std::string& path);
// kNotFound; kInvalidArgument: it is none.
Result<::hostir::v1::Recording> ReadRecording(const std::string& path);
// The program in the file at `path`: its text, or, of NAME.pb, that of a recording. Errors: those of the two.
Result<::hostir::v1::ProgramSource> ReadProgram(const std::string& path);

class ProgramSession {
 public:
  // Reads the program, connects, compiles, puts the inputs.
  static Outcome Open(const Options& options, Progress& progress, ProgramSession* out);

  Connection& connection() { return connection_; }
  const ::hostir::v1::CompileReply& compiled() const { return compiled_; }
  const std::string& name() const { return name_; }
  double compile_ms() const { return compile_ms_; }
  double upload_ms() const { return upload_ms_; }
  int64_t upload_bytes() const { return upload_bytes_; }

  // One run, to its end, with its timeline where the options name a file for it. An input that an output takes over is
  // put again before the next.
  Outcome Run(::hostir::v1::RunReply* reply);

 private:
  Outcome Put(Progress& progress);
  Outcome PutOne(int index, const std::function<void(int64_t)>& sent);

  Options options_;
  Connection connection_;
  std::string name_;
  ::hostir::v1::CompileReply compiled_;
  std::optional<ProgramInputs> inputs_;
  std::vector<::hostir::v1::RunArg> args_;
  double compile_ms_ = 0, upload_ms_ = 0;
  int64_t upload_bytes_ = 0;
};

}  // namespace hir::cli
