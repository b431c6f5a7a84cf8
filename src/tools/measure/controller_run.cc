#include "tools/measure/controller_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <ostream>
#include <utility>

#include "tools/measure/measured_proxy.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMiddle = 0.5;          // fraction of the device's cores
constexpr double kLoad = 0.6;            // fraction of the rate that these cores serve
constexpr double kFewestRequests = 4;    // per period, for a meaningful mean
constexpr std::uint32_t kSettling = 30;  // periods at most until the queue has built up
constexpr std::uint32_t kWarmUpRequests = 8;
// Cores as fractions of those that the load needs, used in turn.
constexpr std::array kMore{1.2, 1.5, 1.3};
constexpr std::array kLess{0.8, 0.5, 0.7};

class Identification {
 public:
  Identification(const ControllerRunOptions& options, MeasuredProxy& proxy, HeldShare& share,
                 BlockingLoop& loop)
      : options_(options), proxy_(proxy), share_(share), loop_(loop) {}

  [[nodiscard]] Result<IdentifiedModel> run(const std::string& model) {
    GPULET_TRY(const auto served, capacity());
    IdentifiedModel found;
    found.model = model;
    found.rate_rps = kLoad * served;
    const double per_period = found.rate_rps * to_seconds(options_.period);
    if (per_period < kFewestRequests) {
      return Status(
          StatusCode::invalid,
          fmt::format("only {} requests per period can be served, too few for a meaningful "
                      "mean; use more cores or a longer --control-period-s",
                      shortest(per_period, 1)));
    }
    needed_cores_ = kLoad * kMiddle * options_.cores;
    between_ = from_seconds(1 / found.rate_rps);
    period_end_ = Clock::now();
    next_arrival_ = period_end_ + between_;
    double cores = needed_cores_ * kLess[1];
    for (std::uint32_t settling = 0; found.run.size() < options_.periods;) {
      GPULET_TRY(const auto response, response_s(cores));
      const bool settled = !found.run.empty() || response > to_seconds(options_.period);
      if (settled) found.run.push_back({cores, response});
      if (!settled && ++settling == kSettling) {
        return Status(
            StatusCode::invalid,
            "requests are not delayed although the process has only half of the cores that "
            "they need: the limit of its cores has no effect");
      }
      cores = settled ? next_cores(response) : cores;
    }
    GPULET_TRY(auto identified, control::identify(found.run));
    found.found = identified;
    return found;
  }

 private:
  // The rate that kMiddle of the cores serves, in requests per second.
  [[nodiscard]] Result<double> capacity() {
    if (Status given = share_.adjust(kMiddle * options_.cores); !given.ok()) return given;
    std::optional<Clock::time_point> begin;
    for (std::uint32_t served = 0;; ++served) {
      if (Status status = proxy_.submit(1); !status.ok()) return status;
      GPULET_TRY(const auto response, proxy_.next());
      if (served + 1 == kWarmUpRequests) begin = response.at;
      if (!begin || served < 2 * kWarmUpRequests) continue;
      const Duration taken = response.at - *begin;
      if (taken >= 2 * options_.period) return (served + 1 - kWarmUpRequests) / to_seconds(taken);
    }
  }

  // Takes arrivals and responses until then.
  [[nodiscard]] Status serve_until(Clock::time_point end) {
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      for (; next_arrival_ <= now; next_arrival_ += between_) queued_.push_back(next_arrival_);
      if (Status status = submit_queued(); !status.ok()) return status;
      const Duration until = std::min(end, next_arrival_) - now;
      Status status = loop_.wait([this] { return proxy_.has_next(); }, until, "a response");
      if (status.code() == StatusCode::timeout) continue;
      if (!status.ok()) return status;
      GPULET_TRY(const auto response, proxy_.next());
      responses_.push_back(response.at - in_flight_.front());
      in_flight_.pop_front();
    }
    return {};
  }

  [[nodiscard]] Status submit_queued() {
    while (!queued_.empty() && in_flight_.size() < MeasuredProxy::kInFlight) {
      if (Status status = proxy_.submit(1); !status.ok()) return status;
      in_flight_.push_back(queued_.front());
      queued_.pop_front();
    }
    return {};
  }

  // The mean response of one period with those cores; 0 without responses and queued requests.
  [[nodiscard]] Result<double> response_s(double cores) {
    if (Status given = share_.adjust(std::min(cores, options_.cores)); !given.ok()) return given;
    responses_.clear();
    period_end_ += options_.period;
    if (Status served = serve_until(period_end_); !served.ok()) return served;
    if (responses_.empty())
      return in_flight_.empty() ? 0.0 : to_seconds(period_end_ - in_flight_.front());
    Duration sum{};
    for (const Duration response : responses_) sum += response;
    return to_seconds(sum) / static_cast<double>(responses_.size());
  }

  [[nodiscard]] double next_cores(double response_s) {
    const auto& fractions = response_s > to_seconds(options_.period) ? kMore : kLess;
    return needed_cores_ * fractions[next_step_++ % fractions.size()];
  }

  const ControllerRunOptions& options_;
  MeasuredProxy& proxy_;
  HeldShare& share_;
  BlockingLoop& loop_;
  double needed_cores_ = 0;
  Duration between_{};
  Clock::time_point next_arrival_;
  Clock::time_point period_end_;
  std::deque<Clock::time_point> queued_;     // arrivals not sent yet
  std::deque<Clock::time_point> in_flight_;  // arrivals sent, without a response
  std::vector<Duration> responses_;          // of this period
  std::size_t next_step_ = 0;
};

Result<IdentifiedModel> identify_one(const ControllerRunOptions& options,
                                     const config::ModelConfig& model, MeasuredDevice& device,
                                     BlockingLoop& loop, GpuletId& last_gpulet) {
  ProxyFactory factory(loop.executor(), options.proxies, device.shared_process);
  HeldShare share(*device.driver, last_gpulet);  // outlives the process
  GPULET_TRY(const auto granted, share.grant_adjustable(Share{100}));
  GPULET_TRY(auto started,
             MeasuredProxy::start(loop, factory, granted, model, 1,
                                  [&share](pid_t process) { return share.end(process); }));
  MeasuredProxy& proxy = *started;
  Status status = share.attach(proxy.pid());
  if (status.ok()) status = proxy.load().status();
  if (status.ok()) status = share.activate();
  if (!status.ok()) return status;
  auto found = Identification(options, proxy, share, loop).run(model.name);
  if (!found.ok()) return found;
  if (status = proxy.stop(); !status.ok()) return status;
  return found;
}

}  // namespace

Result<ControllerRun> identify_controllers(const ControllerRunOptions& options,
                                           MeasuredDevice& device, std::ostream& progress) {
  BlockingLoop loop;
  GpuletId last_gpulet;
  ControllerRun run;
  for (const config::ModelConfig& model : options.models) {
    progress << "[" << run.models.size() + run.failures.size() + 1 << "/" << options.models.size()
             << "] " << model.name << ": " << std::flush;
    auto found = identify_one(options, model, device, loop, last_gpulet);
    if (found.ok()) {
      progress << "R squared " << shortest(found.value().found.explained, 3) << '\n';
      run.models.push_back(std::move(found).value());
      continue;
    }
    const Status failure = found.status().within(model.name);
    if (failure.code() == StatusCode::cancelled) return failure;
    progress << "not identified: " << failure.message() << '\n';
    run.failures.push_back(failure);
  }
  return run;
}

}  // namespace gpulet::tools
