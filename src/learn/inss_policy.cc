#include "gpulet/learn/inss_policy.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/learn/choices.h"
#include "gpulet/learn/placement_rules.h"
#include "gpulet/schedule/batch_search.h"
#include "gpulet/schedule/check.h"

namespace gpulet::learn {
namespace {

using schedule::Plan;
using schedule::PlanInput;

constexpr std::string_view kName = "inss";
constexpr std::string_view kInsteadName = "cover";

class InssPolicy final : public schedule::Policy {
 public:
  explicit InssPolicy(LearnedPolicy learned)
      : learned_(std::move(learned)), instead_(schedule::make_policy(kInsteadName).value()) {}

  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] const PlacementTask& task() const { return learned_.task; }

  [[nodiscard]] Plan plan(const PlanInput& input) const override {
    if (Status fit = learn::fits(learned_.task, input); !fit.ok())
      return made_instead(input, fit.message());
    std::optional<Plan> kept = schedule::keep_placement(input);
    Plan plan = kept ? *std::move(kept) : place(input);
    plan.policy = kName;
    const std::vector<std::string> faults = schedule::check(plan, input);
    if (!faults.empty()) return made_instead(input, "its plan broke a rule: " + faults.front());
    return plan;
  }

 private:
  [[nodiscard]] Plan place(const PlanInput& input) const {
    const std::vector<float> seen = observe(learned_.task, input);
    std::vector<float> logits(learned_.network.outputs());
    Network::Scratch scratch;
    learned_.network.forward(seen, logits, scratch);
    const PlacementRules rules(learned_.task, input);
    const Choices choices = choose_best(seen, logits, rules);
    return schedule::BatchSearch(input).decide(rules.places_of(choices.chosen));
  }

  [[nodiscard]] Plan made_instead(const PlanInput& input, const std::string& why) const {
    Plan plan = instead_->plan(input);
    plan.policy = kName;
    plan.notes.insert(plan.notes.begin(),
                      "made by " + std::string(kInsteadName) + " instead: " + why);
    return plan;
  }

  LearnedPolicy learned_;
  std::unique_ptr<schedule::Policy> instead_;
};

}  // namespace

std::unique_ptr<schedule::Policy> make_inss_policy(LearnedPolicy learned) {
  return std::make_unique<InssPolicy>(std::move(learned));
}

Status fits(const schedule::Policy& policy, const PlanInput& input) {
  const auto* const learned = dynamic_cast<const InssPolicy*>(&policy);
  return learned == nullptr ? Status{} : fits(learned->task(), input);
}

Result<std::unique_ptr<schedule::Policy>> make_policy(std::string_view name,
                                                      const std::filesystem::path& folder) {
  if (name == kName) {
    return Status(StatusCode::invalid,
                  "the policy inss needs the file that gpulet train wrote: inss:FILE");
  }
  const std::string prefix = std::string(kName) + ':';
  if (!name.starts_with(prefix)) {
    auto made = schedule::make_policy(name);
    if (made.ok()) return made;
    return Status(made.status().code(), made.status().message() + ", or inss:FILE");
  }
  auto learned = read_policy(folder / name.substr(prefix.size()));
  if (!learned.ok()) return learned.status();
  return make_inss_policy(std::move(learned).value());
}

}  // namespace gpulet::learn
