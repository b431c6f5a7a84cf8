#include "frontend/endpoints/kserve_http.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpulet::frontend {

namespace {

namespace http = net::http;
namespace kserve = net::kserve;

constexpr unsigned kMethodNotAllowed = 405;
constexpr unsigned kUnsupportedMediaType = 415;
constexpr unsigned kNotImplemented = 501;

Result<ModelsChange> load_of(const EndpointCall& call) {
  GPULET_TRY(std::string config, kserve::read_repository_load(call.request.body));
  return kserve::loading(call.route.names.model, std::move(config));
}

Result<ModelsChange> unload_of(const EndpointCall& call) {
  if (Status read = kserve::read_repository_unload(call.request.body); !read.ok()) return read;
  return kserve::unloading(call.route.names.model);
}

}  // namespace

KserveHttp::KserveHttp(kserve::ProtocolHost& host, const kserve::SharedMemory& regions,
                       std::string version)
    : host_(host), regions_(regions), version_(std::move(version)) {}

// Triton reports an unknown Content-Encoding as not implemented.
http::HttpResponse kserve_error(unsigned status, const std::string& message) {
  return kserve::error(status == kUnsupportedMediaType ? kNotImplemented : status, message);
}

http::HttpResponse kserve_outcome(const Status& outcome) {
  return outcome.ok() ? http::text_response(200, "application/json", "") : kserve::error(outcome);
}

std::span<const EndpointRow> KserveHttp::rows() const {
  using access::Right;
  using Here = KserveHttp;
  static const auto kRows = std::to_array<EndpointRow>({
      {"v2", "GET", Right::nothing, "", handle(&Here::server_metadata)},
      {"v2/", "GET", Right::nothing, "", handle(&Here::server_metadata)},
      {"v2/health/live", "GET", Right::nothing, "", handle(&Here::server_live)},
      {"v2/health/ready", "GET", Right::nothing, "", handle(&Here::server_ready)},
      {"v2/models/stats", "GET", Right::observe, "observe", handle(&Here::statistics_of_all)},
      {"v2/models/{M}", "GET", Right::nothing, "", handle(&Here::model_metadata)},
      {"v2/models/{M}/versions/{V}", "GET", Right::nothing, "", handle(&Here::model_metadata)},
      {"v2/models/{M}/ready", "GET", Right::nothing, "", handle(&Here::model_ready)},
      {"v2/models/{M}/versions/{V}/ready", "GET", Right::nothing, "", handle(&Here::model_ready)},
      {"v2/models/{M}/config", "GET", Right::nothing, "", handle(&Here::model_config)},
      {"v2/models/{M}/versions/{V}/config", "GET", Right::nothing, "", handle(&Here::model_config)},
      {"v2/models/{M}/stats", "GET", Right::observe, "observe", handle(&Here::statistics)},
      {"v2/models/{M}/versions/{V}/stats", "GET", Right::observe, "observe",
       handle(&Here::statistics)},
      {"v2/repository/index", "POST", Right::nothing, "", handle(&Here::index)},
      {"v2/repository/models/{M}/load", "POST", Right::admin, "model_load", handle(&Here::load)},
      {"v2/repository/models/{M}/unload", "POST", Right::admin, "model_unload",
       handle(&Here::unload)},
      {"v2/logging", "GET", Right::observe, "observe", handle(&Here::log_settings)},
      {"v2/logging", "POST", Right::admin, "log_settings", handle(&Here::change_log_settings)},
      {"v2/trace/setting", "GET", Right::observe, "observe", handle(&Here::trace_settings)},
      {"v2/trace/setting", "POST", Right::admin, "trace_setting",
       handle(&Here::change_trace_settings)},
      {"v2/models/{M}/trace/setting", "GET", Right::observe, "observe",
       handle(&Here::trace_settings)},
      {"v2/models/{M}/trace/setting", "POST", Right::admin, "trace_setting",
       handle(&Here::change_model_trace_settings)},
      {"*", "", Right::nothing, "", nullptr, nullptr, refuse(&Here::refuse_unknown), false},
  });
  return kRows;
}

std::optional<http::HttpResponse> KserveHttp::refuse_unknown(const EndpointRoute& route,
                                                             const http::HttpRequest& /*head*/) {
  if (route.allow.empty()) return kserve::error(Status(StatusCode::not_found, "Not Found"));
  http::HttpResponse refusal = kserve_error(kMethodNotAllowed, "Method Not Allowed");
  std::string allow = route.allow;
  if (allow.starts_with("GET")) allow.insert(3, ", HEAD");
  refusal.headers.push_back({"Allow", std::move(allow)});
  return refusal;
}

template <typename Finish>
void KserveHttp::change_models(Result<ModelsChange> change, Finish finish) {
  if (!change.ok()) return finish(change.status());
  host_.change_models(
      std::move(change).value(),
      [finish = std::move(finish)](const ModelsChanged& changed) { finish(changed.status); });
}

void KserveHttp::load(EndpointCall call) {
  change_models(load_of(call), [waiting = std::shared_ptr(std::move(call.exchange)),
                                model = call.route.names.model](const Status& outcome) {
    waiting->answer(kserve_outcome(kserve::load_status(model, outcome)));
  });
}

void KserveHttp::unload(EndpointCall call) {
  change_models(unload_of(call),
                [waiting = std::shared_ptr(std::move(call.exchange))](const Status& outcome) {
                  waiting->answer(kserve_outcome(kserve::unload_status(outcome)));
                });
}

void KserveHttp::server_metadata(EndpointCall call) {
  call.exchange->answer(kserve::server_metadata(version_, regions_.enabled()));
}

void KserveHttp::server_live(EndpointCall call) { call.exchange->answer(kserve::ready(true, "")); }

void KserveHttp::server_ready(EndpointCall call) {
  call.exchange->answer(kserve::ready(host_.ready(), ""));
}

void KserveHttp::log_settings(EndpointCall call) {
  call.exchange->answer(kserve::log_settings(host_.log_level()));
}

void KserveHttp::change_log_settings(EndpointCall call) {
  const Result<std::vector<kserve::Setting>> settings = kserve::read_settings(call.request.body);
  if (!settings.ok()) return call.exchange->answer(kserve::error(settings.status()));
  const Result<kserve::LogLevel> level = kserve::change_log(host_.log_level(), settings.value());
  if (!level.ok()) return call.exchange->answer(kserve::error(level.status()));
  host_.set_log_level(level.value());
  log_settings(std::move(call));
}

void KserveHttp::trace_settings(EndpointCall call) {
  const kserve::Route& names = call.route.names;
  if (!names.model.empty()) {
    if (const Status known = kserve::check_model(host_.model(names.model).get(), names);
        !known.ok())
      return call.exchange->answer(kserve::error(known));
  }
  call.exchange->answer(kserve::trace_settings(host_.trace_sampling()));
}

void KserveHttp::change_trace_settings(EndpointCall call) {
  const Result<std::vector<kserve::Setting>> settings = kserve::read_settings(call.request.body);
  if (!settings.ok()) return call.exchange->answer(kserve::error(settings.status()));
  const Result<kserve::TraceSampling> changed =
      kserve::change_tracing(host_.trace_sampling(), settings.value());
  if (!changed.ok()) return call.exchange->answer(kserve::error(changed.status()));
  host_.set_trace_sampling(changed.value());
  call.exchange->answer(kserve::trace_settings(changed.value()));
}

// All models have the same settings: a change for one of them must not change anything.
void KserveHttp::change_model_trace_settings(EndpointCall call) {
  const kserve::Route& names = call.route.names;
  if (const Status known = kserve::check_model(host_.model(names.model).get(), names); !known.ok())
    return call.exchange->answer(kserve::error(known));
  const Result<std::vector<kserve::Setting>> settings = kserve::read_settings(call.request.body);
  if (!settings.ok()) return call.exchange->answer(kserve::error(settings.status()));
  const kserve::TraceSampling now = host_.trace_sampling();
  const Status same = kserve::check_model_tracing(now, settings.value());
  call.exchange->answer(same.ok() ? kserve::trace_settings(now) : kserve::error(same));
}

template <typename Write>
void KserveHttp::about_model(EndpointCall call, Write write) {
  const std::shared_ptr<const kserve::Model> model = host_.model(call.route.names.model);
  const Status known = kserve::check_model(model.get(), call.route.names);
  call.exchange->answer(known.ok() ? write(*model) : kserve::error(known));
}

void KserveHttp::model_metadata(EndpointCall call) {
  about_model(std::move(call), kserve::model_metadata);
}

void KserveHttp::model_config(EndpointCall call) {
  about_model(std::move(call), kserve::model_config);
}

void KserveHttp::model_ready(EndpointCall call) {
  about_model(std::move(call), [](const kserve::Model& model) {
    return kserve::ready(kserve::takes_requests(model.state),
                         model.reason.empty() ? "Model version not ready" : model.reason);
  });
}

void KserveHttp::statistics(EndpointCall call) {
  const kserve::Route& names = call.route.names;
  if (const Status known = kserve::check_model(host_.model(names.model).get(), names); !known.ok())
    return call.exchange->answer(kserve::error(known));
  host_.statistics(names.model, [waiting = std::shared_ptr(std::move(call.exchange))](
                                    const kserve::ProtocolHost::Statistics& of_model) {
    waiting->answer(kserve::statistics(*of_model));
  });
}

void KserveHttp::statistics_of_all(EndpointCall call) {
  const auto waiting = std::shared_ptr(std::move(call.exchange));
  host_.statistics(
      [this, watch = alive_.watch(), waiting](const kserve::ProtocolHost::Statistics& all) {
        if (!watch.alive()) return;
        statistics_page_.answer(host_, all, waiting, [all] { return kserve::statistics(*all); });
      });
}

void KserveHttp::index(EndpointCall call) {
  const Result<bool> only_ready = kserve::read_repository_index(call.request.body);
  if (!only_ready.ok()) return call.exchange->answer(kserve::error(only_ready.status()));
  const auto waiting = std::shared_ptr(std::move(call.exchange));
  host_.models([this, watch = alive_.watch(), waiting,
                ready = only_ready.value()](const kserve::ProtocolHost::Models& models) {
    if (!watch.alive()) return;
    SharedPage& page = ready ? ready_index_page_ : index_page_;
    page.answer(host_, models, waiting,
                [models, ready] { return kserve::repository_index(*models, ready); });
  });
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
