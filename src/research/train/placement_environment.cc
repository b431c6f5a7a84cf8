#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "research/batch_search.h"
#include "research/train/training.h"

namespace gpulet::train {
namespace {

using learn::PlacementRules;
using learn::PlacementTask;
using schedule::Plan;

// A policy that always returns `plan`.
class FixedPlanPolicy final : public schedule::Policy {
 public:
  explicit FixedPlanPolicy(const Plan& plan) : plan_(plan) {}
  [[nodiscard]] std::string_view name() const override { return "given"; }
  [[nodiscard]] Plan plan(const schedule::PlanInput&) const override { return plan_; }

 private:
  const Plan& plan_;
};

struct Wave {
  double period = 1;  // steps
  double phase = 0;   // 0..1

  [[nodiscard]] double at(std::uint32_t step) const {
    return 0.5 + 0.5 * std::sin(2 * std::numbers::pi * (step / period + phase));
  }
};

class PlacementEnvironment final : public Environment {
 public:
  PlacementEnvironment(PlacementTask task, simulate::SimulationInput scene,
                       simulate::Knowledge knowledge, const PlacementOptions& options)
      : task_(std::move(task)),
        scene_(std::move(scene)),
        knowledge_(std::move(knowledge)),
        options_(options) {
    waves_.resize(scene_.demands.size());
    input_.cluster = scene_.cluster;
    input_.profiles = knowledge_.profiles.get();
    input_.interference = knowledge_.believed.get();
    input_.current = &plan_;
    scene_.options.use_spare = false;  // the network is rewarded for its own sizes
    input_.options = scene_.options;
    for (const schedule::ModelDemand& demand : scene_.demands) {
      highest_rate_.push_back(demand.rate);
      alone_rate_.push_back(1000 / learn::least_work_ms(input_, demand.name));
    }
    begin(0);
    rules_.emplace(task_, input_);  // constant: no rate is ever 0
  }

  [[nodiscard]] const learn::ChoiceRules& rules() const override { return *rules_; }
  [[nodiscard]] std::size_t observation_size() const override { return task_.observation_size(); }

  std::vector<float> reset(std::uint64_t seed) override {
    begin(seed);
    return learn::observe(task_, input_);
  }

  Step step(std::span<const std::uint32_t> choices) override {
    const std::vector<research::ModelPlacement> placements = rules_->placements_of(choices);
    scene_.cluster = with_chosen_sizes(placements);
    plan_ = plan_of(placements);
    Step step = serve();
    ++step_;
    step.last = step_ == options_.steps;
    set_rates();
    step.observation = learn::observe(task_, input_);
    return step;
  }

 private:
  // The cluster with the chosen sizes only: to prepare the others takes longer than the search and
  // the simulation.
  [[nodiscard]] schedule::Cluster with_chosen_sizes(
      std::span<const research::ModelPlacement> placements) const {
    schedule::Cluster cluster = input_.cluster;
    for (schedule::Device& device : cluster.devices) {
      const Share any = device.sizes.front();
      std::erase_if(device.sizes, [&](Share size) {
        return std::none_of(placements.begin(), placements.end(),
                            [&](const auto& placed) { return placed.size == size; });
      });
      if (device.sizes.empty()) device.sizes.push_back(any);
    }
    return cluster;
  }

  [[nodiscard]] Plan plan_of(std::span<const research::ModelPlacement> placements) const {
    schedule::PlanInput input = input_;
    input.cluster = scene_.cluster;
    return research::BatchSearch(input).decide(placements);
  }

  void begin(std::uint64_t seed) {
    seed_ = seed;
    step_ = 0;
    plan_ = {};
    Random random(seed);
    for (Wave& wave : waves_) {
      wave.period = options_.shortest_period +
                    random.uniform() * (options_.longest_period - options_.shortest_period);
      wave.phase = random.uniform();
    }
    waiting_.clear();
    count_waiting();
    set_rates();
  }

  void set_rates() {
    for (std::size_t model = 0; model < waves_.size(); ++model) {
      const double part =
          options_.lowest_rate + (1 - options_.lowest_rate) * waves_[model].at(step_);
      scene_.demands[model].rate = part * highest_rate_[model];
    }
    input_.demands = scene_.demands;
  }

  void count_waiting() {
    for (schedule::ModelDemand& demand : scene_.demands) demand.queued = 0;
    for (const simulate::WaitingRequest& one : waiting_) ++scene_.demands[one.model].queued;
  }

  // h of equation 3, by demand: the batch of the plan divided by the time that it takes.
  [[nodiscard]] std::vector<double> batch_rates() const {
    std::vector<double> rates(scene_.demands.size());
    for (const schedule::PlannedGpulet& gpulet : plan_.gpulets) {
      for (const schedule::Assignment& one : gpulet.assignments) {
        for (std::size_t model = 0; model < rates.size(); ++model) {
          if (scene_.demands[model].name == one.model)
            rates[model] += 1000 * one.batch / one.latency_ms;
        }
      }
    }
    return rates;
  }

  Step serve() {
    const FixedPlanPolicy given(plan_);
    simulate::Knowledge knowledge = knowledge_;
    knowledge.policy = &given;
    simulate::SimulationOptions options;
    options.seconds = options_.seconds;
    options.seed = seed_ * options_.steps + step_;
    options.keep_plan = true;
    options.waiting = std::move(waiting_);
    options.leave_waiting = true;
    const auto outcome = simulate::simulate(knowledge, scene_, options);
    if (!outcome.ok()) throw std::logic_error(outcome.status().message());

    Step step;
    const std::vector<double> batch_rate = batch_rates();
    for (std::size_t model = 0; model < scene_.demands.size(); ++model) {
      const simulate::ModelOutcome& one = outcome.value().models[model];
      step.throughput += static_cast<double>(one.served - one.late) / options_.seconds;
      step.batch_throughput += batch_rate[model];
      step.reward += batch_rate[model] / alone_rate_[model];
      step.reward -= options_.violation_weight * one.violation;
    }
    waiting_ = outcome.value().left;
    count_waiting();
    step.violation = outcome.value().violation;
    return step;
  }

  PlacementTask task_;
  simulate::SimulationInput scene_;
  simulate::Knowledge knowledge_;
  PlacementOptions options_;
  std::vector<double> highest_rate_;  // by demand
  std::vector<double> alone_rate_;    // H of equation 3
  std::vector<Wave> waves_;
  std::uint64_t seed_ = 0;
  std::uint32_t step_ = 0;
  Plan plan_;                                      // of the previous step
  std::vector<simulate::WaitingRequest> waiting_;  // since earlier steps, the oldest first
  schedule::PlanInput input_;
  std::optional<PlacementRules> rules_;
};

}  // namespace

std::unique_ptr<Environment> make_placement_environment(learn::PlacementTask task,
                                                        simulate::SimulationInput scene,
                                                        simulate::Knowledge knowledge,
                                                        const PlacementOptions& options) {
  return std::make_unique<PlacementEnvironment>(std::move(task), std::move(scene),
                                                std::move(knowledge), options);
}

}  // namespace gpulet::train
