// Goal: a line has what is known, whole, on one line, in both formats; who does not take lines holds up nobody. Method:
// lines by value, and a log into a file and into a pipe that nobody reads.
#include "service/log/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

using std::chrono::microseconds;

const Access kAll = {.time = std::chrono::system_clock::time_point(microseconds(1'769'904'000'000'042)),
                     .request = 7,
                     .method = "Run",
                     .principal = "uid:1000",
                     .session = "0af76519",
                     .peer = "fd:12",
                     .code = Code::kResourceExhausted,
                     .took = microseconds(61),
                     .bytes_in = 120,
                     .bytes_out = 0,
                     .run = 3,
                     .trace = "0af7651916cd43dd8448eb211c80319c"};

class InAFolder : public testing::Test {
 protected:
  InAFolder() { std::filesystem::create_directory(folder); }
  ~InAFolder() override { std::filesystem::remove_all(folder); }
  const std::string folder = base::Cat(testing::TempDir(), "access_log_test.", getpid());
  const std::string path = folder + "/log";
};

TEST(AccessLine, Text) {
  EXPECT_EQ(AccessLog::Line(kAll, AccessLog::Format::kText),
            "time=2026-02-01T00:00:00.000042Z request=7 method=Run principal=uid:1000 session=0af76519 peer=fd:12 "
            "code=RESOURCE_EXHAUSTED us=61 bytes_in=120 bytes_out=0 run=3 trace=0af7651916cd43dd8448eb211c80319c\n");
}

TEST(AccessLine, Json) {
  EXPECT_EQ(AccessLog::Line(kAll, AccessLog::Format::kJson),
            R"({"time":"2026-02-01T00:00:00.000042Z","request":7,"method":"Run","principal":"uid:1000",)"
            R"("session":"0af76519","peer":"fd:12","code":"RESOURCE_EXHAUSTED","us":61,"bytes_in":120,"bytes_out":0,)"
            R"("run":3,"trace":"0af7651916cd43dd8448eb211c80319c"})"
            "\n");
}

TEST(AccessLine, HasNothingOfWhatIsNotKnown) {
  EXPECT_EQ(AccessLog::Line({.method = "Status"}, AccessLog::Format::kText),
            "time=1970-01-01T00:00:00.000000Z method=Status code=OK us=0\n");
}

TEST(AccessLine, ANameMakesNoFieldAndNoLine) {
  const Access access = {.method = "Run", .principal = "cert:a b=\"c\"\nrun=7\xff"};
  EXPECT_EQ(AccessLog::Line(access, AccessLog::Format::kText),
            "time=1970-01-01T00:00:00.000000Z method=Run principal=\"cert:a b=\\\"c\\\"?run=7?\" code=OK us=0\n");
  EXPECT_EQ(AccessLog::Line(access, AccessLog::Format::kJson),
            "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"method\":\"Run\",\"principal\":\"cert:a b=\\\"c\\\"?run=7?\","
            "\"code\":\"OK\",\"us\":0}\n");
}

TEST_F(InAFolder, AFileIsAppendedToAndNobodyElses) {
  std::ofstream(path) << "before\n";
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  for (int i = 0; i < 2; ++i) {
    auto log = AccessLog::Open(path, AccessLog::Format::kText);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    (*log)->Add(kAll);
    ASSERT_TRUE((*log)->Flush(std::chrono::seconds(30)));
    EXPECT_EQ((*log)->dropped(), 0);
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string line = AccessLog::Line(kAll, AccessLog::Format::kText);
  EXPECT_EQ(text.str(), "before\n" + line + line);
  ASSERT_TRUE(AccessLog::Open(folder + "/new", AccessLog::Format::kText).ok());
  EXPECT_EQ(std::filesystem::status(folder + "/new").permissions() & std::filesystem::perms(077),
            std::filesystem::perms::none);
}

TEST_F(InAFolder, WhatCannotBeOpenedIsSaid) {
  const Status status = AccessLog::Open(folder, AccessLog::Format::kText).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), folder + ": Is a directory");
}

TEST_F(InAFolder, APipeThatNobodyReadsHoldsUpNobody) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const base::Fd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto log = AccessLog::Open(path, AccessLog::Format::kJson);
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  for (int64_t i = 0; i < 100'000 && (*log)->dropped() == 0; ++i) (*log)->Add(kAll);
  EXPECT_GT((*log)->dropped(), 0);
  EXPECT_FALSE((*log)->Flush(microseconds(1)));
}

}  // namespace
}  // namespace hir::service
