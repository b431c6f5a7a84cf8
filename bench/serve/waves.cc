// bench_serve_waves: two waves of load, as in gpulet figure 15 in less time, on eight backends of
// simulated devices. Devices in use must follow the load both ways, with few violations.
// bench/serve/README.md says what it prints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numbers>

#include "bench/serve/support/capacity.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/serve/waves_changes.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBackends = 8;
constexpr double kPaperSeconds = 3200;
constexpr double kPaperPeriod_s = 20;
constexpr double kTrough = 0.12;   // between the waves, of the highest
constexpr double kLag = 0.08;      // of a wave, from one model's peak to the next one's
constexpr double kHighest = 0.85;  // of what eight devices can be planned for
constexpr double kWorstViolation = 0.01;

struct Arguments {
  double seconds = 320;
  std::uint64_t seed = 1;
  bool changes = false;
  bool parked = false;
  std::string csv;
  std::string keep;
  std::string programs;
};

struct Wave {
  double begin;  // of the whole run
  double end;
  double height;
};
constexpr Wave kWaves[] = {{0, 0.375, 0.6}, {0.4375, 1, 1}};  // the second is higher

double wave_at(double part, double lag) {
  double height = kTrough;
  for (const Wave& wave : kWaves) {
    const double at = (part - wave.begin) / (wave.end - wave.begin) - lag;
    if (at <= 0 || at >= 1) continue;
    const double raised_cosine = (1 - std::cos(2 * std::numbers::pi * at)) / 2;
    height = std::max(height, kTrough + (wave.height - kTrough) * raised_cosine);
  }
  return height;
}

std::vector<SiteModel> models() {
  return {{.name = "tiny", .fixed_ms = 2, .item_ms = 1, .slo_ms = 60, .rate = 100},
          {.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 80, .rate = 80},
          {.name = "middle", .fixed_ms = 5, .item_ms = 3, .slo_ms = 120, .rate = 50},
          {.name = "large", .fixed_ms = 10, .item_ms = 5, .slo_ms = 200, .rate = 40},
          {.name = "huge", .fixed_ms = 20, .item_ms = 8, .slo_ms = 300, .rate = 20}};
}

// One line of the series.
struct Step {
  double at_s = 0;
  double rate = 0;  // meant
  Outcome outcome;
  double devices = 0;  // mean
  double needed = 0;   // devices of a plan made anew for the rate of the moment
  double share = 0;    // percent of a device, of all gpulets together; mean
  std::uint64_t epoch = 0;
};

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments),
        period_s_(std::max(1.0, kPaperPeriod_s * arguments.seconds / kPaperSeconds)),
        models_(models()),
        capacity_({.models = models_, .backends = kBackends}) {
    scale_ = kHighest * capacity_.schedulable_scale();
  }

  void measure() {
    SiteOptions options{.models = models_,
                        .backends = kBackends,
                        .period_s = period_s_,
                        .programs = arguments_.programs,
                        .keep = arguments_.keep};
    for (std::size_t i = 0; i < models_.size(); ++i) options.models[i].rate = rate(i, 0);
    Site site(options);
    site.start_backends();
    site.wait_until_serving();
    for (std::size_t i = 0; i < models_.size(); ++i) streams_.push_back(stream_of(site, i));
    Watch watch(site.target(), std::chrono::milliseconds(100));
    Traffic traffic(streams_, {.target = site.target(),
                               .seed = arguments_.seed,
                               .length = from_seconds(arguments_.seconds)});
    start_ = Clock::now() - traffic.elapsed();
    result_ = traffic.run_out();
    samples_ = watch.finish();
    make_series();
  }

  void print() const {
    std::printf("%7s %9s %9s %8s %7s %7s %6s %8s %6s %8s %7s %10s\n", "s", "rate/s", "offered/s",
                "devices", "needed", "share%", "epoch", "dropped", "late", "errors", "p99 ms",
                "violation%");
    for (const Step& step : series_) {
      const Outcome& of = step.outcome;
      std::printf("%7.1f %9.1f %9.1f %8.2f %7.0f %7.0f %6llu %8llu %6llu %8llu %7.1f %10.2f\n",
                  step.at_s, step.rate, static_cast<double>(of.offered) / of.seconds, step.devices,
                  step.needed, step.share, static_cast<unsigned long long>(step.epoch),
                  static_cast<unsigned long long>(of.dropped),
                  static_cast<unsigned long long>(of.late),
                  static_cast<unsigned long long>(of.errors), of.p99_ms, 100 * of.violation());
    }
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      const Outcome of = whole(i);
      std::printf(
          "%-8s offered %llu dropped %llu late %llu errors %llu p99 %.1f ms (SLO %.0f) "
          "violation %.2f %%\n",
          streams_[i].model.c_str(), static_cast<unsigned long long>(of.offered),
          static_cast<unsigned long long>(of.dropped), static_cast<unsigned long long>(of.late),
          static_cast<unsigned long long>(of.errors), of.p99_ms, to_ms(streams_[i].slo),
          100 * of.violation());
    }
    for (const std::string& message : result_.first_messages)
      std::printf("first of its kind: %s\n", message.c_str());
    std::printf(
        "devices in use, mean: %.2f; of plans made anew for the rate of each moment: %.2f\n",
        mean(&Step::devices), mean(&Step::needed));
    std::printf("the load's own lag: p99 %.1f ms\n", to_ms(result_.sender_lag_p99));
  }

  void write_csv() const {
    if (arguments_.csv.empty()) return;
    std::ofstream file(arguments_.csv);
    file << "time_s,rate,offered,served,dropped,late,errors,devices,devices_needed,share_percent,"
            "epoch,p99_ms";
    for (const Stream& stream : streams_) file << ",rate_" << stream.model;
    file << "\n";
    for (const Step& step : series_) {
      const Outcome& of = step.outcome;
      file << text(
          "%.2f,%.2f,%llu,%llu,%llu,%llu,%llu,%.3f,%.0f,%.1f,%llu,%.2f", step.at_s, step.rate,
          static_cast<unsigned long long>(of.offered), static_cast<unsigned long long>(of.served),
          static_cast<unsigned long long>(of.dropped), static_cast<unsigned long long>(of.late),
          static_cast<unsigned long long>(of.errors), step.devices, step.needed, step.share,
          static_cast<unsigned long long>(step.epoch), of.p99_ms);
      for (std::size_t i = 0; i < models_.size(); ++i) file << text(",%.2f", rate(i, step.at_s));
      file << "\n";
    }
  }

  void judge(Verdicts& verdicts) const {
    const Outcome all = whole(kAllStreams);
    verdicts.hold(all.violation() < kWorstViolation,
                  text("violations of the whole run %.3f %% of %llu (under 1 %%)",
                       100 * all.violation(), static_cast<unsigned long long>(all.offered)));
    const double first = most_devices(kWaves[0].begin, kWaves[0].end);
    const double between = fewest_devices(kWaves[0].end - 0.03, kWaves[1].begin + 0.12);
    const double second = most_devices(kWaves[1].begin, kWaves[1].end);
    const double after = fewest_devices(0.93, 1.01);
    verdicts.hold(first >= between + 2 && second > first && second >= after + 2,
                  text("devices in use follow the load: first wave %.1f, between %.1f, second wave "
                       "%.1f, at the end %.1f",
                       first, between, second, after));
    verdicts.hold(result_.second_answers + result_.answers_to_nothing == 0 && all.errors == 0,
                  text("%zu requests, each answered once, %llu errors", result_.requests.size(),
                       static_cast<unsigned long long>(all.errors)));
  }

 private:
  [[nodiscard]] double rate(std::size_t model, double at_s) const {
    const double lag =
        kLag * (2 * static_cast<double>(model) / static_cast<double>(models_.size() - 1) - 1);
    return models_[model].rate * scale_ * wave_at(at_s / arguments_.seconds, lag);
  }

  Stream stream_of(const Site& site, std::size_t model) const {
    std::vector<RateFrom> rates;
    // Ten steps a period: the load changes smoothly under the scheduler, as waves do.
    for (double at = 0; at < arguments_.seconds; at += period_s_ / 10)
      rates.push_back({from_seconds(at), rate(model, at + period_s_ / 20)});
    return site.stream(models_[model].name, rates);
  }

  [[nodiscard]] Outcome whole(std::uint32_t stream) const {
    return outcome_of(streams_, result_, {}, from_seconds(arguments_.seconds), stream);
  }

  void make_series() {
    for (double at = 0; at < arguments_.seconds; at += period_s_) {
      Step step;
      step.at_s = at;
      std::vector<double> rates;
      for (std::size_t i = 0; i < models_.size(); ++i) {
        rates.push_back(rate(i, at + period_s_ / 2));
        step.rate += rates.back();
      }
      step.needed = capacity_.devices_for(rates).value_or(kBackends);
      step.outcome = outcome_of(streams_, result_, from_seconds(at), from_seconds(at + period_s_));
      double seen = 0;
      for (const StatusSample& sample : samples_) {
        const double second = to_seconds(sample.at - start_);
        if (!sample.view || second < at || second >= at + period_s_) continue;
        ++seen;
        step.devices += static_cast<double>(sample.view->devices_in_use);
        step.share += sample.view->share_percent;
        step.epoch = sample.view->epoch;
      }
      if (seen > 0) {
        step.devices /= seen;
        step.share /= seen;
      }
      series_.push_back(step);
    }
  }

  [[nodiscard]] std::vector<double> devices_within(double from, double until) const {
    std::vector<double> devices;
    for (const Step& step : series_) {
      const double part = step.at_s / arguments_.seconds;
      if (part >= from && part < until) devices.push_back(step.devices);
    }
    return devices;
  }
  [[nodiscard]] double most_devices(double from, double until) const {
    const std::vector<double> devices = devices_within(from, until);
    return devices.empty() ? 0 : *std::max_element(devices.begin(), devices.end());
  }
  [[nodiscard]] double fewest_devices(double from, double until) const {
    const std::vector<double> devices = devices_within(from, until);
    return devices.empty() ? 0 : *std::min_element(devices.begin(), devices.end());
  }

  [[nodiscard]] double mean(double Step::*figure) const {
    double sum = 0;
    for (const Step& step : series_) sum += step.*figure;
    return sum / static_cast<double>(series_.size());
  }

  const Arguments& arguments_;
  double period_s_;
  std::vector<SiteModel> models_;
  Capacity capacity_;
  double scale_ = 1;
  std::vector<Stream> streams_;
  Clock::time_point start_;
  TrafficResult result_;
  std::vector<StatusSample> samples_;
  std::vector<Step> series_;
};

int run(const Arguments& arguments) {
  if (arguments.changes)
    return run_changes(
        {arguments.seconds, arguments.seed, arguments.parked, arguments.keep, arguments.programs});
  Run waves(arguments);
  waves.measure();
  waves.print();
  waves.write_csv();
  Verdicts verdicts;
  waves.judge(verdicts);
  return verdicts.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("Devices in use and violations under two waves of load");
  options.add("--seconds", arguments.seconds, "of the two waves; the paper's took 3200")
      .in_range(100.0, 36000.0);
  options.add("--seed", arguments.seed, "of the arrivals");
  options.add_flag("--changes", arguments.changes,
                   "in place of waves: models that take 0.2 to 10 s to load, two of which change "
                   "their load every 20 s in the second half");
  options.add_flag("--parked", arguments.parked,
                   "with --changes: backends keep processes for later gpulets and load some ahead");
  options.add("--csv", arguments.csv, "write the series to this file");
  options.add("--keep", arguments.keep, "leave configuration and logs in this directory");
  return run_program("waves", options, arguments.programs, argc, argv,
                     [&] { return run(arguments); });
}
