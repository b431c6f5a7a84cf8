#include "schedule/placement.h"

#include <algorithm>
#include <map>
#include <string>

namespace gpulet::schedule {
namespace {

constexpr std::uint32_t kNowhere = UINT32_MAX;

// "40:resnet50,vgg16": what a gpulet looks like to a plan change. Models in sorted order.
std::string look(int percent, std::vector<std::string> models) {
  std::sort(models.begin(), models.end());
  std::string text = std::to_string(percent) + ":";
  for (const std::string& model : models) text += model + ",";
  return text;
}

// The gpulets of one device, largest size first.
struct Looks {
  std::vector<std::pair<int, std::string>> gpulets;

  void sort() {
    std::sort(gpulets.begin(), gpulets.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
  }
  [[nodiscard]] std::string whole() const {
    std::string text;
    for (const auto& [percent, models] : gpulets) text += models + "|";
    return text;
  }
};

class Placement {
 public:
  explicit Placement(const Draft& draft)
      : draft_(draft),
        problem_(draft.problem()),
        real_(draft.devices().size(), kNowhere),
        taken_(problem_.devices().size(), false) {}

  std::vector<std::uint32_t> run() {
    if (problem_.input().current != nullptr) stay();
    std::vector<std::size_t> next(problem_.classes().size(), 0);
    for (std::size_t device = 0; device < real_.size(); ++device) {
      const DraftDevice& drafted = draft_.devices()[device];
      if (drafted.partitions == 0 || real_[device] != kNowhere) continue;
      const std::vector<std::uint32_t>& choices = problem_.classes()[drafted.device_class].devices;
      std::size_t& at = next[drafted.device_class];
      while (taken_[choices[at]]) ++at;
      take(device, choices[at]);
    }
    return std::move(real_);
  }

 private:
  void take(std::size_t device, std::uint32_t real) {
    real_[device] = real;
    taken_[real] = true;
  }

  void stay() {
    const std::vector<Looks> now = looks_of_current();
    std::vector<std::uint32_t> class_of_real(problem_.devices().size(), 0);
    for (std::uint32_t index = 0; index < problem_.classes().size(); ++index) {
      for (const std::uint32_t real : problem_.classes()[index].devices)
        class_of_real[real] = index;
    }
    // By class and look; the devices of one look by descending index, so that the last is the first
    // to go.
    std::map<std::pair<std::uint32_t, std::string>, std::vector<std::uint32_t>> whole;
    std::map<std::pair<std::uint32_t, std::string>, std::vector<std::uint32_t>> single;
    for (std::size_t left = now.size(); left > 0; --left) {
      const auto real = static_cast<std::uint32_t>(left - 1);
      if (now[real].gpulets.empty()) continue;
      whole[{class_of_real[real], now[real].whole()}].push_back(real);
      for (const auto& [percent, models] : now[real].gpulets) {
        single[{class_of_real[real], models}].push_back(real);
      }
    }
    const std::vector<Looks> wanted = looks_of_draft();
    for (std::size_t device = 0; device < wanted.size(); ++device) {
      if (wanted[device].gpulets.empty()) continue;
      take_first(device, whole, wanted[device].whole());
    }
    for (std::size_t device = 0; device < wanted.size(); ++device) {
      for (const auto& [percent, models] : wanted[device].gpulets) {
        if (real_[device] == kNowhere) take_first(device, single, models);
      }
    }
  }

  template <typename Index>
  void take_first(std::size_t device, Index& index, const std::string& look_of) {
    const auto found = index.find({draft_.devices()[device].device_class, look_of});
    if (found == index.end()) return;
    std::vector<std::uint32_t>& candidates = found->second;
    while (!candidates.empty() && taken_[candidates.back()]) candidates.pop_back();
    if (!candidates.empty()) take(device, candidates.back());
  }

  std::vector<Looks> looks_of_current() const {
    std::vector<Looks> looks(problem_.devices().size());
    for (const PlannedGpulet& gpulet : problem_.input().current->gpulets) {
      const auto found = std::lower_bound(
          problem_.devices().begin(), problem_.devices().end(), gpulet.device,
          [](const Device* device, const DeviceKey& key) { return device->key < key; });
      if (found == problem_.devices().end() || (*found)->key != gpulet.device)
        continue;  // left the cluster
      std::vector<std::string> models;
      for (const Assignment& assignment : gpulet.assignments) models.push_back(assignment.model);
      looks[static_cast<std::size_t>(found - problem_.devices().begin())].gpulets.emplace_back(
          gpulet.size.percent, look(gpulet.size.percent, std::move(models)));
    }
    for (Looks& device : looks) device.sort();
    return looks;
  }

  std::vector<Looks> looks_of_draft() const {
    std::vector<Looks> looks(draft_.devices().size());
    for (const DraftGpulet& gpulet : draft_.gpulets()) {
      if (gpulet.turns.empty()) continue;
      std::vector<std::string> models;
      for (const Turn& turn : gpulet.turns) {
        models.push_back(problem_.models()[turn.model]->name);
      }
      const int percent = draft_.percent(gpulet);
      looks[gpulet.device].gpulets.emplace_back(percent, look(percent, std::move(models)));
    }
    for (Looks& device : looks) device.sort();
    return looks;
  }

  const Draft& draft_;
  const Problem& problem_;
  std::vector<std::uint32_t> real_;
  std::vector<bool> taken_;
};

}  // namespace

std::vector<std::uint32_t> place(const Draft& draft) { return Placement(draft).run(); }

}  // namespace gpulet::schedule
