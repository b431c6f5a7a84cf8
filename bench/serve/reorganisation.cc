// bench_serve_reorganisation: plans change under steady load; nothing may be lost or delayed by it.
// bench/serve/README.md says what it prints.
#include <algorithm>
#include <cstdio>
#include <thread>

#include "bench/serve/support/capacity.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
using Clock = std::chrono::steady_clock;

constexpr double kLoad = 0.7;  // of the capacity
constexpr double kMost_s = 2;  // median from decision to serving
// One of the visitors comes or goes so often; loading real models takes its time.
constexpr double kChange_s = 6;
constexpr double kChangeOfRealOnes_s = 15;
constexpr Duration kLook = std::chrono::milliseconds(10);
constexpr Duration kAfterwards = std::chrono::seconds(2);  // the old gpulets' last batches
// Where the minute before has next to none, chance alone decides which minute has more.
constexpr double kNegligible = 0.001;

struct Arguments {
  double seconds = 120;
  std::uint64_t seed = 1;
  std::string models;    // of real ones; empty: made-up ones on simulated devices
  std::string profiles;  // where those were measured
  std::string keep;
  std::string programs;
};

// The last ones come and go.
constexpr std::size_t kVisitors = 2;
std::vector<SiteModel> made_up_models() {
  return {{.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 80, .rate = 150},
          {.name = "middle", .fixed_ms = 4, .item_ms = 3, .slo_ms = 120, .rate = 80},
          {.name = "large", .fixed_ms = 10, .item_ms = 5, .slo_ms = 250, .rate = 40},
          {.name = "first", .fixed_ms = 4, .item_ms = 2, .slo_ms = 150, .rate = 60},
          {.name = "second", .fixed_ms = 6, .item_ms = 4, .slo_ms = 200, .rate = 50}};
}

// One plan's way into force.
struct Reorganisation {
  Duration serving{};  // since the traffic's start, as soon as the status showed it
  Duration took{};     // from the decision, as the frontend tells it
  std::uint64_t epoch = 0;
  std::size_t gpulets_before = 0;
  std::size_t gpulets_most = 0;  // while old and new ones stood side by side

  [[nodiscard]] Duration decided() const { return serving - took; }
};

class Run {
 public:
  explicit Run(const Arguments& arguments) : arguments_(arguments) {
    site_.programs = arguments.programs;
    site_.keep = arguments.keep;
    site_.backends = kBackends;
    site_.devices_each = kDevicesEach;
    site_.period_s = 2;
    if (arguments.models.empty()) {
      models_ = made_up_models();
    } else {
      models_ = real_models(arguments.models);
      site_.measured = arguments.profiles;
      site_.backends = std::clamp(std::thread::hardware_concurrency() - 1, 1U, kBackends);
      change_s_ = kChangeOfRealOnes_s;
    }
    if (models_.size() <= kVisitors)
      throw std::runtime_error(arguments.models + ": at least three models are needed");
    steady_ = models_.size() - kVisitors;
    site_.models = models_;
    scale_ = kLoad * Capacity(site_).schedulable_scale();
    before_s_ = std::min(60.0, arguments.seconds / 2);
  }

  void measure() {
    for (std::size_t i = 0; i < models_.size(); ++i)
      site_.models[i].rate = i < steady_ ? models_[i].rate * scale_ : 0;
    Site site(site_);
    site.start_backends();
    site.wait_until_serving();
    for (std::size_t i = 0; i < models_.size(); ++i) streams_.push_back(stream_of(site, i));
    Watch watch(site.target(), kLook);
    const double length = kWarm_s + before_s_ + arguments_.seconds + kCalm_s;
    Traffic traffic(
        streams_,
        {.target = site.target(), .seed = arguments_.seed, .length = from_seconds(length)});
    start_ = Clock::now() - traffic.elapsed();
    result_ = traffic.run_out();
    find_reorganisations(watch.finish());
  }

  void print() const {
    std::printf("%8s %6s %9s %15s %13s %8s %11s\n", "s", "epoch", "took ms", "gpulets before",
                "side by side", "offered", "violation %");
    for (const Reorganisation& one : reorganisations_) {
      const Outcome close =
          steady(to_seconds(one.decided()), to_seconds(one.serving + kAfterwards));
      std::printf("%8.2f %6llu %9.0f %15zu %13zu %8llu %11.3f\n", to_seconds(one.decided()),
                  static_cast<unsigned long long>(one.epoch), to_ms(one.took), one.gpulets_before,
                  one.gpulets_most, static_cast<unsigned long long>(close.offered),
                  100 * close.violation());
    }
    std::printf("%-8s %-16s %9s %6s %8s %7s %8s %11s\n", "model", "when", "offered", "late",
                "dropped", "errors", "p99 ms", "violation %");
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      if (i < steady_) print_row(i, "before", kWarm_s, kWarm_s + before_s_);
      print_row(i, "reorganising", kWarm_s + before_s_, kWarm_s + before_s_ + arguments_.seconds);
    }
    for (const std::string& message : result_.first_messages)
      std::printf("first of its kind: %s\n", message.c_str());
    std::printf("the load's own lag: p99 %.1f ms\n", to_ms(result_.sender_lag_p99));
  }

  void judge(Verdicts& verdicts) const {
    const double from = kWarm_s + before_s_;
    const Outcome before = steady(kWarm_s, from);
    const Outcome during = steady(from, from + arguments_.seconds);
    const auto lost = std::count_if(
        result_.requests.begin(), result_.requests.end(),
        [](const Sent& sent) { return sent.fate != Fate::served && sent.fate != Fate::dropped; });
    verdicts.hold(lost == 0, text("%lld requests lost or failed of %zu (0)",
                                  static_cast<long long>(lost), result_.requests.size()));
    verdicts.hold(
        during.violation() <= std::max(before.violation(), kNegligible),
        text("violations of the steady models while plans changed %.3f %% of %llu, in the "
             "%.0f s before %.3f %% (no more, or below 0.1 %%)",
             100 * during.violation(), static_cast<unsigned long long>(during.offered), before_s_,
             100 * before.violation()));
    const Outcome close = beside_reorganisations();
    verdicts.hold(close.violation() <= std::max(before.violation(), kNegligible),
                  text("the same from each decision until 2 s after it serves: %.3f %% of %llu",
                       100 * close.violation(), static_cast<unsigned long long>(close.offered)));
    std::size_t plans = 0;
    std::vector<double> took;  // of those that made gpulets: the others serve at once
    for (const Reorganisation& one : reorganisations_) {
      if (to_seconds(one.decided()) < from) continue;
      ++plans;
      if (one.took >= from_ms(1)) took.push_back(to_seconds(one.took));
    }
    std::sort(took.begin(), took.end());
    const bool enough = static_cast<double>(plans) >= arguments_.seconds / (2 * change_s_);
    verdicts.hold(enough, text("%zu reorganisations in %.0f s, %zu of them with new gpulets", plans,
                               arguments_.seconds, took.size()));
    if (took.empty()) return;
    const double median = took[(took.size() - 1) / 2];
    verdicts.hold(
        median <= kMost_s,
        text("from decision to new gpulets serving: median %.3f s, at worst %.3f s (median "
             "at most %.0f s)",
             median, took.back(), kMost_s));
  }

 private:
  static constexpr std::uint32_t kBackends = 2;
  static constexpr std::uint32_t kDevicesEach = 2;
  static constexpr double kWarm_s = 10;
  static constexpr double kCalm_s = 3;

  // The steady models keep their rates; the visitors come and go in turn, together now and then.
  Stream stream_of(const Site& site, std::size_t model) const {
    const double rate = models_[model].rate * scale_;
    std::vector<RateFrom> rates;
    if (model < steady_) {
      rates.push_back({Duration{}, rate});
    } else {
      const double from = kWarm_s + before_s_;
      int turn = 0;
      for (double at = 0; at + change_s_ <= arguments_.seconds; at += change_s_, ++turn) {
        const bool here = model == steady_ ? turn % 4 < 2 : turn % 4 == 1 || turn % 4 == 2;
        rates.push_back({from_seconds(from + at), here ? rate : 0});
      }
      rates.push_back({from_seconds(from + arguments_.seconds), 0});
    }
    return site.stream(models_[model].name, rates);
  }

  void find_reorganisations(const std::vector<StatusSample>& samples) {
    std::uint64_t epoch = 0;
    std::size_t before = 0;
    std::size_t most = 0;
    for (const StatusSample& sample : samples) {
      if (!sample.view) continue;
      const StatusView& view = *sample.view;
      most = std::max(most, view.gpulets);
      if (epoch != 0 && view.epoch > epoch) {
        const Duration at = sample.at + sample.took - start_;
        reorganisations_.push_back({at, from_ms(view.last_took_ms), view.epoch, before, most});
      }
      epoch = view.epoch;
      if (view.reorganising) continue;
      before = view.gpulets;
      most = before;
    }
  }

  void print_row(std::uint32_t stream, const char* when, double from, double until) const {
    const Outcome of =
        outcome_of(streams_, result_, from_seconds(from), from_seconds(until), stream);
    std::printf("%-8s %-16s %9llu %6llu %8llu %7llu %8.1f %11.3f\n", streams_[stream].model.c_str(),
                when, static_cast<unsigned long long>(of.offered),
                static_cast<unsigned long long>(of.late),
                static_cast<unsigned long long>(of.dropped),
                static_cast<unsigned long long>(of.errors), of.p99_ms, 100 * of.violation());
  }

  static void add(Outcome& sum, const Outcome& one) {
    sum.offered += one.offered;
    sum.served += one.served;
    sum.late += one.late;
    sum.dropped += one.dropped;
    sum.errors += one.errors;
  }

  [[nodiscard]] Outcome steady(double from, double until) const {
    Outcome sum;
    for (std::uint32_t i = 0; i < steady_; ++i)
      add(sum, outcome_of(streams_, result_, from_seconds(from), from_seconds(until), i));
    return sum;
  }

  [[nodiscard]] Outcome beside_reorganisations() const {
    Outcome sum;
    const double forced_from = kWarm_s + before_s_;
    double from = forced_from;
    for (const Reorganisation& one : reorganisations_) {
      const double until = to_seconds(one.serving + kAfterwards);
      from = std::max(from, to_seconds(one.decided()));
      if (until > from) add(sum, steady(from, until));
      from = std::max(from, until);
    }
    return sum;
  }

  const Arguments& arguments_;
  SiteOptions site_;
  std::vector<SiteModel> models_;
  std::size_t steady_ = 0;
  double scale_ = 1;
  double change_s_ = kChange_s;
  double before_s_ = 60;
  std::vector<Stream> streams_;
  Clock::time_point start_;
  TrafficResult result_;
  std::vector<Reorganisation> reorganisations_;
};

int run(const Arguments& arguments) {
  Run one(arguments);
  one.measure();
  one.print();
  Verdicts verdicts;
  one.judge(verdicts);
  return verdicts.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("What changing plans costs the models that are served all along");
  options.add("--seconds", arguments.seconds, "of changing plans, after at most a minute without")
      .in_range(12.0, 36000.0);
  options.add("--seed", arguments.seed, "of the arrivals");
  Option models = options.add("--models", arguments.models,
                              "models.json of real models, for this machine's cores");
  Option profiles = options.add("--profiles", arguments.profiles, "directory with their profile");
  models.needs(profiles);
  profiles.needs(models);
  options.add("--keep", arguments.keep, "leave configuration and logs in this directory");
  return run_program("reorganisation", options, arguments.programs, argc, argv,
                     [&] { return run(arguments); });
}
