// bench_serve_feedback: devices and models that are not as the frontend's profile says. It must
// notice, plan with what it observes, and name the cause. bench/serve/README.md says what it
// prints.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "bench/serve/support/capacity.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"
#include "gpulet/base/files.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
using Clock = std::chrono::steady_clock;

constexpr double kStep_s = 5;
constexpr double kWorstViolation = 0.01;
constexpr std::byte kSlowInput{252};  // tests/support/executor/crashing_proxy.cc

struct Arguments {
  std::uint64_t seed = 1;
  std::string only;
  std::string keep;
  std::string programs;
};

struct Load {
  double seconds = 60;
  double scale = 1;      // of the models' rates
  double slow_part = 0;  // of the first model's requests, with the slow input
};

// Whether the frontend's page, which may go on for ever, holds the text within its first seconds.
bool page_shows(std::uint16_t port, const std::string& path, const std::string& text) {
  const FileDescriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{5, 0};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(connection.get(), to, sizeof(address)) != 0) return false;
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
  if (::send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return false;
  std::string page;
  std::array<char, 65536> part{};
  while (page.find(text) == std::string::npos) {
    const ssize_t got = ::recv(connection.get(), part.data(), part.size(), 0);
    if (got <= 0) return false;
    page.append(part.data(), static_cast<std::size_t>(got));
  }
  return true;
}

// A site under load, with rows of five seconds.
class Case {
 public:
  Case(const Arguments& arguments, SiteOptions options, const Load& load)
      : load_(load), options_(std::move(options)) {
    options_.programs = arguments.programs;
    options_.keep = arguments.keep;
    for (SiteModel& model : options_.models) model.rate *= load.scale;
    Site site(options_);
    site.start_backends();
    site.wait_until_serving();
    for (std::size_t i = 0; i < options_.models.size(); ++i) {
      const double rate = options_.models[i].rate;
      const double slow = i == 0 ? load.slow_part : 0;
      streams_.push_back(site.stream(options_.models[i].name, {{{}, (1 - slow) * rate}}));
      if (slow == 0) continue;
      Stream heavy = site.stream(options_.models[i].name, {{{}, slow * rate}});
      heavy.payload = Bytes::own(std::vector<std::byte>(heavy.payload.size(), kSlowInput));
      slow_stream_ = streams_.size();
      streams_.push_back(std::move(heavy));
    }
    Watch watch(site.target(), std::chrono::milliseconds(500));
    Traffic traffic(
        streams_,
        {.target = site.target(), .seed = arguments.seed, .length = from_seconds(load.seconds)});
    start_ = Clock::now() - traffic.elapsed();
    result_ = traffic.run_out();
    samples_ = watch.finish();
    if (slow_stream_ == 0) return;
    const std::string& slow = options_.models.front().name;
    in_metrics_ = page_shows(site.metrics_port(), "/metrics",
                             "gpulet_model_disturbs{model=\"" + slow + "\",kind=\"model\"} 1");
    on_dashboard_ = page_shows(site.metrics_port(), "/gpulet/events", "\"cause\":\"disturbs\"");
  }

  void print(const char* name) const {
    std::printf("%s\n%7s %9s %9s %8s %11s\n", name, "s", "offered/s", "devices", "epoch",
                "violation%");
    for (double at = 0; at < load_.seconds; at += kStep_s) {
      const Outcome all = outcome(at, at + kStep_s);
      const StatusView* const view = view_at(at + kStep_s);
      std::printf("%7.0f %9.1f %8zu %8llu %10.2f\n", at, static_cast<double>(all.offered) / kStep_s,
                  view == nullptr ? 0 : view->devices_in_use,
                  static_cast<unsigned long long>(view == nullptr ? 0 : view->epoch),
                  100 * all.violation());
    }
    const StatusView* const last = view_at(load_.seconds);
    if (last == nullptr) return;
    for (const std::string& event : last->events) std::printf("  event: %s\n", event.c_str());
    for (const auto& problem : last->problems)
      std::printf("  problem: %s of %s\n", problem.cause.c_str(), problem.model.c_str());
  }

  // Without the model that has slow inputs.
  [[nodiscard]] Outcome outcome(double from_s, double until_s) const {
    Outcome sum;
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      if (slow_stream_ > 0 && i <= slow_stream_) continue;
      const Outcome one =
          outcome_of(streams_, result_, from_seconds(from_s), from_seconds(until_s), i);
      sum.offered += one.offered;
      sum.late += one.late;
      sum.dropped += one.dropped;
      sum.errors += one.errors;
    }
    return sum;
  }

  // The last status until then; null: none.
  [[nodiscard]] const StatusView* view_at(double at_s) const {
    const StatusView* found = nullptr;
    for (const StatusSample& sample : samples_) {
      if (sample.view && to_seconds(sample.at - start_) <= at_s) found = &*sample.view;
    }
    return found;
  }

  // Of a model that disturbs, at the end.
  [[nodiscard]] bool in_metrics() const { return in_metrics_; }
  [[nodiscard]] bool on_dashboard() const { return on_dashboard_; }
  [[nodiscard]] bool names(const std::string& cause, const std::string& model) const {
    const StatusView* const view = view_at(load_.seconds);
    return view != nullptr &&
           std::any_of(view->problems.begin(), view->problems.end(),
                       [&](const auto& one) { return one.cause == cause && one.model == model; });
  }

 private:
  Load load_;
  SiteOptions options_;
  std::vector<Stream> streams_;
  std::size_t slow_stream_ = 0;  // 0: none
  Clock::time_point start_;
  TrafficResult result_;
  std::vector<StatusSample> samples_;
  bool in_metrics_ = false;
  bool on_dashboard_ = false;
};

SiteOptions four_devices(std::vector<SiteModel> models, double pace) {
  return {.models = std::move(models), .backends = 4, .device_pace = pace};
}

std::vector<SiteModel> three_models() {
  return {{.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 80, .rate = 60},
          {.name = "middle", .fixed_ms = 5, .item_ms = 3, .slo_ms = 120, .rate = 40},
          {.name = "large", .fixed_ms = 10, .item_ms = 5, .slo_ms = 200, .rate = 20}};
}

void run_slow(const Arguments& arguments, Verdicts& verdicts) {
  const SiteOptions options = four_devices(three_models(), 1.3);
  const Case slow(arguments, options,
                  {.seconds = 75, .scale = 0.65 * Capacity(options).schedulable_scale()});
  slow.print("slow: devices take 1.3 times as long as profiled");
  const double after = slow.outcome(30, 75).violation();
  verdicts.hold(after < kWorstViolation,
                text("slow: violations from 30 s on %.2f %% (under 1 %%)", 100 * after));
}

void run_fast(const Arguments& arguments, Verdicts& verdicts) {
  const SiteOptions options = four_devices(three_models(), 0.7);
  const Case fast(arguments, options,
                  {.seconds = 75, .scale = 0.85 * Capacity(options).schedulable_scale()});
  fast.print("fast: devices take 0.7 times as long as profiled");
  const StatusView* const first = fast.view_at(5);
  const StatusView* const last = fast.view_at(60);
  const std::size_t before = first == nullptr ? 0 : first->devices_in_use;
  const std::size_t after = last == nullptr ? 0 : last->devices_in_use;
  verdicts.hold(after > 0 && after < before,
                text("fast: devices in use %zu, after three periods %zu (fewer)", before, after));
  const double violation = fast.outcome(0, 75).violation();
  verdicts.hold(violation < kWorstViolation,
                text("fast: violations %.2f %% (under 1 %%)", 100 * violation));
}

void run_blocking(const Arguments& arguments, Verdicts& verdicts) {
  SiteOptions options;
  options.models = {{.name = "heavy", .fixed_ms = 0.5, .item_ms = 0.5, .slo_ms = 100, .rate = 20},
                    {.name = "small", .fixed_ms = 1, .item_ms = 1, .slo_ms = 60, .rate = 30},
                    {.name = "middle", .fixed_ms = 2, .item_ms = 1, .slo_ms = 80, .rate = 30}};
  options.backends = 2;
  options.metrics = true;
  options.proxy = "gpulet-proxy-crashing";
  const Case blocking(arguments, options, {.seconds = 45, .slow_part = 0.1});
  blocking.print("blocking: one request in ten of a model of 1 ms takes 0.3 s");
  const double before = blocking.outcome(0, 10).violation();
  const double after = blocking.outcome(10, 45).violation();
  verdicts.hold(after < kWorstViolation,
                text("blocking: violations of the others from 10 s on %.2f %% (under 1 %%), before "
                     "%.1f %%",
                     100 * after, 100 * before));
  verdicts.hold(blocking.names("disturbs", "heavy"), "blocking: the status names the model");
  verdicts.hold(blocking.in_metrics(), "blocking: the metrics name the model");
  verdicts.hold(blocking.on_dashboard(), "blocking: the dashboard names the cause");
}

int run(const Arguments& arguments) {
  Verdicts verdicts;
  const auto wanted = [&arguments](const char* name) {
    return arguments.only.empty() || arguments.only == name;
  };
  if (wanted("slow")) run_slow(arguments, verdicts);
  if (wanted("fast")) run_fast(arguments, verdicts);
  if (wanted("blocking")) run_blocking(arguments, verdicts);
  return verdicts.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("Devices and models that are not as profiled");
  options.add("--only", arguments.only, "one case: slow, fast or blocking")
      .one_of({"slow", "fast", "blocking"});
  options.add("--seed", arguments.seed, "of the arrivals");
  options.add("--keep", arguments.keep, "leave configuration and logs in this directory");
  return run_program("feedback", options, arguments.programs, argc, argv,
                     [&] { return run(arguments); });
}
