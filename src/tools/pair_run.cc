#include "tools/pair_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "tools/held_share.h"
#include "tools/measured_proxy.h"
#include "tools/sustained_time.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A pair of processes loads its models once for so many pairs of batches; the others of its group
// come when all groups have had their turn.
constexpr std::size_t kPairsPerTurn = 4;
constexpr std::size_t kFewestRuns = 3;
constexpr int kWarmUpFraction = 10;

// One of the gpulets while it is measured.
struct Runner {
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
  // REQUIRES: an answer is there.
  [[nodiscard]] Status take(bool counts) {
    const auto answer = proxy.next();
    if (!answer.ok()) return answer.status();
    --in_flight;
    if (counts && previous) time.add(answer.value().at - *previous);
    previous = answer.value().at;
    return {};
  }
};

class PairBench {
 public:
  PairBench(const PairRunOptions& options, MeasuredDevice& device, std::ostream& progress)
      : options_(options),
        device_(device),
        progress_(progress),
        source_(loop_.executor(), options.proxy, device.lanes) {}

  [[nodiscard]] Result<PairRun> run();

 private:
  // Both processes of a group.
  struct Gpulet {
    HeldShare share;
    std::unique_ptr<MeasuredProxy> proxy{};
  };
  [[nodiscard]] Status start(Gpulet& gpulet, const PairSide& side, std::uint32_t largest_batch);
  // Some pairs of the group from that one on; how many.
  [[nodiscard]] Result<std::size_t> take_turn(const PairGroup& group, std::size_t from);
  [[nodiscard]] Status measure_pair(Gpulet& first, Gpulet& second, const PairGroup& group,
                                    std::pair<std::uint32_t, std::uint32_t> batches);
  // Keeps all of them busy for that long and until each has run often enough.
  [[nodiscard]] Status run_together(std::vector<Runner*> runners, Duration length);
  // Alone, after a warm-up.
  [[nodiscard]] Result<double> alone_ms(MeasuredProxy& proxy, std::uint32_t batch);
  void keep(const PairSide& side, std::uint32_t batch, const PairSide& other,
            std::uint32_t other_batch, double slowdown);
  [[nodiscard]] double profiled_ms(const PairSide& side, std::uint32_t batch) const;
  [[nodiscard]] const config::ModelConfig* find(const std::string& model) const;

  const PairRunOptions& options_;
  MeasuredDevice& device_;
  std::ostream& progress_;
  GpuletId last_gpulet_;
  BlockingLoop loop_;
  ProxySource source_;
  Clock::time_point deadline_;
  PairRun run_;
  std::vector<double> drifts_;
};

const config::ModelConfig* PairBench::find(const std::string& model) const {
  const auto found =
      std::find_if(options_.models.begin(), options_.models.end(),
                   [&model](const config::ModelConfig& one) { return one.name == model; });
  return found == options_.models.end() ? nullptr : &*found;
}

double PairBench::profiled_ms(const PairSide& side, std::uint32_t batch) const {
  // The plan holds measured cells only.
  return options_.profile.find(side.model)->latency.latency_ms(batch, side.share).value();
}

Status PairBench::start(Gpulet& gpulet, const PairSide& side, std::uint32_t largest_batch) {
  const config::ModelConfig* const model = find(side.model);
  if (model == nullptr) {
    return {StatusCode::not_found, "the models file has no model called \"" + side.model + "\""};
  }
  auto granted = gpulet.share.grant(side.share);
  if (!granted.ok()) return granted.status();
  auto started =
      MeasuredProxy::start(loop_, source_, granted.value(), *model, largest_batch,
                           [&gpulet](pid_t process) { return gpulet.share.end(process); });
  if (!started.ok()) return started.status();
  gpulet.proxy = std::move(started).value();
  if (Status attached = gpulet.share.attach(gpulet.proxy->pid()); !attached.ok()) return attached;
  if (const auto ready = gpulet.proxy->load(); !ready.ok()) return ready.status();
  return gpulet.share.activate();
}

Status PairBench::run_together(std::vector<Runner*> runners, Duration length) {
  const auto end = Clock::now() + length;
  const auto all_done = [&runners, end] {
    return Clock::now() >= end && std::all_of(runners.begin(), runners.end(), [](Runner* one) {
             return one->time.batches() >= kFewestRuns;
           });
  };
  bool done = false;
  while (true) {
    std::size_t in_flight = 0;
    for (Runner* const runner : runners) {
      if (!done) {
        if (Status filled = runner->fill(); !filled.ok()) return filled;
      }
      in_flight += runner->in_flight;
    }
    if (in_flight == 0) return {};
    const auto any_answer = [&runners] {
      return std::any_of(runners.begin(), runners.end(),
                         [](Runner* one) { return one->in_flight > 0 && one->proxy.has_next(); });
    };
    Status waited = loop_.wait(any_answer, MeasuredProxy::kBatchTimeout, "a batch");
    if (!waited.ok()) return waited;
    for (Runner* const runner : runners) {
      if (runner->in_flight == 0 || !runner->proxy.has_next()) continue;
      // What ends after the others were told to stop did not run beside them all the time.
      if (Status taken = runner->take(!done); !taken.ok()) return taken;
    }
    done = done || all_done();
  }
}

Result<double> PairBench::alone_ms(MeasuredProxy& proxy, std::uint32_t batch) {
  Runner warm{proxy, batch, SustainedTime(device_.even_over)};
  Status ran = run_together({&warm}, options_.per_run / kWarmUpFraction);
  if (!ran.ok()) return ran;
  Runner runner{proxy, batch, SustainedTime(device_.even_over)};
  ran = run_together({&runner}, options_.per_run);
  if (!ran.ok()) return ran;
  return runner.time.median_ms();
}

void PairBench::keep(const PairSide& side, std::uint32_t batch, const PairSide& other,
                     std::uint32_t other_batch, double slowdown) {
  run_.pairs.push_back({side.model, batch, side.share, other.model, other_batch, other.share,
                        profiled_ms(side, batch) * slowdown});
}

Status PairBench::measure_pair(Gpulet& first, Gpulet& second, const PairGroup& group,
                               std::pair<std::uint32_t, std::uint32_t> batches) {
  const auto first_alone = alone_ms(*first.proxy, batches.first);
  if (!first_alone.ok()) return first_alone.status();
  const auto second_alone = alone_ms(*second.proxy, batches.second);
  if (!second_alone.ok()) return second_alone.status();
  Runner one{*first.proxy, batches.first, SustainedTime(device_.even_over)};
  Runner other{*second.proxy, batches.second, SustainedTime(device_.even_over)};
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

Result<std::size_t> PairBench::take_turn(const PairGroup& group, std::size_t from) {
  std::pair<std::uint32_t, std::uint32_t> largest;
  for (const auto& [one, other] : group.batches) {
    largest = {std::max(largest.first, one), std::max(largest.second, other)};
  }
  progress_ << group.first.model << " at " << group.first.share.percent << " % and "
            << group.second.model << " at " << group.second.share.percent << " %\n"
            << std::flush;
  Gpulet first{HeldShare(*device_.driver, last_gpulet_)};
  Gpulet second{HeldShare(*device_.driver, last_gpulet_)};
  if (Status started = start(first, group.first, largest.first); !started.ok()) return started;
  if (Status started = start(second, group.second, largest.second); !started.ok()) return started;
  std::size_t taken = 0;
  while (taken < kPairsPerTurn && from + taken < group.batches.size() && Clock::now() < deadline_) {
    Status measured = measure_pair(first, second, group, group.batches[from + taken]);
    if (!measured.ok()) return measured;
    ++taken;
  }
  Status stopped = first.proxy->stop();
  if (stopped.ok()) stopped = second.proxy->stop();
  if (!stopped.ok()) return stopped;
  return taken;
}

Result<PairRun> PairBench::run() {
  deadline_ = Clock::now() + options_.budget;
  for (const PairGroup& group : options_.groups) run_.planned += group.batches.size();
  std::vector<std::size_t> next(options_.groups.size(), 0);
  bool more = true;
  while (more && Clock::now() < deadline_) {
    more = false;
    for (std::size_t i = 0; i < next.size() && Clock::now() < deadline_; ++i) {
      const PairGroup& group = options_.groups[i];
      if (next[i] >= group.batches.size()) continue;
      const auto taken = take_turn(group, next[i]);
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

}  // namespace

Result<PairRun> measure_pairs(const PairRunOptions& options, MeasuredDevice& device,
                              std::ostream& progress) {
  return PairBench(options, device, progress).run();
}

}  // namespace gpulet::tools
