// Goal: the page says what was counted, at the address that was named and nowhere else, and whoever reads it slowly or
// all the time costs the process little. Method: an exposer in this process, and sockets that ask for the page.
#include "service/metrics/exposer.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

base::Nanos Now() { return base::Clock::Steady().Now(); }

base::Fd ConnectTo(int port) {
  base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

void Send(const base::Fd& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
}

std::string ReadAll(const base::Fd& fd) {
  std::string all(1 << 16, '\0');
  size_t size = 0;
  for (ssize_t count = 1; count > 0; size += static_cast<size_t>(std::max<ssize_t>(0, count))) {
    all.resize(size + (1 << 16));
    count = recv(fd.get(), all.data() + size, 1 << 16, 0);
  }
  all.resize(size);
  return all;
}

class Exposing : public testing::Test {
 protected:
  Exposing() {
    auto started = Exposer::Start(Address{.is_unix = false, .target = "127.0.0.1:0"}, metrics, [this] {
      ++asked;
      MetricsState state = {.version = "1.2.3"};
      state.queued_plans = 7;
      state.limits = {{"tensors_max", 65536}};
      for (int i = 0; i < 100; ++i) state.sessions[base::Cat("uid:", 1000 + i)] = 2;
      return state;
    });
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    exposer = *std::move(started);
    port = static_cast<int>(*base::ParseInt(exposer->address().substr(exposer->address().rfind(':') + 1)));
  }
  std::string Get(const std::string& path) const {
    const base::Fd fd = ConnectTo(port);
    Send(fd, base::Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    return ReadAll(fd);
  }

  Metrics metrics;
  std::atomic<int64_t> asked = 0;
  std::unique_ptr<Exposer> exposer;
  int port = 0;
};

TEST_F(Exposing, WhatWasCountedIsThere) {
  metrics.methods.Of("Run").outcomes.Add(Code::kResourceExhausted);
  metrics.methods.Of("Run").time.Add(std::chrono::microseconds(60));
  metrics.principals.Of("uid:1000").queue_time.Add(milliseconds(3));
  metrics.communications.Of("Allreduce").bytes.Add(4096);
  const std::string page = Get("/metrics");
  EXPECT_THAT(page, HasSubstr("hostir_requests_total{method=\"Run\",code=\"RESOURCE_EXHAUSTED\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("hostir_request_seconds_bucket{method=\"Run\",le=\"0.0001\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("hostir_request_seconds_bucket{method=\"Run\",le=\"+Inf\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("hostir_queue_seconds_count{principal=\"uid:1000\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("hostir_communication_bytes_total{type=\"Allreduce\"} 4096\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE hostir_queued_plans gauge\nhostir_queued_plans 7\n"));
  EXPECT_THAT(page, HasSubstr("hostir_limit{limit=\"tensors_max\"} 65536\n"));
  EXPECT_THAT(page, HasSubstr("hostir_build_info{version=\"1.2.3\"} 1\n"));
}

TEST_F(Exposing, PrincipalsHaveABound) {
  for (int i = 0; i < 100; ++i) metrics.principals.Of(base::Cat("uid:", i)).queue_time.Add(milliseconds(1));
  const std::string page = Get("/metrics");
  const auto count = [&](const std::string& what) {
    int64_t found = 0;
    for (size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("\nhostir_queue_seconds_count{"), 64);
  EXPECT_EQ(count("\nhostir_sessions{"), 64);
  EXPECT_THAT(page, HasSubstr("\nhostir_queue_seconds_count{principal=\"other\"} 37\n"));
  EXPECT_THAT(page, HasSubstr("\nhostir_sessions{principal=\"other\"} 74\n"));
}

// Prometheus takes no page that is not UTF-8.
TEST_F(Exposing, ANameMayBeAnything) {
  metrics.principals.Of("cert:a\"\n\xff").queue_time.Add(milliseconds(1));
  EXPECT_THAT(Get("/metrics"), HasSubstr("\nhostir_queue_seconds_count{principal=\"cert:a\\\"??\"} 1\n"));
}

TEST_F(Exposing, NothingElseIsServed) {
  for (const char* path : {"/", "/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metric"}) {
    const std::string answer = Get(path);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400")) << path << "\n" << answer;
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << path;
  }
}

// What the system says of the sockets of this process that listen on `port`.
std::vector<std::string> BoundTo(int port) {
  std::vector<std::string> found;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(file);
    std::string number, local, remote, state;
    for (std::string line; std::getline(table, line);) {
      std::istringstream fields(line);
      fields >> number >> local >> remote >> state;
      const size_t colon = local.rfind(':');
      if (state == "0A" && colon != std::string::npos && std::stoi(local.substr(colon + 1), nullptr, 16) == port)
        found.push_back(local.substr(0, colon));
    }
  }
  return found;
}

TEST_F(Exposing, BoundIsWhatWasWritten) {
  EXPECT_TRUE(exposer->address().starts_with("127.0.0.1:"));
  EXPECT_THAT(BoundTo(port), testing::ElementsAre("0100007F"));
  for (const char* target : {"localhost:0", "example.org:0", "127.0.0.1.:0", "[::1:0", "*:0", "0:0"}) {
    const auto refused =
        Exposer::Start(Address{.is_unix = false, .target = target}, metrics, [] { return MetricsState(); });
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << target;
  }
  const auto taken =
      Exposer::Start(Address{.is_unix = false, .target = exposer->address()}, metrics, [] { return MetricsState(); });
  EXPECT_EQ(taken.status().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("in use"));
}

TEST_F(Exposing, WhoSaysNothingIsCutOff) {
  const base::Nanos start = Now();
  std::vector<base::Fd> silent;
  for (int i = 0; i < 4; ++i) {
    silent.push_back(ConnectTo(port));
    Send(silent.back(), "GET /metrics HTTP/1.1\r\nX: ");  // Both threads wait for the rest, twice.
  }
  EXPECT_THAT(Get("/metrics"), HasSubstr("hostir_queued_plans 7"));
  EXPECT_LT(Now() - start, std::chrono::seconds(9));
}

TEST_F(Exposing, AFloodWaits) {
  const base::Nanos start = Now();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) good += Get("/metrics").find("hostir_queued_plans 7") != std::string::npos ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 20);
  EXPECT_EQ(asked, 20);
  EXPECT_GE(Now() - start, 19 * kBetweenPages);
}

// The server's threads are nicer than this one, so what they do beside a request costs it little.
TEST_F(Exposing, ItsThreadsAreNice) {
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (std::stoi(task.path().filename()) == getpid()) continue;
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    std::istringstream fields(line.substr(line.rfind(')') + 2));
    std::string skipped;
    for (int field = 3; field < 19; ++field) fields >> skipped;
    int nice = 0;
    fields >> nice;
    EXPECT_EQ(nice, 10) << line;
    ++threads;
  }
  EXPECT_THAT(threads, testing::AllOf(testing::Ge(3), testing::Le(4))) << "one accepts, two answer, one keeps time";
}

TEST_F(Exposing, ItEndsSoon) {
  EXPECT_THAT(Get("/metrics"), HasSubstr("hostir_queued_plans 7"));
  const base::Nanos start = Now();
  exposer = nullptr;
  EXPECT_LT(Now() - start, std::chrono::seconds(1));  // The server's own threads look every two seconds.
}

}  // namespace
}  // namespace hir::service
