// AccessLog: a line for every request that is over, for people or as JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/log/line_queue.h"

namespace hir::service {

// The fields of a line. Empty, or below 0: not known, and left out.
struct Access {
  std::chrono::system_clock::time_point time = {};  // When it was over.
  int64_t request = -1;                             // Its number in the log.
  std::string_view method = {};                     // "Run"
  std::string_view principal = {};                  // "uid:1000"
  std::string_view session = {};                    // The beginning of its id.
  std::string_view peer = {};                       // "fd:12", "ipv4:127.0.0.1:5000"
  Code code = Code::kOk;
  base::Nanos took = {};
  int64_t bytes_in = -1, bytes_out = -1;
  int64_t run = -1;
  std::string_view trace = {};  // 32 digits.
};

// Thread-safe. Nobody who adds a line waits for who takes it: a thread of its own writes, and what it cannot write in
// time is dropped and counted.
class AccessLog {
 public:
  enum class Format { kText, kJson };
  // `path` is appended to, and made for this user alone; "-": lines go where the log does, among its.
  // Errors: kInvalidArgument naming the path: it cannot be opened.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path, Format format);

  void Add(const Access& access);
  // Whether all is written, or dropped, within `timeout`.
  bool Flush(base::Nanos timeout);
  int64_t dropped() const;

  // The line, with its newline.
  static std::string Line(const Access& access, Format format);

 private:
  AccessLog(base::Fd file, Format format);

  const Format format_;
  const base::Fd file_;                     // Not valid: the log's own output.
  const std::unique_ptr<LineQueue> queue_;  // Null then.
};

}  // namespace hir::service
