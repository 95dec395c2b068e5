#include "tools/cli/outputs.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "csrc/base/text.h"
#include "service/convert/tensor.h"
#include "tools/arrays/npy.h"
#include "tools/arrays/part.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// Writes one download to a file, whole: what is stored once is repeated.
class OutputFile {
 public:
  OutputFile(std::string path, DType dtype) : path_(std::move(path)), dtype_(dtype) {}

  Status Begin(const pb::DownloadHeader& header) {
    std::vector<int64_t> shape(header.shape().begin(), header.shape().end());
    std::vector<bool> once(header.sent_once().begin(), header.sent_once().end());
    const std::vector<int64_t> order(header.memory_order().begin(), header.memory_order().end());
    HIR_TRY(service::CheckMemoryOrder(order, shape.size()).WithContext("the daemon's answer"));
    if (once.size() != shape.size()) return Status(Code::kInternal, "the daemon's answer has flags of other axes");
    for (int place = 0; place < header.memory_order_size(); ++place) {
      const auto axis = static_cast<size_t>(order[static_cast<size_t>(place)]);
      shape[axis] = header.shape(place);
      once[axis] = header.sent_once(place);
    }
    HIR_ASSIGN(arrays::NpyWriter writer, arrays::NpyWriter::Open(path_, dtype_, shape, /*create=*/true));
    writer_.emplace(std::move(writer));
    part_ = arrays::Part::All(shape, shape, once, DTypeBytes(dtype_), order);
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
    if (std::ssize(kept_) != part_.bytes) {
      return {Code::kDataLoss, Cat(path_, ": the daemon's answer has ", kept_.size(), " bytes of ", part_.bytes)};
    }
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

}  // namespace

Outcome FetchOutputs(ProgramSession& session, const std::string& folder, const pb::RunReply& reply, Progress& progress,
                     std::vector<std::string>* paths) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Usage(Unavailable(Cat("cannot make ", folder, ": ", error.message())));
  const Progress::Stage stage(progress, "getting outputs");
  int64_t total = 0, got = 0;
  for (const pb::Tensor& tensor : reply.outputs()) total += tensor.stored_bytes();
  for (int i = 0; i < reply.outputs_size(); ++i) {
    const std::string path = Cat(folder, "/", session.compiled().outputs(i).name(), ".npy");
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

}  // namespace hir::cli
