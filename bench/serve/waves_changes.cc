#include "bench/serve/waves_changes.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include "bench/serve/support/capacity.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"

namespace gpulet::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBackends = 4;
constexpr double kLoad = 0.6;        // of what the devices can be planned for
constexpr double kChange_s = 20;     // between two changes
constexpr double kWarm_s = 30;       // the first gpulets have to load
constexpr double kMost_s = 0.2;      // from ready to serving
constexpr double kMostMore = 0.001;  // violations beside those without changes
constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr double kAtOnce_s = 0.1;  // a gpulet that was ready by then loaded nothing
constexpr double kModel_mb = 100;
constexpr std::uint32_t kParking_mb = 2000;

// The last two change. gpulet-proxy-crashing takes as long to load a model as its name says.
constexpr std::size_t kSteady = 3;
std::vector<SiteModel> slow_models() {
  return {{.name = "tiny-loads-200", .fixed_ms = 2, .item_ms = 1, .slo_ms = 60, .rate = 100},
          {.name = "small-loads-1700", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 80, .rate = 80},
          {.name = "middle-loads-5000", .fixed_ms = 5, .item_ms = 3, .slo_ms = 120, .rate = 50},
          {.name = "large-loads-500", .fixed_ms = 10, .item_ms = 5, .slo_ms = 200, .rate = 40},
          {.name = "huge-loads-10000", .fixed_ms = 20, .item_ms = 8, .slo_ms = 300, .rate = 20}};
}

// What became of one gpulet, in seconds of the run.
struct Life {
  std::string models;
  double seen = 0;
  std::optional<double> ready;
  std::optional<double> room;  // its device first had the share for it, or less in use without it
  std::optional<double> serves;

  [[nodiscard]] double waited_s() const { return *serves - *ready; }
  [[nodiscard]] double waited_with_room_s() const { return *serves - std::max(*ready, *room); }
};

class ChangesRun {
 public:
  explicit ChangesRun(const ChangesArguments& arguments)
      : arguments_(arguments),
        half_s_(arguments.seconds / 2),
        site_{.models = slow_models(),
              .backends = kBackends,
              .proxy = "gpulet-proxy-crashing",
              .period_s = kChange_s / 2,
              .programs = arguments.programs,
              .keep = arguments.keep} {
    if (arguments.parked) {
      site_.parking_mb = kParking_mb;
      for (SiteModel& model : site_.models) model.memory_mb = kModel_mb;
    }
    const double scale = kLoad * Capacity(site_).schedulable_scale();
    for (SiteModel& model : site_.models) model.rate *= scale;
  }

  void measure() {
    Site site(site_);
    site.start_backends();
    site.wait_until_serving();
    for (std::size_t i = 0; i < site_.models.size(); ++i)
      streams_.push_back(site.stream(site_.models[i].name, rates_of(i)));
    Watch watch(site.target(), kLook);
    Traffic traffic(streams_, {.target = site.target(),
                               .seed = arguments_.seed,
                               .length = from_seconds(kWarm_s + arguments_.seconds)});
    const Clock::time_point start = Clock::now() - traffic.elapsed();
    result_ = traffic.run_out();
    for (const StatusSample& sample : watch.finish()) {
      if (sample.view) follow(*sample.view, to_seconds(sample.at - start));
    }
  }

  void print() const {
    std::printf("%8s %8s %8s %8s  %s\n", "seen s", "load s", "wait s", "in room", "models");
    for (const auto& [id, life] : lives_) {
      if (!life.ready || !life.serves) continue;
      std::printf("%8.2f %8.2f %8.2f %8.2f  %s\n", life.seen, *life.ready - life.seen,
                  life.waited_s(), life.room ? life.waited_with_room_s() : 0, life.models.c_str());
    }
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      const Outcome before = outcome_of(streams_, result_, begin(), middle(), i);
      const Outcome during = outcome_of(streams_, result_, middle(), end(), i);
      std::printf("%-18s without changes %.3f %% of %llu, with them %.3f %% of %llu\n",
                  streams_[i].model.c_str(), 100 * before.violation(),
                  static_cast<unsigned long long>(before.offered), 100 * during.violation(),
                  static_cast<unsigned long long>(during.offered));
    }
    std::printf("the load's own lag: p99 %.1f ms\n", to_ms(result_.sender_lag_p99));
  }

  void judge(Verdicts& verdicts) const {
    const double before = steady_violation(begin(), middle());
    const double during = steady_violation(middle(), end());
    verdicts.hold(during <= before + kMostMore,
                  text("violations of models that the changes do not concern %.3f %%, without "
                       "changes %.3f %% (at most 0.1 %% more)",
                       100 * during, 100 * before));
    std::size_t changed = 0;
    std::size_t held_up = 0;
    std::size_t at_once = 0;
    double longest_s = 0;
    for (const auto& [id, life] : lives_) {
      if (!changes_share(life)) continue;
      ++changed;
      if (life.waited_s() > kMost_s) ++held_up;
      if (*life.ready - life.seen <= kAtOnce_s) ++at_once;
      if (life.room) longest_s = std::max(longest_s, life.waited_with_room_s());
    }
    verdicts.hold(changed > 0 && longest_s <= kMost_s,
                  text("%zu gpulets served at most %.3f s after their load, once their device had "
                       "the share (0.2); %zu waited for share, %zu had nothing to load",
                       changed, longest_s, held_up, at_once));
    verdicts.hold(most_percent_ <= 100,
                  text("at most %.0f %% of a device in use (100)", most_percent_));
  }

 private:
  [[nodiscard]] static Duration begin() { return from_seconds(kWarm_s); }
  [[nodiscard]] Duration middle() const { return from_seconds(kWarm_s + half_s_); }
  [[nodiscard]] Duration end() const { return from_seconds(kWarm_s + arguments_.seconds); }

  // The models that change do so against each other.
  [[nodiscard]] std::vector<RateFrom> rates_of(std::size_t model) const {
    const double rate = site_.models[model].rate;
    std::vector<RateFrom> rates{{Duration{}, rate}};
    if (model < kSteady) return rates;
    bool high = model == kSteady;
    for (double at = kWarm_s + half_s_; at < kWarm_s + arguments_.seconds; at += kChange_s) {
      rates.push_back({from_seconds(at), rate * (high ? 1.6 : 0.3)});
      high = !high;
    }
    return rates;
  }

  [[nodiscard]] bool changes_share(const Life& life) const {
    return life.ready && life.serves && life.seen >= kWarm_s + half_s_;
  }

  void follow(const StatusView& view, double at_s) {
    std::map<std::string, double> percent;
    for (const StatusView::Gpulet& one : view.all_gpulets) {
      if (one.serves) percent[one.device] += one.percent;
    }
    for (const auto& [device, used] : percent) most_percent_ = std::max(most_percent_, used);
    for (const StatusView::Gpulet& one : view.all_gpulets) {
      const auto [at, is_new] = lives_.try_emplace(one.id);
      Life& life = at->second;
      if (is_new) life.seen = at_s;
      life.models = one.models;
      if (one.state == "ready" && !life.ready) life.ready = at_s;
      if (life.serves) continue;
      const double others = percent[one.device] - (one.serves ? one.percent : 0);
      if (others + one.percent <= 100 && !life.room) life.room = at_s;
      if (others + one.percent > 100) life.room.reset();
      if (one.serves) life.serves = at_s;
    }
  }

  [[nodiscard]] double steady_violation(Duration from, Duration until) const {
    std::uint64_t offered = 0;
    std::uint64_t violations = 0;
    for (std::uint32_t i = 0; i < kSteady; ++i) {
      const Outcome one = outcome_of(streams_, result_, from, until, i);
      offered += one.offered;
      violations += one.violations();
    }
    return offered == 0 ? 0 : static_cast<double>(violations) / static_cast<double>(offered);
  }

  const ChangesArguments& arguments_;
  double half_s_;
  SiteOptions site_;
  std::vector<Stream> streams_;
  TrafficResult result_;
  std::map<std::uint64_t, Life> lives_;
  double most_percent_ = 0;
};

}  // namespace

int run_changes(const ChangesArguments& arguments) {
  ChangesRun changes(arguments);
  changes.measure();
  changes.print();
  Verdicts verdicts;
  changes.judge(verdicts);
  return verdicts.exit_code();
}

}  // namespace gpulet::bench
