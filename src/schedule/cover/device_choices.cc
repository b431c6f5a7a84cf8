#include "schedule/cover/device_choices.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gpulet::schedule {
namespace {

constexpr std::size_t kNoGpulet = std::numeric_limits<std::size_t>::max();

void keep_best(std::vector<DeviceChoice>* choices, std::size_t count) {
  std::stable_sort(choices->begin(), choices->end(),
                   [](const DeviceChoice& a, const DeviceChoice& b) { return a.value > b.value; });
  // Devices filled in another order are the same.
  const auto same = [](const DeviceChoice& a, const DeviceChoice& b) {
    return a.value == b.value && a.rest.rates == b.rest.rates;
  };
  choices->erase(std::unique(choices->begin(), choices->end(), same), choices->end());
  if (choices->size() > count) choices->resize(count);
}

}  // namespace

void take_from(Rest* rest, const Portion& portion, const Problem& problem,
               const Relaxation& relaxation) {
  double& left = rest->rates[portion.model];
  left -= portion.rate;
  if (left <= kRoundingSlack * problem.models()[portion.model]->rate) left = 0;
  rest->costs[portion.model] = relaxation.cost(portion.model, left);
}

DeviceChooser::DeviceChooser(Problem& problem, const Relaxation& relaxation)
    : problem_(&problem), relaxation_(&relaxation), gpulets_(problem, relaxation) {}

std::vector<DeviceChoice> DeviceChooser::best(std::uint32_t device_class, const Rest& rest,
                                              SearchWidth width, std::size_t count) {
  const DeviceClass& known = problem_->classes()[device_class];
  const Device& example = *known.example;
  Open whole{{}, DeviceRoom(known), 0};
  whole.made.filled.device_class = device_class;
  whole.made.rest = rest;
  whole.free_mb =
      example.memory_mb > 0 ? example.memory_mb : std::numeric_limits<double>::infinity();
  std::vector<Open> open;
  open.push_back(std::move(whole));
  std::vector<DeviceChoice> made;
  std::vector<Extension> extensions;
  while (!open.empty()) {
    extensions.clear();
    for (std::size_t at = 0; at < open.size(); ++at) list_extensions(open, at, width, &extensions);
    std::stable_sort(extensions.begin(), extensions.end(),
                     [](const Extension& a, const Extension& b) { return a.value > b.value; });
    for (std::size_t at = 0; at < std::min(extensions.size(), count); ++at) {
      made.push_back(with(open[extensions[at].open], extensions[at]).made);
      settle(rest, &made.back());
    }
    std::stable_sort(extensions.begin(), extensions.end(),
                     [](const Extension& a, const Extension& b) { return a.promise > b.promise; });
    std::vector<Open> next;
    for (const Extension& extension : extensions) {
      if (next.size() == width.devices) break;
      const Open& before = open[extension.open];
      if (!before.room.is_last()) next.push_back(with(before, extension));
    }
    open = std::move(next);
  }
  keep_best(&made, count);
  return made;
}

void DeviceChooser::list_extensions(const std::vector<Open>& open, std::size_t at,
                                    SearchWidth width, std::vector<Extension>* extensions) {
  const Open& device = open[at];
  const std::uint32_t device_class = device.made.filled.device_class;
  const DeviceClass& known = problem_->classes()[device_class];
  const std::vector<Neighbour> beside = neighbours(device.made.filled, kNoGpulet);
  for (auto size = static_cast<std::uint32_t>(known.sizes.size()); size-- > 0;) {
    if (!device.room.holds(size)) continue;
    const double free_mb = std::min(device.free_mb, known.gpulet_mb[size]);
    const auto& choices =
        gpulets_.best({device_class, size, free_mb, beside}, device.made.rest, width.choices);
    DeviceRoom room = device.room;
    room.take(size);
    const double promised = room.worth(*relaxation_, device_class);
    for (const GpuletChoice& choice : choices) {
      const double value = device.made.value + choice.value;
      extensions->push_back({at, size, choice, value, value + promised});
    }
    // Nobody can use what a smaller one would leave.
    if (device.room.is_last() && !choices.empty()) break;
  }
}

DeviceChooser::Open DeviceChooser::with(const Open& open, const Extension& extension) const {
  const std::uint32_t device_class = open.made.filled.device_class;
  Open next = open;
  next.room.take(extension.size);
  for (const Portion& portion : extension.choice.portions) {
    take_from(&next.made.rest, portion, *problem_, *relaxation_);
    next.free_mb -= problem_->on_class(portion.model, device_class).memory_mb;
  }
  next.made.filled.gpulets.push_back({extension.size, extension.choice.portions});
  next.made.value = extension.value;
  return next;
}

std::vector<Neighbour> DeviceChooser::neighbours(const FilledDevice& filled, std::size_t of) const {
  std::vector<Neighbour> beside;
  if (!problem_->interferes(filled.device_class)) return beside;
  for (std::size_t index = 0; index < filled.gpulets.size(); ++index) {
    if (index == of) continue;
    Neighbour& neighbour = beside.emplace_back();
    neighbour.size = filled.gpulets[index].size;
    for (const Portion& portion : filled.gpulets[index].portions) {
      neighbour.models.push_back(portion.model);
    }
    std::sort(neighbour.models.begin(), neighbour.models.end());
  }
  return beside;
}

// Gpulets were chosen beside those that were there before them; those are slower beside what came
// later. Whatever rate that leaves without room goes back to the rest.
void DeviceChooser::settle(const Rest& before, DeviceChoice* choice) {
  FilledDevice& filled = choice->filled;
  if (filled.gpulets.size() < 2 || !problem_->interferes(filled.device_class)) return;
  const FilledDevice wanted = filled;
  std::vector<Turn> turns;
  for (std::size_t index = 0; index < wanted.gpulets.size(); ++index) {
    const std::vector<Neighbour> beside = neighbours(wanted, index);
    FilledGpulet& gpulet = filled.gpulets[index];
    gpulet.portions.clear();
    turns.clear();
    for (Portion portion : wanted.gpulets[index].portions) {
      const Row& row =
          problem_->row_beside(portion.model, filled.device_class, gpulet.size, beside);
      const double slo_ms = problem_->models()[portion.model]->slo_ms;
      const double most = most_rate_beside(turns, row, slo_ms);
      portion.rate = std::min(portion.rate, most);
      if (portion.rate <= kRoundingSlack * before.rates[portion.model]) continue;
      turns.push_back({&row, portion.rate, slo_ms, portion.model});
      if (least_duty_cycle_ms(turns)) {
        gpulet.portions.push_back(portion);
      } else {
        turns.pop_back();
      }
    }
  }
  if (filled == wanted) return;
  choice->rest = before;
  choice->value = 0;
  for (const FilledGpulet& gpulet : filled.gpulets) {
    for (const Portion& portion : gpulet.portions) {
      choice->value += choice->rest.costs[portion.model];
      take_from(&choice->rest, portion, *problem_, *relaxation_);
      choice->value -= choice->rest.costs[portion.model];
    }
  }
}

}  // namespace gpulet::schedule
