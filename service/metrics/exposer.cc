#include "service/metrics/exposer.h"

#include <prometheus/text_serializer.h>

#include <string_view>
#include <tuple>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/text.h"
#include "service/metrics/http_server.h"
#include "service/metrics/metrics_page.h"
#include "service/metrics/page_files.h"

namespace hir::service {
namespace {

using base::Cat;
using Answer = HttpServer::Answer;

constexpr std::string_view kJson = "application/json";

// The number that `query` has under `key`, which is all it may have: "id=7". None: it is something else.
std::optional<int64_t> NumberOf(std::string_view query, std::string_view key) {
  if (!query.starts_with(key) || !query.substr(key.size()).starts_with("=")) return std::nullopt;
  return base::ParseInt(query.substr(key.size() + 1));
}

Answer EventsOf(const PageTexts& texts, std::string_view query) {
  const std::optional<int64_t> after = query.empty() ? 0 : NumberOf(query, "after");
  if (!after) return {.status = 400, .text = "Ask for /events.json?after=0, or how many events you have seen.\n"};
  return {.type = std::string(kJson), .text = texts.events(*after)};
}

Answer PlanOf(const PageTexts& texts, std::string_view query) {
  const std::optional<int64_t> id = NumberOf(query, "id");
  if (!id) return {.status = 400, .text = "Ask for /plan.json?id=1, with an id that /plans.json has.\n"};
  std::optional<std::string> plan = texts.plan(*id);
  if (!plan) return {.status = 404, .text = Cat("No program ", *id, " is kept; /plans.json has those that are.\n")};
  return {.type = std::string(kJson), .text = *std::move(plan)};
}

class HttpExposer final : public Exposer {
 public:
  explicit HttpExposer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}
  const std::string& address() const override { return server_->address(); }

 private:
  const std::unique_ptr<HttpServer> server_;
};

}  // namespace

Result<std::unique_ptr<Exposer>> Exposer::Start(const Address& address, const Metrics& metrics,
                                                std::function<MetricsState()> state, PageTexts texts) {
  std::map<std::string, HttpServer::Page> pages;
  pages["/metrics"] = [&metrics, state = std::move(state)](std::string_view) {
    const auto families = Page(metrics, state(), base::Clock::Steady().Now());
    return Answer{.type = "text/plain; version=0.0.4; charset=utf-8",
                  .text = prometheus::TextSerializer().Serialize(families)};
  };
  for (const auto& [path, name, type] : {std::tuple("/", "page.html", "text/html; charset=utf-8"),
                                         std::tuple("/page.css", "page.css", "text/css; charset=utf-8"),
                                         std::tuple("/page.js", "page.js", "text/javascript; charset=utf-8")}) {
    pages[path] = [type = type, text = PageFiles()[name]](std::string_view) {
      return Answer{.type = type, .text = std::string(text)};
    };
  }
  const auto shared = std::make_shared<const PageTexts>(std::move(texts));
  pages["/state.json"] = [shared](std::string_view) {
    return Answer{.type = std::string(kJson), .text = shared->state()};
  };
  pages["/events.json"] = [shared](std::string_view query) { return EventsOf(*shared, query); };
  pages["/plans.json"] = [shared](std::string_view) {
    return Answer{.type = std::string(kJson), .text = shared->programs()};
  };
  pages["/plan.json"] = [shared](std::string_view query) { return PlanOf(*shared, query); };
  HIR_ASSIGN(std::unique_ptr<HttpServer> server, HttpServer::Start(address, std::move(pages)));
  return std::unique_ptr<Exposer>(std::make_unique<HttpExposer>(std::move(server)));
}

}  // namespace hir::service
