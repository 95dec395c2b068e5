// hostir run.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "service/convert/tensor.h"
#include "tools/arrays/npy.h"
#include "tools/arrays/part.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// Writes one download to a file, whole: what is stored once is repeated.
class OutputFile {
 public:
  OutputFile(std::string path, DType dtype) : path_(std::move(path)), dtype_(dtype) {}

  Status Begin(const pb::DownloadHeader& header) {
    const std::vector<int64_t> shape(header.shape().begin(), header.shape().end());
    HIR_ASSIGN(arrays::NpyWriter writer, arrays::NpyWriter::Open(path_, dtype_, shape, /*create=*/true));
    writer_.emplace(std::move(writer));
    const std::vector<bool> once(header.sent_once().begin(), header.sent_once().end());
    part_ = arrays::Part::All(shape, shape, once, DTypeBytes(dtype_));
    as_sent_ = part_.IsOnePiece();
    return {};
  }
  Status Add(std::span<const std::byte> chunk) {
    if (!as_sent_) {
      kept_.insert(kept_.end(), chunk.begin(), chunk.end());
      return {};
    }
    const Status status = writer_->Write(written_, chunk);
    written_ += static_cast<int64_t>(chunk.size());
    return status;
  }
  Status End() {
    if (as_sent_) return {};
    return part_.ForEachPiece([&](int64_t whole, int64_t at, int64_t piece) {
      return writer_->Write(whole, std::span(kept_).subspan(static_cast<size_t>(at), static_cast<size_t>(piece)));
    });
  }

 private:
  const std::string path_;
  const DType dtype_;
  std::optional<arrays::NpyWriter> writer_;
  arrays::Part part_;
  bool as_sent_ = false;
  int64_t written_ = 0;
  std::vector<std::byte> kept_;
};

// Downloads output `index` of `reply` to its file. Of errors of the file `usage` is set.
Status Fetch(ProgramSession& session, const pb::Tensor& tensor, const std::string& path,
             const std::function<void(int64_t)>& got, bool* usage) {
  HIR_ASSIGN(const DType dtype, service::FromProto(tensor.spec().dtype()));
  OutputFile file(path, dtype);
  const auto checked = [&](Status status) {
    *usage = !status.ok();
    return status;
  };
  HIR_TRY(session.connection().client().Download(
      tensor.handle(), [&](const pb::DownloadHeader& header) { return checked(file.Begin(header)); },
      [&](std::span<const std::byte> chunk) {
        got(static_cast<int64_t>(chunk.size()));
        return checked(file.Add(chunk));
      }));
  return checked(file.End());
}

Outcome FetchAll(ProgramSession& session, const Options& options, const pb::RunReply& reply, Progress& progress,
                 std::vector<std::string>* paths) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) return Usage(Unavailable(Cat("cannot make ", options.out, ": ", error.message())));
  const Progress::Stage stage(progress, "getting outputs");
  int64_t total = 0, got = 0;
  for (const pb::Tensor& tensor : reply.outputs()) total += tensor.stored_bytes();
  for (int i = 0; i < reply.outputs_size(); ++i) {
    const std::string path = Cat(options.out, "/", session.compiled().outputs(i).name(), ".npy");
    bool usage = false;
    const auto moved = [&](int64_t bytes) { stage.Moved(got += bytes, std::max(total, got)); };
    const Status status = Fetch(session, reply.outputs(i), path, moved, &usage);
    if (usage) return Usage(status);
    if (!status.ok()) {
      return session.connection().Failed(status.WithContext(Cat("output %", session.compiled().outputs(i).name())),
                                         true);
    }
    paths->push_back(path);
  }
  return {};
}

}  // namespace

Outcome RunProgram(const Options& options) {
  Progress progress(options.progress);
  ProgramSession session;
  if (Outcome outcome = ProgramSession::Open(options, progress, &session); !outcome.ok()) return outcome;
  pb::RunReply reply;
  const base::Stopwatch run_watch;
  {
    const Progress::Stage stage(progress, Cat("running ", session.name()));
    if (Outcome outcome = session.Run(&reply); !outcome.ok()) return outcome;
  }
  const double run_ms = run_watch.Ms();
  if (!options.timeline.empty()) {
    std::ofstream file(options.timeline, std::ios::binary);
    file << reply.timeline();
    if (!file.flush()) return Usage(Unavailable(Cat("cannot write ", options.timeline)));
  }
  std::vector<std::string> paths;
  const base::Stopwatch fetch_watch;
  if (!options.out.empty()) {
    if (Outcome outcome = FetchAll(session, options, reply, progress, &paths); !outcome.ok()) return outcome;
  }
  const pb::SessionEvent& event = session.connection().client().session();
  std::string text =
      Cat(session.name(), " on ", Counted(event.num_devices(), event.device_kind() + " device"), " (",
          session.connection().where(), ")\nplan and compile ", Short(session.compile_ms()), " ms; put ",
          Bytes(session.upload_bytes()), " in ", Short(session.upload_ms()), " ms; run ", reply.run_id(), " in ",
          Short(run_ms), " ms, ", Short(static_cast<double>(reply.run_us()) / 1e3), " ms of it on the devices");
  if (!paths.empty()) base::Append(text, "; get in ", Short(fetch_watch.Ms()), " ms");
  text += "\n";
  for (int i = 0; i < reply.outputs_size(); ++i) {
    const pb::PlanParam& output = session.compiled().outputs(i);
    base::Append(text, "output %", output.name(), ": ", output.type(),
                 paths.empty() ? "" : Cat(" -> ", paths[static_cast<size_t>(i)]), "\n");
  }
  if (!options.timeline.empty()) base::Append(text, "timeline -> ", options.timeline, "\n");
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace hir::cli
