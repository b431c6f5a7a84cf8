#include "health.h"

#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "gpulet/net/alarm.h"
#include "host_reactor.h"
#include "kserve.grpc.pb.h"
#include "lasting_calls.h"

namespace gpulet::net::grpc_api {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using Health = HealthCheckResponse::ServingStatus;

bool is_known(std::string_view service) {
  return service.empty() || service == inference::GRPCInferenceService::service_full_name();
}

Health health_of(const Site& site) {
  return site.host.ready() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

// gRPC's threads write and end it, the executor's tells it what there is to say.
class WatchReactor final : public ::grpc::ServerWriteReactor<HealthCheckResponse>,
                           public LastingCall {
 public:
  static std::shared_ptr<WatchReactor> start(bool known) {
    auto reactor = std::make_shared<WatchReactor>(known);
    reactor->self_ = reactor;
    return reactor;
  }
  explicit WatchReactor(bool known) : known_(known) {}

  void tell(Health health) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    latest_ = known_ ? health : HealthCheckResponse::SERVICE_UNKNOWN;
    write_if_changed();
  }

  void end(const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (!ending_) ending_ = grpc_status(why);
    finish_if_over();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) return;  // the client is gone: OnCancel follows
    write_if_changed();
    finish_if_over();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  // The lock is held.
  void write_if_changed() {
    if (writing_ || finished_ || latest_ == sent_) return;
    sent_ = latest_;
    response_.set_status(*latest_);
    writing_ = true;
    StartWrite(&response_);
  }
  void finish_if_over() {
    if (!ending_ || writing_ || finished_) return;
    finished_ = true;
    Finish(*ending_);
  }

  const bool known_;
  std::mutex mutex_;
  HealthCheckResponse response_;  // the one that is being written
  std::optional<Health> latest_;
  std::optional<Health> sent_;
  std::optional<::grpc::Status> ending_;
  bool writing_ = false;
  bool finished_ = false;
  std::shared_ptr<WatchReactor> self_;
};

}  // namespace

struct HealthService::Watches {
  static constexpr std::size_t kMost = 128;

  explicit Watches(const SitePointer& where) : site(where), alarm(where->executor) {}

  // The executor's thread; all but `calls` is its own.
  static void look(const std::shared_ptr<Watches>& watches) {
    watches->looks = false;
    const auto calls = watches->calls.calls();
    if (!watches->site->open || calls.empty()) return;
    const Health health = health_of(*watches->site);
    for (const auto& call : calls) static_cast<WatchReactor&>(*call).tell(health);
    if (std::exchange(watches->looks, true)) return;
    watches->alarm.set_after(kBetweenLooks, [again = std::weak_ptr(watches)] {
      if (const auto there = again.lock()) look(there);
    });
  }

  SitePointer site;
  Alarm alarm;
  bool looks = false;
  LastingCalls calls{kMost};
};

HealthService::HealthService(SitePointer site)
    : site_(std::move(site)), watches_(std::make_shared<Watches>(site_)) {}
HealthService::~HealthService() = default;

void HealthService::drain() {
  for (const auto& call : watches_->calls.calls())
    static_cast<WatchReactor&>(*call).tell(HealthCheckResponse::NOT_SERVING);
  end_watches();
}

void HealthService::end_watches() { watches_->calls.drain(); }

::grpc::ServerUnaryReactor* HealthService::Check(::grpc::CallbackServerContext* /*context*/,
                                                 const HealthCheckRequest* request,
                                                 HealthCheckResponse* response) {
  return ask_host<HealthCheckRequest, HealthCheckResponse>(
      site_, request, response,
      [](Site& site, const auto& asked, auto& answer, const OnAnswered& answered) {
        if (!is_known(asked.service()))
          return answered({StatusCode::not_found, "no service " + asked.service()});
        answer.set_status(health_of(site));
        answered({});
      });
}

::grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    ::grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  const auto watch = WatchReactor::start(is_known(request->service()));
  if (const Status added = watches_->calls.add(watch); !added.ok()) {
    watch->end(added);
    return watch.get();
  }
  asio::post(site_->executor, [watches = watches_] { Watches::look(watches); });
  return watch.get();
}

}  // namespace gpulet::net::grpc_api
