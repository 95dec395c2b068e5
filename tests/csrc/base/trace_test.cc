// Goal: a trace is a document that viewers read: tracks by rank and stream, times from 0, arrows, names escaped.
// Method: the whole text of a small one.
#include "csrc/base/trace.h"

#include <gtest/gtest.h>

namespace hir::base {
namespace {

TEST(Trace, NothingIsADocument) {
  EXPECT_EQ(TraceJson("p", {}),
            "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"p\"},\"traceEvents\":[\n]}\n");
}

TEST(Trace, TracksTimesAndArrows) {
  const TraceSpan spans[] = {
      {.rank = 1,
       .stream = 2,
       .name = "a \"b\"",
       .kind = "launch",
       .queued = Nanos(5000),
       .queued_end = Nanos(6500),
       .began = Nanos(7001),
       .ended = Nanos(9000)},
      {.rank = 0,
       .stream = 0,
       .name = "w",
       .kind = "wait",
       .queued = Nanos(4000),
       .queued_end = Nanos(4000),
       .began = Nanos(4100),
       .ended = Nanos(4050)},  // Clocks that were compared to some microseconds.
  };
  EXPECT_EQ(TraceJson("p", spans), R"({"displayTimeUnit":"ns","otherData":{"program":"p"},"traceEvents":[
{"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"host"}},
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"rank 1"}},
{"ph":"M","pid":1,"tid":0,"name":"thread_name","args":{"name":"host"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"stream 0"}},
{"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"stream 2"}},
{"ph":"X","pid":1,"tid":0,"name":"a \"b\"","cat":"launch","ts":1.000,"dur":1.500},
{"ph":"X","pid":1,"tid":3,"name":"a \"b\"","cat":"launch","ts":3.001,"dur":1.999},
{"ph":"s","pid":1,"tid":0,"name":"queued","cat":"queue","id":0,"ts":1.000},
{"ph":"f","pid":1,"tid":3,"name":"queued","cat":"queue","id":0,"bp":"e","ts":3.001},
{"ph":"X","pid":0,"tid":0,"name":"w","cat":"wait","ts":0.000,"dur":0.000},
{"ph":"X","pid":0,"tid":1,"name":"w","cat":"wait","ts":0.100,"dur":0.000},
{"ph":"s","pid":0,"tid":0,"name":"queued","cat":"queue","id":1,"ts":0.000},
{"ph":"f","pid":0,"tid":1,"name":"queued","cat":"queue","id":1,"bp":"e","ts":0.100}
]}
)");
}

TEST(Trace, TheRequestIsNamedOnceAndByEachRank) {
  const TraceSpan spans[] = {{.rank = 3, .name = "k", .kind = "launch", .trace = "0af7"}, {.rank = 4, .name = "k"}};
  const std::string text = TraceJson("p", spans, "00-0af7-b7ad-01");
  EXPECT_NE(text.find(R"("otherData":{"program":"p","traceparent":"00-0af7-b7ad-01"})"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("pid":3,"tid":1,"name":"k","cat":"launch","ts":0.000,"dur":0.000,"args":{"trace":"0af7"}})"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("pid":4,"tid":1,"name":"k","cat":"","ts":0.000,"dur":0.000})"), std::string::npos) << text;
}

}  // namespace
}  // namespace hir::base
