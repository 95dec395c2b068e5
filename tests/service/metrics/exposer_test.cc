// Goal: the pages say what was counted and what they were given, at the address that was named and nowhere else, and
// whoever reads them slowly or all the time costs the process little. Method: an exposer in this process, and sockets
// that ask for pages.
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
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"
#include "service/metrics/http_server.h"

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

const PageTexts kTexts = {.state = [] { return std::string("{\"version\":\"1.2.3\"}"); },
                          .events = [](int64_t after) { return base::Cat("{\"earlier\":", after, "}"); },
                          .programs = [] { return std::string("{}"); },
                          .plan = [](int64_t id) -> std::optional<std::string> {
                            return id == 7 ? std::optional<std::string>("{\"id\":7}") : std::nullopt;
                          }};

class Exposing : public testing::Test {
 protected:
  Exposing() {
    auto started = Exposer::Start(
        Address{.is_unix = false, .target = "127.0.0.1:0"}, metrics,
        [this] {
          ++asked;
          MetricsState state = {.version = "1.2.3"};
          state.queued_plans = 7;
          state.limits = {{"tensors_max", 65536}};
          for (int i = 0; i < 100; ++i) state.sessions[base::Cat("uid:", 1000 + i)] = 2;
          return state;
        },
        kTexts);
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    exposer = *std::move(started);
    port = static_cast<int>(*base::ParseInt(exposer->address().substr(exposer->address().rfind(':') + 1)));
  }
  std::string Ask(const std::string& method, const std::string& path, const std::string& host = "localhost") const {
    const base::Fd fd = ConnectTo(port);
    Send(fd, base::Cat(method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
    return ReadAll(fd);
  }
  std::string Get(const std::string& path) const { return Ask("GET", path); }

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
  for (const char* path :
       {"//x", "/page.html", "/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metric"}) {
    const std::string answer = Get(path);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400")) << path << "\n" << answer;
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << path;
  }
}

TEST_F(Exposing, ABrowserIsGivenThePage) {
  EXPECT_THAT(Get("/"), HasSubstr("<script src=\"/page.js\" defer></script>"));
  EXPECT_THAT(Get("/page.js"), HasSubstr("Content-Type: text/javascript"));
  EXPECT_THAT(Get("/page.css"), HasSubstr("Content-Type: text/css"));
  EXPECT_TRUE(Get("/state.json").ends_with("\r\n\r\n{\"version\":\"1.2.3\"}"));
  EXPECT_TRUE(Get("/events.json").ends_with("{\"earlier\":0}"));
  EXPECT_TRUE(Get("/events.json?after=41").ends_with("{\"earlier\":41}"));
  EXPECT_TRUE(Get("/plan.json?id=7").ends_with("{\"id\":7}"));
}

TEST_F(Exposing, WhatIsAskedForWronglyIsSaid) {
  const auto expect = [&](const std::string& answer, const std::string& status, const std::string& text) {
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + status)) << answer;
    EXPECT_THAT(answer, HasSubstr(text));
    EXPECT_THAT(answer, HasSubstr("\r\nContent-Security-Policy: default-src 'none'; "));
  };
  expect(Get("/plan.json?id=8"), "404", "No program 8 is kept; /plans.json has those that are.\n");
  for (const char* query : {"", "?id=", "?id=x", "?id=7x", "?ID=7", "?id=99999999999999999999"})
    expect(Get(base::Cat("/plan.json", query)), "400", "Ask for /plan.json?id=1");
  expect(Get("/events.json?after=-"), "400", "Ask for /events.json?after=0");
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"})
    expect(Ask(method, "/state.json"), "405", "\r\nAllow: GET, HEAD\r\n");
  const std::string head = Ask("HEAD", "/state.json");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 19\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

// A browser that was told that somebody's name means this machine says that name.
TEST_F(Exposing, OnLoopbackNamesAreRefused) {
  for (const char* host : {"localhost", "localhost:80", "127.0.0.1:9464", "10.0.0.1", "[::1]:9464"})
    EXPECT_TRUE(Ask("GET", "/state.json", host).starts_with("HTTP/1.1 200")) << host;
  for (const char* host : {"example.org", "example.org:80", "localhost.example.org", "127.0.0.1.example.org", "[x]"})
    EXPECT_THAT(Ask("GET", "/state.json", host), HasSubstr(base::Cat("The host \"", host, "\" is a name"))) << host;
}

// The system's view of the sockets of this process that listen on `port`.
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
    const auto refused = Exposer::Start(
        Address{.is_unix = false, .target = target}, metrics, [] { return MetricsState(); }, kTexts);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << target;
  }
  const auto taken = Exposer::Start(
      Address{.is_unix = false, .target = exposer->address()}, metrics, [] { return MetricsState(); }, kTexts);
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
