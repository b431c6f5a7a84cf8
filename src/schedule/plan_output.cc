#include "schedule/plan_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

namespace gpulet::schedule {
namespace {

constexpr std::uint32_t kUnassigned = UINT32_MAX;

struct GpuletSignature {
  int percent = 0;
  std::string models;  // "resnet50,vgg16,", sorted

  [[nodiscard]] std::string text() const { return fmt::format("{}:{}", percent, models); }
};

GpuletSignature signature_of(int percent, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return {percent, fmt::format("{},", fmt::join(names, ","))};
}

// The gpulets of one device, the largest first.
struct DeviceSignature {
  std::vector<GpuletSignature> gpulets;

  void sort() {
    std::sort(gpulets.begin(), gpulets.end(), [](const auto& a, const auto& b) {
      return a.percent != b.percent ? a.percent > b.percent : a.models < b.models;
    });
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const GpuletSignature& gpulet : gpulets) text += gpulet.text() + "|";
    return text;
  }
};

class DeviceAssignment {
 public:
  explicit DeviceAssignment(const PlanBuilder& builder)
      : builder_(builder),
        context_(builder.context()),
        real_(builder.devices().size(), kUnassigned),
        taken_(context_.devices().size(), false) {}

  std::vector<std::uint32_t> run() {
    if (context_.input().current != nullptr) match_current();
    std::vector<std::size_t> next(context_.classes().size(), 0);
    for (std::size_t device = 0; device < real_.size(); ++device) {
      const BuilderDevice& planned = builder_.devices()[device];
      if (planned.partitions == 0 || real_[device] != kUnassigned) continue;
      const std::vector<std::uint32_t>& choices = context_.classes()[planned.device_class].devices;
      std::size_t& at = next[planned.device_class];
      while (taken_[choices[at]]) ++at;
      take(device, choices[at]);
    }
    return std::move(real_);
  }

 private:
  // By class and signature, each list by descending index: the last is taken first.
  using DevicesBySignature =
      std::map<std::pair<std::uint32_t, std::string>, std::vector<std::uint32_t>>;

  void take(std::size_t device, std::uint32_t real) {
    real_[device] = real;
    taken_[real] = true;
  }

  void match_current() {
    const std::vector<DeviceSignature> now = signatures_of_current();
    DevicesBySignature whole;
    DevicesBySignature gpulets;
    DevicesBySignature models;
    for (auto real = static_cast<std::uint32_t>(now.size()); real-- > 0;) {
      if (now[real].gpulets.empty()) continue;
      const std::uint32_t device_class = context_.class_of(real);
      whole[{device_class, now[real].text()}].push_back(real);
      for (const GpuletSignature& gpulet : now[real].gpulets) {
        gpulets[{device_class, gpulet.text()}].push_back(real);
        models[{device_class, gpulet.models}].push_back(real);
      }
    }
    const std::vector<DeviceSignature> wanted = signatures_of_builder();
    for (std::size_t device = 0; device < wanted.size(); ++device) {
      if (!wanted[device].gpulets.empty()) take_first(device, whole, wanted[device].text());
    }
    for (std::size_t device = 0; device < wanted.size(); ++device) {
      for (const GpuletSignature& gpulet : wanted[device].gpulets)
        take_first(device, gpulets, gpulet.text());
    }
    for (std::size_t device = 0; device < wanted.size(); ++device) {
      for (const GpuletSignature& gpulet : wanted[device].gpulets)
        take_first(device, models, gpulet.models);
    }
  }

  void take_first(std::size_t device, DevicesBySignature& index, const std::string& signature) {
    if (real_[device] != kUnassigned) return;
    const auto found = index.find({builder_.devices()[device].device_class, signature});
    if (found == index.end()) return;
    std::vector<std::uint32_t>& candidates = found->second;
    while (!candidates.empty() && taken_[candidates.back()]) candidates.pop_back();
    if (!candidates.empty()) take(device, candidates.back());
  }

  std::vector<DeviceSignature> signatures_of_current() const {
    std::vector<DeviceSignature> signatures(context_.devices().size());
    for (const PlannedGpulet& gpulet : context_.input().current->gpulets) {
      const std::optional<std::uint32_t> device = context_.find_device(gpulet.device);
      if (!device) continue;  // no longer in the cluster
      std::vector<std::string> models;
      for (const Assignment& assignment : gpulet.assignments) models.push_back(assignment.model);
      signatures[*device].gpulets.push_back(signature_of(gpulet.size.percent, std::move(models)));
    }
    for (DeviceSignature& device : signatures) device.sort();
    return signatures;
  }

  std::vector<DeviceSignature> signatures_of_builder() const {
    std::vector<DeviceSignature> signatures(builder_.devices().size());
    for (const BuilderGpulet& gpulet : builder_.gpulets()) {
      if (gpulet.slots.empty()) continue;
      std::vector<std::string> models;
      for (const BatchSlot& slot : gpulet.slots) {
        models.push_back(context_.models()[slot.model]->name);
      }
      signatures[gpulet.device].gpulets.push_back(
          signature_of(builder_.percent(gpulet), std::move(models)));
    }
    for (DeviceSignature& device : signatures) device.sort();
    return signatures;
  }

  const PlanBuilder& builder_;
  const PlanContext& context_;
  std::vector<std::uint32_t> real_;
  std::vector<bool> taken_;
};

}  // namespace

std::vector<std::uint32_t> assign_devices(const PlanBuilder& builder) {
  return DeviceAssignment(builder).run();
}

namespace {

bool near(double a, double b) {
  return std::abs(a - b) <= kRoundingSlack * std::max(std::abs(a), std::abs(b));
}

// For gpulets and for what the policy chose.
template <typename Planned>
bool equal_rounds(const Planned& a, const Planned& b) {
  return a.size == b.size && near(a.duty_cycle_ms, b.duty_cycle_ms) &&
         std::equal(a.assignments.begin(), a.assignments.end(), b.assignments.begin(),
                    b.assignments.end(), [](const Assignment& left, const Assignment& right) {
                      return left.model == right.model && left.batch == right.batch &&
                             near(left.rate, right.rate) &&
                             near(left.latency_ms, right.latency_ms) &&
                             near(left.slo_ms, right.slo_ms);
                    });
}

bool equal_but_rounding(const PlannedGpulet& a, const PlannedGpulet& b) {
  return a.device == b.device && a.instance == b.instance && equal_rounds(a, b) &&
         a.policy_choice.has_value() == b.policy_choice.has_value() &&
         (!a.policy_choice || equal_rounds(*a.policy_choice, *b.policy_choice));
}

}  // namespace

Assignment assignment_of(const PlanContext& context, std::size_t device_class, std::size_t size,
                         const BatchSlot& slot, std::uint32_t batch) {
  Assignment assignment;
  assignment.model = context.models()[slot.model]->name;
  assignment.rate = slot.rate / slot.curve->processes;
  assignment.batch = batch;
  const profile::LatencyTable& table =
      context.on_class(slot.model, device_class).profile->latency_of(slot.curve->processes);
  if (slot.curve->slowdown != nullptr) assignment.slowdown = slot.curve->slowdown[batch - 1];
  const Share share{context.classes()[device_class].sizes[size]};
  assignment.latency_ms = table.latency_ms(batch, share).value() * assignment.slowdown *
                          margin_of(context.input().options.margin, table);
  assignment.slo_ms = slot.slo_ms;
  return assignment;
}

void keep_unchanged_gpulets(const PlanInput& input, std::vector<PlannedGpulet>& gpulets) {
  if (input.current == nullptr) return;
  std::map<DeviceKey, std::vector<const PlannedGpulet*>> running;
  for (const PlannedGpulet& gpulet : input.current->gpulets)
    running[gpulet.device].push_back(&gpulet);
  for (PlannedGpulet& gpulet : gpulets) {
    const auto found = running.find(gpulet.device);
    if (found == running.end()) continue;
    const auto same = std::find_if(
        found->second.begin(), found->second.end(),
        [&gpulet](const PlannedGpulet* other) { return equal_but_rounding(gpulet, *other); });
    if (same == found->second.end()) continue;
    gpulet = **same;
    found->second.erase(same);
  }
}

namespace {

// REQUIRES: the slots have a duty cycle.
PlannedGpulet planned_gpulet(const PlanContext& context, std::size_t device_class, std::size_t size,
                             std::span<const BatchSlot> slots, const Device& device) {
  const std::optional<TolerantRound> tolerant = burst_tolerant_round(slots);
  if (!tolerant) throw std::logic_error("a gpulet was planned without a duty cycle");
  PlannedGpulet result;
  result.device = device.key;
  result.size = Share{context.classes()[device_class].sizes[size]};
  result.duty_cycle_ms = tolerant->round.duty_cycle_ms;
  result.assignments.reserve(slots.size());
  for (std::size_t at = 0; at < slots.size(); ++at) {
    result.assignments.push_back(
        assignment_of(context, device_class, size, slots[at], tolerant->round.batches[at]));
  }
  std::sort(result.assignments.begin(), result.assignments.end(),
            [](const Assignment& a, const Assignment& b) { return a.model < b.model; });
  return result;
}

}  // namespace

bool serves(const Plan& plan, std::string_view model) {
  return std::any_of(plan.gpulets.begin(), plan.gpulets.end(), [model](const auto& gpulet) {
    return std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                       [model](const Assignment& one) { return one.model == model; });
  });
}

void explain_all_unserved(const PlanContext& context, Plan* plan) {
  const Plan* const current = context.input().current;
  const std::size_t devices_used = plan->devices_used();
  for (Unserved& one : plan->unserved) {
    if (current != nullptr) {
      const auto before = std::find_if(
          current->unserved.begin(), current->unserved.end(), [&one](const Unserved& other) {
            return other.model == one.model &&
                   std::abs(other.rate - one.rate) <= kRoundingSlack * one.rate;
          });
      if (before != current->unserved.end()) one.rate = before->rate;
    }
    const std::uint32_t model = context.find_model(one.model).value();
    one.reason = explain_unserved(context, model, one.rate, devices_used);
  }
}

Plan finish_enlarged(PlanBuilder builder) {
  builder.use_spare_share();
  return finish(builder);
}

Plan finish(const PlanBuilder& builder) {
  const PlanContext& context = builder.context();
  Plan plan;
  std::vector<std::uint32_t> real = assign_devices(builder);
  const std::vector<std::optional<partition::MigInstance>> instances =
      place_instances(builder, &real);

  std::vector<const BuilderGpulet*> order;
  order.reserve(builder.gpulets().size());
  for (const BuilderGpulet& gpulet : builder.gpulets()) {
    if (!gpulet.slots.empty()) order.push_back(&gpulet);
  }
  std::stable_sort(order.begin(), order.end(), [&](const BuilderGpulet* a, const BuilderGpulet* b) {
    if (real[a->device] != real[b->device]) return real[a->device] < real[b->device];
    return a->size > b->size;
  });
  plan.gpulets.reserve(order.size());
  for (const BuilderGpulet* gpulet : order) {
    const Device& device = *context.devices()[real[gpulet->device]];
    PlannedGpulet planned = planned_gpulet(context, builder.devices()[gpulet->device].device_class,
                                           gpulet->size, gpulet->slots, device);
    planned.instance = instances[static_cast<std::size_t>(gpulet - builder.gpulets().data())];
    plan.gpulets.insert(plan.gpulets.end(), gpulet->slots.front().curve->processes, planned);
  }
  keep_unchanged_gpulets(context.input(), plan.gpulets);
  list_unserved(
      context, builder.unplaced(),
      [&](std::size_t model, double rate) {
        return explain_unserved(context, model, rate, builder.devices_used());
      },
      &plan);
  return plan;
}

}  // namespace gpulet::schedule
