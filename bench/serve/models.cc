// bench_serve_models: what a request costs the frontend's event loop with thousands of models, up
// to a thousand in a gpulet, against a few. bench/serve/README.md says what it prints.
#include <algorithm>
#include <cstdio>
#include <fstream>
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

struct Arguments {
  std::uint32_t few = 5;
  std::uint32_t models = 2000;
  double rate = 1000;   // of all models together, per second
  double seconds = 20;  // of each measurement
  double aim = 1.3;
  std::string programs;
};

constexpr double kWarmUp_s = 5;

// Every request is a batch of its own, so the batches per second do not depend on the models.
std::vector<SiteModel> made_models(std::uint32_t count, double rate) {
  std::vector<SiteModel> models;
  for (std::uint32_t i = 0; i < count; ++i) {
    models.push_back({.name = "model-" + std::to_string(10'000 + i),
                      .fixed_ms = 0.01,
                      .item_ms = 0.01,
                      .slo_ms = 1000,
                      .rate = rate / count,
                      .max_batch = 1});
  }
  return models;
}

// The processor time of the process's first thread, which runs the event loop.
double loop_seconds(pid_t process) {
  const std::string task = std::to_string(process);
  std::ifstream file("/proc/" + task + "/task/" + task + "/schedstat");
  double nanoseconds = 0;
  if (!(file >> nanoseconds)) throw std::runtime_error("this kernel has no schedstat");
  return nanoseconds / 1e9;
}

struct Measured {
  double loop_us = 0;  // for a request
  double violation = 0;
};

Measured measure(std::uint32_t count, const Arguments& arguments) {
  SiteOptions options{.models = made_models(count, arguments.rate), .programs = arguments.programs};
  Site site(options);
  site.start_backends();
  const StatusView view = site.wait_until_serving(std::chrono::minutes(5));
  std::vector<Stream> streams;
  for (const SiteModel& model : options.models)
    streams.push_back(site.stream(model.name, {{Duration{}, model.rate}}));
  const Duration length = from_seconds(kWarmUp_s + arguments.seconds);
  Traffic traffic(streams, {.target = site.target(), .length = length});
  std::this_thread::sleep_for(from_seconds(kWarmUp_s));
  const double before_s = loop_seconds(site.frontend().pid());
  const Duration from = traffic.elapsed();
  std::this_thread::sleep_for(length - from);
  const Duration until = traffic.elapsed();
  const double loop_s = loop_seconds(site.frontend().pid()) - before_s;
  const TrafficResult result = traffic.finish();
  const Outcome outcome = outcome_of(streams, result, from, until);
  const Measured measured{loop_s * 1e6 / static_cast<double>(outcome.offered), outcome.violation()};
  std::printf("%7u %8zu %10.0f %12.1f %9.2f %9.2f %11.2f\n", count, view.gpulets,
              static_cast<double>(outcome.offered) / outcome.seconds, measured.loop_us,
              outcome.p50_ms, outcome.p99_ms, 100 * measured.violation);
  std::fflush(stdout);
  return measured;
}

int run(const Arguments& arguments) {
  std::printf("%7s %8s %10s %12s %9s %9s %11s\n", "models", "gpulets", "requests/s", "us/request",
              "p50 ms", "p99 ms", "violated %");
  const Measured few = measure(arguments.few, arguments);
  const Measured many = measure(arguments.models, arguments);
  const double ratio = many.loop_us / few.loop_us;
  Verdicts verdicts;
  verdicts.hold(
      ratio <= arguments.aim,
      text("loop time of a request with %u models %.1f us, with %u %.1f us: %.2f times "
           "(at most %.2f)",
           arguments.models, many.loop_us, arguments.few, few.loop_us, ratio, arguments.aim));
  const double violation = std::max(few.violation, many.violation);
  verdicts.hold(violation <= 0.01, text("violations %.2f %% (at most 1 %%)", 100 * violation));
  return verdicts.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("What a request costs the frontend with thousands of models");
  options.add("--few", arguments.few).positive();
  options.add("--models", arguments.models).positive();
  options.add("--rate", arguments.rate, "of all models together, per second").positive();
  options.add("--seconds", arguments.seconds, "of each measurement").in_range(1.0, 3600.0);
  options.add("--aim", arguments.aim, "the ratio that is met");
  return run_program("models", options, arguments.programs, argc, argv,
                     [&] { return run(arguments); });
}
