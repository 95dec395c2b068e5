// What is short stays what it is, shared; what is long keeps its beginning, and remains UTF-8.
#include "csrc/base/shortened.h"

#include <gtest/gtest.h>

#include <string>

namespace hir::base {
namespace {

std::string Letters(size_t count) { return std::string(count, 'x'); }

TEST(Shortened, WhatFitsIsShared) {
  EXPECT_TRUE(Shortened({}).ok());
  const Status most = Internal(Letters(kErrorBytesMax));
  EXPECT_EQ(Shortened(most).message().data(), most.message().data());
}

TEST(Shortened, WhatIsLongKeepsItsBeginning) {
  const Status cut = Shortened(Unavailable("rank 1 died; " + Letters(1 << 20)));
  EXPECT_EQ(cut.code(), Code::kUnavailable);
  EXPECT_EQ(cut.message(), "rank 1 died; " + Letters(kErrorBytesMax - 13 - 4) + " ...");
  EXPECT_EQ(Shortened(cut).message().data(), cut.message().data()) << "once is enough";
}

TEST(Shortened, NoCharacterIsCut) {
  const std::string euro = "\xe2\x82\xac";
  for (size_t before = 0; before < euro.size(); ++before) {
    std::string text = Letters(before), kept = text;
    while (text.size() <= kErrorBytesMax) text += euro;
    while (kept.size() + euro.size() + 4 <= kErrorBytesMax) kept += euro;
    EXPECT_EQ(Shortened(Internal(text)).message(), kept + " ...") << before;
  }
}

}  // namespace
}  // namespace hir::base
