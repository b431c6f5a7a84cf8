// bench_serve_first_runs: a model that never ends its first run, loaded beside honest ones on two
// nodes. bench/serve/README.md says what is held.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
using std::chrono::seconds;

struct Arguments {
  double quiet_s = 30;
  double seconds = 600;
  double rate = 40;  // of each honest model
  std::string keep;
  std::string programs;
};

constexpr std::uint32_t kHonest = 4;
constexpr double kSloMs = 100;
constexpr double kOthersWithin_s = 10;
constexpr double kEndsWithin_s = 90;
constexpr double kNegligible = 0.002;  // violations that chance and the machine explain

SiteOptions options_of(const Arguments& arguments) {
  SiteOptions options;
  for (std::uint32_t i = 0; i < kHonest; ++i)
    options.models.push_back(
        {.name = "honest-" + std::to_string(i), .slo_ms = kSloMs, .rate = arguments.rate});
  // gpulet-proxy-crashing never ends the first run of a model of that name.
  options.more_models = {{.name = "hangs", .slo_ms = kSloMs, .rate = 10},
                         {.name = "late", .slo_ms = kSloMs, .rate = 10}};
  options.backends = 2;
  options.devices_each = 2;
  options.proxy = "gpulet-proxy-crashing";
  options.programs = arguments.programs;
  options.keep = arguments.keep;
  return options;
}

class Scene {
 public:
  explicit Scene(const Arguments& arguments)
      : arguments_(arguments), site_(options_of(arguments)) {}

  int run() {
    site_.start_backends();
    site_.wait_until_serving();
    std::vector<Stream> streams;
    for (const SiteModel& model : site_.models())
      streams.push_back(site_.stream(model.name, {{Duration{}, arguments_.rate}}));
    const Duration quiet = from_seconds(arguments_.quiet_s);
    const Duration end = quiet + from_seconds(arguments_.seconds);
    Traffic traffic(streams, {.target = site_.target(), .length = end});
    while (traffic.elapsed() < quiet) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    site_.serve_more_models();
    const auto began = std::chrono::steady_clock::now();
    follow(began);
    const TrafficResult result = traffic.run_out();
    const Outcome before = outcome_of(streams, result, Duration{}, quiet);
    const Outcome beside = outcome_of(streams, result, quiet, end);
    std::printf("%-8s %10s %12s %10s\n", "", "offered", "violation %", "p99 ms");
    print("alone", before);
    print("beside", beside);
    verdicts_.hold(beside.violation() <= before.violation() + kNegligible,
                   text("violations %.3f %% beside a model that hangs, %.3f %% alone",
                        100 * beside.violation(), 100 * before.violation()));
    hold_within("another load came into force", late_ready_s_, kOthersWithin_s);
    hold_within("the load that hangs ended with a reason", hang_ended_s_, kEndsWithin_s);
    verdicts_.hold(site_.stop(), "all processes ended");
    return verdicts_.exit_code();
  }

 private:
  static void print(const char* name, const Outcome& outcome) {
    std::printf("%-8s %10llu %12.3f %10.1f\n", name,
                static_cast<unsigned long long>(outcome.offered), 100 * outcome.violation(),
                outcome.p99_ms);
  }

  // Until both loads have ended, or the time is up.
  void follow(std::chrono::steady_clock::time_point began) {
    const double limit_s = std::min(arguments_.seconds, 2 * kEndsWithin_s);
    while (!late_ready_s_ || !hang_ended_s_) {
      const double now_s = to_seconds(std::chrono::steady_clock::now() - began);
      if (now_s > limit_s) return;
      if (const auto view = fetch_view(site_.target()); view.ok()) {
        const auto state = [&view](const char* name) {
          const auto found = view.value().models.find(name);
          return found == view.value().models.end() ? std::string() : found->second.state;
        };
        if (!late_ready_s_ && state("late") == "ready") late_ready_s_ = now_s;
        if (!hang_ended_s_ && state("hangs") == "unavailable") hang_ended_s_ = now_s;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  void hold_within(const char* what, const std::optional<double>& took_s, double aim) {
    verdicts_.hold(took_s && *took_s <= aim,
                   took_s ? text("%s after %.1f s (aim %.0f s)", what, *took_s, aim)
                          : text("not: %s (aim %.0f s)", what, aim));
  }

  const Arguments& arguments_;
  Site site_;
  std::optional<double> late_ready_s_;
  std::optional<double> hang_ended_s_;
  Verdicts verdicts_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("What a model that never ends its first run costs the others");
  options.add("--quiet", arguments.quiet_s, "seconds without it").positive();
  options.add("--seconds", arguments.seconds, "beside it").positive();
  options.add("--rate", arguments.rate, "requests per second of each honest model").positive();
  options.add("--keep", arguments.keep, "a new directory for configuration and logs");
  return run_program("first-runs", options, arguments.programs, argc, argv,
                     [&] { return Scene(arguments).run(); });
}
