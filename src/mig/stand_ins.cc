#include "mig/stand_ins.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "mig/exchange.h"

namespace gpulet::mig {
namespace {

// Other instances that are moved first so that a stand-in finds room: how many deep, and how many
// places are looked at.
constexpr int kMovesBefore = 2;
constexpr std::size_t kMostPlaces = 12;

template <typename Body>
void for_each_site(const Goal& goal, const Load& load, const Body& body) {
  for (std::uint32_t device = 0; device < goal.planned.size(); ++device) {
    const partition::MigGeometry& geometry = goal.geometry(device);
    if (geometry.name() != load.type) continue;
    for (const std::uint32_t start : geometry.find(load.slices)->starts())
      body(Site{device, {load.slices, start}});
  }
}

bool overlaps(const Goal& goal, const Site& site, const std::vector<Site>& others) {
  return std::any_of(others.begin(), others.end(), [&](const Site& other) {
    return other.device == site.device &&
           !goal.geometry(site.device).compatible(other.instance, site.instance);
  });
}

// What may stand in for a service: what is replaced itself, and the best of each size.
std::vector<std::uint32_t> loads_for(const Goal& goal, std::uint32_t service,
                                     const std::vector<Standing>& replaced) {
  std::vector<std::uint32_t> loads;
  const auto add = [&](std::uint32_t load) {
    const bool known = std::find(loads.begin(), loads.end(), load) != loads.end();
    if (!known && rate_of(goal.loads[load].parts, service) > 0) loads.push_back(load);
  };
  for (const Standing& standing : replaced) add(standing.load);
  for (const std::uint32_t load : goal.on_offer) add(load);
  return loads;
}

}  // namespace

// The smallest that is enough; where none is, the one that gives most, and others follow. Of
// places, those that nothing else wants, before extra devices, before other nodes, before those
// that break up the most room.
std::optional<Standing> Detours::choose(const Scene& scene, std::uint32_t service,
                                        const std::vector<Standing>& replaced,
                                        const std::vector<Site>& kept_free) const {
  const Goal& goal = scene.goal();
  const bool may_open = scene.extra_devices() < most_extra_devices_;
  const double lack = scene.lack(service);
  using Cost = std::tuple<double, bool, bool, std::uint32_t, bool, bool, std::uint32_t>;
  std::optional<std::pair<Cost, Standing>> best;
  for (const std::uint32_t load : loads_for(goal, service, replaced)) {
    const double rate = rate_of(goal.loads[load].parts, service);
    const bool enough = rate >= lack * (1 - kRateSlack);
    const bool is_copy = std::any_of(replaced.begin(), replaced.end(),
                                     [&](const Standing& one) { return one.load == load; });
    for_each_site(goal, goal.loads[load], [&](const Site& site) {
      const bool opens = scene.opens_extra_device(site);
      if ((opens && !may_open) || !scene.fits(site) || overlaps(goal, site, kept_free)) return;
      const Cost cost{enough ? -lack : -rate,
                      scene.is_wanted(site),
                      opens,
                      goal.geometry(site.device).find(site.instance.slices)->memory_slices,
                      !is_copy,
                      !goal.same_node(site.device, kept_free.front().device),
                      scene.room_lost(site)};
      if (!best || cost < best->first) best.emplace(cost, Standing{site, load, false, true});
    });
  }
  if (!best) return std::nullopt;
  return best->second;
}

// Within the stage that the scene is in. Leaves the scene as it was where there is no room.
bool Detours::stand_in_for(Scene& scene, const Site& site,
                           const std::vector<Site>& kept_free) const {
  const std::vector<Standing> in_the_way = scene.in_the_way(site);
  Scene trial = scene;
  for (const Standing& standing : in_the_way) {
    if (standing.final) return false;
    trial.leave(standing);
  }
  for (std::uint32_t service = 0; service < scene.goal().least.size(); ++service) {
    while (trial.lack(service) > 0) {
      const auto stand_in = choose(trial, service, in_the_way, kept_free);
      if (!stand_in) return false;
      trial.create(*stand_in);
    }
  }
  scene = std::move(trial);
  return true;
}

// Frees the site, after other moves where there is no room for stand-ins yet. What is kept free
// begins with the site.
Detours::Steps Detours::make_way(const Scene& scene, const Site& site, std::vector<Site> kept_free,
                                 int moves_before) {
  if (effort_left_ == 0) return std::nullopt;
  --effort_left_;
  Scene trial = scene;
  if (stand_in_for(trial, site, kept_free)) return std::vector{trial.finish_stage()};
  if (moves_before == 0) return std::nullopt;

  const Goal& goal = scene.goal();
  const std::vector<Standing> in_the_way = scene.in_the_way(site);
  std::map<Site, double> places;  // and the memory slices that are to be freed there
  for (const Standing& replaced : in_the_way) {
    if (replaced.final) return std::nullopt;
    for (const Part& part : goal.loads[replaced.load].parts) {
      for (const std::uint32_t load : loads_for(goal, part.service, in_the_way)) {
        for_each_site(goal, goal.loads[load], [&](const Site& place) {
          if (overlaps(goal, place, kept_free)) return;
          double memory = 0;
          for (const Standing& there : scene.in_the_way(place)) {
            if (there.final) return;
            memory += goal.geometry(place.device).find(there.site.instance.slices)->memory_slices;
          }
          if (memory > 0) places.emplace(place, memory);
        });
      }
    }
  }
  std::vector<std::pair<double, Site>> order;
  for (const auto& [place, memory] : places) order.emplace_back(memory, place);
  std::sort(order.begin(), order.end());
  if (order.size() > kMostPlaces) order.resize(kMostPlaces);
  for (const auto& [memory, place] : order) {
    std::vector<Site> also_free = kept_free;
    also_free.insert(also_free.begin(), place);
    Steps first = make_way(scene, place, also_free, moves_before - 1);
    if (!first) continue;
    Scene after = scene;
    for (const Step& step : *first) after.repeat(step);
    const Steps rest = make_way(after, site, kept_free, moves_before - 1);
    if (!rest) continue;
    first->insert(first->end(), rest->begin(), rest->end());
    return first;
  }
  return std::nullopt;
}

Detours::Steps Detours::find(const Scene& scene) {
  const std::vector<Standing> wanted = blocked(scene);
  Scene stage = scene;
  std::vector<Site> freed;
  for (const Standing& one : wanted) {
    std::vector<Site> kept_free = freed;
    kept_free.insert(kept_free.begin(), one.site);
    if (stand_in_for(stage, one.site, kept_free)) freed.push_back(one.site);
  }
  if (!freed.empty()) return std::vector{stage.finish_stage()};
  for (int moves_before = 1; moves_before <= kMovesBefore; ++moves_before) {
    for (const Standing& one : wanted) {
      if (Steps steps = make_way(scene, one.site, {one.site}, moves_before)) return steps;
    }
  }
  return std::nullopt;
}

std::optional<Step> move_to_spares(const Scene& scene) {
  const Goal& goal = scene.goal();
  Scene stage = scene;
  std::map<std::uint32_t, std::uint32_t> spare_of;
  std::vector<bool> used = goal.planned;
  for (const Standing& wanted : blocked(scene)) {
    const std::uint32_t device = wanted.site.device;
    if (!spare_of.contains(device)) {
      std::uint32_t spare = 0;
      while (spare < used.size() && (used[spare] || goal.geometry(spare) != goal.geometry(device)))
        ++spare;
      if (spare == used.size()) return std::nullopt;
      used[spare] = true;
      spare_of[device] = spare;
    }
    for (const Standing& standing : stage.in_the_way(wanted.site)) {
      stage.create({{spare_of[device], standing.site.instance}, standing.load, false, true});
      stage.leave(standing);
    }
  }
  return stage.finish_stage();
}

}  // namespace gpulet::mig
