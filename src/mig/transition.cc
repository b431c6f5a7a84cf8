#include "gpulet/mig/transition.h"

#include <algorithm>
#include <map>
#include <optional>

#include "mig/exchange.h"
#include "mig/stand_ins.h"
#include "mig/transition_actions.h"
#include "mig/transition_goal.h"
#include "mig/transition_scene.h"

namespace gpulet::mig {
namespace {

struct Route {
  std::vector<Step> steps;
  std::optional<Standing> stuck_at;  // what could not be created; nothing: it arrives
};

// Every stage either creates something of `to`, which stays, or lets something go that is not
// replaced, or is followed by one that creates: it ends.
template <typename Detour>
Route travel(const Goal& goal, const Detour& detour) {
  Scene scene(goal);
  Route route;
  while (!scene.finished()) {
    create_where_free(scene);
    remove_unneeded(scene);
    if (scene.changed()) {
      route.steps.push_back(scene.finish_stage());
      continue;
    }
    const std::optional<std::vector<Step>> steps = detour(scene);
    if (!steps) {
      route.stuck_at = blocked(scene).front();
      return route;
    }
    for (const Step& step : *steps) scene.repeat(step);
    route.steps.insert(route.steps.end(), steps->begin(), steps->end());
  }
  return route;
}

Route travel_with_extra(const Goal& goal, std::size_t most_extra_devices) {
  Detours detours({.most_extra_devices = most_extra_devices});
  return travel(goal, [&](const Scene& scene) { return detours.find(scene); });
}

Route travel_by_spares(const Goal& goal) {
  return travel(goal, [](const Scene& scene) -> std::optional<std::vector<Step>> {
    const std::optional<Step> step = move_to_spares(scene);
    if (!step) return std::nullopt;
    return std::vector{*step};
  });
}

bool has_stand_ins(const Route& route) {
  return std::any_of(route.steps.begin(), route.steps.end(), [](const Step& step) {
    return std::any_of(step.created.begin(), step.created.end(),
                       [](const Standing& one) { return one.stand_in; });
  });
}

Holding holding_of(const Standing& standing, const Goal& goal) {
  return {standing.site.device, standing.site.instance, goal.loads[standing.load].parts};
}

bool by_site(const Holding& a, const Holding& b) {
  if (a.device != b.device) return a.device < b.device;
  return a.instance.start < b.instance.start;
}

std::vector<Stage> stages_of(const Route& route, const Goal& goal) {
  const TransitionTask& task = *goal.task;
  std::map<Site, Holding> there;
  for (const Standing& standing : goal.from) there[standing.site] = holding_of(standing, goal);
  std::vector<Stage> stages;
  std::vector<double> rates = rates_of(task.from, task.services.size());
  for (const Step& step : route.steps) {
    Stage& stage = stages.emplace_back();
    for (const Standing& standing : step.created) {
      stage.created.push_back(holding_of(standing, goal));
      there[standing.site] = stage.created.back();
    }
    std::vector<Holding> fullest;
    for (const auto& [site, holding] : there) fullest.push_back(holding);
    stage.devices_in_use = devices_of(fullest);
    for (const Standing& standing : step.removed) {
      stage.removed.push_back(holding_of(standing, goal));
      there.erase(standing.site);
    }
    std::sort(stage.created.begin(), stage.created.end(), by_site);
    std::sort(stage.removed.begin(), stage.removed.end(), by_site);
    for (const auto& [site, holding] : there) stage.after.push_back(holding);
    if (stages.size() == route.steps.size()) stage.after = task.to;
    std::sort(stage.after.begin(), stage.after.end(), by_site);
    const std::vector<double> before =
        std::exchange(rates, rates_of(stage.after, task.services.size()));
    for (std::size_t service = 0; service < rates.size(); ++service)
      stage.least_rate.push_back(std::min(before[service], rates[service]));
  }
  return stages;
}

Transition transition_of(const Route& route, const Goal& goal) {
  Transition transition;
  transition.stages = stages_of(route, goal);
  const std::size_t planned = std::max(devices_of(goal.task->from), devices_of(goal.task->to));
  for (const Stage& stage : transition.stages) {
    if (stage.devices_in_use <= planned) continue;
    transition.extra_devices = std::max(transition.extra_devices, stage.devices_in_use - planned);
  }
  transition.actions = actions_of(transition.stages, goal);
  return transition;
}

// The route with the least stages and extra devices, one counted like the other: another device
// in between is worth it where it saves more than one stage.
std::optional<Transition> best_transition(const Goal& goal) {
  const auto spare =
      static_cast<std::size_t>(std::count(goal.planned.begin(), goal.planned.end(), false));
  std::optional<Transition> best;
  std::size_t best_cost = 0;
  for (std::size_t extra = 0; extra <= spare; extra += 1 + extra / 4) {
    if (best && extra + 1 >= best_cost) break;
    const Route route = travel_with_extra(goal, extra);
    if (route.stuck_at) continue;
    Transition transition = transition_of(route, goal);
    const std::size_t cost = transition.stages.size() + transition.extra_devices;
    if (!best || cost < best_cost) {
      best = std::move(transition);
      best_cost = cost;
    }
    if (!has_stand_ins(route)) break;
  }
  if (best) return best;
  if (const Route route = travel_with_extra(goal, spare); !route.stuck_at)
    return transition_of(route, goal);
  if (const Route route = travel_by_spares(goal); !route.stuck_at)
    return transition_of(route, goal);
  return std::nullopt;
}

// With so many more devices of each type, alike and free.
bool would_do(TransitionTask task, const std::map<std::string, std::size_t>& more) {
  std::map<std::string, std::size_t> left = more;
  const std::size_t known = task.devices.size();
  for (std::size_t device = 0; device < known; ++device) {
    std::size_t& count = left[std::string(task.devices[device].geometry.name())];
    for (; count > 0; --count) task.devices.push_back(TransitionDevice(task.devices[device]));
  }
  const Goal goal = goal_of(task);
  return !travel_with_extra(goal, task.devices.size()).stuck_at || !travel_by_spares(goal).stuck_at;
}

// As many as `from` uses of each type always do; of those as few as possible.
std::map<std::string, std::size_t> devices_that_lack(const Goal& goal) {
  const TransitionTask& task = *goal.task;
  std::map<std::string, std::vector<Holding>> by_type;
  for (const Holding& holding : task.from)
    by_type[std::string(task.devices[holding.device].geometry.name())].push_back(holding);
  std::map<std::string, std::size_t> more;
  for (const auto& [type, holdings] : by_type) more[type] = devices_of(holdings);
  for (auto& [type, most] : more) {
    std::map<std::string, std::size_t> fewer = more;
    for (std::size_t count = 0; count < most; ++count) {
      fewer[type] = count;
      if (would_do(task, fewer)) most = count;
    }
  }
  return more;
}

Status unavailable(const Goal& goal) {
  const Standing stuck = *travel_with_extra(goal, goal.planned.size()).stuck_at;
  std::string more;
  for (const auto& [type, count] : devices_that_lack(goal)) {
    if (count == 0) continue;
    more += (more.empty() ? "" : " and ") + std::to_string(count) + " more free " +
            (count == 1 ? "device" : "devices") + " (" + type + ")";
  }
  return {StatusCode::unavailable,
          to_string(stuck.site.instance) + " on device " + std::to_string(stuck.site.device) +
              " of " + goal.task->devices[stuck.site.device].node +
              " cannot be created: what is there is needed and has no room elsewhere; " + more +
              " would do"};
}

}  // namespace

Result<Transition> plan_transition(const TransitionTask& task) {
  if (Status status = check(task); !status.ok()) return status;
  const Goal goal = goal_of(task);
  std::optional<Transition> best = best_transition(goal);
  if (!best) return unavailable(goal);
  return *std::move(best);
}

std::string_view to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::create:
      return "create";
    case ActionKind::remove:
      return "remove";
    case ActionKind::migrate:
      return "migrate";
    case ActionKind::repartition:
      return "repartition";
  }
  return "?";
}

}  // namespace gpulet::mig
