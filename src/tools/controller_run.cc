#include "tools/controller_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "tools/held_share.h"
#include "tools/measured_proxy.h"
#include "tools/proxy_source.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMiddle = 0.5;          // of the device's cores
constexpr double kLoad = 0.6;            // of what they serve
constexpr double kFewestRequests = 4;    // a period, for its mean to say anything
constexpr std::uint32_t kSettling = 30;  // periods, at most, until the queue has come to its length
constexpr std::uint32_t kAtOnce = 8;     // requests that tell how fast the middle is
// Of what the load takes, in turn.
constexpr std::array kMore{1.2, 1.5, 1.3};
constexpr std::array kLess{0.8, 0.5, 0.7};

class Identification {
 public:
  Identification(const ControllerRunOptions& options, MeasuredProxy& proxy, HeldShare& share,
                 BlockingLoop& loop)
      : options_(options), proxy_(proxy), share_(share), loop_(loop) {}

  [[nodiscard]] Result<IdentifiedModel> run(const std::string& model);

 private:
  // Requests a second that the middle serves.
  [[nodiscard]] Result<double> capacity();
  // What is answered until then, and what arrives.
  [[nodiscard]] Status serve_until(Clock::time_point end);
  [[nodiscard]] Status submit_waiting();
  // A period with those cores. Nothing: no answer came, and nothing waits.
  [[nodiscard]] Result<double> response_s(double cores);
  [[nodiscard]] double next_cores(double response_s);

  const ControllerRunOptions& options_;
  MeasuredProxy& proxy_;
  HeldShare& share_;
  BlockingLoop& loop_;
  double needed_cores_ = 0;
  Duration between_{};
  Clock::time_point next_arrival_;
  Clock::time_point period_end_;
  std::deque<Clock::time_point> waiting_;  // not sent
  std::deque<Clock::time_point> sent_;     // not answered
  std::vector<Duration> responses_;        // of this period
  std::size_t turn_ = 0;
};

Result<double> Identification::capacity() {
  if (Status given = share_.adjust(kMiddle * options_.cores); !given.ok()) return given;
  std::optional<Clock::time_point> begin;
  for (std::uint32_t answered = 0;; ++answered) {
    if (Status status = proxy_.submit(1); !status.ok()) return status;
    const auto answer = proxy_.next();
    if (!answer.ok()) return answer.status();
    if (answered + 1 == kAtOnce) begin = answer.value().at;  // the first ones warm up
    if (!begin || answered < 2 * kAtOnce) continue;
    const Duration taken = answer.value().at - *begin;
    if (taken >= 2 * options_.period) return (answered + 1 - kAtOnce) / to_seconds(taken);
  }
}

Status Identification::submit_waiting() {
  while (!waiting_.empty() && sent_.size() < MeasuredProxy::kInFlight) {
    if (Status status = proxy_.submit(1); !status.ok()) return status;
    sent_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  return {};
}

Status Identification::serve_until(Clock::time_point end) {
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    for (; next_arrival_ <= now; next_arrival_ += between_) waiting_.push_back(next_arrival_);
    if (Status status = submit_waiting(); !status.ok()) return status;
    const Duration until = std::min(end, next_arrival_) - now;
    Status status = loop_.wait([this] { return proxy_.has_next(); }, until, "an answer");
    if (status.code() == StatusCode::timeout) continue;
    if (!status.ok()) return status;
    const auto answer = proxy_.next();
    if (!answer.ok()) return answer.status();
    responses_.push_back(answer.value().at - sent_.front());
    sent_.pop_front();
  }
  return {};
}

Result<double> Identification::response_s(double cores) {
  if (Status given = share_.adjust(std::min(cores, options_.cores)); !given.ok()) return given;
  responses_.clear();
  period_end_ += options_.period;
  if (Status served = serve_until(period_end_); !served.ok()) return served;
  if (responses_.empty()) {
    return sent_.empty() ? 0.0 : to_seconds(period_end_ - sent_.front());
  }
  Duration sum{};
  for (const Duration response : responses_) sum += response;
  return to_seconds(sum) / static_cast<double>(responses_.size());
}

double Identification::next_cores(double response_s) {
  const auto& of_needed = response_s > to_seconds(options_.period) ? kMore : kLess;
  return needed_cores_ * of_needed[turn_++ % of_needed.size()];
}

Result<IdentifiedModel> Identification::run(const std::string& model) {
  const auto served = capacity();
  if (!served.ok()) return served.status();
  IdentifiedModel found;
  found.model = model;
  found.rate_rps = kLoad * served.value();
  const double of_period = found.rate_rps * to_seconds(options_.period);
  if (of_period < kFewestRequests) {
    return Status(StatusCode::invalid,
                  "only " + shortest(of_period, 1) +
                      " requests a period can be served, too few for their mean to tell anything; "
                      "give more cores, or a longer --control-period-s");
  }
  needed_cores_ = kLoad * kMiddle * options_.cores;
  between_ = from_seconds(1 / found.rate_rps);
  period_end_ = Clock::now();
  next_arrival_ = period_end_ + between_;
  double cores = needed_cores_ * kLess[1];
  for (std::uint32_t settling = 0; found.run.size() < options_.periods;) {
    const auto response = response_s(cores);
    if (!response.ok()) return response.status();
    const bool settled = !found.run.empty() || response.value() > to_seconds(options_.period);
    if (settled) found.run.push_back({cores, response.value()});
    if (!settled && ++settling == kSettling) {
      return Status(StatusCode::invalid,
                    "its requests do not wait although it has half of the cores that they take: "
                    "its cores are not held");
    }
    cores = settled ? next_cores(response.value()) : cores;
  }
  auto identified = control::identify(found.run);
  if (!identified.ok()) return identified.status();
  found.found = identified.value();
  return found;
}

Result<IdentifiedModel> identify_one(const ControllerRunOptions& options,
                                     const config::ModelConfig& model, MeasuredDevice& device,
                                     BlockingLoop& loop, GpuletId& last_gpulet) {
  ProxySource source(loop.executor(), options.proxy, device.lanes);
  HeldShare share(*device.driver, last_gpulet);  // outlives the process
  const auto granted = share.grant_adjustable(Share{100});
  if (!granted.ok()) return granted.status();
  auto started = MeasuredProxy::start(loop, source, granted.value(), model, 1,
                                      [&share](pid_t process) { return share.end(process); });
  if (!started.ok()) return started.status();
  MeasuredProxy& proxy = *started.value();
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
