// The dashboard (docs/dashboard.md): its page and what belongs to it at /, /assets/..., its live
// events at /gpulet/events, its past at /gpulet/history, what a decision
// planned and why at /gpulet/plans/NUMBER. Everything else is another handler's.
//
// The status is looked at once a second, for the history, and written down only while pages are
// open, once for all of them; both on a thread of their own. Single-strand type, on the
// io_context's thread, which must not run any more when this goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "background.h"
#include "dashboard_assets.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/http/server.h"
#include "status_snapshots.h"

namespace gpulet::frontend {

class DashboardHandler final : public net::http::RequestHandler {
 public:
  // Beyond them, a page is refused with 503.
  static constexpr std::size_t kMostPages = 64;

  struct Source {
    std::function<void(StatusSnapshots::OnSnapshot)> snapshot;  // calls back later
    std::function<observe::WallClock()> wall_clock;
  };

  // Begins to sample. The assets outlive it.
  DashboardHandler(net::asio::io_context& io, Source source, std::span<const DashboardAsset> assets,
                   std::unique_ptr<net::http::RequestHandler> others);
  ~DashboardHandler() override;

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& /*head*/) override {
    return true;
  }
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

  // Tells the pages that the frontend ends, and samples no more.
  void stop();

  [[nodiscard]] std::size_t pages() const { return pages_.size() + new_pages_.size(); }

 private:
  // As they were last sent: events of the stream.
  struct Documents {
    std::string layout;
    std::string problems;
    std::string events;
    std::string tick;
  };
  struct Memory;
  using Pages = std::vector<std::unique_ptr<net::http::ResponseStream>>;

  void wait();
  void sample();
  // Has the documents of the last sample written for those who have just come.
  void write_for_new_pages();
  void take_in(Documents documents);
  void open(std::unique_ptr<net::http::Exchange> exchange);
  void answer_history(std::unique_ptr<net::http::Exchange> exchange);
  void answer_plan(std::uint64_t number, std::unique_ptr<net::http::Exchange> exchange);
  [[nodiscard]] static std::string all_of(const Documents& documents);
  static void send(Pages& pages, const std::string& events);
  [[nodiscard]] const DashboardAsset* asset_of(std::string_view path) const;

  Source source_;
  std::span<const DashboardAsset> assets_;
  std::unique_ptr<net::http::RequestHandler> others_;
  std::shared_ptr<Memory> memory_;        // touched by the background's thread alone
  std::optional<Documents> documents_{};  // of the last sample; none: nobody has asked for them
  Pages pages_{};
  Pages new_pages_{};  // that have nothing yet
  bool writing_ = false;
  net::Alarm timer_;
  bool stopped_ = false;
  Background background_;  // last: joined before anything that it uses goes
};

}  // namespace gpulet::frontend
