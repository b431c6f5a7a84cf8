// TraceHandler: GET /gpulet/trace?seconds=S&format=chrome|log|applications (docs/tracing.md);
// everything else is another handler's.
//
// One trace at a time: who asks for a second one is refused with 429 and told when to come back. A
// document is written part by part on a thread of its own and sent as fast as its reader takes it,
// so that it neither holds up the event loop nor is in memory as a whole. Single-strand type, on
// the io_context's thread, which must not run any more when this goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "background.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/http/server.h"
#include "gpulet/observe/trace.h"

namespace gpulet::frontend {

class TraceHandler final : public net::http::RequestHandler {
 public:
  struct Source {
    // Has every request traced that comes within `length`; returns what `since` takes for those.
    // Zero: those that were sampled already.
    std::function<std::uint64_t(Duration length)> begin;
    std::function<observe::TraceRecords(std::uint64_t)> since;
    std::function<observe::WallClock()> wall_clock;
  };
  // From the document's first part to its last: what is not taken by then is not sent any more.
  static constexpr Duration kLongestSending = std::chrono::minutes(2);

  TraceHandler(net::asio::io_context& io, Source source,
               std::unique_ptr<net::http::RequestHandler> others);
  ~TraceHandler() override;

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  [[nodiscard]] BodyBound body_bound(const net::http::HttpRequest& head) override {
    return others_->body_bound(head);
  }
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& head) override {
    return others_->may_use_reserve(head);
  }
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

  // Ends the trace that is under way, and refuses others: the frontend ends.
  void stop();

 private:
  struct Run;
  using RunPointer = std::shared_ptr<Run>;

  [[nodiscard]] net::http::HttpResponse busy();
  void send_records(const RunPointer& run);
  void send_part(const RunPointer& run);
  void end(const RunPointer& run);

  net::asio::io_context& io_;
  Source source_;
  std::unique_ptr<net::http::RequestHandler> others_;
  RunPointer run_;  // the one under way; null: none
  bool stopped_ = false;
  Background background_;
};

}  // namespace gpulet::frontend
