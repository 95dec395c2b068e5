#include "csrc/base/trace.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::base {
namespace {

constexpr int kHostTrack = 0;
int TrackOf(int stream) { return stream + 1; }

// Microseconds with the nanoseconds behind the point.
std::string Us(Nanos time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%lld.%03d", static_cast<long long>(time.count() / 1000),
                static_cast<int>(time.count() % 1000));
  return text;
}

class Events {
 public:
  explicit Events(Nanos origin) : origin_(origin) {}

  void Name(std::string_view what, int64_t rank, int track, std::string_view name) {
    Begin("M", rank, track);
    Append(text_, ",\"name\":\"", what, "\",\"args\":{\"name\":", Quoted(name), "}}");
  }
  void Work(const TraceSpan& span, int track, Nanos began, Nanos ended) {
    Begin("X", span.rank, track);
    Append(text_, ",\"name\":", Quoted(span.name), ",\"cat\":", Quoted(span.kind), ",\"ts\":", Us(began - origin_),
           ",\"dur\":", Us(std::max(ended - began, Nanos{})));
    if (!span.trace.empty()) Append(text_, ",\"args\":{\"trace\":", Quoted(span.trace), "}");
    text_ += "}";
  }
  void Arrow(const TraceSpan& span, size_t number) {
    Begin("s", span.rank, kHostTrack);
    Append(text_, ",\"name\":\"queued\",\"cat\":\"queue\",\"id\":", number, ",\"ts\":", Us(span.queued - origin_), "}");
    Begin("f", span.rank, TrackOf(span.stream));
    Append(text_, ",\"name\":\"queued\",\"cat\":\"queue\",\"id\":", number,
           ",\"bp\":\"e\",\"ts\":", Us(span.began - origin_), "}");
  }
  std::string text() const { return text_; }

 private:
  void Begin(std::string_view phase, int64_t rank, int track) {
    Append(text_, text_.empty() ? "\n" : ",\n", "{\"ph\":\"", phase, "\",\"pid\":", rank, ",\"tid\":", track);
  }

  const Nanos origin_;
  std::string text_;
};

}  // namespace

std::string TraceJson(std::string_view title, std::span<const TraceSpan> spans, std::string_view traceparent) {
  Nanos origin = Nanos::max();
  std::set<int64_t> ranks;
  std::set<std::pair<int64_t, int>> streams;
  for (const TraceSpan& span : spans) {
    origin = std::min({origin, span.queued, span.began});
    ranks.insert(span.rank);
    streams.insert({span.rank, span.stream});
  }
  Events events(spans.empty() ? Nanos{} : origin);
  for (const int64_t rank : ranks) {
    events.Name("process_name", rank, kHostTrack, Cat("rank ", rank));
    events.Name("thread_name", rank, kHostTrack, "host");
  }
  for (const auto& [rank, stream] : streams) events.Name("thread_name", rank, TrackOf(stream), Cat("stream ", stream));
  for (size_t i = 0; i < spans.size(); ++i) {
    const TraceSpan& span = spans[i];
    events.Work(span, kHostTrack, span.queued, span.queued_end);
    events.Work(span, TrackOf(span.stream), span.began, span.ended);
    events.Arrow(span, i);
  }
  return Cat("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":", Quoted(title),
             traceparent.empty() ? "" : Cat(",\"traceparent\":", Quoted(traceparent)), "},\"traceEvents\":[",
             events.text(), "\n]}\n");
}

}  // namespace hir::base
