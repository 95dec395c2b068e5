#include "service/metrics/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/os/listen.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr base::Nanos kKnockPause = std::chrono::milliseconds(10);
constexpr int kNice = 10;  // A tenth of the cores, where others want them too.
// civetweb's own settings. Who has not sent its request within the time, or does not take the answer, is cut off;
// beyond the queue, connections wait in the system.
constexpr const char* kSettings[] = {
    "num_threads",       "2",  "request_timeout_ms",       "2000", "connection_queue", "16",
    "enable_keep_alive", "no", "enable_directory_listing", "no"};
// In every answer: a browser loads nothing from elsewhere, runs no script but the page's, makes no markup of text, and
// shows the page in no other's frame.
constexpr std::string_view kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n";

// "127.0.0.1:80", "[::1]:80", "localhost": the part in front of the port, without brackets.
std::string HostOf(const std::string& named) {
  if (named.starts_with('[')) return named.substr(1, named.find(']') - 1);
  return named.substr(0, named.rfind(':'));
}

bool IsNumber(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes = {};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// A connection to `address` that ends at once.
void Knock(const std::string& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(HostOf(address).c_str(), address.c_str() + address.rfind(':') + 1, &hints, &found) != 0) return;
  const base::Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)connect(fd.get(), found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
}

class Civetweb final : public HttpServer {
 public:
  explicit Civetweb(std::map<std::string, Page> pages) : pages_(std::move(pages)) { mg_init_library(0); }
  ~Civetweb() override {
    if (server_ != nullptr) {
      // The server looks every two seconds whether it is to end, and after each connection.
      std::atomic<bool> ended = false;
      std::thread knocking([&] {
        for (; !ended; std::this_thread::sleep_for(kKnockPause)) Knock(address_);
      });
      mg_stop(server_);
      ended = true;
      knocking.join();
    }
    mg_exit_library();
  }

  Status Listen(const Address& address) {
    HIR_TRY(ListenOn(address).status());  // The server would not say what is wrong.
    std::vector<const char*> settings(std::begin(kSettings), std::end(kSettings));
    settings.insert(settings.end(), {"listening_ports", address.target.c_str(), nullptr});
    const mg_callbacks callbacks = {};
    mg_init_data init = {.callbacks = &callbacks, .user_data = nullptr, .configuration_options = settings.data()};
    std::array<char, 256> text = {};
    mg_error_data error = {};
    error.text = text.data();
    error.text_buffer_size = text.size();
    // Threads inherit how nice the one is that makes them, which cannot be less nice afterwards.
    std::thread([&] {
      (void)setpriority(PRIO_PROCESS, 0, kNice);  // Of this thread alone.
      server_ = mg_start2(&init, &error);
    }).join();
    if (server_ == nullptr) return Unavailable(Cat("cannot listen on ", address.ToString(), ": ", text.data()));
    std::array<mg_server_port, 2> ports = {};
    const int count = mg_get_server_ports(server_, static_cast<int>(ports.size()), ports.data());
    const std::string host = address.target.substr(0, address.target.rfind(':'));
    address_ = Cat(host, ":", ports[0].port);
    if (count != 1) return Internal(Cat(address.ToString(), ": ", count, " ports are listened on"));
    on_loopback_ = host.starts_with("127.") || host == "[::1]";
    // Last: it is served only now.
    mg_set_request_handler(
        server_, "**",
        [](mg_connection* connection, void* self) { return static_cast<const Civetweb*>(self)->Serve(connection); },
        this);
    return {};
  }
  const std::string& address() const override { return address_; }

 private:
  int Serve(mg_connection* connection) const {
    const mg_request_info& request = *mg_get_request_info(connection);
    const std::string_view method = request.request_method;
    const Answer answer = AnswerTo(connection, request, method);
    const std::string head = Cat("HTTP/1.1 ", answer.status, " ", mg_get_response_code_text(connection, answer.status),
                                 "\r\nContent-Type: ", answer.type, "\r\nContent-Length: ", answer.text.size(), "\r\n",
                                 answer.status == 405 ? "Allow: GET, HEAD\r\n" : "", kHeaders, "\r\n");
    if (mg_write(connection, head.data(), head.size()) > 0 && method != "HEAD")
      mg_write(connection, answer.text.data(), answer.text.size());
    return answer.status;
  }

  // One after another. A flood of requests finds threads that sleep: if each took what time it can, the threads that
  // carry out runs would wait for cores.
  Answer AnswerTo(const mg_connection* connection, const mg_request_info& request, std::string_view method) const {
    const std::scoped_lock lock(mutex_);
    std::this_thread::sleep_for(next_ - base::Clock::Steady().Now());
    next_ = base::Clock::Steady().Now() + kBetweenPages;
    if (method != "GET" && method != "HEAD") return {.status = 405, .text = "GET and HEAD are answered, no more.\n"};
    const char* const host = mg_get_header(connection, "Host");
    if (on_loopback_ && host != nullptr && HostOf(host) != "localhost" && !IsNumber(HostOf(host))) {
      return {.status = 403,
              .text = Cat("The host ", base::Quoted(base::Printable(host)), " is a name; ask for ", address_, ".\n")};
    }
    const auto page = request.local_uri == nullptr ? pages_.end() : pages_.find(request.local_uri);
    if (page == pages_.end()) return {.status = 404, .text = "There is nothing here; / has all there is.\n"};
    return page->second(request.query_string == nullptr ? "" : request.query_string);
  }

  const std::map<std::string, Page> pages_;
  mg_context* server_ = nullptr;
  std::string address_;
  bool on_loopback_ = false;
  mutable std::mutex mutex_;       // Guards the next; others wait for it.
  mutable base::Nanos next_ = {};  // When an answer may be made.
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const Address& address, std::map<std::string, Page> pages) {
  if (!address.IsNumeric()) return InvalidArgument(Cat(address.ToString(), ": want the number of an address"));
  auto server = std::make_unique<Civetweb>(std::move(pages));
  HIR_TRY(server->Listen(address));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace hir::service
