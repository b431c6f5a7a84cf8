#include "frontend/kserve_http.h"

#include <algorithm>
#include <utility>

#include "frontend/http_handlers.h"
#include "gpulet/net/kserve/host.h"

namespace gpulet::frontend {

namespace {

namespace http = net::http;
namespace kserve = net::kserve;
using kserve::Endpoint;

constexpr unsigned kMethodNotAllowed = 405;
constexpr unsigned kUnsupportedMediaType = 415;
constexpr unsigned kNotImplemented = 501;

// HEAD is answered like GET; the server omits the body.
std::string_view method_of(const http::HttpRequest& request) {
  return request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
}

http::HttpResponse done() { return http::text_response(200, "application/json", ""); }

http::HttpResponse about_cuda_region(const kserve::Route& route) {
  if (route.endpoint == Endpoint::cuda_memory_register)
    return kserve::error(kNotImplemented, kserve::cuda_memory_refusal(route.region));
  if (route.endpoint == Endpoint::cuda_memory_unregister) return done();
  if (!route.region.empty()) return kserve::error(kserve::unknown_cuda_region(route.region));
  return kserve::shared_memory_status({});
}

http::HttpResponse done_or_error(const Status& status) {
  return status.ok() ? done() : kserve::error(status);
}

Result<ModelsChange> change_of(const kserve::Route& route, const http::HttpRequest& request) {
  if (route.endpoint == Endpoint::repository_unload) {
    if (Status read = kserve::read_repository_unload(request.body); !read.ok()) return read;
    return kserve::unloading(route.model);
  }
  Result<std::string> config = kserve::read_repository_load(request.body);
  if (!config.ok()) return config.status();
  return kserve::loading(route.model, std::move(config).value());
}

}  // namespace

// Held by the callback of the host and, while the call can be cancelled, by that of the exchange.
struct KserveHttp::Inference {
  kserve::InferCall call;
  std::shared_ptr<const kserve::Model> model;  // at the time of the request
  std::unique_ptr<http::Exchange> exchange;
  net::Permit permit;
  ClientId id;
};

KserveHttp::KserveHttp(kserve::ProtocolHost& host, kserve::SharedMemory& regions,
                       KserveHttpOptions options)
    : host_(host), regions_(regions), options_(std::move(options)) {}

std::optional<http::HttpResponse> KserveHttp::refuse(const http::HttpRequest& head) {
  std::string allow;
  const Result<kserve::Route> route = kserve::find_route(method_of(head), head.target, &allow);
  if (route.ok()) return std::nullopt;
  if (allow.empty()) return kserve::error(route.status());
  http::HttpResponse refusal = error(kMethodNotAllowed, route.status().message());
  if (allow.starts_with("GET")) allow.insert(3, ", HEAD");
  refusal.headers.push_back({"Allow", std::move(allow)});
  return refusal;
}

http::RequestHandler::BodyBound KserveHttp::body_bound(const http::HttpRequest& head) {
  const Result<kserve::Route> route = kserve::find_route(method_of(head), head.target, nullptr);
  // The body of a GET has no meaning: it is read and left unused.
  if (!route.ok() || route.value().endpoint != Endpoint::infer)
    return {.max_bytes = kUnaskedBodyBytes};
  const std::shared_ptr<const kserve::Model> model = host_.model(route.value().model);
  if (const Status known = kserve::check_model(model.get(), route.value()); !known.ok())
    return {.refusal = kserve::error(known)};
  return {.max_bytes = kserve::largest_infer_body(*model),
          .reason = kserve::largest_infer_rows(*model)};
}

bool KserveHttp::may_use_reserve(const http::HttpRequest& head) {
  const Result<kserve::Route> route = kserve::find_route(method_of(head), head.target, nullptr);
  return route.ok() && route.value().endpoint != Endpoint::infer;
}

void KserveHttp::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  const Result<kserve::Route> found =
      kserve::find_route(method_of(request), request.target, nullptr);
  if (!found.ok()) return exchange->answer(kserve::error(found.status()));
  const kserve::Route& route = found.value();
  switch (route.endpoint) {
    case Endpoint::infer: {
      std::shared_ptr<const kserve::Model> model = host_.model(route.model);
      if (const Status known = kserve::check_model(model.get(), route); !known.ok())
        return exchange->answer(kserve::error(known));
      return infer(std::move(model), request, std::move(exchange));
    }
    case Endpoint::repository_load:
    case Endpoint::repository_unload:
      return change_models(route, request, std::move(exchange));
    case Endpoint::repository_index:
      return index(request, std::move(exchange));
    case Endpoint::model_statistics:
      if (route.model.empty()) return statistics_of_all(std::move(exchange));
      return statistics(route, std::move(exchange));
    default:
      return exchange->answer(answer(route, request));
  }
}

// Triton reports an unknown Content-Encoding as not implemented.
http::HttpResponse KserveHttp::error(unsigned status, const std::string& message) {
  return kserve::error(status == kUnsupportedMediaType ? kNotImplemented : status, message);
}

void KserveHttp::infer(std::shared_ptr<const kserve::Model> model, const http::HttpRequest& request,
                       std::unique_ptr<http::Exchange> exchange) {
  Result<kserve::InferCall> call =
      kserve::read_infer(request.headers, request.body, *model, regions_);
  if (!call.ok()) return exchange->answer(kserve::error(call.status()));
  net::Admission admission;
  if (options_.gate && options_.gate->guards_inference() && request.peer)
    admission = options_.gate->enter(*request.peer, model->name, call.value().requests.size());
  if (!admission.status.ok()) {
    http::HttpResponse refusal = kserve::error(admission.status);
    add_retry_after(refusal, admission.retry_after);
    return exchange->answer(std::move(refusal));
  }
  const auto inference = std::make_shared<Inference>();
  inference->call = std::move(call).value();
  inference->model = std::move(model);
  inference->exchange = std::move(exchange);
  inference->permit = std::move(admission.permit);
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

void KserveHttp::change_models(const kserve::Route& route, const http::HttpRequest& request,
                               std::unique_ptr<http::Exchange> exchange) {
  const bool loads = route.endpoint == Endpoint::repository_load;
  const auto finish = [shared = std::shared_ptr(std::move(exchange)), loads,
                       model = route.model](const Status& status) {
    shared->answer(
        done_or_error(loads ? kserve::load_status(model, status) : kserve::unload_status(status)));
  };
  Result<ModelsChange> change = change_of(route, request);
  if (!change.ok()) return finish(change.status());
  host_.change_models(std::move(change).value(),
                      [finish](const ModelsChanged& changed) { finish(changed.status); });
}

http::HttpResponse KserveHttp::answer(const kserve::Route& route,
                                      const http::HttpRequest& request) {
  switch (route.endpoint) {
    case Endpoint::server_metadata:
      return kserve::server_metadata(options_.version, regions_.enabled());
    case Endpoint::server_live:
      return kserve::ready(true, "");
    case Endpoint::server_ready:
      return kserve::ready(host_.ready(), "");
    case Endpoint::log_settings:
    case Endpoint::change_log_settings:
      return log_settings(route, request);
    case Endpoint::trace_settings:
    case Endpoint::change_trace_settings:
      return trace_settings(route, request);
    case Endpoint::shared_memory_status:
    case Endpoint::shared_memory_register:
    case Endpoint::shared_memory_unregister:
      return about_region(route, request);
    case Endpoint::cuda_memory_status:
    case Endpoint::cuda_memory_register:
    case Endpoint::cuda_memory_unregister:
      return about_cuda_region(route);
    default:
      return about_model(route);
  }
}

http::HttpResponse KserveHttp::log_settings(const kserve::Route& route,
                                            const http::HttpRequest& request) {
  if (route.endpoint == Endpoint::change_log_settings) {
    const Result<std::vector<kserve::Setting>> settings = kserve::read_settings(request.body);
    if (!settings.ok()) return kserve::error(settings.status());
    const Result<kserve::LogLevel> level = kserve::change_log(host_.log_level(), settings.value());
    if (!level.ok()) return kserve::error(level.status());
    host_.set_log_level(level.value());
  }
  return kserve::log_settings(host_.log_level());
}

http::HttpResponse KserveHttp::trace_settings(const kserve::Route& route,
                                              const http::HttpRequest& request) {
  const kserve::TraceSampling now = host_.trace_sampling();
  if (!route.model.empty()) {
    if (const Status known = kserve::check_model(host_.model(route.model).get(), route);
        !known.ok())
      return kserve::error(known);
  }
  if (route.endpoint == Endpoint::trace_settings) return kserve::trace_settings(now);
  const Result<std::vector<kserve::Setting>> settings = kserve::read_settings(request.body);
  if (!settings.ok()) return kserve::error(settings.status());
  if (!route.model.empty()) {
    const Status same = kserve::check_model_tracing(now, settings.value());
    return same.ok() ? kserve::trace_settings(now) : kserve::error(same);
  }
  const Result<kserve::TraceSampling> changed = kserve::change_tracing(now, settings.value());
  if (!changed.ok()) return kserve::error(changed.status());
  host_.set_trace_sampling(changed.value());
  return kserve::trace_settings(changed.value());
}

http::HttpResponse KserveHttp::about_model(const kserve::Route& route) {
  const std::shared_ptr<const kserve::Model> model = host_.model(route.model);
  if (const Status known = kserve::check_model(model.get(), route); !known.ok())
    return kserve::error(known);
  if (route.endpoint == Endpoint::model_metadata) return kserve::model_metadata(*model);
  if (route.endpoint == Endpoint::model_config) return kserve::model_config(*model);
  return kserve::ready(kserve::takes_requests(model->state),
                       model->reason.empty() ? "Model version not ready" : model->reason);
}

void KserveHttp::statistics(const kserve::Route& route, std::unique_ptr<http::Exchange> exchange) {
  if (const Status known = kserve::check_model(host_.model(route.model).get(), route); !known.ok())
    return exchange->answer(kserve::error(known));
  host_.statistics(route.model, [waiting = std::shared_ptr(std::move(exchange))](
                                    const kserve::ProtocolHost::Statistics& of_model) {
    waiting->answer(kserve::statistics(*of_model));
  });
}

void KserveHttp::statistics_of_all(std::unique_ptr<http::Exchange> exchange) {
  const auto waiting = std::shared_ptr(std::move(exchange));
  host_.statistics(
      [this, watch = alive_.watch(), waiting](const kserve::ProtocolHost::Statistics& all) {
        if (!watch.alive()) return;
        statistics_page_.answer(host_, all, waiting, [all] { return kserve::statistics(*all); });
      });
}

void KserveHttp::index(const http::HttpRequest& request, std::unique_ptr<http::Exchange> exchange) {
  const Result<bool> only_ready = kserve::read_repository_index(request.body);
  if (!only_ready.ok()) return exchange->answer(kserve::error(only_ready.status()));
  const auto waiting = std::shared_ptr(std::move(exchange));
  host_.models([this, watch = alive_.watch(), waiting,
                ready = only_ready.value()](const kserve::ProtocolHost::Models& models) {
    if (!watch.alive()) return;
    SharedPage& page = ready ? ready_index_page_ : index_page_;
    page.answer(host_, models, waiting,
                [models, ready] { return kserve::repository_index(*models, ready); });
  });
}

http::HttpResponse KserveHttp::about_region(const kserve::Route& route,
                                            const http::HttpRequest& request) {
  if (route.endpoint == Endpoint::shared_memory_register) {
    const Result<kserve::RegionInfo> region = kserve::read_register(route.region, request.body);
    return done_or_error(region.ok() ? regions_.add(region.value()) : region.status());
  }
  if (route.endpoint == Endpoint::shared_memory_unregister) {
    regions_.remove(route.region);
    return done();
  }
  std::vector<kserve::RegionInfo> regions = regions_.regions();
  if (!route.region.empty()) {
    std::erase_if(regions, [&route](const auto& region) { return region.name != route.region; });
    if (regions.empty()) {
      return kserve::error(
          Status(StatusCode::not_found,
                 "Unable to find system shared memory region: '" + route.region + "'"));
    }
  }
  return kserve::shared_memory_status(regions);
}

// ---- SharedPage

void SharedPage::answer(net::kserve::ProtocolHost& host, std::shared_ptr<const void> list,
                        std::shared_ptr<net::http::Exchange> exchange, Write write) {
  if (page_ != nullptr && page_->list == list) {
    if (page_->complete) return exchange->answer(page_->response);
    page_->waiting.push_back(std::move(exchange));
    return;
  }
  const auto page = std::make_shared<Page>();
  page_ = page;
  page->list = std::move(list);
  page->waiting.push_back(std::move(exchange));
  host.in_background([page, write = std::move(write)] { page->response = write(); },
                     [page] {
                       page->complete = true;
                       for (const auto& waiting : std::exchange(page->waiting, {}))
                         waiting->answer(page->response);
                     });
}

}  // namespace gpulet::frontend
