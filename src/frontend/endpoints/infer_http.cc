#include "frontend/endpoints/infer_http.h"

#include <array>
#include <utility>
#include <vector>

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::frontend {

namespace http = net::http;
namespace kserve = net::kserve;

// Held by the callback of the host and, while the call can be cancelled, by that of the exchange.
struct InferHttp::Inference {
  kserve::InferCall call;
  std::shared_ptr<const kserve::Model> model;  // at the time of the request
  std::unique_ptr<http::Exchange> exchange;
  access::Permit permit;
  ClientId id;
};

InferHttp::InferHttp(kserve::InferenceHost& host, kserve::SharedMemory& regions,
                     std::shared_ptr<access::Gate> gate)
    : host_(host), regions_(regions), gate_(std::move(gate)) {}

std::span<const EndpointRow> InferHttp::rows() const {
  using access::Right;
  using Here = InferHttp;
  static const auto kRows = std::to_array<EndpointRow>({
      {"v2/models/{M}/infer", "POST", Right::inference, "infer", handle(&Here::infer),
       bound(&Here::infer_bound), nullptr, false},
      {"v2/models/{M}/versions/{V}/infer", "POST", Right::inference, "infer", handle(&Here::infer),
       bound(&Here::infer_bound), nullptr, false},
  });
  return kRows;
}

http::RequestHandler::BodyBound InferHttp::infer_bound(const EndpointRoute& route) {
  const std::shared_ptr<const kserve::Model> model = host_.model(route.names.model);
  if (const Status known = kserve::check_model(model.get(), route.names); !known.ok())
    return {.refusal = kserve::error(known)};
  return {.max_bytes = kserve::largest_infer_body(*model),
          .reason = kserve::largest_infer_rows(*model)};
}

void InferHttp::infer(EndpointCall call) {
  std::shared_ptr<const kserve::Model> model = host_.model(call.route.names.model);
  if (const Status known = kserve::check_model(model.get(), call.route.names); !known.ok())
    return call.exchange->answer(kserve::error(known));
  submit(std::move(model), call.request, std::move(call.exchange));
}

void InferHttp::submit(std::shared_ptr<const kserve::Model> model, const http::HttpRequest& request,
                       std::unique_ptr<http::Exchange> exchange) {
  Result<kserve::InferCall> call =
      kserve::read_infer(request.headers, request.body, *model, regions_);
  if (!call.ok()) return exchange->answer(kserve::error(call.status()));
  access::Access access;
  if (gate_ && gate_->guards_inference() && request.peer)
    access = gate_->enter(*request.peer, model->name, call.value().requests.size());
  if (!access.status.ok()) {
    http::HttpResponse refusal = kserve::error(access.status);
    add_retry_after(refusal, access.retry_after);
    return exchange->answer(std::move(refusal));
  }
  const auto inference = std::make_shared<Inference>();
  inference->call = std::move(call).value();
  inference->model = std::move(model);
  inference->exchange = std::move(exchange);
  inference->permit = std::move(access.permit);
  inference->id = host_.infer(
      std::exchange(inference->call.requests, {}),
      [this, watch = alive_.watch(), inference](const std::vector<InferReply>& replies) {
        const std::unique_ptr<http::Exchange> answered = std::move(inference->exchange);
        inference->permit.reset();
        if (!watch.alive() || !answered) return;
        answered->answer(
            kserve::write_infer(inference->call, *inference->model, replies, regions_));
      });
  inference->exchange->on_gone([this, watch = alive_.watch(), inference] {
    const std::unique_ptr<http::Exchange> unanswered = std::move(inference->exchange);
    inference->permit.reset();
    if (watch.alive() && unanswered) host_.cancel(inference->id);
  });
}

}  // namespace gpulet::frontend
