#include "status_service.h"

#include <memory>
#include <utility>

#include "gpulet/net/http/message.h"
#include "gpulet/serve/status_in_steps.h"
#include "metrics.h"

namespace gpulet::frontend {

StatusService::StatusService(net::asio::io_context& io, const serve::FrontendCore& core,
                             Time started, Daemon daemon)
    : started_(started),
      daemon_(std::move(daemon)),
      watch_(io),
      background_(io),
      snapshots_(
          io,
          {[&core](serve::StatusInSteps& taken, std::size_t parts) {
             return core.take(taken, parts);
           },
           daemon_.wall_clock, [this](const observe::WallClock& wall) { return moment(wall); }},
          background_, watch_),
      metrics_(io, snapshots_, background_,
               [machine = std::make_shared<MachineWatch>(),
                summaries = daemon_.summaries](const TimedStatus& timed) {
                 return net::http::bytes_of(
                     metrics_text(timed.status, timed.moment, {machine->look(), summaries}));
               }),
      answers_(io, snapshots_, background_, daemon_.send),
      start_report_(io, snapshots_) {}

void StatusService::start() {
  watch_.start();
  start_report_.start();
}

void StatusService::stop() {
  watch_.stop();
  start_report_.stop();
}

void StatusService::metrics(std::function<void(const Bytes&)> done) {
  metrics_.get([done = std::move(done)](const auto& made) { done(*made.document); });
}

StatusMoment StatusService::moment(const observe::WallClock& wall) const {
  return {.started = started_,
          .now = wall.engine,
          .unix_seconds = to_seconds(wall.since_epoch),
          .clients = daemon_.clients(),
          .pauses = watch_.pauses(),
          .by_token = daemon_.by_token()};
}

}  // namespace gpulet::frontend
