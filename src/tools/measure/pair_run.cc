#include "tools/measure/pair_run.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "tools/measure/measured_proxy.h"
#include "tools/measure/measurement_quality.h"
#include "tools/measure/parked_gpulets.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kStoreInterval = std::chrono::seconds(10);
// Of the free memory. The rest is for what a loaded model needs while it runs.
constexpr double kUsedMemory = 0.85;
// Of a model whose profile has no memory.
constexpr double kUnknownNeedMb = 4096;
// A gpulet that failed so often is not loaded again.
constexpr int kMostFailures = 2;

// A gpulet that is kept busy with batches.
struct BusyGpulet {
  MeasuredProxy& proxy;
  std::uint32_t batch = 0;
  SustainedTime time;
  std::optional<Clock::time_point> previous{};
  std::size_t in_flight = 0;

  [[nodiscard]] Status fill() {
    while (in_flight < MeasuredProxy::kInFlight) {
      if (Status sent = proxy.submit(batch); !sent.ok()) return sent;
      ++in_flight;
    }
    return {};
  }
  // REQUIRES: proxy.has_next().
  [[nodiscard]] Status take(bool counts) {
    GPULET_TRY(const auto response, proxy.next());
    --in_flight;
    if (counts && previous) time.add(response.at - *previous);
    previous = response.at;
    return {};
  }
};

class PairMeasurement {
 public:
  PairMeasurement(const PairRunOptions& options, MeasuredDevice& device, std::ostream& progress,
                  const StorePairs& store)
      : options_(options),
        device_(device),
        progress_(progress),
        store_(store),
        gpulets_({.models = options.models,
                  .proxies = options.proxies,
                  .largest_batch = [this](const PairSide& side) { return largest_.at(side); },
                  .loads_at_once = options.loads_at_once},
                 device) {
    for (const PairGroup& group : options.groups) {
      for (const auto& [one, other] : group.batches) {
        largest_[group.first] = std::max(largest_[group.first], one);
        largest_[group.second] = std::max(largest_[group.second], other);
      }
    }
  }

  [[nodiscard]] Result<PairRun> run() {
    deadline_ = Clock::now() + options_.budget;
    last_store_ = Clock::now();
    Status status;
    for (const PairRound& round : plan_rounds(options_.groups, space(), need(), options_.seed)) {
      status = measure_round(round);
      if (!status.ok() || Clock::now() >= deadline_) break;
    }
    if (status.ok()) status = gpulets_.stop();
    set_drift();
    if (status.code() == StatusCode::cancelled) {
      store_(run_);
      return status;
    }
    if (!status.ok()) add_failure(status);
    return std::move(run_);
  }

 private:
  [[nodiscard]] ParkingSpace space() const {
    const auto free_mb = free_memory_mb(device_);
    return {device_.most_gpulets, kUsedMemory * free_mb.value_or(0)};
  }
  [[nodiscard]] NeedOfModel need() const {
    return [this](const std::string& name) {
      const profile::ModelProfile* const model = options_.profile.find(name);
      return model == nullptr ? kUnknownNeedMb : model->memory_mb.value_or(kUnknownNeedMb);
    };
  }

  // Fails with cancelled only.
  [[nodiscard]] Status measure_round(const PairRound& round) {
    if (Status loaded = load(round.gpulets); !loaded.ok()) return loaded;
    for (const PairVisit& visit : round.visits) {
      if (Clock::now() >= deadline_) return {};
      if (Status ready = load_again(visit, round.gpulets); !ready.ok()) return ready;
      if (!is_loaded(visit)) continue;
      const Status measured = measure_pair(visit);
      if (measured.code() == StatusCode::cancelled) return measured;
      if (!measured.ok()) give_up(visit, measured);
      if (Clock::now() < last_store_ + kStoreInterval) continue;
      set_drift();
      store_(run_);
      last_store_ = Clock::now();
    }
    return {};
  }

  // Loads those that have not failed too often. Fails with cancelled only.
  [[nodiscard]] Status load(const std::set<PairGpulet>& wanted) {
    std::set<PairGpulet> possible;
    for (const PairGpulet& gpulet : wanted)
      if (failures_[gpulet] < kMostFailures) possible.insert(gpulet);
    std::size_t loaded = 0;
    const auto failures = gpulets_.keep(possible, [&](const PairGpulet& gpulet) {
      progress_ << "loaded " << gpulet.side.model << " at " << gpulet.side.share.percent << " % ("
                << ++loaded << " of at most " << possible.size() << ")\n"
                << std::flush;
      return Clock::now() < deadline_;
    });
    if (failures.status().code() == StatusCode::cancelled) return failures.status();
    if (!failures.ok()) {
      add_failure(failures.status());
      return {};
    }
    for (const auto& [gpulet, why] : failures.value()) {
      failures_[gpulet] = kMostFailures;
      add_failure(why);
    }
    return {};
  }

  // The gpulets of a failed pair were ended.
  [[nodiscard]] Status load_again(const PairVisit& visit, const std::set<PairGpulet>& wanted) {
    const auto lost = [this](const PairGpulet& gpulet) {
      return gpulets_.find(gpulet) == nullptr && failures_[gpulet] < kMostFailures;
    };
    if (!lost(visit.first) && !lost(visit.second)) return {};
    return load(wanted);
  }

  [[nodiscard]] bool is_loaded(const PairVisit& visit) const {
    return gpulets_.find(visit.first) != nullptr && gpulets_.find(visit.second) != nullptr;
  }

  // Ends both gpulets: it is not known which of them failed.
  void give_up(const PairVisit& visit, const Status& why) {
    for (const PairGpulet& gpulet : {visit.first, visit.second}) {
      ++failures_[gpulet];
      gpulets_.drop(gpulet);
    }
    add_failure(why.within(visit.first.side.model + " beside " + visit.second.side.model));
  }

  void add_failure(const Status& failure) {
    progress_ << "  not measured: " << failure.message() << '\n' << std::flush;
    run_.failures.push_back(failure);
  }

  [[nodiscard]] Status measure_pair(const PairVisit& visit) {
    MeasuredProxy& first = *gpulets_.find(visit.first);
    MeasuredProxy& second = *gpulets_.find(visit.second);
    const profile::CoRunner one = runner(visit.first.side, visit.first_batch);
    const profile::CoRunner other = runner(visit.second.side, visit.second_batch);
    GPULET_TRY(const auto first_alone, alone_ms(first, one));
    GPULET_TRY(const auto second_alone, alone_ms(second, other));
    if (Status set = simulate_both(first, one, second, other); !set.ok()) return set;
    BusyGpulet busy{first, one.batch, SustainedTime(device_.averaging_block)};
    BusyGpulet busy_other{second, other.batch, SustainedTime(device_.averaging_block)};
    if (Status ran = run_together({&busy, &busy_other}, options_.per_run); !ran.ok()) return ran;
    keep(visit, {first_alone, busy.time.median_ms()}, {second_alone, busy_other.time.median_ms()});
    return {};
  }

  static profile::CoRunner runner(const PairSide& side, std::uint32_t batch) {
    return {side.model, batch, side.share};
  }

  // The times of a simulated device; nothing on others.
  [[nodiscard]] Status simulate_both(MeasuredProxy& first, const profile::CoRunner& one,
                                     MeasuredProxy& second, const profile::CoRunner& other) {
    if (device_.simulated == nullptr) return {};
    GPULET_TRY(const auto first_takes, device_.simulated->beside(one, other));
    GPULET_TRY(const auto second_takes, device_.simulated->beside(other, one));
    first.set_simulated_latency(first_takes);
    second.set_simulated_latency(second_takes);
    return {};
  }

  // Keeps all gpulets busy for at least that time and until each has run kFewestRuns batches.
  [[nodiscard]] Status run_together(std::vector<BusyGpulet*> gpulets, Duration length) {
    const auto end = Clock::now() + length;
    const auto all_done = [&gpulets, end] {
      return Clock::now() >= end &&
             std::all_of(gpulets.begin(), gpulets.end(),
                         [](BusyGpulet* one) { return one->time.batches() >= kFewestRuns; });
    };
    bool done = false;
    while (true) {
      std::size_t in_flight = 0;
      for (BusyGpulet* const gpulet : gpulets) {
        if (!done) {
          if (Status filled = gpulet->fill(); !filled.ok()) return filled;
        }
        in_flight += gpulet->in_flight;
      }
      if (in_flight == 0) return {};
      const auto any_response = [&gpulets] {
        return std::any_of(gpulets.begin(), gpulets.end(), [](BusyGpulet* one) {
          return one->in_flight > 0 && one->proxy.has_next();
        });
      };
      Status waited = gpulets_.loop().wait(any_response, MeasuredProxy::kBatchTimeout, "a batch");
      if (!waited.ok()) return waited;
      for (BusyGpulet* const gpulet : gpulets) {
        if (gpulet->in_flight == 0 || !gpulet->proxy.has_next()) continue;
        // Batches that end after the measurement did not run beside the other gpulet all the time.
        if (Status taken = gpulet->take(!done); !taken.ok()) return taken;
      }
      done = done || all_done();
    }
  }

  // The time per batch alone, after a warm-up.
  [[nodiscard]] Result<double> alone_ms(MeasuredProxy& proxy, const profile::CoRunner& one) {
    if (device_.simulated != nullptr) {
      GPULET_TRY(const auto takes, device_.simulated->alone(one));
      proxy.set_simulated_latency(takes);
    }
    BusyGpulet warm{proxy, one.batch, SustainedTime(device_.averaging_block)};
    Status ran = run_together({&warm}, options_.per_run / kWarmUpFraction);
    if (!ran.ok()) return ran;
    BusyGpulet measured{proxy, one.batch, SustainedTime(device_.averaging_block)};
    ran = run_together({&measured}, options_.per_run);
    if (!ran.ok()) return ran;
    return measured.time.median_ms();
  }

  struct Times {
    double alone_ms = 0;
    double together_ms = 0;

    [[nodiscard]] double slowdown() const { return together_ms / alone_ms; }
  };

  void keep(const PairVisit& visit, const Times& first, const Times& second) {
    const PairSide& one = visit.first.side;
    const PairSide& other = visit.second.side;
    drifts_.push_back(first.alone_ms / profiled_ms(one, visit.first_batch));
    drifts_.push_back(second.alone_ms / profiled_ms(other, visit.second_batch));
    if (one == other && visit.first_batch == visit.second_batch) {
      keep(one, visit.first_batch, other, visit.second_batch,
           (first.slowdown() + second.slowdown()) / 2);
    } else {
      keep(one, visit.first_batch, other, visit.second_batch, first.slowdown());
      keep(other, visit.second_batch, one, visit.first_batch, second.slowdown());
    }
    ++run_.measured;
    progress_ << one.model << " x" << visit.first_batch << " at " << one.share.percent
              << " % beside " << other.model << " x" << visit.second_batch << " at "
              << other.share.percent << " %: " << fixed(first.slowdown(), 2) << ", "
              << fixed(second.slowdown(), 2) << '\n'
              << std::flush;
  }

  void keep(const PairSide& side, std::uint32_t batch, const PairSide& other,
            std::uint32_t other_batch, double slowdown) {
    run_.pairs.push_back({side.model, batch, side.share, other.model, other_batch, other.share,
                          profiled_ms(side, batch) * slowdown});
  }

  [[nodiscard]] double profiled_ms(const PairSide& side, std::uint32_t batch) const {
    // The plan contains measured cells only.
    return options_.profile.find(side.model)->latency.latency_ms(batch, side.share).value();
  }

  void set_drift() {
    if (drifts_.empty()) return;
    std::sort(drifts_.begin(), drifts_.end());
    run_.drift = drifts_[drifts_.size() / 2];
  }

  const PairRunOptions& options_;
  MeasuredDevice& device_;
  std::ostream& progress_;
  const StorePairs& store_;
  std::map<PairSide, std::uint32_t> largest_;  // batch
  ParkedGpulets gpulets_;
  Clock::time_point deadline_;
  Clock::time_point last_store_;
  std::map<PairGpulet, int> failures_;
  PairRun run_;
  std::vector<double> drifts_;  // solo time / solo time in the profile
};

}  // namespace

Result<PairRun> measure_pairs(const PairRunOptions& options, MeasuredDevice& device,
                              std::ostream& progress, const StorePairs& store) {
  return PairMeasurement(options, device, progress, store).run();
}

}  // namespace gpulet::tools
