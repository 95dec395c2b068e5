// Goal: who logs never waits, and what nobody took is counted. Method: a pipe that is read late, never, or not at all.
#include "service/log/line_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace hir::service {
namespace {

constexpr base::Nanos kLong = std::chrono::seconds(30);

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    CloseReader();
    close(ends_[1]);
  }
  int writer() const { return ends_[1]; }
  // Whoever writes behind this waits for who reads.
  void Fill() const {
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    while (write(ends_[1], "x\n", 2) > 0) {
    }
    fcntl(ends_[1], F_SETFL, 0);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // Lines until one of them is `last`.
  std::vector<std::string> ReadUntil(const std::string& last) const {
    std::vector<std::string> lines(1);
    std::array<char, 4096> bytes = {};
    for (;;) {
      const ssize_t count = read(ends_[0], bytes.data(), bytes.size());
      if (count <= 0) return lines;
      for (const char c : std::string(bytes.data(), static_cast<size_t>(count))) {
        if (c != '\n') {
          lines.back() += c;
          continue;
        }
        if (lines.back() == last) return lines;
        lines.emplace_back();
      }
    }
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

std::string Notice(int64_t dropped) { return "dropped " + std::to_string(dropped) + "\n"; }

TEST(LineQueue, LinesComeInOrder) {
  const Pipe pipe;
  LineQueue queue(pipe.writer(), 1 << 20, Notice);
  for (int i = 0; i < 100; ++i) queue.Add(std::to_string(i) + "\n");
  EXPECT_TRUE(queue.Flush(kLong));
  const std::vector<std::string> lines = pipe.ReadUntil("99");
  ASSERT_EQ(lines.size(), 100U);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], std::to_string(i));
  EXPECT_EQ(queue.dropped(), 0);
}

TEST(LineQueue, WhatNobodyReadsStopsNobody) {
  const Pipe pipe;
  pipe.Fill();
  LineQueue queue(pipe.writer(), 1000, Notice);
  const std::string line_of_100(99, '.');
  constexpr int kLines = 100;
  for (int i = 0; i < kLines; ++i) queue.Add(line_of_100 + "\n");
  EXPECT_FALSE(queue.Flush(std::chrono::milliseconds(1)));
  const int64_t dropped = queue.dropped();
  EXPECT_GE(dropped, kLines - 20) << "10 wait, and the thread may have taken as many";
  // Once somebody reads, what was kept comes, and behind it how much did not. More is dropped until then.
  std::thread late([&] {
    while (!queue.Flush(std::chrono::milliseconds(10))) {
    }
    queue.Add("last\n");
  });
  int64_t kept = 0, told = 0;
  for (const std::string& line : pipe.ReadUntil("last")) {
    kept += line == line_of_100 ? 1 : 0;
    if (line.starts_with("dropped ")) told += std::stoll(line.substr(8));
  }
  late.join();
  EXPECT_EQ(kept + told, kLines);
  EXPECT_EQ(told, queue.dropped());
  EXPECT_EQ(told, dropped);
}

TEST(LineQueue, WhatIsRefusedIsCounted) {
  Pipe pipe;
  pipe.CloseReader();  // A write is EPIPE, and no signal.
  LineQueue queue(pipe.writer(), 1 << 20, Notice);
  queue.Add("one\n");
  EXPECT_TRUE(queue.Flush(kLong));
  EXPECT_EQ(queue.dropped(), 1);
  queue.Add("two\n");
  EXPECT_TRUE(queue.Flush(kLong));
  EXPECT_EQ(queue.dropped(), 2);
}

TEST(LineQueue, EndsWhileAWriteIsUnderWay) {
  static Pipe& pipe = *new Pipe;  // Open to the end of the process, as the write that goes on wants it.
  pipe.Fill();
  {
    LineQueue queue(pipe.writer(), 1 << 20, Notice);
    queue.Add("one\n");
    EXPECT_FALSE(queue.Flush(std::chrono::milliseconds(1)));
  }
  SUCCEED() << "its thread goes on with the write, which nobody waits for";
}

}  // namespace
}  // namespace hir::service
