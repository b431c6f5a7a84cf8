#include "frontend/endpoints/dashboard.h"

#include <algorithm>
#include <utility>

#include "frontend/endpoints/dashboard_documents.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/loop/wall_clock.h"
#include "gpulet/base/text.h"

namespace gpulet::frontend {
namespace {

namespace http = net::http;

constexpr std::string_view kEventsPath = "/gpulet/events";
constexpr std::string_view kHistoryPath = "/gpulet/history";
constexpr std::string_view kPlansPath = "/gpulet/plans/*";  // a number follows
constexpr auto kSampleInterval = std::chrono::seconds(1);

// Headers that forbid content from other origins, inline scripts, and embedding in frames.
http::Headers secure_headers(std::string_view content_type, std::string_view cache) {
  return {{"Content-Type", std::string(content_type)},
          {"Cache-Control", std::string(cache)},
          {"Content-Security-Policy",
           "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
           "object-src 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"}};
}

bool accepts_gzip(const http::HttpRequest& request) {
  const std::string_view accepted = http::find_header(request.headers, "Accept-Encoding");
  const std::size_t found = accepted.find("gzip");
  return found != std::string_view::npos && !accepted.substr(found).starts_with("gzip;q=0");
}

Bytes view_of(std::string_view text) { return {nullptr, std::as_bytes(std::span(text))}; }

http::HttpResponse answer_of(const DashboardAsset& asset, const http::HttpRequest& request) {
  http::HttpResponse response;
  response.headers = secure_headers(
      asset.content_type, asset.immutable ? "public, max-age=31536000, immutable" : "no-cache");
  response.headers.push_back({"ETag", std::string(asset.etag)});
  response.headers.push_back({"Vary", "Accept-Encoding"});
  if (http::find_header(request.headers, "If-None-Match").find(asset.etag) !=
      std::string_view::npos) {
    response.status = 304;
    return response;
  }
  const bool compressed = !asset.gzip.empty() && accepts_gzip(request);
  if (compressed) response.headers.push_back({"Content-Encoding", "gzip"});
  response.body.push_back(view_of(compressed ? asset.gzip : asset.plain));
  return response;
}

std::string event_of(std::string_view name, std::string document) {
  return "event: " + std::string(name) + "\ndata: " + std::move(document) + "\n\n";
}

}  // namespace

// The samples, and the documents written from them.
struct DashboardHandler::Recorder {
  DashboardHistory history;
  StatusSnapshot last;  // null before the first sample

  void add(const StatusSnapshot& snapshot) {
    last = snapshot;
    history.add(last->status, last->wall.engine);
  }
  [[nodiscard]] std::string plan(std::uint64_t number) const {
    return last == nullptr ? std::string() : plan_document(last->status, history, number);
  }
  [[nodiscard]] Documents documents() const {
    if (last == nullptr) return {};
    const TickContext context{last->wall, last->context.now - last->context.started,
                              last->context.clients};
    return {event_of("layout", layout_document(last->status)),
            event_of("problems", problems_document(last->status, last->context)),
            event_of("events", events_document(last->status, history, last->wall)),
            event_of("tick", tick_document(last->status, history, context))};
  }
};

DashboardHandler::DashboardHandler(net::asio::io_context& io, SnapshotSource& snapshots,
                                   std::span<const DashboardAsset> assets)
    : snapshots_(snapshots),
      assets_(assets),
      recorder_(std::make_shared<Recorder>()),
      timer_(io),
      background_(io) {
  const auto add = [this](std::string_view pattern, EndpointRow::Handle answers,
                          EndpointRow::Refuse refuses) {
    rows_.push_back({.pattern = pattern,
                     .right = access::Right::observe,
                     .action = "observe",
                     .handle = answers,
                     .refuse = refuses});
  };
  const EndpointRow::Refuse writing = refuse(&DashboardHandler::refuse_writing);
  add(kEventsPath, handle(&DashboardHandler::open), refuse(&DashboardHandler::refuse_page));
  add(kHistoryPath, handle(&DashboardHandler::answer_history), writing);
  add(kPlansPath, handle(&DashboardHandler::answer_plan), writing);
  for (const DashboardAsset& asset : assets_)
    add(asset.path, handle(&DashboardHandler::answer_asset), writing);
  sample();
  schedule_sample();
}

DashboardHandler::~DashboardHandler() = default;

std::optional<http::HttpResponse> DashboardHandler::refuse_writing(const EndpointRoute& /*route*/,
                                                                   const http::HttpRequest& head) {
  if (!reads(head)) return metrics_error(405, "use GET");
  return std::nullopt;
}

std::optional<http::HttpResponse> DashboardHandler::refuse_page(const EndpointRoute& route,
                                                                const http::HttpRequest& head) {
  if (std::optional<http::HttpResponse> no = refuse_writing(route, head)) return no;
  if (stopped_) return metrics_error(503, "the frontend is stopping");
  if (pages() >= kMaxPages) {
    return metrics_error(
        503, std::to_string(kMaxPages) + " dashboards are open already; close one and try again");
  }
  return std::nullopt;
}

void DashboardHandler::answer_asset(EndpointCall call) {
  const std::string_view path = path_of(call.request);
  const auto asset = std::find_if(assets_.begin(), assets_.end(),
                                  [path](const auto& one) { return one.path == path; });
  call.exchange->answer(answer_of(*asset, call.request));
}

void DashboardHandler::schedule_sample() {
  timer_.set_after(kSampleInterval, [this] {
    sample();
    schedule_sample();
  });
}

void DashboardHandler::sample() {
  snapshots_.snapshot([this](const StatusSnapshot& snapshot) {
    if (stopped_) return;
    const bool watched = pages() > 0;
    if (!watched) documents_.reset();
    background_.run(
        [recorder = recorder_, snapshot, watched] {
          recorder->add(snapshot);
          return watched ? recorder->documents() : Documents();
        },
        [this, watched](Documents written) {
          if (watched) publish(std::move(written));
        });
  });
}

void DashboardHandler::publish(Documents documents) {
  if (stopped_) return;
  const std::optional<Documents> before = std::exchange(documents_, std::move(documents));
  std::string changed;
  if (!before || before->layout != documents_->layout) changed += documents_->layout;
  if (!before || before->problems != documents_->problems) changed += documents_->problems;
  if (!before || before->events != documents_->events) changed += documents_->events;
  send(pages_, changed + documents_->tick);
  if (new_pages_.empty()) return;
  send(new_pages_, documents_->all());
  for (auto& page : std::exchange(new_pages_, {})) pages_.push_back(std::move(page));
}

void DashboardHandler::open(EndpointCall call) {
  http::HttpResponse head;
  head.headers = secure_headers("text/event-stream", "no-store");
  new_pages_.push_back(call.exchange->stream(std::move(head)));
  write_for_new_pages();
}

void DashboardHandler::write_for_new_pages() {
  if (std::exchange(writing_, true)) return;
  background_.run([recorder = recorder_] { return recorder->documents(); },
                  [this](Documents written) {
                    writing_ = false;
                    if (stopped_) return;
                    const std::string all = written.all();
                    if (all.empty()) return;  // before the first sample
                    if (!documents_) documents_ = std::move(written);
                    send(new_pages_, all);
                    for (auto& page : std::exchange(new_pages_, {}))
                      pages_.push_back(std::move(page));
                  });
}

void DashboardHandler::answer_history(EndpointCall call) {
  background_.run(
      [recorder = recorder_, wall = wall_clock()] { return recorder->history.document(wall); },
      [waiting = std::shared_ptr(std::move(call.exchange))](Bytes document) {
        http::HttpResponse response;
        response.headers = secure_headers("application/octet-stream", "no-store");
        response.body.push_back(std::move(document));
        waiting->answer(std::move(response));
      });
}

void DashboardHandler::answer_plan(EndpointCall call) {
  const auto number =
      parse_number<std::uint64_t>(path_of(call.request).substr(kPlansPath.size() - 1));
  if (!number) {
    return call.exchange->answer(
        metrics_error(400, "/gpulet/plans/ must be followed by the number of a plan"));
  }
  background_.run(
      [recorder = recorder_, number = *number] { return recorder->plan(number); },
      [number = *number,
       waiting = std::shared_ptr(std::move(call.exchange))](std::string document) {
        if (document.empty()) {
          waiting->answer(metrics_error(
              404, "plan " + std::to_string(number) + " moved no gpulets in the last ten minutes"));
          return;
        }
        http::HttpResponse response =
            http::text_response(200, "application/json", std::move(document));
        response.headers = secure_headers("application/json", "no-store");
        waiting->answer(std::move(response));
      });
}

void DashboardHandler::send(Pages& pages, const std::string& events) {
  std::erase_if(pages, [&events](const auto& page) { return !page->send(events); });
}

void DashboardHandler::stop() {
  if (std::exchange(stopped_, true)) return;
  timer_.cancel();
  for (Pages* const pages : {&pages_, &new_pages_}) {
    send(*pages, event_of("stopping", "{}"));
    pages->clear();
  }
}

}  // namespace gpulet::frontend
