#include "service/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>

#include "csrc/base/text.h"
#include "service/log/line_queue.h"

namespace hir::service {
namespace {

constexpr size_t kLogBytesMax = 1 << 20;  // That wait.

std::string Formatted(spdlog::formatter& formatter, const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter.format(message, line);
  return fmt::to_string(line);
}

std::string MissingLines(int64_t lines) {
  spdlog::pattern_formatter formatter;
  const std::string text =
      base::Cat("log dropped_lines=", lines, " error=\"nobody took them from standard output in time\"");
  return Formatted(formatter, {"", spdlog::level::warn, text});
}

// Never destroyed: threads log until the process ends.
LineQueue& Queue() {
  static LineQueue& queue = *new LineQueue(STDOUT_FILENO, kLogBytesMax, MissingLines);
  return queue;
}

class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override { Queue().Add(Formatted(*formatter_, message)); }
  void flush_() override {}
};

}  // namespace

void StartLog(const std::string& level) {
  (void)Queue();  // Its thread.
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<QueueSink>()));
  spdlog::set_level(spdlog::level::from_str(level));
}

void FlushLog(base::Nanos timeout) { (void)Queue().Flush(timeout); }

void AddToLog(std::string_view line) { Queue().Add(line); }

int64_t LogLinesDropped() { return Queue().dropped(); }

}  // namespace hir::service
