// Measures how a cpu_quota device grants requested cores: a process that is busy on every core gets
// new cores every few seconds, as from a controller. Prints for each step the CPU time that the
// process used and the delay of the change.
//
//   bench_actuator [--seconds S] [--rounds N] [--out FILE.csv]      4 seconds a step, 3 rounds
//
// The delay is how far the process's CPU time lags behind a line that bends at the moment of the
// change: the mean of the rounds, to about a quota period (10 ms) times cores over the change of
// cores. It is negative if the change came early: the kernel refills a quota when it is set.
// `holder`: cores used by the process that enforces the share. On a busy machine the process gets
// fewer cores than requested; the last step (all cores) shows the available ones.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpulet/partition/drivers/drivers.h"
#include "tests/support/busy_child.h"

namespace {

using namespace gpulet;  // NOLINT(google-build-using-namespace)
using support::BusyChild;
using Clock = std::chrono::steady_clock;

constexpr double kFirst = 0.5;                      // the first step of a round
constexpr std::chrono::milliseconds kSettles(500);  // every change has taken effect by then

struct Options {
  double seconds = 4;
  int rounds = 3;
  std::string out;
};

Options read(int count, char** arguments) {
  Options options;
  for (int at = 1; at + 1 < count; at += 2) {
    const std::string_view name(arguments[at]);
    const char* const value = arguments[at + 1];
    if (name == "--seconds") options.seconds = std::atof(value);
    if (name == "--rounds") options.rounds = std::atoi(value);
    if (name == "--out") options.out = value;
  }
  return options;
}

void fail(const Status& why) {
  std::fprintf(stderr, "%s\n", why.to_string().c_str());
  std::exit(1);
}

double own_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A sample of the CPU time.
struct Look {
  Clock::time_point at;
  double used = 0;
};
Look look_at(const BusyChild& child) { return {Clock::now(), child.cpu_seconds()}; }
double cores_between(const Look& a, const Look& b) {
  return (b.used - a.used) / std::chrono::duration<double>(b.at - a.at).count();
}

// One step, summed over the rounds.
struct Step {
  double from = 0;
  double asked = 0;
  double used = 0;
  double shows_s = 0;
  double call_s = 0;
  double own_cores = 0;  // used by the enforcing process
};

std::vector<Step> steps_on(std::size_t cores) {
  std::vector<Step> steps;
  double from = kFirst;
  for (const double asked : {0.1, 0.25, 0.5, 1.0, 1.5, 0.1, 0.05, static_cast<double>(cores)}) {
    if (asked > static_cast<double>(cores)) continue;
    steps.push_back({.from = from, .asked = asked});
    from = asked;
  }
  return steps;
}

void adjust(partition::PartitionDriver& driver, double cores) {
  if (const Status adjusted = driver.adjust({1}, cores); !adjusted.ok()) fail(adjusted);
}

// Returns the cores used.
double measure(partition::PartitionDriver& driver, const BusyChild& child, double seconds,
               double used_before, Step& step) {
  const Look before = look_at(child);
  adjust(driver, step.asked);
  const Clock::time_point called = Clock::now();
  std::this_thread::sleep_for(kSettles);
  const Look settled = look_at(child);
  const double own_before = own_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const Look after = look_at(child);
  const double used = cores_between(settled, after);
  const double took_s = std::chrono::duration<double>(settled.at - before.at).count();
  step.used += used;
  step.shows_s += (settled.used - before.used - used * took_s) / (used_before - used);
  step.call_s += std::chrono::duration<double>(called - before.at).count();
  step.own_cores += (own_cpu_seconds() - own_before) / seconds;
  return used;
}

// Empty if this machine lacks the mechanism.
std::vector<Step> run(partition::CpuMechanism mechanism, const Options& options,
                      std::string& name) {
  const std::vector<std::uint32_t> cores = partition::usable_cores();
  auto made = partition::make_cpu_quota_driver(cores, mechanism);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().to_string().c_str());
    return {};
  }
  partition::PartitionDriver& driver = *made.value();
  name = driver.mechanism();
  const BusyChild child(cores.size());
  const auto granted = driver.grant({.gpulet = {1}, .share = {1}, .adjustable = true});
  if (!granted.ok()) fail(granted.status());
  if (const Status held = driver.attach({1}, child.pid()); !held.ok()) fail(held);
  if (const Status held = driver.activate({1}); !held.ok()) fail(held);

  std::vector<Step> steps = steps_on(cores.size());
  for (int round = 0; round < options.rounds; ++round) {
    adjust(driver, kFirst);
    std::this_thread::sleep_for(kSettles);
    const Look begin = look_at(child);
    std::this_thread::sleep_for(kSettles);
    double used = cores_between(begin, look_at(child));
    for (Step& step : steps) used = measure(driver, child, options.seconds, used, step);
  }
  for (Step& step : steps) {
    for (double* sum : {&step.used, &step.shows_s, &step.call_s, &step.own_cores})
      *sum /= options.rounds;
  }
  return steps;
}

std::string csv_line(const std::string& mechanism, const Step& step) {
  char line[160];
  std::snprintf(line, sizeof line, "%s,%g,%g,%.4f,%.1f,%.1f,%.2f\n", mechanism.c_str(), step.from,
                step.asked, step.used, 1e3 * step.shows_s, 1e6 * step.call_s, 100 * step.own_cores);
  return line;
}

void print(const std::string& mechanism, const std::vector<Step>& steps) {
  std::printf("%s\n  %6s %8s %8s %8s %10s %9s %9s\n", mechanism.c_str(), "from", "asked", "used",
              "off by", "shows ms", "call us", "holder %");
  for (const Step& step : steps) {
    std::printf("  %6.2f %8.2f %8.3f %+7.1f%% %10.1f %9.1f %9.2f\n", step.from, step.asked,
                step.used, 100 * (step.used / step.asked - 1), 1e3 * step.shows_s,
                1e6 * step.call_s, 100 * step.own_cores);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = read(count, arguments);
  std::string lines =
      "# bench_actuator --out docs/experiments/actuator.csv\n"
      "mechanism,cores_before,cores_asked,cores_used,shows_after_ms,call_us,holder_percent\n";
  for (const auto mechanism : {partition::CpuMechanism::cgroup, partition::CpuMechanism::pacing}) {
    std::string name;
    const std::vector<Step> steps = run(mechanism, options, name);
    if (!steps.empty()) print(name, steps);
    for (const Step& step : steps) lines += csv_line(name, step);
  }
  if (!options.out.empty()) std::ofstream(options.out) << lines;
  return 0;
}
