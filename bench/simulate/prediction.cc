// How exact the predicted violations of a plan are: schedule::predict_violations() (fast) and
// serve::simulate_violations() (slow) against the simulated engine, on devices that are drawn at
// random.
//
// A device is divided in one of several ways; each gpulet has one to three of the models of
// profiles/reference-gpu, with SLOs of 2 to 5.2 times the latency of a batch of 32 on a whole
// device. The rates of each gpulet are the highest at which a plan may place them there; the load
// is 1 to 1.35 times that. A cell is a model in a gpulet. Cells with 0.1 to 5 % simulated
// violations and enough requests count, whatever was predicted for them.
//
//   bench_prediction --seed N [--devices N] [--limits N] [--noise CV] [--requests N] [--jobs N]
//                    [--print]
//
// --limits: for that many of the devices also the factor by which all rates may rise until the
// worst model has 1 % violations, predicted (fast) and simulated. --print: every cell.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulate/support.h"
#include "bench/support/options.h"
#include "gpulet/base/random.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/simulate/simulation.h"
#include "schedule/duty_cycle.h"
#include "schedule/plan_context.h"
#include "schedule/plan_output.h"
#include "serve/dispatch/queue_simulation.h"
#include "tests/schedule/reference_case.h"
#include "tools/cli/parallel_for.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

struct Flags {
  std::uint64_t seed = 1;
  std::size_t devices = 60;
  std::size_t limits = 0;
  double noise = 0;
  std::uint64_t requests = 1'000'000;
  unsigned jobs = 1;
  bool print = false;
};

constexpr double kLeast = 0.001;
constexpr double kMost = 0.05;
constexpr double kLimit = 0.01;
constexpr std::uint64_t kLeastOffered = 50'000;
constexpr double kFactor = 2;

// The reference measurements, with a spread where one is asked for.
struct Knowledge {
  explicit Knowledge(double cv)
      : worked(testing::reference_case(profile::InterferenceKind::combined)) {
    if (cv > 0) testing::set_spread(worked, cv);
    shared = bench::knowledge_of(worked);
    shared.believed = shared.simulated;
    cluster.devices = {worked.input.cluster.devices.front()};
  }

  testing::Worked worked;
  simulate::Knowledge shared;  // without a policy
  Cluster cluster;
};

// A plan that exists already, as a policy.
class MadePlan : public Policy {
 public:
  explicit MadePlan(const Plan* plan) : plan_(plan) {}
  [[nodiscard]] std::string_view name() const override { return "made"; }
  [[nodiscard]] bool scales() const override { return false; }
  [[nodiscard]] Plan plan(const PlanInput& /*input*/) const override { return *plan_; }

 private:
  const Plan* plan_;
};

struct Drawn {
  PlanInput input;  // with the demands of the plan
  Plan plan;
};

template <typename T>
const T& one_of(Random& random, const std::vector<T>& choices) {
  return choices[random.below(choices.size())];
}

// The highest scale of the slots' rates at which a round holds them; 0: none does.
double highest_scale(std::vector<BatchSlot> slots) {
  const std::vector<BatchSlot> once = slots;
  const auto holds = [&](double scale) {
    for (std::size_t at = 0; at < slots.size(); ++at) slots[at].rate = once[at].rate * scale;
    return shortest_round(slots).has_value();
  };
  double low = 0;
  double high = 8;
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
    if (high < 1e-3) return 0;
  }
  return low;
}

// Empty where the drawn models do not fit the drawn gpulets.
std::optional<Drawn> draw(const Knowledge& knowledge, std::uint64_t seed) {
  Random random(seed);
  static const std::vector<std::vector<int>> kLayouts{{100},    {100}, {50, 50}, {60, 40},
                                                      {80, 20}, {80},  {50}};
  static const std::vector<std::size_t> kCounts{1, 1, 2, 2, 3};
  const profile::Profile& profile = knowledge.shared.profiles->begin()->second;
  std::vector<std::string> names;
  for (const auto& [name, model] : profile.models) names.push_back(name);

  Drawn drawn;
  drawn.input.cluster = knowledge.cluster;
  drawn.input.profiles = knowledge.shared.profiles.get();
  drawn.input.interference = knowledge.shared.simulated.get();
  drawn.input.options.use_spare = false;  // the drawn plan is the one to run
  std::vector<std::pair<int, std::vector<std::string>>> gpulets;
  for (const int size : one_of(random, kLayouts)) {
    auto& models = gpulets.emplace_back(size, std::vector<std::string>()).second;
    for (std::size_t left = one_of(random, kCounts); left > 0; --left) {
      const std::size_t at = random.below(names.size());
      const std::string name = names[at];
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(at));
      models.push_back(name);
      const double batch_ms = profile.find(name)->latency.latency_ms(32, kWholeDevice).value();
      drawn.input.demands.push_back({name, 32'000 / batch_ms * random.exponential(1),
                                     (2 + 3.2 * random.uniform()) * batch_ms, 32});
    }
    std::sort(models.begin(), models.end());
  }

  PlanContext context(drawn.input);
  const auto size_of = [&](int size) { return *context.classes()[0].find_size(Share{size}); };
  const auto neighbour_of = [&](const auto& gpulet) {
    Neighbour neighbour{size_of(gpulet.first), {}};
    for (const std::string& name : gpulet.second)
      neighbour.models.push_back(*context.find_model(name));
    std::sort(neighbour.models.begin(), neighbour.models.end());
    return neighbour;
  };
  drawn.plan.policy = "made";
  for (std::size_t at = 0; at < gpulets.size(); ++at) {
    std::vector<Neighbour> neighbours;
    for (std::size_t other = 0; other < gpulets.size(); ++other) {
      if (other != at) neighbours.push_back(neighbour_of(gpulets[other]));
    }
    const std::uint32_t size = size_of(gpulets[at].first);
    std::vector<BatchSlot> slots;
    for (const std::string& name : gpulets[at].second) {
      const std::uint32_t model = *context.find_model(name);
      const ModelDemand& demand = *context.models()[model];
      slots.push_back(
          {&context.curve_beside(model, 0, size, neighbours), demand.rate, demand.slo_ms, model});
      if (slots.back().curve->max_batch == 0) return std::nullopt;
    }
    const double scale = highest_scale(slots);
    if (scale <= 0) return std::nullopt;
    for (BatchSlot& slot : slots) slot.rate *= scale;
    const auto tolerant = burst_tolerant_round(slots);
    if (!tolerant) return std::nullopt;
    PlannedGpulet& gpulet = drawn.plan.gpulets.emplace_back();
    gpulet.device = knowledge.cluster.devices.front().key;
    gpulet.size = Share{gpulets[at].first};
    gpulet.duty_cycle_ms = tolerant->round.duty_cycle_ms;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      gpulet.assignments.push_back(
          assignment_of(context, 0, size, slots[slot], tolerant->round.batches[slot]));
    }
  }
  for (const PlannedGpulet& gpulet : drawn.plan.gpulets) {
    for (const Assignment& one : gpulet.assignments) {
      for (ModelDemand& demand : drawn.input.demands) {
        if (demand.name == one.model) demand.rate = one.rate;
      }
    }
  }
  const std::vector<schedule::Violation> faults = check(drawn.plan, drawn.input);
  if (!faults.empty())
    throw std::runtime_error("a drawn plan breaks the rules: " + to_string(faults[0]));
  return drawn;
}

Plan with_rates(Plan plan, double factor) {
  for (PlannedGpulet& gpulet : plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate *= factor;
  }
  return plan;
}

// By model, in the order of the demands.
simulate::Outcome engine(const Knowledge& knowledge, const Drawn& drawn, double factor,
                         double requests, std::uint64_t seed) {
  const MadePlan policy(&drawn.plan);
  simulate::SimulationOptions options;
  options.keep_plan = true;
  options.seed = seed;
  auto trace = std::make_shared<config::Trace>();
  double rate = 0;
  for (const ModelDemand& demand : drawn.input.demands) {
    trace->rates[demand.name] = {{0, demand.rate * factor}};
    rate += demand.rate * factor;
  }
  options.trace = trace;
  options.seconds = requests / rate;
  simulate::Knowledge with_policy = knowledge.shared;
  with_policy.policy = &policy;
  return bench::simulate_input(with_policy, drawn.input, options);
}

struct Cell {
  std::string kind;
  std::string name;
  double simulated = 0;
  double fast = 0;
  double slow = 0;
};

struct DeviceResult {
  std::vector<Cell> cells;
  std::size_t all = 0;  // cells, whatever their violations
  double fast_us = 0;
  double slow_us = 0;
  std::optional<std::pair<double, double>> limit;  // predicted, simulated
};

template <typename Function>
double microseconds(const Function& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

template <typename Holds>
double limit_of(const Holds& holds) {
  double low = 0.5;
  double high = 2;
  while (high - low > 0.01) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return (low + high) / 2;
}

double worst_of(const PredictedViolations& predicted) {
  double worst = 0;
  for (const auto& gpulet : predicted) {
    for (const auto& one : gpulet) worst = std::max(worst, one.value_or(1));
  }
  return worst;
}

std::pair<double, double> limits_of(const Knowledge& knowledge, const Drawn& drawn,
                                    const Flags& flags, std::uint64_t seed) {
  const double predicted = limit_of([&](double factor) {
    return worst_of(predict_violations(with_rates(drawn.plan, factor), drawn.input)) <= kLimit;
  });
  const double simulated = limit_of([&](double factor) {
    const auto outcome =
        engine(knowledge, drawn, factor, static_cast<double>(flags.requests) / 2, seed);
    return std::all_of(outcome.models.begin(), outcome.models.end(),
                       [](const auto& model) { return model.violation <= kLimit; });
  });
  return {predicted, simulated};
}

std::string device_text(const Plan& plan) {
  std::string text;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    text += fmt::format("{}% of {:.1f} ms:", gpulet.size.percent, gpulet.duty_cycle_ms);
    for (const Assignment& one : gpulet.assignments) {
      text += fmt::format(" {}/s {} in {:.2f} ms (x {:.2f}, SLO {:.1f} ms, batch {});",
                          std::lround(one.rate), one.model, one.latency_ms, one.slowdown,
                          one.slo_ms, one.batch);
    }
  }
  return text;
}

DeviceResult compare(const Knowledge& knowledge, const Drawn& drawn, double factor,
                     const Flags& flags, std::uint64_t seed) {
  DeviceResult result;
  const Plan loaded = with_rates(drawn.plan, factor);
  PredictedViolations fast;
  PredictedViolations slow;
  result.fast_us = microseconds([&] { fast = predict_violations(loaded, drawn.input); });
  // Numbers that the engine's run does not use.
  result.slow_us =
      microseconds([&] { slow = serve::simulate_violations(loaded, drawn.input, {}); });
  const simulate::Outcome outcome =
      engine(knowledge, drawn, factor, static_cast<double>(flags.requests), seed);
  for (std::size_t at = 0; at < loaded.gpulets.size(); ++at) {
    const PlannedGpulet& gpulet = loaded.gpulets[at];
    for (std::size_t one = 0; one < gpulet.assignments.size(); ++one) {
      ++result.all;
      const auto model = std::find_if(
          outcome.models.begin(), outcome.models.end(),
          [&](const auto& known) { return known.name == gpulet.assignments[one].model; });
      if (model->offered < kLeastOffered) continue;
      if (model->violation < kLeast || model->violation > kMost) continue;
      std::string kind = gpulet.assignments.size() == 1
                             ? "alone"
                             : fmt::format("{} in turn", gpulet.assignments.size());
      if (loaded.gpulets.size() > 1) kind += ", neighbours";
      std::string name = fmt::format("{} on {}", model->name, device_text(loaded));
      result.cells.push_back({std::move(kind), std::move(name), model->violation,
                              fast[at][one].value_or(0), slow[at][one].value_or(0)});
    }
  }
  return result;
}

std::string row_of(const std::vector<Cell>& cells, double Cell::*predicted) {
  std::vector<double> ratios;
  std::size_t within = 0;
  for (const Cell& cell : cells) {
    const double ratio = cell.*predicted / cell.simulated;
    ratios.push_back(ratio);
    within += ratio >= 1 / kFactor && ratio <= kFactor ? 1 : 0;
  }
  return fmt::format("{:>6.2f} ({:.2f}, {:.2f}) {:>5.1f} %", bench::percentile_of(ratios, 0.5),
                     bench::percentile_of(ratios, 0.05), bench::percentile_of(ratios, 0.95),
                     100.0 * static_cast<double>(within) / static_cast<double>(cells.size()));
}

void print(const Flags& flags, const std::vector<DeviceResult>& results) {
  std::map<std::string, std::vector<Cell>> by_kind;
  std::size_t all = 0;
  double fast_us = 0;
  double slow_us = 0;
  for (const DeviceResult& result : results) {
    all += result.all;
    fast_us += result.fast_us / static_cast<double>(results.size());
    slow_us += result.slow_us / static_cast<double>(results.size());
    for (const Cell& cell : result.cells) {
      by_kind[cell.kind].push_back(cell);
      by_kind["total"].push_back(cell);
      if (!flags.print) continue;
      fmt::print("{:8.5f} {:8.5f} {:8.5f}  {}: {}\n", cell.simulated, cell.fast, cell.slow,
                 cell.kind, cell.name);
    }
  }
  fmt::print("seed {}: {} devices with {} cells, of which the following count\n", flags.seed,
             results.size(), all);
  fmt::print("{:22} {:>5}  {:>30}  {:>30}\n", "predicted / simulated", "cells",
             "fast: median (5 %, 95 %), x 2", "slow: median (5 %, 95 %), x 2");
  for (const auto& [kind, cells] : by_kind) {
    fmt::print("{:22} {:>5}  {:>30}  {:>30}\n", kind, cells.size(), row_of(cells, &Cell::fast),
               row_of(cells, &Cell::slow));
  }
  fmt::print("time per device: fast {:.2f} ms, slow {:.2f} ms\n", fast_us / 1000, slow_us / 1000);
  std::vector<double> errors;
  std::size_t within = 0;
  for (const DeviceResult& result : results) {
    if (!result.limit) continue;
    errors.push_back(result.limit->first / result.limit->second);
    within += std::abs(errors.back() - 1) <= 0.05 ? 1 : 0;
    if (flags.print)
      fmt::print("limit predicted {:.3f}, simulated {:.3f}\n", result.limit->first,
                 result.limit->second);
  }
  if (errors.empty()) return;
  fmt::print(
      "rate at the limit, predicted / simulated: {} devices, {:.3f} ({:.3f}, {:.3f}), within 5 %: "
      "{:.1f} %\n",
      errors.size(), bench::percentile_of(errors, 0.5), bench::percentile_of(errors, 0.05),
      bench::percentile_of(errors, 0.95),
      100.0 * static_cast<double>(within) / static_cast<double>(errors.size()));
}

void run(const Flags& flags) {
  const Knowledge knowledge(flags.noise);
  std::vector<Drawn> drawn;
  std::vector<double> factors;
  for (std::uint64_t number = 0; drawn.size() < flags.devices; ++number) {
    const std::uint64_t seed = stream_seed(flags.seed, fmt::format("device {}", number));
    auto one = draw(knowledge, seed);
    if (!one) continue;
    drawn.push_back(*std::move(one));
    factors.push_back(1 + 0.35 * Random(stream_seed(seed, "load")).uniform());
  }
  std::vector<DeviceResult> results(drawn.size());
  tools::parallel_for(flags.jobs, drawn.size(), [&](std::size_t at) {
    const std::uint64_t seed = stream_seed(flags.seed, fmt::format("run {}", at));
    results[at] = compare(knowledge, drawn[at], factors[at], flags, seed);
    if (at < flags.limits) results[at].limit = limits_of(knowledge, drawn[at], flags, seed);
  });
  print(flags, results);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const auto declare = [&flags](bench::Options& command_line) {
    command_line.add("--seed", flags.seed).required();
    command_line.add("--devices", flags.devices);
    command_line.add("--limits", flags.limits);
    command_line.add("--noise", flags.noise);
    command_line.add("--requests", flags.requests);
    command_line.add("--jobs", flags.jobs);
    command_line.add_flag("--print", flags.print);
  };
  return bench::run_program(argc, argv, "bench_prediction",
                            "How exact the predicted violations of a plan are", declare,
                            [&flags] { run(flags); });
}
