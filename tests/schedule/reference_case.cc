#include "tests/schedule/reference_case.h"

#include <array>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/store.h"

namespace gpulet::schedule::testing {
namespace {

constexpr std::array kModels{"resnet50", "vgg16", "densenet121", "inception", "mobilenet"};
constexpr int kRates = 4;
constexpr int kRatesOfNine = 3;

}  // namespace

std::filesystem::path reference_measurements() {
  return std::filesystem::path(GPULET_SOURCE_DIR) / "profiles/reference-gpu";
}

Worked reference_case(profile::InterferenceKind interference) {
  const std::filesystem::path folder = reference_measurements();
  profile::CsvSources tables{folder / "latency.csv", {}, {}};
  if (interference != profile::InterferenceKind::none) {
    tables.utilization = folder / "utilization.csv";
    tables.interference = folder / "interference.csv";
  }
  Worked worked;
  profile::Profile& measured = (*worked.profiles)["gpu-a"];
  measured = profile::import_csv("gpu-a", tables).value();
  if (interference != profile::InterferenceKind::none) {
    measured.interference = profile::fit_interference(measured, {}).value();
    worked.interference = std::make_unique<profile::InterferenceSet>(
        profile::interference_of(*worked.profiles, interference).value());
    worked.input.interference = worked.interference.get();
  }
  worked.input.options.headroom = Headroom::none;
  add_devices(worked, "n0", "gpu-a", 4);
  for (const char* model : kModels) {
    const auto* known = measured.find(model);
    worked.input.demands.push_back(
        {model, 0, 2 * known->latency.latency_ms(32, kWholeDevice).value(), 32});
  }
  return worked;
}

void set_spread(Worked& worked, double cv) {
  for (auto& [type, measured] : *worked.profiles) {
    for (auto& [name, model] : measured.models) {
      std::vector<profile::LatencySample> samples = model.latency.samples();
      for (profile::LatencySample& sample : samples) sample.cv = cv;
      model.latency = profile::LatencyTable::create(std::move(samples)).value();
    }
  }
  if (worked.interference == nullptr) return;
  const profile::InterferenceKind kind = worked.interference->begin()->second.kind();
  *worked.interference = profile::interference_of(*worked.profiles, kind).value();
}

void set_scenario(Worked& worked, int scenario, double scale) {
  for (ModelDemand& demand : worked.input.demands) {
    demand.rate = 200 * (scenario % kRates) * scale;
    scenario /= kRates;
  }
}

void demand_nine_models(Worked& worked) {
  worked.input.demands.clear();
  for (const char* model : {"densenet121", "densenet169", "inception", "mobilenet", "resnet101",
                            "resnet152", "resnet50", "vgg16", "vgg19"}) {
    const profile::ModelProfile* known = worked.profiles->begin()->second.find(model);
    worked.input.demands.push_back(
        {model, 0, 2 * known->latency.latency_ms(32, kWholeDevice).value(), 32});
  }
}

void set_scenario_of_nine(Worked& worked, int scenario, double scale) {
  for (ModelDemand& demand : worked.input.demands) {
    demand.rate = 100 * (scenario % kRatesOfNine) * scale;
    scenario /= kRatesOfNine;
  }
}

std::size_t count_non_monotonic(const std::vector<bool>& schedulable) {
  const auto no_heavier = [](int light, int heavy) {
    for (std::size_t model = 0; model < kModels.size(); ++model) {
      if (light % kRates > heavy % kRates) return false;
      light /= kRates;
      heavy /= kRates;
    }
    return true;
  };
  std::size_t count = 0;
  for (int light = 1; light < kScenarios; ++light) {
    if (schedulable[static_cast<std::size_t>(light - 1)]) continue;
    for (int heavy = 1; heavy < kScenarios; ++heavy) {
      if (schedulable[static_cast<std::size_t>(heavy - 1)] && no_heavier(light, heavy)) ++count;
    }
  }
  return count;
}

}  // namespace gpulet::schedule::testing
