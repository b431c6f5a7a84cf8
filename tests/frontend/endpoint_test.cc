// Which row of the tables of endpoints a request has, and what it needs.
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/endpoints/dashboard.h"
#include "frontend/endpoints/endpoint_router.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/endpoints/infer_http.h"
#include "frontend/endpoints/kserve_http.h"
#include "frontend/endpoints/regions_http.h"
#include "gpulet/access/gate.h"
#include "tests/net/loop.h"
#include "tests/support/names.h"
#include "tests/support/protocol_host.h"
#include "tests/support/source_file.h"

namespace gpulet::frontend::endpoint_test {
namespace {

struct RouteCase {
  const char* method;
  const char* target;
  const char* pattern;
  const char* model = "";
  const char* version = "";
  const char* region = "";
};

class EndpointTest : public ::testing::Test {
 protected:
  EndpointTest() {
    router_.add(std::make_unique<RegionsHttp>(regions_));
    router_.add(std::make_unique<InferHttp>(host_, regions_));
    router_.add(std::make_unique<KserveHttp>(host_, regions_, "1.2.3"));
  }
  [[nodiscard]] net::http::HttpRequest head(const std::string& method, const std::string& target) {
    net::http::HttpRequest request{method, target, {}, {}};
    request.route = router_.route(request);
    return request;
  }
  static const EndpointRoute& route_of(const net::http::HttpRequest& head) {
    return static_cast<const EndpointRoute&>(*head.route);
  }
  // The methods that the refusal of another one names.
  std::string allowed(const std::string& method, const std::string& target) {
    const std::optional<net::http::HttpResponse> refusal = router_.refuse(head(method, target));
    if (!refusal) return "it is not refused";
    return std::string(net::http::find_header(refusal->headers, "Allow"));
  }

  net::testing::Loop loop_;
  gpulet::testing::FakeHost host_{loop_.context()};
  net::kserve::SharedMemory regions_{true};
  access::Gate gate_;
  EndpointRouter router_{gate_, kserve_error};
};

TEST_F(EndpointTest, EveryEndpointHasItsTarget) {
  const RouteCase cases[] = {
      {"GET", "/v2", "v2"},
      {"GET", "/v2/", "v2/"},
      {"GET", "/v2?verbose=1", "v2"},
      {"GET", "http://host:8000/v2", "v2"},
      {"GET", "/v2/health/live", "v2/health/live"},
      {"GET", "/v2/health/ready", "v2/health/ready"},
      {"GET", "/v2/models/m", "v2/models/{M}", "m"},
      {"GET", "/v2/models/m/versions/12", "v2/models/{M}/versions/{V}", "m", "12"},
      {"GET", "/v2/models/m/ready", "v2/models/{M}/ready", "m"},
      {"GET", "/v2/models/m/versions/1/ready", "v2/models/{M}/versions/{V}/ready", "m", "1"},
      {"GET", "/v2/models/m/config", "v2/models/{M}/config", "m"},
      {"GET", "/v2/models/m/versions/1/config", "v2/models/{M}/versions/{V}/config", "m", "1"},
      {"GET", "/v2/models/stats", "v2/models/stats"},
      {"GET", "/v2/models/m/stats", "v2/models/{M}/stats", "m"},
      {"GET", "/v2/models/m/versions/1/stats", "v2/models/{M}/versions/{V}/stats", "m", "1"},
      {"POST", "/v2/models/m/infer", "v2/models/{M}/infer", "m"},
      {"POST", "/v2/models/m/versions/1/infer", "v2/models/{M}/versions/{V}/infer", "m", "1"},
      {"POST", "/v2/models/a%20b%2Fc/infer", "v2/models/{M}/infer", "a b/c"},
      {"POST", "/v2/repository/index", "v2/repository/index"},
      {"POST", "/v2/repository/models/m/load", "v2/repository/models/{M}/load", "m"},
      {"POST", "/v2/repository/models/m/unload", "v2/repository/models/{M}/unload", "m"},
      {"GET", "/v2/systemsharedmemory/status", "v2/systemsharedmemory/status"},
      {"GET", "/v2/systemsharedmemory/region/r/status", "v2/systemsharedmemory/region/{R}/status",
       "", "", "r"},
      {"POST", "/v2/systemsharedmemory/region/r/register",
       "v2/systemsharedmemory/region/{R}/register", "", "", "r"},
      {"POST", "/v2/systemsharedmemory/unregister", "v2/systemsharedmemory/unregister"},
      {"POST", "/v2/systemsharedmemory/region/r/unregister",
       "v2/systemsharedmemory/region/{R}/unregister", "", "", "r"},
      {"GET", "/v2/cudasharedmemory/status", "v2/cudasharedmemory/status"},
      {"GET", "/v2/cudasharedmemory/region/r/status", "v2/cudasharedmemory/region/{R}/status", "",
       "", "r"},
      {"POST", "/v2/cudasharedmemory/region/r/register", "v2/cudasharedmemory/region/{R}/register",
       "", "", "r"},
      {"POST", "/v2/cudasharedmemory/unregister", "v2/cudasharedmemory/unregister"},
      {"POST", "/v2/cudasharedmemory/region/r/unregister",
       "v2/cudasharedmemory/region/{R}/unregister", "", "", "r"},
      {"GET", "/v2/logging", "v2/logging"},
      {"POST", "/v2/logging", "v2/logging"},
      {"GET", "/v2/trace/setting", "v2/trace/setting"},
      {"POST", "/v2/trace/setting", "v2/trace/setting"},
      {"GET", "/v2/models/m/trace/setting", "v2/models/{M}/trace/setting", "m"},
      {"POST", "/v2/models/m/trace/setting", "v2/models/{M}/trace/setting", "m"},
  };
  for (const RouteCase& one : cases) {
    SCOPED_TRACE(one.target);
    const net::http::HttpRequest request = head(one.method, one.target);
    const EndpointRoute& route = route_of(request);
    EXPECT_EQ(route.row->pattern, one.pattern);
    EXPECT_EQ(route.row->method, one.method);
    EXPECT_EQ(route.names.model, one.model);
    EXPECT_EQ(route.names.version, one.version);
    EXPECT_EQ(route.names.region, one.region);
    EXPECT_FALSE(router_.refuse(request).has_value());
  }
}

TEST_F(EndpointTest, AnythingElseIsNotFound) {
  for (const char* const target : {"",
                                   "v2",
                                   "/",
                                   "/v1",
                                   "//v2",
                                   "/v2//",
                                   "/v2/models",
                                   "/v2/models/",
                                   "/v2/models//infer",
                                   "/v2/models/m/",
                                   "/v2/models/m/infer/",
                                   "/v2/models/m/versions/one/infer",
                                   "/v2/models/m/versions//infer",
                                   "/v2/models/m/versions/-1",
                                   "/v2/models/%",
                                   "/v2/models/%4",
                                   "/v2/models/%zz",
                                   "/v2/models/a%00b",
                                   "/v2/models/a/b/c/d/e/f/g",
                                   "/V2",
                                   "http://host"}) {
    const std::optional<net::http::HttpResponse> refusal = router_.refuse(head("GET", target));
    ASSERT_TRUE(refusal.has_value()) << target;
    EXPECT_EQ(refusal->status, 404U) << target;
  }
}

TEST_F(EndpointTest, AnotherMethodIsRefusedWithThoseThatAreAllowed) {
  EXPECT_EQ(allowed("GET", "/v2/models/m/infer"), "POST");
  EXPECT_EQ(allowed("DELETE", "/v2"), "GET, HEAD");
  EXPECT_EQ(allowed("PUT", "/v2/logging"), "GET, HEAD, POST");
  EXPECT_EQ(router_.refuse(head("POST", "/v2/models/m"))->status, 405U);
}

TEST_F(EndpointTest, ReadingSettingsNeedsObserveAndChangingThemNeedsAdmin) {
  for (const std::string target :
       {"/v2/logging", "/v2/trace/setting", "/v2/models/echo/trace/setting"}) {
    EXPECT_EQ(route_of(head("GET", target)).row->right, access::Right::observe) << target;
    EXPECT_EQ(route_of(head("POST", target)).row->right, access::Right::admin) << target;
  }
}

// "GET /v2/models/NAME/ready", as the documentation writes it.
std::string documented(const EndpointRow& row) {
  std::string path(row.pattern);
  for (const auto& [part, name] :
       {std::pair("{M}", "NAME"), std::pair("{R}", "R"), std::pair("/versions/{V}", ""),
        std::pair("cudasharedmemory", "systemsharedmemory")}) {
    if (const std::size_t at = path.find(part); at != std::string::npos)
      path.replace(at, std::string_view(part).size(), name);
  }
  if (path.ends_with('/') || path.ends_with('*')) path.pop_back();
  if (path.starts_with('/')) return path;
  return std::string(row.method) + " /" + path;
}

class NoSources : public MetricsSource, public TraceHandler::Source, public SnapshotSource {
 public:
  void metrics(MetricsSource::OnPage /*done*/) override {}
  std::uint64_t begin(Duration /*length*/) override { return 0; }
  observe::TraceRecords since(std::uint64_t /*mark*/) override { return {}; }
  void snapshot(OnSnapshot /*done*/) override {}
};

TEST_F(EndpointTest, EveryRowIsComplete) {
  NoSources sources;
  const std::string pages =
      support::source_file("docs/protocol.md") + support::source_file("docs/tracing.md") +
      support::source_file("docs/metrics.md") + support::source_file("docs/dashboard.md");
  const InferHttp inferences(host_, regions_);
  const KserveHttp kserve(host_, regions_, "1.2.3");
  const TraceHandler traces(loop_.context(), sources, kserve_error);
  const DashboardHandler dashboard(loop_.context(), sources, {});
  const MetricsHandler metrics(sources);
  for (const EndpointService* const service : std::initializer_list<const EndpointService*>{
           &inferences, &kserve, &traces, &dashboard, &metrics}) {
    for (const EndpointRow& row : service->rows()) {
      SCOPED_TRACE(row.pattern);
      EXPECT_TRUE(row.handle != nullptr || row.refuse != nullptr);
      EXPECT_TRUE(!row.method.empty() || row.refuse != nullptr) << "some methods are refused";
      EXPECT_EQ(row.action.empty(), row.right == access::Right::nothing) << "for the audit log";
      EXPECT_EQ(row.bound != nullptr, row.right == access::Right::inference);
      EXPECT_TRUE(row.pattern == "*" || support::holds(pages, documented(row)));
    }
  }
}

TEST_F(EndpointTest, OnlyInferencesHaveABoundOfTheirOwnAndNoReserve) {
  const net::http::HttpRequest inference = head("POST", "/v2/models/echo/infer");
  EXPECT_GT(router_.body_bound(inference).max_bytes, net::http::RequestHandler::kUnaskedBodyBytes);
  EXPECT_FALSE(router_.may_use_reserve(inference));
  const net::http::HttpRequest other = head("POST", "/v2/repository/index");
  EXPECT_EQ(router_.body_bound(other).max_bytes, net::http::RequestHandler::kUnaskedBodyBytes);
  EXPECT_TRUE(router_.may_use_reserve(other));
}

}  // namespace
}  // namespace gpulet::frontend::endpoint_test
