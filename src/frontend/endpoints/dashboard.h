// DashboardHandler: serves the dashboard (docs/dashboard.md): its files at / and /assets/..., live
// events at /gpulet/events, samples of the last ten minutes at /gpulet/history, and the content of
// a plan at /gpulet/plans/NUMBER.
//
// It samples the status once a second. While pages are open, it writes the documents of each sample
// once for all pages. Both happen on another thread. Belongs to the thread of the io_context, which
// must have stopped before this object is destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/endpoints/dashboard_assets.h"
#include "frontend/endpoints/endpoint.h"
#include "frontend/loop/event_loop.h"
#include "frontend/observe/status_snapshots.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/http/server.h"

namespace gpulet::frontend {

class DashboardHandler final : public EndpointService {
 public:
  // Further pages are refused with 503.
  static constexpr std::size_t kMaxPages = 64;

  // Starts to sample. `snapshots` and the assets must outlive this object.
  DashboardHandler(net::asio::io_context& io, SnapshotSource& snapshots,
                   std::span<const DashboardAsset> assets);
  ~DashboardHandler() override;

  [[nodiscard]] std::span<const EndpointRow> rows() const override { return rows_; }

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
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_writing(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_page(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  void open(EndpointCall call);
  void answer_history(EndpointCall call);
  void answer_plan(EndpointCall call);
  void answer_asset(EndpointCall call);
  static void send(Pages& pages, const std::string& events);

  SnapshotSource& snapshots_;
  std::span<const DashboardAsset> assets_;
  std::vector<EndpointRow> rows_;
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
