#include <utility>

#include "gpulet/planning/pipeline.h"

namespace gpulet::planning {
namespace {

using profile::InterferenceKind;

Result<ChosenInterference> of_kind(const profile::ProfileSet& profiles,
                                   const std::vector<std::string>& device_types,
                                   InterferenceKind kind, profile::FitPairModel fit_inss) {
  ChosenInterference chosen{kind, {}};
  if (kind == InterferenceKind::none) return chosen;
  for (const std::string& type : device_types) {
    const auto found = profiles.find(type);
    if (found == profiles.end() || chosen.models.contains(type)) continue;
    GPULET_TRY(profile::InterferenceModel model,
               profile::InterferenceModel::create(found->second, kind, fit_inss));
    chosen.models.emplace(type, std::move(model));
  }
  return chosen;
}

}  // namespace

Result<schedule::Headroom> parse_headroom(std::string_view text) {
  if (text == "none") return schedule::Headroom::none;
  if (text == "poisson") return schedule::Headroom::poisson;
  return Status(StatusCode::invalid,
                "'" + std::string(text) + "' is no headroom; write none or poisson");
}

Result<ChosenInterference> choose_interference(const profile::ProfileSet& profiles,
                                               const std::vector<std::string>& device_types,
                                               const std::optional<std::string>& asked,
                                               profile::FitPairModel fit_inss) {
  if (asked) {
    GPULET_TRY(const InterferenceKind kind, profile::parse_interference_kind(*asked));
    return of_kind(profiles, device_types, kind, fit_inss);
  }
  ChosenInterference chosen;
  for (const std::string& type : device_types) {
    Result<ChosenInterference> of_type =
        of_kind(profiles, {type}, InterferenceKind::combined, nullptr);
    if (of_type.ok()) {
      chosen.models.merge(of_type.value().models);
    } else if (of_type.status().code() != StatusCode::not_found) {
      return of_type.status();
    }
  }
  if (!chosen.models.empty()) chosen.kind = InterferenceKind::combined;
  return chosen;
}

}  // namespace gpulet::planning
