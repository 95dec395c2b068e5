#include "service/log/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/log/log.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr size_t kAccessLogBytesMax = 1 << 20;  // That wait.

// "2026-01-31T23:59:59.123456Z"
std::string TimeText(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(since % std::chrono::seconds(1)).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)), us);
}

// Keys and values of a line, as text or as JSON.
class Fields {
 public:
  explicit Fields(AccessLog::Format format) : is_json_(format == AccessLog::Format::kJson) {}

  void Add(std::string_view key, std::string_view text) {
    if (text.empty()) return;
    Key(key);
    // A name in a certificate may be any text: it makes no field, and no line, of its own.
    const bool is_plain = text.find_first_of(" =\"\\") == std::string_view::npos;
    const std::string printable = base::Printable(text);
    line_ += is_json_ || !is_plain ? base::Quoted(printable) : printable;
  }
  void Add(std::string_view key, int64_t number) {
    if (number < 0) return;
    Key(key);
    base::Append(line_, number);
  }
  std::string Take() { return is_json_ ? Cat("{", line_, "}\n") : Cat(line_, "\n"); }

 private:
  void Key(std::string_view key) {
    if (!line_.empty()) line_ += is_json_ ? ',' : ' ';
    line_ += is_json_ ? Cat("\"", key, "\":") : Cat(key, "=");
  }

  const bool is_json_;
  std::string line_;
};

std::string Missing(AccessLog::Format format, int64_t lines) {
  Fields fields(format);
  fields.Add("time", TimeText(std::chrono::system_clock::now()));
  fields.Add("dropped_lines", lines);
  return fields.Take();
}

}  // namespace

AccessLog::AccessLog(base::Fd file, Format format)
    : format_(format),
      file_(std::move(file)),
      queue_(file_.valid() ? std::make_unique<LineQueue>(file_.get(), kAccessLogBytesMax,
                                                         [format](int64_t lines) { return Missing(format, lines); })
                           : nullptr) {}

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path, Format format) {
  base::Fd file;
  if (path != "-") {
    file = base::Fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
    if (!file.valid()) return InvalidArgument(Cat(path, ": ", std::generic_category().message(errno)));
    // Not to wait, above, for who reads a pipe; the thread that writes may.
    (void)fcntl(file.get(), F_SETFL, O_APPEND);
  }
  return std::unique_ptr<AccessLog>(new AccessLog(std::move(file), format));
}

void AccessLog::Add(const Access& access) {
  const std::string line = Line(access, format_);
  if (queue_ == nullptr) return AddToLog(line);
  queue_->Add(line);
}

bool AccessLog::Flush(base::Nanos timeout) { return queue_ == nullptr || queue_->Flush(timeout); }

int64_t AccessLog::dropped() const { return queue_ == nullptr ? 0 : queue_->dropped(); }

std::string AccessLog::Line(const Access& access, Format format) {
  Fields fields(format);
  fields.Add("time", TimeText(access.time));
  fields.Add("request", access.request);
  fields.Add("method", access.method);
  fields.Add("principal", access.principal);
  fields.Add("session", access.session);
  fields.Add("peer", access.peer);
  fields.Add("code", CodeName(access.code));
  fields.Add("us", access.took.count() / 1000);
  fields.Add("bytes_in", access.bytes_in);
  fields.Add("bytes_out", access.bytes_out);
  fields.Add("run", access.run);
  fields.Add("trace", access.trace);
  return fields.Take();
}

}  // namespace hir::service
