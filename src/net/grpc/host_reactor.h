// HostReactor: a call with one request and one answer that the host behind gives, on the executor's
// thread. gRPC holds it from its creation to OnDone.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "kserve.pb.h"
#include "site.h"

namespace gpulet::net::grpc_api {

// Hears the answer's status, once, on any thread; the response is filled before, and there as long
// as this.
using OnAnswered = std::function<void(const Status&)>;

template <typename Request, typename Response>
class HostReactor final : public ::grpc::ServerUnaryReactor {
 public:
  // Sees a site that is open; answers now or later.
  using Work = void (*)(Site&, const Request&, Response&, const OnAnswered&);

  // `audit` hears the answer's status as well, also of a call that was cancelled meanwhile.
  static ::grpc::ServerUnaryReactor* start(const SitePointer& site, const Request& request,
                                           Response& response, Work work, OnAnswered audit = {}) {
    auto reactor = std::make_shared<HostReactor>(response);
    reactor->self_ = reactor;
    asio::post(site->executor, [reactor, site, asked = request, work, audit = std::move(audit)] {
      if (!site->open) return reactor->finish(stopping(), {});
      // Filled here and moved at the end: gRPC's own is gone once the call is cancelled.
      const auto answer = std::make_shared<Response>();
      work(*site, asked, *answer, [reactor, answer, audit](const Status& status) {
        if (audit) audit(status);
        reactor->finish(status, std::move(*answer));
      });
    });
    return reactor.get();
  }

  // Answers at once.
  static ::grpc::ServerUnaryReactor* refuse(Response& response, const Status& why) {
    auto reactor = std::make_shared<HostReactor>(response);
    reactor->self_ = reactor;
    reactor->finish(why, {});
    return reactor.get();
  }

  explicit HostReactor(Response& response) : response_(response) {}
  void OnCancel() override {
    if (!finished_.exchange(true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  void finish(const Status& status, Response answer) {
    if (finished_.exchange(true)) return;
    response_ = std::move(answer);
    Finish(grpc_status(status));
  }

  Response& response_;                  // gRPC's, there until Finish
  std::atomic<bool> finished_ = false;  // whoever sets it answers
  std::shared_ptr<HostReactor> self_;
};

inline constexpr std::size_t kMostBytes = 64U << 10U;  // of a call that is no inference
inline constexpr std::size_t kMostBytesOfLoad =
    4U << 20U;  // of one that may bring a models file along

// For a call that is refused before it gets to the executor's thread.
inline void tell_audit(const SitePointer& site, OnAnswered audit, const Status& why) {
  asio::post(site->executor, [site, audit = std::move(audit), why] {
    if (site->open) audit(why);
  });
}

// `work` answers on the executor's thread. A request that is too long never gets there.
template <typename Request, typename Response>
::grpc::ServerUnaryReactor* ask_host(const SitePointer& site, const Request* request,
                                     Response* response,
                                     typename HostReactor<Request, Response>::Work work,
                                     OnAnswered audit = {}) {
  constexpr bool kLoads = std::is_same_v<Request, inference::RepositoryModelLoadRequest>;
  constexpr std::size_t kMost = kLoads ? kMostBytesOfLoad : kMostBytes;
  if (const std::size_t bytes = request->ByteSizeLong(); bytes > kMost) {
    const Status why(StatusCode::overloaded, "a call like this may have " + std::to_string(kMost) +
                                                 " bytes; it has " + std::to_string(bytes));
    if (audit) tell_audit(site, std::move(audit), why);
    return HostReactor<Request, Response>::refuse(*response, why);
  }
  return HostReactor<Request, Response>::start(site, *request, *response, work, std::move(audit));
}

}  // namespace gpulet::net::grpc_api
