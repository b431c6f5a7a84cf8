#include "gpulet/serve/planning.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/scaling.h"
#include "gpulet/schedule/spare.h"
#include "serve/model_registry.h"
#include "serve/slow_devices.h"

namespace gpulet::serve {
namespace {

using profile::InterferenceKind;

Result<ChosenInterference> of_kind(const profile::ProfileSet& profiles,
                                   const std::vector<std::string>& device_types,
                                   InterferenceKind kind) {
  ChosenInterference chosen{kind, {}};
  if (kind == InterferenceKind::none) return chosen;
  for (const std::string& type : device_types) {
    const auto found = profiles.find(type);
    if (found == profiles.end() || chosen.models.contains(type)) continue;
    Result<profile::InterferenceModel> model =
        profile::InterferenceModel::create(found->second, kind);
    if (!model.ok()) return model.status();
    chosen.models.emplace(type, std::move(model).value());
  }
  return chosen;
}

schedule::Plan plan_for(const schedule::PlanInput& input, const schedule::Policy& policy,
                        bool scale) {
  if (!scale || !policy.scales()) return policy.plan(input);
  return schedule::share_shortage(policy, input, schedule::scale(policy, input).plan);
}

// The policy plans the other devices as if there were no CPUs.
schedule::Plan plan_with_spill(const schedule::PlanInput& input, const schedule::Policy& policy,
                               bool scale) {
  schedule::PlanInput others = input;
  others.cluster = schedule::without_cpus(input.cluster);
  std::optional<schedule::Plan> current;
  if (input.current != nullptr) {
    current = *input.current;
    std::erase_if(current->gpulets,
                  [](const auto& one) { return one.service != schedule::Service::rounds; });
    others.current = &*current;
  }
  schedule::Plan plan = plan_for(others, policy, scale);
  schedule::add_cpu_instances(input, plan);
  return plan;
}

bool keeps_apart(const schedule::Plan& plan, const schedule::PlanInput& input) {
  const auto alone = [&input](const std::string& name) {
    return std::any_of(input.demands.begin(), input.demands.end(),
                       [&name](const auto& one) { return one.alone && one.name == name; });
  };
  return std::all_of(plan.gpulets.begin(), plan.gpulets.end(), [&alone](const auto& gpulet) {
    return gpulet.assignments.size() < 2 ||
           std::none_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                        [&alone](const auto& one) { return alone(one.model); });
  });
}

schedule::Plan plan_all(const schedule::PlanInput& input, const schedule::Policy& policy,
                        const MakePlan& request) {
  return request.spill ? plan_with_spill(input, policy, request.scale)
                       : plan_for(input, policy, request.scale);
}

// Not every policy can keep models alone. Models that must be are left out then.
schedule::Plan plan_apart(const schedule::PlanInput& input, const schedule::Policy& policy,
                          const MakePlan& request) {
  schedule::Plan plan = plan_all(input, policy, request);
  if (keeps_apart(plan, input)) return plan;
  schedule::PlanInput others = input;
  std::erase_if(others.demands, [](const auto& one) { return one.alone; });
  plan = plan_all(others, policy, request);
  for (const schedule::ModelDemand& demand : input.demands) {
    if (!demand.alone) continue;
    plan.unserved.push_back(
        {demand.name, demand.rate, "it must not share a gpulet, and none is free for it alone"});
  }
  return plan;
}

// The policy plans as if no gpulet had spare share.
schedule::Plan plan_with_spare(const schedule::PlanInput& input, const schedule::Policy& policy,
                               const MakePlan& request) {
  const auto plan_from = [&](const schedule::Plan* current) {
    schedule::PlanInput without = input;
    without.current = current;
    return plan_apart(without, policy, request);
  };
  if (!input.options.use_spare || input.current == nullptr) {
    std::optional<schedule::Plan> current;
    if (input.current != nullptr) current = without_spare(*input.current);
    schedule::Plan plan = plan_from(current ? &*current : nullptr);
    return input.options.use_spare ? use_spare(input, std::move(plan)) : plan;
  }
  // Growth into share that gpulets have already needs no new process.
  const schedule::Plan grown = with_grown_needs(input);
  const schedule::Plan current = without_spare(*input.current);
  schedule::Plan plan = plan_from(&grown);
  const bool suffices = plan.schedulable() && plan.devices_used() <= current.devices_used();
  if (!suffices && grown != current) plan = plan_from(&current);
  return use_spare(input, std::move(plan));
}

void plan_and_check(const MakePlan& request, const schedule::PlanInput& input,
                    const schedule::Policy& policy, PlanMade& made) {
  const auto plan = [&](const schedule::PlanInput& asked) {
    return plan_with_spare(asked, policy, request);
  };
  const auto attempt = [&](const std::vector<schedule::PlannedGpulet>& kept) {
    made.plan = plan_around(input, request.closed, kept, plan);
    made.plan.policy = std::string(policy.name());
    made.faults = schedule::check(made.plan, input);
  };
  if (request.closed.empty()) {
    made.plan = plan(input);
    made.faults = schedule::check(made.plan, input);
    return;
  }
  attempt(request.kept);
  // The kept gpulets break the rules now, for example because the profiles changed: they move.
  if (!made.faults.empty() && !request.kept.empty()) attempt({});
}

using schedule::PlannedGpulet;

// A smaller rest of a demand is due to rounding.
constexpr double kNegligible = 1e-6;

// The kept gpulets' rates are scaled by `factor`, by model: below 1 where the demand has decreased.
struct Cover {
  std::map<std::string, double> factor;
  std::set<std::string> by_instances;  // these promise no rate
};

Cover cover_of(const std::vector<PlannedGpulet>& kept,
               const std::vector<schedule::ModelDemand>& demands,
               std::vector<schedule::ModelDemand>& rest) {
  Cover cover;
  std::map<std::string, double> kept_rate;
  for (const PlannedGpulet& gpulet : kept) {
    for (const schedule::Assignment& one : gpulet.assignments) {
      kept_rate[one.model] += one.rate;
      if (gpulet.service != schedule::Service::rounds) cover.by_instances.insert(one.model);
    }
  }
  for (const schedule::ModelDemand& demand : demands) {
    const double covered = kept_rate[demand.name];
    if (covered >= demand.rate * (1 - kNegligible)) {
      cover.factor[demand.name] = covered > 0 ? demand.rate / covered : 1;
      continue;
    }
    cover.factor[demand.name] = 1;
    rest.push_back(demand);
    rest.back().rate -= covered;
  }
  return cover;
}

schedule::Plan without_devices(const std::vector<schedule::ModelDemand>& rest,
                               const std::set<std::string>& by_instances) {
  schedule::Plan plan;
  for (const schedule::ModelDemand& demand : rest) {
    if (by_instances.contains(demand.name)) continue;
    plan.unserved.push_back({demand.name, demand.rate,
                             "no device takes new gpulets: the last ones failed on every device; "
                             "the status says why"});
  }
  std::sort(plan.unserved.begin(), plan.unserved.end(),
            [](const auto& a, const auto& b) { return a.model < b.model; });
  return plan;
}

// A model is never refused because of its correction: it stays below the factor at which no batch
// would meet the objective.
void limit_corrections(const MakePlan& request, const profile::ProfileSet& profiles,
                       profile::Corrections& corrections) {
  // Of half the objective; the rest is for what a plan adds to the latency.
  constexpr double kUsable = 0.8;
  for (auto& [type, models] : corrections) {
    const auto profile = profiles.find(type);
    if (profile == profiles.end()) continue;
    for (const schedule::ModelDemand& demand : request.demands) {
      const auto corrected = models.find(demand.name);
      const profile::ModelProfile* const measured = profile->second.find(demand.name);
      if (corrected == models.end() || measured == nullptr) continue;
      double least_ms = std::numeric_limits<double>::infinity();
      for (const profile::LatencySample& sample : measured->latency.samples())
        least_ms = std::min(least_ms, sample.latency_ms);
      const double most = std::max(
          1.0, kUsable * demand.slo_ms / 2 /
                   (least_ms * schedule::margin_of(request.options.margin, measured->latency)));
      profile::ModelCorrection& correction = corrected->second;
      correction.factor = std::min(correction.factor, most);
      for (auto& [size, factor] : correction.at_size) factor = std::min(factor, most);
    }
  }
}

// Devices of nodes on which models keep failing get a type of their own, which has no profile of
// these models.
void separate_failing(const std::set<std::pair<std::string, std::string>>& not_on,
                      schedule::Cluster& cluster, profile::ProfileSet& profiles,
                      profile::InterferenceSet& interference, profile::Corrections& corrections) {
  std::map<std::string, std::vector<std::string>> of_node;
  for (const auto& [model, node] : not_on) of_node[node].push_back(model);
  for (schedule::Device& device : cluster.devices) {
    const auto failing = of_node.find(device.key.node);
    const auto profile = profiles.find(device.type);
    if (failing == of_node.end() || profile == profiles.end()) continue;
    const std::string type = device.type + ", without " + joined(failing->second);
    if (!profiles.contains(type)) {
      profile::Profile without = profile->second;
      for (const std::string& model : failing->second) without.models.erase(model);
      std::erase_if(without.pairs, [&failing](const profile::PairSample& pair) {
        const std::vector<std::string>& models = failing->second;
        const auto is_one = [&models](const std::string& name) {
          return std::find(models.begin(), models.end(), name) != models.end();
        };
        return is_one(pair.model) || is_one(pair.other_model);
      });
      if (const auto usual = corrections.find(device.type); usual != corrections.end())
        corrections.emplace(type, usual->second);
      if (const auto known = interference.find(device.type); known != interference.end())
        interference.emplace(type, known->second);
      profiles.emplace(type, std::move(without));
    }
    device.type = type;
  }
}

// What serving showed of the profiles and the devices.
struct Observed {
  schedule::Cluster cluster;
  profile::ProfileSet profiles;
  profile::InterferenceSet interference;
};

// Empty: nothing differs from the profiles.
std::optional<Observed> observed(const MakePlan& request) {
  const bool has_corrections = request.corrections != nullptr && !request.corrections->empty();
  if (!has_corrections && request.slow_devices.empty() && request.not_on.empty())
    return std::nullopt;
  Observed all{request.cluster, *request.profiles, {}};
  if (request.interference != nullptr) all.interference = *request.interference;
  profile::Corrections corrections;
  if (has_corrections) corrections = *request.corrections;
  separate_slow_devices(request.slow_devices, all.cluster, all.profiles, all.interference,
                        corrections);
  separate_failing(request.not_on, all.cluster, all.profiles, all.interference, corrections);
  limit_corrections(request, all.profiles, corrections);
  all.profiles = profile::corrected(all.profiles, corrections);
  return all;
}

double unserved_of(const schedule::Plan& plan) {
  double rate = 0;
  for (const schedule::Unserved& one : plan.unserved) rate += one.rate;
  return rate;
}

struct Sum {
  double weighted_ms = 0;
  double weight = 0;
};

}  // namespace

schedule::Plan plan_around(const schedule::PlanInput& input,
                           const std::set<schedule::DeviceKey>& closed,
                           std::vector<PlannedGpulet> kept,
                           const std::function<schedule::Plan(const schedule::PlanInput&)>& plan) {
  schedule::PlanInput open = input;
  std::erase_if(open.cluster.devices,
                [&closed](const schedule::Device& device) { return closed.contains(device.key); });
  open.demands.clear();
  const Cover cover = cover_of(kept, input.demands, open.demands);
  std::optional<schedule::Plan> current;
  if (input.current != nullptr) {
    current = *input.current;
    std::erase_if(current->gpulets,
                  [&closed](const PlannedGpulet& one) { return closed.contains(one.device); });
    open.current = &*current;
  }
  std::set<schedule::DeviceKey> in_use;
  for (const PlannedGpulet& gpulet : kept) in_use.insert(gpulet.device);
  if (open.options.max_devices) {
    const auto used = static_cast<std::uint32_t>(in_use.size());
    *open.options.max_devices -= std::min(used, *open.options.max_devices);
  }
  schedule::Plan whole =
      open.cluster.devices.empty() ? without_devices(open.demands, cover.by_instances) : plan(open);
  for (PlannedGpulet& gpulet : kept) {
    for (schedule::Assignment& one : gpulet.assignments) one.rate *= cover.factor.at(one.model);
    whole.gpulets.push_back(std::move(gpulet));
  }
  std::stable_sort(whole.gpulets.begin(), whole.gpulets.end(), schedule::in_plan_order);
  whole.lower_bound.reset();
  return whole;
}

namespace {

// With the demands as they are.
PlanMade make_plan_as_asked(const MakePlan& request, const schedule::Policy& policy) {
  schedule::PlanInput input;
  input.cluster = request.cluster;
  input.demands = request.demands;
  input.profiles = request.profiles.get();
  input.interference = request.interference.get();
  const std::optional<Observed> known = observed(request);
  if (known) {
    input.cluster = known->cluster;
    input.profiles = &known->profiles;
    if (input.interference != nullptr) input.interference = &known->interference;
  }
  input.current = request.current ? &*request.current : nullptr;
  input.options = request.options;
  PlanMade made;
  made.number = request.number;
  made.plan.policy = std::string(policy.name());
  if (const Status valid = schedule::validate(input); !valid.ok()) {
    made.faults.push_back(valid.message());
    return made;
  }
  plan_and_check(request, input, policy, made);
  if (!made.faults.empty()) return made;
  made.explanation = schedule::explain(made.plan, input);
  if (request.closed.size() < request.cluster.devices.size()) return made;
  for (schedule::UnservedDetail& missing : made.explanation.missing)
    missing.cause = schedule::UnservedCause::any_device;
  return made;
}

}  // namespace

namespace {

// Models that may share gpulets only if they are not served otherwise do so if that serves more.
PlanMade make_plan_sharing(const MakePlan& request, const schedule::Policy& policy) {
  PlanMade apart = make_plan_as_asked(request, policy);
  if (request.may_share.empty() || (apart.faults.empty() && apart.plan.schedulable())) return apart;
  MakePlan together = request;
  for (schedule::ModelDemand& demand : together.demands) {
    if (request.may_share.contains(demand.name)) demand.alone = false;
  }
  PlanMade shared = make_plan_as_asked(together, policy);
  const bool better = shared.faults.empty() &&
                      (!apart.faults.empty() || unserved_of(shared.plan) < unserved_of(apart.plan));
  return better ? shared : apart;
}

// ---- trials

std::map<std::string, double> unserved_by_model(const schedule::Plan& plan) {
  std::map<std::string, double> rates;
  for (const schedule::Unserved& one : plan.unserved) rates[one.model] += one.rate;
  return rates;
}

// How one of MakePlan::trials is planned.
enum class Place : std::uint8_t { left_out, alone, shared };

MakePlan with_trials(const MakePlan& request, const std::map<std::string, Place>& places) {
  MakePlan asked = request;
  asked.trials.clear();
  for (const MakePlan::Trial& trial : request.trials) {
    const Place place = places.at(trial.model);
    const auto demand = std::find_if(asked.demands.begin(), asked.demands.end(),
                                     [&trial](const auto& one) { return one.name == trial.model; });
    if (demand == asked.demands.end()) continue;
    if (place == Place::left_out && !trial.replaces) {
      asked.demands.erase(demand);
    } else {
      demand->alone = place == Place::alone;
    }
  }
  return asked;
}

// The plan serves the trial at least in part, and the others no worse than `base`.
bool admits(const PlanMade& made, const PlanMade& base, const MakePlan& request,
            const std::string& trial) {
  if (!made.faults.empty()) return false;
  const std::map<std::string, double> before = unserved_by_model(base.plan);
  const std::map<std::string, double> after = unserved_by_model(made.plan);
  return std::all_of(request.demands.begin(), request.demands.end(), [&](const auto& demand) {
    const auto unserved = after.find(demand.name);
    if (unserved == after.end()) return true;
    const auto known = before.find(demand.name);
    const double allowed = demand.name == trial    ? demand.rate * (1 - 2 * kNegligible)
                           : known == before.end() ? 0
                                                   : known->second;
    return unserved->second <= allowed + kNegligible * demand.rate;
  });
}

// No plan serves it even on empty devices: it lacks something else than room.
bool never_served(const MakePlan& request, const schedule::Policy& policy,
                  const std::string& trial) {
  MakePlan only = request;
  only.trials.clear();
  only.kept.clear();
  only.current.reset();
  std::erase_if(only.demands, [&trial](const auto& one) { return one.name != trial; });
  const PlanMade made = make_plan_as_asked(only, policy);
  return made.faults.empty() && !admits(made, made, only, trial);
}

// Trials get room one after the other, as long as nobody loses by it.
PlanMade make_plan_with_trials(const MakePlan& request, const schedule::Policy& policy) {
  std::map<std::string, Place> places;
  for (const MakePlan::Trial& trial : request.trials) places[trial.model] = Place::alone;
  PlanMade all = make_plan_sharing(with_trials(request, places), policy);
  if (all.faults.empty() && all.plan.schedulable()) return all;
  for (auto& [model, place] : places)
    place = never_served(request, policy, model) ? Place::alone : Place::left_out;
  PlanMade made = make_plan_sharing(with_trials(request, places), policy);
  for (const MakePlan::Trial& trial : request.trials) {
    Place& place = places.at(trial.model);
    if (place == Place::alone) continue;
    for (const Place tried : {Place::alone, Place::shared}) {
      if (tried == Place::shared && !trial.may_share) continue;
      place = tried;
      PlanMade next = make_plan_sharing(with_trials(request, places), policy);
      if (admits(next, made, request, trial.model)) {
        made = std::move(next);
        break;
      }
      place = Place::left_out;
    }
  }
  for (const MakePlan::Trial& trial : request.trials) {
    if (places.at(trial.model) != Place::left_out) continue;
    made.no_room.insert(trial.model);
    if (trial.replaces) continue;
    const auto demand = std::find_if(request.demands.begin(), request.demands.end(),
                                     [&trial](const auto& one) { return one.name == trial.model; });
    if (demand == request.demands.end()) continue;
    made.plan.unserved.push_back(
        {trial.model, demand->rate, "it " + std::string(why_waiting(TrialWait::room))});
  }
  std::sort(made.plan.unserved.begin(), made.plan.unserved.end(),
            [](const auto& a, const auto& b) { return a.model < b.model; });
  return made;
}

}  // namespace

PlanMade make_plan(const MakePlan& request, const schedule::Policy& policy) {
  return request.trials.empty() ? make_plan_sharing(request, policy)
                                : make_plan_with_trials(request, policy);
}

Result<schedule::Headroom> parse_headroom(std::string_view text) {
  if (text == "none") return schedule::Headroom::none;
  if (text == "poisson") return schedule::Headroom::poisson;
  return Status(StatusCode::invalid,
                "'" + std::string(text) + "' is no headroom; write none or poisson");
}

Result<ChosenInterference> choose_interference(const profile::ProfileSet& profiles,
                                               const std::vector<std::string>& device_types,
                                               const std::optional<std::string>& asked) {
  if (asked) {
    const Result<InterferenceKind> kind = profile::parse_interference_kind(*asked);
    if (!kind.ok()) return kind.status();
    return of_kind(profiles, device_types, kind.value());
  }
  ChosenInterference chosen;
  for (const std::string& type : device_types) {
    Result<ChosenInterference> of_type = of_kind(profiles, {type}, InterferenceKind::combined);
    if (of_type.ok()) {
      chosen.models.merge(of_type.value().models);
    } else if (of_type.status().code() != StatusCode::not_found) {
      return of_type.status();
    }
  }
  if (!chosen.models.empty()) chosen.kind = InterferenceKind::combined;
  return chosen;
}

void RequestCosts::follow(Epoch epoch, const schedule::Plan& plan) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  std::map<std::string, Sum> sums;
  for (const schedule::PlannedGpulet& planned : plan.gpulets) {
    const schedule::PlannedGpulet gpulet = without_spare(planned);
    for (const schedule::Assignment& one : gpulet.assignments) {
      const double batch = one.batch > 0 ? one.batch : 1;
      const double weight = one.rate > 0 ? one.rate : 1;  // instances promise no rate
      const auto add = [&](const std::string& model) {
        Sum& sum = sums[model];
        sum.weighted_ms += weight * one.latency_ms * gpulet.size.fraction() / batch;
        sum.weight += weight;
      };
      add(one.model);
      // A dynamic model costs the mean of its buckets.
      if (const std::string_view model = client_name(one.model); model != one.model)
        add(std::string(model));
    }
  }
  costs_.clear();
  for (const auto& [model, sum] : sums)
    costs_.emplace(model, from_ms(sum.weighted_ms / sum.weight));
}

Duration RequestCosts::of(std::string_view model) const {
  const auto found = costs_.find(model);
  return found == costs_.end() ? Duration::zero() : found->second;
}

}  // namespace gpulet::serve
