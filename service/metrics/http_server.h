// HttpServer: a few pages over HTTP, served by threads that take little from anybody.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/os/address.h"

namespace hir::service {

// There is an answer once in this time: who asks sooner waits.
inline constexpr base::Nanos kBetweenPages = std::chrono::milliseconds(50);

// Serves until its destruction, by a few threads of its own with less of the cores than others: who reads slowly, or
// all the time, holds up nobody but others who read. Immutable.
class HttpServer {
 public:
  struct Answer {
    int status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string text = {};
  };
  // `query`: what is behind the question mark, as it was sent.
  using Page = std::function<Answer(std::string_view query)>;
  // GET and HEAD of the `pages`, by their paths, at `address`, and nothing elsewhere. Pages are made on threads of the
  // server's, one at a time. On a loopback address those who ask for a host by its name are refused: a browser asks so
  // for the page of somebody who had his name mean this machine.
  // Errors: kInvalidArgument: it is not Address::IsNumeric; kUnavailable: it cannot be listened on.
  static Result<std::unique_ptr<HttpServer>> Start(const Address& address, std::map<std::string, Page> pages);
  virtual ~HttpServer() = default;

  virtual const std::string& address() const = 0;  // "127.0.0.1:9464": what is listened on.
};

}  // namespace hir::service
