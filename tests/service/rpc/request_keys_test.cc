// Goal: the answer of a request that is known by its key comes again, as long as it is kept; what was given up is
// undone, whichever comes first; what is kept is bounded. Method: the table alone; requests with calls are in
// tests/python/test_sessions.py.
#include "service/rpc/request_keys.h"

#include <gtest/gtest.h>

#include <string>

namespace hir::service {
namespace {

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return {&slice, 1};
}
std::string Text(const grpc::ByteBuffer& bytes) {
  grpc::Slice whole;
  EXPECT_TRUE(bytes.DumpToSingleSlice(&whole).ok());
  return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
}

class RequestKeysTest : public testing::Test {
 protected:
  // The answer of Keep, or the message of its refusal.
  static std::string Keep(RequestKeys& keys, const std::string& key, const std::string& answer, int* undone = nullptr,
                          const std::string& session = "s") {
    const auto kept = keys.Keep(session, key, "digest", 1, Bytes(answer), [undone] {
      if (undone != nullptr) ++*undone;
    });
    return kept.ok() ? Text(*kept) : std::string(kept.status().message());
  }
  static std::string Find(RequestKeys& keys, const std::string& key, const std::string& digest = "digest",
                          const std::string& session = "s") {
    const auto found = keys.Find(session, key, digest);
    if (!found.ok()) return std::string(found.status().message());
    return found->has_value() ? Text(**found) : "none";
  }
};

TEST_F(RequestKeysTest, AnswersComeAgain) {
  RequestKeys keys;
  int undone = 0;
  EXPECT_EQ(Find(keys, "a"), "none");
  EXPECT_EQ(Keep(keys, "a", "first", &undone), "first");
  EXPECT_EQ(Find(keys, "a"), "first");
  EXPECT_EQ(undone, 0);
  EXPECT_EQ(Keep(keys, "a", "second", &undone), "first") << "carried out twice at once: the other counts";
  EXPECT_EQ(undone, 1);
  EXPECT_EQ(Find(keys, "a", "another"), "the request's key is that of another request: each has a key of its own");
  EXPECT_EQ(Find(keys, "a", "digest", "another session"), "none");
  keys.EndSession("s");
  EXPECT_EQ(Find(keys, "a"), "none");
  EXPECT_EQ(undone, 1) << "the session's handles went with it";
}

TEST_F(RequestKeysTest, WhatIsGivenUpIsUndoneOnce) {
  RequestKeys keys;
  int undone = 0;
  Keep(keys, "after", "answer", &undone);
  keys.Abandon("s", "after");
  keys.Abandon("s", "after");
  EXPECT_EQ(undone, 1);
  keys.Abandon("s", "before");
  const std::string refusal = "the request was given up, or its answer is kept no longer";
  EXPECT_EQ(Keep(keys, "before", "answer", &undone), refusal);
  EXPECT_EQ(undone, 2);
  EXPECT_EQ(Find(keys, "before"), refusal);
  EXPECT_EQ(Find(keys, "after"), refusal);
}

// Answers go first, those not used for longest; their keys are known for a while.
TEST_F(RequestKeysTest, WhatIsKeptIsBounded) {
  RequestKeys keys({.answer_bytes = 10, .keys = 3});
  Keep(keys, "a", "12345");
  Keep(keys, "b", "12345");
  EXPECT_EQ(Find(keys, "a"), "12345");
  Keep(keys, "c", "1");
  EXPECT_EQ(Find(keys, "a"), "the request was given up, or its answer is kept no longer");
  EXPECT_EQ(Find(keys, "b"), "12345");
  Keep(keys, "d", "1");
  EXPECT_EQ(Find(keys, "a"), "none") << "forgotten altogether";
  EXPECT_EQ(Find(keys, "b"), "12345");
  EXPECT_EQ(Keep(keys, "large", std::string(100, 'x')), std::string(100, 'x')) << "told once";
  EXPECT_EQ(Find(keys, "large"), "the request was given up, or its answer is kept no longer");
}

TEST_F(RequestKeysTest, LongKeysAreRefused) {
  RequestKeys keys;
  EXPECT_EQ(Find(keys, std::string(65, 'k')), "a request key of 65 bytes; at most 64");
  EXPECT_EQ(Find(keys, std::string(64, 'k')), "none");
}

}  // namespace
}  // namespace hir::service
