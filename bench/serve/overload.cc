// bench_serve_overload: past capacity the goodput must hold, not collapse. Real processes,
// simulated devices; one model alone, then several at once. bench/serve/README.md says what it
// prints.
#include <algorithm>
#include <cstdio>

#include "bench/serve/support/capacity.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;

constexpr double kGoodputKept = 0.95;
constexpr double kResponsive_ms = 100;

struct Arguments {
  double seconds = 60;
  std::uint64_t seed = 1;
  std::string only;
  std::string programs;
};

struct Case {
  std::string name;
  std::vector<SiteModel> models;
  std::uint32_t backends;
};

// One part of the load: so many times the capacity, for so long.
struct Phase {
  const char* name;
  double times_capacity;
  double seconds;
};

std::vector<Case> cases() {
  const SiteModel small{.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 80, .rate = 300};
  const SiteModel middle{.name = "middle", .fixed_ms = 4, .item_ms = 3, .slo_ms = 120, .rate = 150};
  const SiteModel large{.name = "large", .fixed_ms = 10, .item_ms = 5, .slo_ms = 250, .rate = 80};
  const SiteModel rare{.name = "rare", .fixed_ms = 6, .item_ms = 4, .slo_ms = 150, .rate = 15};
  return {{"alone", {small}, 1}, {"several", {small, middle, large, rare}, 3}};
}

void print_row(const char* phase, const char* model, const Outcome& of) {
  std::printf("%-12s %-8s %9.1f %9.1f %9.1f %8llu %8llu %8llu %8.1f %8.1f\n", phase, model,
              static_cast<double>(of.offered) / of.seconds,
              static_cast<double>(of.served) / of.seconds, of.goodput(),
              static_cast<unsigned long long>(of.late), static_cast<unsigned long long>(of.dropped),
              static_cast<unsigned long long>(of.errors), of.p50_ms, of.p99_ms);
}

class Run {
 public:
  Run(const Case& of, const Arguments& arguments)
      : case_(of),
        arguments_(arguments),
        scale_(Capacity({.models = of.models, .backends = of.backends}).schedulable_scale()) {
    const double around = std::max(arguments.seconds / 3, 5.0);
    phases_ = {{"warm", 0.5, std::max(around / 2, 5.0)},
               {"1.0 x", 1.0, around},
               {"1.25 x", 1.25, around},
               {"1.5 x", 1.5, around},
               {"2.0 x", 2.0, arguments.seconds},
               {"0.7 x after", 0.7, around}};
  }

  void measure(Verdicts& verdicts) {
    SiteOptions options{
        .models = case_.models, .backends = case_.backends, .programs = arguments_.programs};
    for (SiteModel& model : options.models) model.rate *= scale_ / 2;
    Site site(options);
    site.start_backends();
    site.wait_until_serving();
    for (const SiteModel& model : case_.models) streams_.push_back(stream_of(site, model));
    Duration length{};
    for (const Phase& phase : phases_) length += from_seconds(phase.seconds);
    Watch watch(site.target(), std::chrono::milliseconds(100));
    Traffic traffic(streams_, {.target = site.target(), .seed = arguments_.seed, .length = length});
    result_ = traffic.run_out();
    samples_ = watch.finish();
    print();
    judge(verdicts);
  }

 private:
  Stream stream_of(const Site& site, const SiteModel& model) const {
    std::vector<RateFrom> rates;
    Duration at{};
    for (const Phase& phase : phases_) {
      rates.push_back({at, model.rate * scale_ * phase.times_capacity});
      at += from_seconds(phase.seconds);
    }
    return site.stream(model.name, rates);
  }

  // Without the first seconds of a phase, in which a plan follows the new rate, where `settled`.
  [[nodiscard]] Outcome of_phase(std::size_t phase, bool settled,
                                 std::uint32_t stream = kAllStreams) const {
    double from = 0;
    for (std::size_t i = 0; i < phase; ++i) from += phases_[i].seconds;
    const double until = from + phases_[phase].seconds;
    if (settled) from += std::min(5.0, phases_[phase].seconds / 2);
    return outcome_of(streams_, result_, from_seconds(from), from_seconds(until), stream);
  }

  void print() const {
    std::printf("\n%s: %zu models on %u devices; capacity by the plan:", case_.name.c_str(),
                case_.models.size(), case_.backends);
    for (const SiteModel& model : case_.models)
      std::printf(" %s %.0f/s", model.name.c_str(), model.rate * scale_);
    std::printf("\n%-12s %-8s %9s %9s %9s %8s %8s %8s %8s %8s\n", "load", "model", "offered/s",
                "served/s", "goodput/s", "late", "dropped", "errors", "p50 ms", "p99 ms");
    for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
      for (std::uint32_t i = 0; i < streams_.size(); ++i)
        print_row(phases_[phase].name, streams_[i].model.c_str(), of_phase(phase, false, i));
      if (streams_.size() > 1) print_row(phases_[phase].name, "all", of_phase(phase, false));
    }
    for (const std::string& message : result_.first_messages)
      std::printf("first of its kind: %s\n", message.c_str());
    std::printf("the load's own lag: p99 %.1f ms\n", to_ms(result_.sender_lag_p99));
  }

  void judge(Verdicts& verdicts) const {
    const char* name = case_.name.c_str();
    const double at_capacity = of_phase(1, true).goodput();
    const Outcome over = of_phase(4, false);
    verdicts.hold(over.goodput() >= kGoodputKept * at_capacity,
                  text("%s: goodput at twice the capacity %.1f/s, at capacity %.1f/s: %.1f %% "
                       "(at least 95 %%)",
                       name, over.goodput(), at_capacity, 100 * over.goodput() / at_capacity));
    double best = 0;
    for (std::size_t phase = 1; phase < 4; ++phase)
      best = std::max(best, of_phase(phase, true).goodput());
    verdicts.hold(over.goodput() >= kGoodputKept * best,
                  text("%s: the same beside the best goodput of any lower load, %.1f/s: %.1f %% "
                       "(at least 95 %%)",
                       name, best, 100 * over.goodput() / best));
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      const Outcome one = of_phase(4, false, i);
      verdicts.hold(one.served > 0 && one.p99_ms <= to_ms(streams_[i].slo),
                    text("%s: p99 of the answered of %s at twice the capacity %.1f ms (SLO %.0f)",
                         name, streams_[i].model.c_str(), one.p99_ms, to_ms(streams_[i].slo)));
    }
    const Outcome after = of_phase(5, true);
    verdicts.hold(after.violation() < 0.01,
                  text("%s: violations at 0.7 of the capacity afterwards %.2f %% (under 1 %%)",
                       name, 100 * after.violation()));
    judge_status(verdicts);
    verdicts.hold(result_.second_answers + result_.answers_to_nothing == 0 &&
                      count(Fate::unanswered) + count(Fate::connection_lost) == 0,
                  text("%s: %zu requests, each answered once", name, result_.requests.size()));
  }

  [[nodiscard]] std::int64_t count(Fate fate) const {
    return std::count_if(result_.requests.begin(), result_.requests.end(),
                         [fate](const Sent& sent) { return sent.fate == fate; });
  }

  void judge_status(Verdicts& verdicts) const {
    double worst_ms = 0;
    std::size_t slow = 0;
    for (const StatusSample& sample : samples_) {
      const double took = to_ms(sample.took);
      worst_ms = std::max(worst_ms, took);
      if (!sample.view || took > kResponsive_ms) ++slow;
    }
    verdicts.hold(slow == 0, text("%s: status asked %zu times all along, at worst %.1f ms (100 ms)",
                                  case_.name.c_str(), samples_.size(), worst_ms));
  }

  const Case& case_;
  const Arguments& arguments_;
  double scale_;
  std::vector<Phase> phases_;
  std::vector<Stream> streams_;
  TrafficResult result_;
  std::vector<StatusSample> samples_;
};

int run(const Arguments& arguments) {
  Verdicts verdicts;
  for (const Case& one : cases()) {
    if (arguments.only.empty() || arguments.only == one.name) Run(one, arguments).measure(verdicts);
  }
  return verdicts.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("Goodput, latency and responsiveness at twice the capacity");
  options.add("--seconds", arguments.seconds, "at twice the capacity; the rest follows")
      .in_range(3.0, 3600.0);
  options.add("--seed", arguments.seed, "of the arrivals");
  options.add("--only", arguments.only, "one case").one_of({"alone", "several"});
  return run_program("overload", options, arguments.programs, argc, argv,
                     [&] { return run(arguments); });
}
