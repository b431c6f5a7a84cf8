// An HTTP endpoint is one row of a table: what its requests look like, the right that they need,
// the bound of their body, and the function that answers them. The services of a port have the
// tables; EndpointRouter finds the row of a request. Types of one strand, as the HttpServer that
// they serve.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/access/tokens.h"
#include "gpulet/base/time.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::frontend {

class EndpointService;
struct EndpointRow;

// The endpoint of a request: found once, and kept with it.
struct EndpointRoute final : net::http::RequestRoute {
  EndpointService* service = nullptr;
  const EndpointRow* row = nullptr;
  net::kserve::Route names;
  std::string allow;  // the methods of earlier rows with this path, as "GET, POST"
};

// The references are valid during the call.
struct EndpointCall {
  const EndpointRoute& route;
  const net::http::HttpRequest& request;
  std::unique_ptr<net::http::Exchange> exchange;
};

struct EndpointRow {
  using Handle = void (EndpointService::*)(EndpointCall call);
  using Bound =
      net::http::RequestHandler::BodyBound (EndpointService::*)(const EndpointRoute& route);
  using Refuse = std::optional<net::http::HttpResponse> (EndpointService::*)(
      const EndpointRoute& route, const net::http::HttpRequest& head);

  // Of the path: as TargetPath::match(), or, if it begins with '/', the path as it was sent. A '*'
  // at its end stands for any text.
  std::string_view pattern;
  std::string_view method{};  // GET stands for HEAD, too; empty: any
  access::Right right = access::Right::nothing;
  std::string_view action{};  // for the audit log
  Handle handle = nullptr;    // null: `refuse` refuses all requests
  Bound bound = nullptr;      // null: RequestHandler::kUnaskedBodyBytes
  Refuse refuse = nullptr;    // before the body is read; null: nothing is refused
  bool reserve = true;        // its requests may use a reserved slot
};

// Some endpoints, and what their handlers share.
class EndpointService {
 public:
  EndpointService() = default;
  virtual ~EndpointService() = default;
  EndpointService(const EndpointService&) = delete;
  EndpointService& operator=(const EndpointService&) = delete;

  // The first one with the path and the method of a request is its row. Valid as long as this
  // object.
  [[nodiscard]] virtual std::span<const EndpointRow> rows() const = 0;

 protected:
  // The columns of a row, from functions of a derived class.
  template <typename Service>
  static EndpointRow::Handle handle(void (Service::*function)(EndpointCall)) {
    return static_cast<EndpointRow::Handle>(function);
  }
  template <typename Service>
  static EndpointRow::Bound bound(
      net::http::RequestHandler::BodyBound (Service::*function)(const EndpointRoute&)) {
    return static_cast<EndpointRow::Bound>(function);
  }
  template <typename Service>
  static EndpointRow::Refuse refuse(std::optional<net::http::HttpResponse> (Service::*function)(
      const EndpointRoute&, const net::http::HttpRequest&)) {
    return static_cast<EndpointRow::Refuse>(function);
  }
};

// How a port writes an error.
using ErrorFormat = net::http::HttpResponse (*)(unsigned status, const std::string& message);

// The target without its query.
[[nodiscard]] std::string_view path_of(const net::http::HttpRequest& request);
// Whether the method is GET or HEAD.
[[nodiscard]] bool reads(const net::http::HttpRequest& head);
// Adds the Retry-After header of a response with status 429.
void add_retry_after(net::http::HttpResponse& response, Duration after);

}  // namespace gpulet::frontend
