// bench_serve_memory: what a load leaves in the frontend's memory. bench/serve/README.md says what
// it prints.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
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
  std::uint32_t models = 2000;
  std::uint32_t connections = 2000;
  std::uint32_t requests = 32000;
  double rest_s = 10;
  double aim = 1.25;
  std::string keep;
  std::string programs;
};

constexpr std::uint32_t kBusyModels = 8;
// A device serves about a thousand requests in a second; what comes beyond waits until its
// deadline.
constexpr double kItem_ms = 1;
constexpr double kWait_ms = 5000;
constexpr auto kPatience = std::chrono::minutes(5);

std::vector<SiteModel> busy_models() {
  std::vector<SiteModel> models;
  for (std::uint32_t i = 0; i < kBusyModels; ++i) {
    models.push_back({.name = "busy-" + std::to_string(i),
                      .fixed_ms = kItem_ms,
                      .item_ms = kItem_ms,
                      .slo_ms = kWait_ms});
  }
  return models;
}

std::vector<SiteModel> passing_models(std::uint32_t count) {
  std::vector<SiteModel> models;
  for (std::uint32_t i = 0; i < count; ++i) {
    models.push_back({.name = "passing-" + std::to_string(10'000 + i),
                      .fixed_ms = 0.01,
                      .item_ms = 0.01,
                      .slo_ms = kWait_ms,
                      .rate = 0.1});
  }
  return models;
}

void allow_descriptors(std::uint32_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(limit.rlim_cur, wanted));
  ::setrlimit(RLIMIT_NOFILE, &limit);  // the daemons inherit it
}

class Scene {
 public:
  explicit Scene(const Arguments& arguments)
      : arguments_(arguments), site_(options_of(arguments)) {}

  int run() {
    site_.start_backends();
    site_.wait_until_serving(kPatience);
    ask(50, seconds(2), 4);
    rest();
    base_mb_ = resident_mb();
    std::printf("%-24s %9s %9s\n%-24s %9s %9.1f\n", "load", "peak MB", "rest MB", "none", "",
                base_mb_);
    measure("models that leave again", [this] { pass_models(); });
    measure("connections that close",
            [this] { ask(arguments_.connections / 2.0, seconds(4), arguments_.connections); });
    measure("requests that wait", [this] { ask(arguments_.requests, seconds(1), 4); });
    return verdicts_.exit_code();
  }

 private:
  static SiteOptions options_of(const Arguments& arguments) {
    allow_descriptors(arguments.connections + 500);
    return {.models = busy_models(),
            .more_models = passing_models(arguments.models),
            .max_connections = 60000,
            .programs = arguments.programs,
            .keep = arguments.keep};
  }

  [[nodiscard]] double resident_mb() {
    std::ifstream statm("/proc/" + std::to_string(site_.frontend().pid()) + "/statm");
    double total = 0;
    double resident = 0;
    statm >> total >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1U << 20U);
  }

  void rest() const { std::this_thread::sleep_for(from_seconds(arguments_.rest_s)); }

  void measure(const char* load, const std::function<void()>& bring) {
    double peak_mb = 0;
    {
      std::jthread watch([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          peak_mb = std::max(peak_mb, resident_mb());
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      });
      bring();
    }
    rest();
    const double after_mb = resident_mb();
    std::printf("%-24s %9.1f %9.1f\n", load, peak_mb, after_mb);
    std::fflush(stdout);
    verdicts_.hold(after_mb <= arguments_.aim * base_mb_,
                   text("%s: %.1f MB afterwards, %.2f times the base (at most %.2f)", load,
                        after_mb, after_mb / base_mb_, arguments_.aim));
  }

  void pass_models() {
    site_.serve_more_models();
    wait_for_models(kBusyModels + arguments_.models);
    site_.restore_models();
    wait_for_models(kBusyModels);
  }

  void wait_for_models(std::size_t count) {
    site_.wait_until(
        [count](const StatusView& view) { return view.models.size() == count && view.settled(); },
        kPatience, std::to_string(count) + " models");
  }

  // Asks all models, `rate` requests per second together, and waits for the answers.
  void ask(double rate, Duration length, std::uint32_t connections) const {
    std::vector<Stream> streams;
    for (const SiteModel& model : site_.models())
      streams.push_back(site_.stream(model.name, {{Duration{}, rate / kBusyModels}}));
    Traffic traffic(streams,
                    {.target = site_.target(), .connections = connections, .length = length});
    (void)traffic.run_out();
  }

  const Arguments& arguments_;
  Site site_;
  double base_mb_ = 0;
  Verdicts verdicts_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("What a load leaves in the frontend's memory");
  options.add("--models", arguments.models).positive();
  options.add("--connections", arguments.connections).positive();
  options.add("--requests", arguments.requests, "that wait at once").positive();
  options.add("--rest", arguments.rest_s, "seconds after a load").in_range(0.0, 3600.0);
  options.add("--aim", arguments.aim, "the ratio that is met");
  options.add("--keep", arguments.keep, "a new directory for configuration and logs");
  return run_program("memory", options, arguments.programs, argc, argv,
                     [&] { return Scene(arguments).run(); });
}
