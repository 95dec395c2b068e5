#include "tools/cli/session.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  std::ostringstream text;
  std::error_code error;
  if (path == "-") {
    text << std::cin.rdbuf();
  } else if (std::filesystem::is_directory(path, error)) {
    return Status(Code::kNotFound, Cat("cannot read ", path, ": it is a folder; a program is a file"));
  } else {
    const std::ifstream file(path, std::ios::binary);
    if (file) text << file.rdbuf();
  }
  if (text.str().empty()) return Status(Code::kNotFound, Cat("cannot read ", path, ", or it is empty"));
  return text.str();
}

Result<pb::Recording> ReadRecording(const std::string& path) {
  HIR_ASSIGN(const std::string bytes, ReadFile(path));
  pb::Recording recording;
  if (recording.ParseFromString(bytes) && recording.has_program()) return recording;
  return InvalidArgument(Cat(path, " is no recording of a run: Python's client.run(..., record=FOLDER) makes one"));
}

Result<pb::ProgramSource> ReadProgram(const std::string& path) {
  if (path.ends_with(".pb")) {
    HIR_ASSIGN(const pb::Recording recording, ReadRecording(path));
    return recording.program();
  }
  pb::ProgramSource program;
  HIR_ASSIGN(*program.mutable_text(), ReadFile(path));
  return program;
}

Outcome ProgramSession::Open(const Options& options, Progress& progress, ProgramSession* out) {
  out->options_ = options;
  const Result<pb::ProgramSource> program = ReadProgram(options.program);
  if (!program.ok()) return Usage(program.status());
  out->name_ = options.program == "-" ? "the program" : std::filesystem::path(options.program).stem().string();
  if (Outcome outcome = Connection::Open(options, progress, &out->connection_); !outcome.ok()) return outcome;
  {
    const Progress::Stage stage(progress, Cat("planning and compiling ", out->name_));
    const base::Stopwatch watch;
    Result<pb::CompileReply> compiled = out->connection_.client().Compile(*program);
    if (!compiled.ok()) return out->connection_.Failed(compiled.status().WithContext(options.program), false);
    out->compiled_ = *std::move(compiled);
    out->compile_ms_ = watch.Ms();
  }
  Result<ProgramInputs> inputs = ProgramInputs::Open(out->compiled_.inputs(), options);
  if (!inputs.ok()) {
    const bool no_file = inputs.status().code() == Code::kNotFound;
    return {inputs.status(), no_file ? service::kExitUsage : service::kExitFailed};
  }
  out->inputs_.emplace(*std::move(inputs));
  return out->Put(progress);
}

Outcome ProgramSession::Put(Progress& progress) {
  const Progress::Stage stage(progress, "putting inputs");
  const base::Stopwatch watch;
  const int64_t total = inputs_->total_bytes();
  args_.resize(static_cast<size_t>(compiled_.inputs_size()));
  for (int i = 0; i < compiled_.inputs_size(); ++i) {
    const int64_t before = upload_bytes_;
    const auto sent = [&](int64_t bytes) {
      upload_bytes_ = before + bytes;
      stage.Moved(upload_bytes_, total);
    };
    if (compiled_.inputs(i).scalar()) {
      args_[static_cast<size_t>(i)] = inputs_->Number(i);
    } else if (Outcome outcome = PutOne(i, sent); !outcome.ok()) {
      return outcome;
    }
  }
  upload_ms_ = watch.Ms();
  return {};
}

Outcome ProgramSession::PutOne(int index, const std::function<void(int64_t)>& sent) {
  Result<InputBytes> input = inputs_->Read(index);
  if (!input.ok()) return {input.status()};
  input->header.mutable_input()->set_program_id(compiled_.program_id());
  input->header.mutable_input()->set_index(index);
  const Result<pb::Tensor> tensor = connection_.client().Upload(std::move(input->header), input->bytes, sent);
  if (!tensor.ok()) {
    return connection_.Failed(tensor.status().WithContext(Cat("input %", compiled_.inputs(index).name())), false);
  }
  args_[static_cast<size_t>(index)].set_handle(tensor->handle());
  return {};
}

Outcome ProgramSession::Run(pb::RunReply* reply) {
  for (int i = 0; i < compiled_.inputs_size(); ++i) {  // Those that an earlier run consumed.
    const pb::RunArg& arg = args_[static_cast<size_t>(i)];
    if (!compiled_.inputs(i).scalar() && arg.handle().empty()) {
      if (Outcome outcome = PutOne(i, nullptr); !outcome.ok()) return outcome;
    }
  }
  pb::RunRequest request;
  request.set_program_id(compiled_.program_id());
  request.set_wait(true);
  request.set_timeline(!options_.timeline.empty());
  request.set_timeout_ms(options_.timeout_s * 1000);
  for (const pb::RunArg& arg : args_) *request.add_args() = arg;
  Result<pb::RunReply> ran = connection_.client().Run(std::move(request));
  if (!ran.ok()) return connection_.Failed(ran.status(), /*of_run=*/true);
  *reply = *std::move(ran);
  for (const pb::PlanParam& output : compiled_.outputs()) {
    if (output.has_alias_input()) args_[static_cast<size_t>(output.alias_input())].clear_handle();
  }
  return {};
}

}  // namespace hir::cli
