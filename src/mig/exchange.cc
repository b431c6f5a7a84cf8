#include "mig/exchange.h"

#include <algorithm>

namespace gpulet::mig {
namespace {

// How much of their least rates the services lose with these.
double loss_of(const std::vector<Standing>& these, const Goal& goal) {
  double loss = 0;
  for (const Standing& standing : these) {
    for (const Part& part : goal.loads[standing.load].parts) {
      if (goal.least[part.service] > 0) loss += part.rate / goal.least[part.service];
    }
  }
  return loss;
}

void remove_in_the_way(Scene& scene) {
  for (const Standing& wanted : blocked(scene)) {
    const std::vector<Standing> in_the_way = scene.in_the_way(wanted.site);
    if (!scene.can_do_without(in_the_way)) continue;
    for (const Standing& standing : in_the_way) scene.leave(standing);
  }
}

// Where what is in its final place already suffices for a service, nothing else of it is missed,
// now or later.
void remove_not_missed(Scene& scene) {
  const Goal& goal = scene.goal();
  std::vector<double> settled(goal.least.size(), 0);
  const std::vector<Standing> remaining = scene.remaining();
  for (const Standing& standing : remaining) {
    if (!standing.final) continue;
    for (const Part& part : goal.loads[standing.load].parts) settled[part.service] += part.rate;
  }
  for (const Standing& standing : remaining) {
    const std::vector<Part>& parts = goal.loads[standing.load].parts;
    const bool missed = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
      return settled[part.service] < goal.least[part.service] * (1 - kRateSlack);
    });
    if (!standing.final && !missed) scene.leave(standing);
  }
}

void remove_stand_ins(Scene& scene) {
  std::vector<Standing> stand_ins = scene.remaining();
  std::erase_if(stand_ins, [](const Standing& standing) { return !standing.stand_in; });
  std::stable_partition(stand_ins.begin(), stand_ins.end(), [&](const Standing& standing) {
    return !scene.goal().planned[standing.site.device];
  });
  for (const Standing& standing : stand_ins) {
    if (scene.can_do_without({&standing, 1})) scene.leave(standing);
  }
}

}  // namespace

std::vector<Standing> blocked(const Scene& scene) {
  std::vector<std::pair<double, Standing>> found;
  for (const Standing& wanted : scene.missing()) {
    const std::vector<Standing> in_the_way = scene.in_the_way(wanted.site);
    if (!in_the_way.empty()) found.emplace_back(loss_of(in_the_way, scene.goal()), wanted);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Standing> order;
  for (const auto& [loss, wanted] : found) order.push_back(wanted);
  return order;
}

void create_where_free(Scene& scene) {
  const std::vector<Standing> missing = scene.missing();
  for (const Standing& wanted : missing) {
    if (scene.fits(wanted.site)) scene.create(wanted);
  }
}

void remove_unneeded(Scene& scene) {
  remove_in_the_way(scene);
  remove_not_missed(scene);
  remove_stand_ins(scene);
}

}  // namespace gpulet::mig
