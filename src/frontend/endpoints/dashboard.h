// DashboardHandler: serves the dashboard (docs/dashboard.md): its files at / and /assets/..., live
// events at /gpulet/events, samples of the last ten minutes at /gpulet/history, and the content of
// a plan at /gpulet/plans/NUMBER. Passes other requests to the next handler.
//
// It samples the status once a second. While pages are open, it writes the documents of each sample
// once for all pages. Both happen on another thread. Belongs to the thread of the io_context, which
// must have stopped before this object is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/endpoints/dashboard_assets.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/loop/event_loop.h"
#include "frontend/observe/status_snapshots.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/http/server.h"

namespace gpulet::frontend {

class DashboardHandler final : public ChainedHandler {
 public:
  // Further pages are refused with 503.
  static constexpr std::size_t kMaxPages = 64;

  // Starts to sample. `snapshots` and the assets must outlive this object.
  DashboardHandler(net::asio::io_context& io, SnapshotSource& snapshots,
                   std::span<const DashboardAsset> assets,
                   std::unique_ptr<net::http::RequestHandler> next);
  ~DashboardHandler() override;

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& /*head*/) override {
    return true;
  }
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;

  // Tells the pages that the frontend stops, and stops sampling.
  void stop();

  [[nodiscard]] std::size_t pages() const { return pages_.size() + new_pages_.size(); }

 private:
  // Events of the stream, as sent last.
  struct Documents {
    std::string layout;
    std::string problems;
    std::string events;
    std::string tick;

    [[nodiscard]] std::string all() const { return layout + problems + events + tick; }
  };
  struct Recorder;
  using Pages = std::vector<std::unique_ptr<net::http::ResponseStream>>;

  void schedule_sample();
  void sample();
  // Writes the documents of the last sample for pages that have just opened.
  void write_for_new_pages();
  void publish(Documents documents);
  void open(std::unique_ptr<net::http::Exchange> exchange);
  void answer_history(std::unique_ptr<net::http::Exchange> exchange);
  void answer_plan(std::uint64_t number, std::unique_ptr<net::http::Exchange> exchange);
  static void send(Pages& pages, const std::string& events);
  [[nodiscard]] const DashboardAsset* asset_of(std::string_view path) const;

  SnapshotSource& snapshots_;
  std::span<const DashboardAsset> assets_;
  std::shared_ptr<Recorder> recorder_;    // used on the background thread only
  std::optional<Documents> documents_{};  // documents of the last sample; empty: no page was open
  Pages pages_{};
  Pages new_pages_{};  // have received nothing
  bool writing_ = false;
  net::Alarm timer_;
  bool stopped_ = false;
  BackgroundThread background_;  // last: joined before the members it uses are destroyed
};

}  // namespace gpulet::frontend
