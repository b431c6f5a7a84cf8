#include "tools/measure/pair_run.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <ostream>

#include "gpulet/base/random.h"
#include "tools/measure/measured_proxy.h"
#include "tools/measure/measurement_quality.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

constexpr int kWholeDevice = 100;

using Cells = std::map<PairSide, std::vector<std::uint32_t>>;  // the batches of each side

template <typename T>
bool is_chosen(const std::set<T>& chosen, const T& value) {
  return chosen.empty() || chosen.contains(value);
}

Cells cells_of(const profile::Profile& profile, const PairChoice& choice) {
  Cells cells;
  for (const std::string& name : choice.models) {
    const profile::ModelProfile* const model = profile.find(name);
    if (model == nullptr) continue;
    for (const profile::LatencySample& sample : model->latency.samples()) {
      if (is_chosen(choice.batches, sample.batch) && is_chosen(choice.sizes, sample.share))
        cells[{name, sample.share}].push_back(sample.batch);
    }
  }
  return cells;
}

template <typename T>
void shuffle(std::vector<T>& values, Random& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.below(left)]);
}

using Clock = std::chrono::steady_clock;

// Pairs that two processes measure before they end. The rest follows after all other groups.
constexpr std::size_t kPairsPerVisit = 4;

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
    const auto response = proxy.next();
    if (!response.ok()) return response.status();
    --in_flight;
    if (counts && previous) time.add(response.value().at - *previous);
    previous = response.value().at;
    return {};
  }
};

class PairMeasurement {
 public:
  PairMeasurement(const PairRunOptions& options, MeasuredDevice& device, std::ostream& progress)
      : options_(options),
        device_(device),
        progress_(progress),
        factory_(loop_.executor(), options.proxies, device.shared_process) {}

  [[nodiscard]] Result<PairRun> run() {
    deadline_ = Clock::now() + options_.budget;
    for (const PairGroup& group : options_.groups) run_.planned += group.batches.size();
    std::vector<std::size_t> next(options_.groups.size(), 0);
    bool more = true;
    while (more && Clock::now() < deadline_) {
      more = false;
      for (std::size_t i = 0; i < next.size() && Clock::now() < deadline_; ++i) {
        const PairGroup& group = options_.groups[i];
        if (next[i] >= group.batches.size()) continue;
        const auto taken = visit(group, next[i]);
        if (!taken.ok()) {
          const Status failure =
              taken.status().within(group.first.model + " beside " + group.second.model);
          if (failure.code() == StatusCode::cancelled) return failure;
          progress_ << "  not measured: " << failure.message() << '\n';
          run_.failures.push_back(failure);
          next[i] = group.batches.size();
          continue;
        }
        next[i] += taken.value();
        more = more || next[i] < group.batches.size();
      }
    }
    if (!drifts_.empty()) {
      std::sort(drifts_.begin(), drifts_.end());
      run_.drift = drifts_[drifts_.size() / 2];
    }
    return std::move(run_);
  }

 private:
  struct Gpulet {
    HeldShare share;
    std::unique_ptr<MeasuredProxy> proxy{};
  };
  [[nodiscard]] Status start(Gpulet& gpulet, const PairSide& side, std::uint32_t largest_batch) {
    const config::ModelConfig* const model = find(side.model);
    if (model == nullptr)
      return {StatusCode::not_found, "the models file has no model called \"" + side.model + "\""};
    auto granted = gpulet.share.grant(side.share);
    if (!granted.ok()) return granted.status();
    auto started =
        MeasuredProxy::start(loop_, factory_, granted.value(), *model, largest_batch,
                             [&gpulet](pid_t process) { return gpulet.share.end(process); });
    if (!started.ok()) return started.status();
    gpulet.proxy = std::move(started).value();
    if (Status attached = gpulet.share.attach(gpulet.proxy->pid()); !attached.ok()) return attached;
    if (const auto ready = gpulet.proxy->load(); !ready.ok()) return ready.status();
    return gpulet.share.activate();
  }

  // Measures a few pairs of the group, beginning with pair `from`. Returns their number.
  [[nodiscard]] Result<std::size_t> visit(const PairGroup& group, std::size_t from) {
    std::pair<std::uint32_t, std::uint32_t> largest;
    for (const auto& [one, other] : group.batches)
      largest = {std::max(largest.first, one), std::max(largest.second, other)};
    progress_ << group.first.model << " at " << group.first.share.percent << " % and "
              << group.second.model << " at " << group.second.share.percent << " %\n"
              << std::flush;
    Gpulet first{HeldShare(*device_.driver, last_gpulet_)};
    Gpulet second{HeldShare(*device_.driver, last_gpulet_)};
    if (Status started = start(first, group.first, largest.first); !started.ok()) return started;
    if (Status started = start(second, group.second, largest.second); !started.ok()) return started;
    std::size_t taken = 0;
    while (taken < kPairsPerVisit && from + taken < group.batches.size() &&
           Clock::now() < deadline_) {
      Status measured = measure_pair(first, second, group, group.batches[from + taken]);
      if (!measured.ok()) return measured;
      ++taken;
    }
    Status stopped = first.proxy->stop();
    if (stopped.ok()) stopped = second.proxy->stop();
    if (!stopped.ok()) return stopped;
    return taken;
  }

  [[nodiscard]] Status measure_pair(Gpulet& first, Gpulet& second, const PairGroup& group,
                                    std::pair<std::uint32_t, std::uint32_t> batches) {
    const auto first_alone = alone_ms(*first.proxy, batches.first);
    if (!first_alone.ok()) return first_alone.status();
    const auto second_alone = alone_ms(*second.proxy, batches.second);
    if (!second_alone.ok()) return second_alone.status();
    BusyGpulet one{*first.proxy, batches.first, SustainedTime(device_.averaging_block)};
    BusyGpulet other{*second.proxy, batches.second, SustainedTime(device_.averaging_block)};
    if (Status ran = run_together({&one, &other}, options_.per_run); !ran.ok()) return ran;

    const double first_slowdown = one.time.median_ms() / first_alone.value();
    const double second_slowdown = other.time.median_ms() / second_alone.value();
    drifts_.push_back(first_alone.value() / profiled_ms(group.first, batches.first));
    drifts_.push_back(second_alone.value() / profiled_ms(group.second, batches.second));
    if (group.first == group.second && batches.first == batches.second) {
      keep(group.first, batches.first, group.second, batches.second,
           (first_slowdown + second_slowdown) / 2);
    } else {
      keep(group.first, batches.first, group.second, batches.second, first_slowdown);
      keep(group.second, batches.second, group.first, batches.first, second_slowdown);
    }
    ++run_.measured;
    progress_ << "  " << batches.first << " beside " << batches.second << ": "
              << fixed(first_slowdown, 2) << ", " << fixed(second_slowdown, 2) << '\n'
              << std::flush;
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
      Status waited = loop_.wait(any_response, MeasuredProxy::kBatchTimeout, "a batch");
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
  [[nodiscard]] Result<double> alone_ms(MeasuredProxy& proxy, std::uint32_t batch) {
    BusyGpulet warm{proxy, batch, SustainedTime(device_.averaging_block)};
    Status ran = run_together({&warm}, options_.per_run / kWarmUpFraction);
    if (!ran.ok()) return ran;
    BusyGpulet measured{proxy, batch, SustainedTime(device_.averaging_block)};
    ran = run_together({&measured}, options_.per_run);
    if (!ran.ok()) return ran;
    return measured.time.median_ms();
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

  [[nodiscard]] const config::ModelConfig* find(const std::string& model) const {
    const auto found =
        std::find_if(options_.models.begin(), options_.models.end(),
                     [&model](const config::ModelConfig& one) { return one.name == model; });
    return found == options_.models.end() ? nullptr : &*found;
  }

  const PairRunOptions& options_;
  MeasuredDevice& device_;
  std::ostream& progress_;
  GpuletId last_gpulet_;
  BlockingLoop loop_;
  ProxyFactory factory_;
  Clock::time_point deadline_;
  PairRun run_;
  std::vector<double> drifts_;  // solo time / solo time in the profile
};

}  // namespace

std::vector<PairGroup> plan_pairs(const profile::Profile& profile, const PairChoice& choice) {
  const Cells cells = cells_of(profile, choice);
  Random random(choice.seed);
  std::vector<PairGroup> groups;
  for (auto first = cells.begin(); first != cells.end(); ++first) {
    for (auto second = first; second != cells.end(); ++second) {
      if (first->first.share.percent + second->first.share.percent > kWholeDevice) continue;
      PairGroup group{first->first, second->first, {}};
      for (const std::uint32_t one : first->second) {
        for (const std::uint32_t other : second->second) {
          // For a side beside itself, (a, b) and (b, a) are the same pair.
          if (first != second || one <= other) group.batches.emplace_back(one, other);
        }
      }
      shuffle(group.batches, random);
      groups.push_back(std::move(group));
    }
  }
  shuffle(groups, random);
  return groups;
}

Result<PairRun> measure_pairs(const PairRunOptions& options, MeasuredDevice& device,
                              std::ostream& progress) {
  return PairMeasurement(options, device, progress).run();
}

}  // namespace gpulet::tools
