// Goal: what is no trace context of version 00 is none, however near it comes. Method: the example of W3C's page, and
// every change of one character of it.
#include "csrc/base/traceparent.h"

#include <gtest/gtest.h>

#include <string>

namespace hir::base {
namespace {

const std::string kExample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Traceparent, TheExampleIsOne) {
  EXPECT_TRUE(IsTraceparent(kExample));
  EXPECT_EQ(TraceIdOf(kExample), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(TraceField(kExample), " trace=0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(TraceField(""), "");
  EXPECT_EQ(TraceIdOf(""), "");
}

TEST(Traceparent, EveryOtherCharacterIsRefusedButDigits) {
  for (size_t at = 0; at < kExample.size(); ++at) {
    for (int c = 0; c < 256; ++c) {
      std::string text = kExample;
      text[at] = static_cast<char>(c);
      const bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
      const bool takes_digits = at > 2 && kExample[at] != '-';
      EXPECT_EQ(IsTraceparent(text), text == kExample || (takes_digits && is_digit)) << text;
    }
  }
}

TEST(Traceparent, NothingMoreNothingLess) {
  for (size_t size = 0; size < kExample.size(); ++size) EXPECT_FALSE(IsTraceparent(kExample.substr(0, size))) << size;
  for (const char* more : {"-", "-00", " ", "0"}) EXPECT_FALSE(IsTraceparent(kExample + more)) << more;
  EXPECT_FALSE(IsTraceparent("00-" + std::string(32, '0') + "-b7ad6b7169203331-01"));
  EXPECT_FALSE(IsTraceparent("00-0af7651916cd43dd8448eb211c80319c-" + std::string(16, '0') + "-01"));
}

}  // namespace
}  // namespace hir::base
