#include <fcntl.h>
#include <stdlib.h>  // mkdtemp
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "gpulet/config/json.h"
#include "gpulet/profile/store.h"
#include "profile/csv_tables.h"
#include "profile/files.h"
#include "profile/fit_store.h"

namespace gpulet::profile {
namespace {

Status failed(const std::filesystem::path& path, const std::string& what,
              const std::error_code& error) {
  return {StatusCode::internal, path.string() + ": " + what + " (" + error.message() +
                                    "); check the folder's permissions and the space left"};
}

std::error_code last_error() { return {errno, std::generic_category()}; }

// A new folder beside the profile's place; removed with all it holds when it goes out of scope.
class StagingFolder {
 public:
  explicit StagingFolder(const std::filesystem::path& final_place)
      : path_((final_place.parent_path() / ('.' + final_place.filename().string() + ".XXXXXX"))
                  .string()) {
    made_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~StagingFolder() {
    std::error_code ignored;
    if (made_) std::filesystem::remove_all(path_, ignored);
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

Status write_text(const std::filesystem::path& file, const std::string& text) {
  errno = 0;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream) return failed(file, "cannot be written", last_error());
  return {};
}

std::string metadata_text(const Profile& profile) {
  nlohmann::ordered_json metadata;
  metadata["format"] = kFormat;
  metadata["name"] = profile.name;
  metadata["provenance"] = nlohmann::ordered_json::object();
  for (const auto& [key, text] : profile.provenance) metadata["provenance"][key] = text;
  if (profile.pcie_gbps) metadata["pcie_gbps"] = *profile.pcie_gbps;
  metadata["models"] = nlohmann::ordered_json::object();
  for (const auto& [name, model] : profile.models) {
    auto& entry = metadata["models"][name] = nlohmann::ordered_json::object();
    if (model.memory_mb) entry["memory_mb"] = *model.memory_mb;
    if (model.kernels) entry["kernels"] = *model.kernels;
    if (model.input_bytes) entry["input_bytes"] = *model.input_bytes;
    if (model.output_bytes) entry["output_bytes"] = *model.output_bytes;
    if (const auto& plant = model.controller) {
      entry["controller"]["gain_s_per_core"] = plant->gain_s_per_core;
      entry["controller"]["zero"] = plant->zero;
      if (plant->at_cores > 0) entry["controller"]["at_cores"] = plant->at_cores;
    }
  }
  constexpr int kIndent = 2;
  // Provenance is free text: bytes that are not UTF-8 must not make a profile unwritable.
  return metadata.dump(kIndent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         '\n';
}

Status write_files(const Profile& profile, const std::filesystem::path& folder) {
  Status status = write_text(folder / kMetadataFile, metadata_text(profile));
  if (status.ok()) status = write_text(folder / kLatencyFile, latency_text(profile));
  const bool has_utilization =
      std::any_of(profile.models.begin(), profile.models.end(),
                  [](const auto& entry) { return !entry.second.utilization.empty(); });
  if (status.ok() && has_utilization)
    status = write_text(folder / kUtilizationFile, utilization_text(profile));
  if (status.ok() && !profile.pairs.empty()) {
    status = write_text(folder / kInterferenceFile, interference_text(profile));
  }
  if (status.ok() && profile.interference) {
    status = write_text(folder / kFitFile, fit_text(*profile.interference));
  }
  return status;
}

// The first name for a backup that nothing has.
std::filesystem::path backup_place(const std::filesystem::path& place) {
  const std::string name = '.' + place.filename().string() + ".bak";
  std::filesystem::path backup = place.parent_path() / name;
  std::error_code error;
  for (int number = 2; std::filesystem::exists(backup, error); ++number)
    backup = place.parent_path() / (name + '.' + std::to_string(number));
  return backup;
}

// Puts the staged folder in its place. What stood there ends up at `aside`, which is the staged
// folder's own path or one that nothing has.
Status swap_in(const std::filesystem::path& staged, const std::filesystem::path& place,
               const std::filesystem::path& aside) {
  std::error_code error;
  if (!std::filesystem::exists(place, error)) {
    std::filesystem::rename(staged, place, error);
    return error ? failed(place, "cannot be put in place", error) : Status();
  }
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    if (aside != staged) std::filesystem::rename(staged, aside, error);
    return error ? failed(aside, "cannot be made", error) : Status();
  }
  // Not every file system exchanges folders: step aside, and back again should the second step
  // fail.
  std::filesystem::path stepped_aside = aside;
  if (aside == staged) stepped_aside += ".old";
  std::filesystem::rename(place, stepped_aside, error);
  if (error) return failed(place, "cannot be replaced", error);
  std::filesystem::rename(staged, place, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::rename(stepped_aside, place, ignored);
    return failed(place, "cannot be replaced", error);
  }
  if (aside == staged) std::filesystem::remove_all(stepped_aside, error);
  return {};
}

// Returns where what was there is kept; empty where it is not.
Result<std::filesystem::path> write(const Profile& profile, const std::filesystem::path& directory,
                                    bool keep_backup) {
  if (!config::is_name(profile.name)) {
    return Status(StatusCode::invalid,
                  "profile name \"" + profile.name +
                      "\": is not usable; write letters, digits, '.', '_' and '-'");
  }
  if (profile.models.empty()) {
    return Status(StatusCode::invalid,
                  "profile " + profile.name + ": has no model; measure at least one");
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return failed(directory, "cannot be made", error);
  const std::filesystem::path place = directory / profile.name;
  const StagingFolder staging(place);
  if (!staging.made()) return failed(directory, "cannot be written to", last_error());
  constexpr mode_t kReadableByAll = 0755;  // mkdtemp gives the owner alone access
  if (::chmod(staging.path().c_str(), kReadableByAll) != 0) {
    return failed(directory, "cannot be written to", last_error());
  }
  if (Status status = write_files(profile, staging.path()); !status.ok()) return status;
  const bool keeps = keep_backup && std::filesystem::exists(place, error);
  const std::filesystem::path aside = keeps ? backup_place(place) : staging.path();
  if (Status status = swap_in(staging.path(), place, aside); !status.ok()) return status;
  return keeps ? aside : std::filesystem::path();
}

}  // namespace

Status write_profile(const Profile& profile, const std::filesystem::path& directory) {
  return write(profile, directory, false).status();
}

Result<std::filesystem::path> replace_profile(const Profile& profile,
                                              const std::filesystem::path& directory) {
  return write(profile, directory, true);
}

}  // namespace gpulet::profile
