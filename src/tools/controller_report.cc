#include "tools/controller_report.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "gpulet/control/options.h"
#include "gpulet/control/pole_placement.h"
#include "gpulet/profile/store.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct Chosen {
  control::PiGains gains;
  control::Margins margins;
};

// Nothing where no gains have the margins wanted.
std::optional<Chosen> choose(const control::Plant& plant) {
  const auto gains = control::choose_gains(plant, control::Options{}.pole);
  if (!gains.ok()) return std::nullopt;
  return Chosen{gains.value(), control::margins(plant, gains.value(), 1)};
}

void print_table(const ControllerRun& run) {
  Table table({{"model", Table::Align::left},
               {"rps"},
               {"cores"},
               {"k s/core"},
               {"b"},
               {"R squared"},
               {"K cores/s"},
               {"a"},
               {"gain margin"},
               {"phase margin"}});
  for (const IdentifiedModel& model : run.models) {
    const control::Plant& plant = model.found.plant;
    std::vector<std::string> row{model.model,
                                 fixed(model.rate_rps, 1),
                                 fixed(plant.at_cores, 2),
                                 fixed(plant.gain_s_per_core, 3),
                                 fixed(plant.zero, 2),
                                 fixed(model.found.explained, 2)};
    const auto chosen = choose(plant);
    for (const std::string& cell :
         chosen
             ? std::vector{fixed(chosen->gains.gain_cores_per_s, 3), fixed(chosen->gains.zero, 2),
                           fixed(chosen->margins.gain, 1), fixed(chosen->margins.phase_deg, 0)}
             : std::vector<std::string>(4, "-")) {
      row.push_back(cell);
    }
    table.add_row(std::move(row));
  }
  std::cout << table.to_string();
}

void print_document(const ControllerRun& run) {
  nlohmann::ordered_json document;
  document["models"] = nlohmann::ordered_json::array();
  for (const IdentifiedModel& model : run.models) {
    const control::Plant& plant = model.found.plant;
    nlohmann::ordered_json& row = document["models"].emplace_back();
    row["name"] = model.model;
    row["rate_rps"] = model.rate_rps;
    row["controller"] = {{"gain_s_per_core", plant.gain_s_per_core},
                         {"zero", plant.zero},
                         {"at_cores", plant.at_cores}};
    row["r_squared"] = model.found.explained;
    if (const auto chosen = choose(plant)) {
      row["gains"] = {{"gain_cores_per_s", chosen->gains.gain_cores_per_s},
                      {"zero", chosen->gains.zero}};
      row["margins"] = {{"gain", chosen->margins.gain},
                        {"phase_deg", chosen->margins.phase_deg},
                        {"delay_periods", chosen->margins.delay_periods}};
    }
    for (const control::Sample& sample : model.run) {
      row["samples"].push_back({{"cores", sample.cores}, {"response_s", sample.response_s}});
    }
  }
  document["failures"] = nlohmann::ordered_json::array();
  for (const Status& failure : run.failures) document["failures"].push_back(failure.message());
  std::cout << document.dump(2) << '\n';
}

}  // namespace

Result<profile::Profile> measured_profile(const std::filesystem::path& place,
                                          const std::vector<config::ModelConfig>& models) {
  auto profile = profile::read_profile(place);
  if (!profile.ok()) {
    return profile.status().within("--controller adds to a profile; measure one first, without it");
  }
  for (const config::ModelConfig& model : models) {
    if (profile.value().find(model.name) == nullptr) {
      return Status(StatusCode::invalid,
                    place.string() + ": has no latencies of " + model.name +
                        "; measure it first with --keep, or leave it out with --only");
    }
  }
  return profile;
}

void add_plants(const ControllerRun& run, profile::Profile& profile) {
  for (const IdentifiedModel& model : run.models) {
    profile.models.at(model.model).controller = model.found.plant;
  }
}

void tell_identified(const ControllerRun& run, bool json) {
  if (json) {
    print_document(run);
  } else if (!run.models.empty()) {
    print_table(run);
  }
}

}  // namespace gpulet::tools
