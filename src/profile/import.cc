#include <string>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/profile/store.h"
#include "profile/assemble.h"
#include "profile/csv_tables.h"

namespace gpulet::profile {
namespace {

constexpr std::string_view kSevenSlices = "a100-80";

}  // namespace

Result<Profile> assemble(const CsvSources& sources, std::vector<std::string>& left_out) {
  const partition::MigGeometry mig =
      sources.mig ? *sources.mig : partition::MigGeometry::of(kSevenSlices).value();
  Profile profile;
  Result<LatencyRows> latency = read_latency(sources.latency, mig);
  if (!latency.ok()) return latency.status();
  for (auto& [model, samples] : latency.value()) {
    Result<LatencyTable> table = LatencyTable::create(std::move(samples));
    if (!table.ok()) return table.status().within(sources.latency.string() + ": " + model);
    profile.models.emplace(model, ModelProfile{std::move(table).value(), {}, std::nullopt});
  }
  if (sources.utilization) {
    Result<UtilizationRows> utilization = read_utilization(*sources.utilization, mig);
    if (!utilization.ok()) return utilization.status();
    for (auto& [model, rows] : utilization.value()) {
      const auto found = profile.models.find(model);
      if (found == profile.models.end()) {
        left_out.push_back(model);
      } else {
        found->second.utilization = std::move(rows);
      }
    }
  }
  if (sources.interference) {
    Result<std::vector<PairSample>> pairs = read_interference(*sources.interference, mig);
    if (!pairs.ok()) return pairs.status();
    profile.pairs = std::move(pairs).value();
  }
  return profile;
}

Result<Profile> import_csv(const std::string& name, const CsvSources& sources) {
  if (!config::is_name(name)) {
    return Status(
        StatusCode::invalid,
        "profile name \"" + name + "\": is not usable; write letters, digits, '.', '_' and '-'");
  }
  std::vector<std::string> left_out;
  Result<Profile> assembled = assemble(sources, left_out);
  if (!assembled.ok()) return assembled;
  Profile& profile = assembled.value();
  profile.name = name;
  profile.provenance["source"] = "imported from " + sources.latency.filename().string();
  std::string models;
  for (const std::string& model : left_out) models += (models.empty() ? "" : ", ") + model;
  if (!models.empty()) profile.provenance["left_out"] = "utilization without latency: " + models;
  return assembled;
}

}  // namespace gpulet::profile
