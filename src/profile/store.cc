#include "gpulet/profile/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"
#include "profile/store_files.h"

namespace gpulet::profile {
namespace {

Status check_name(const std::string& name) {
  if (config::is_name(name)) return {};
  return {
      StatusCode::invalid,
      fmt::format("profile name \"{}\": is not a valid name; write letters, digits, '.', '_' and "
                  "'-'",
                  name)};
}

Result<ModelProfile> assemble_latency(const std::vector<LatencySample>& samples) {
  std::map<std::uint32_t, std::vector<LatencySample>> by_processes;
  for (const LatencySample& sample : samples) by_processes[sample.processes].push_back(sample);
  if (!by_processes.contains(1)) {
    return Status(StatusCode::invalid,
                  "has no row for one process; measure the model alone in a gpulet");
  }
  std::map<std::uint32_t, LatencyTable> tables;
  for (auto& [processes, cells] : by_processes) {
    GPULET_TRY(LatencyTable table, LatencyTable::create(std::move(cells)));
    tables.emplace(processes, std::move(table));
  }
  ModelProfile profile{std::move(tables.extract(1).mapped()), {}, std::nullopt};
  profile.shared_latency = std::move(tables);
  return profile;
}

}  // namespace

Result<Profile> assemble(const CsvSources& sources, std::vector<std::string>& left_out) {
  constexpr std::string_view kSevenSlices = "a100-80";
  const partition::MigGeometry mig =
      sources.mig ? *sources.mig : partition::MigGeometry::of(kSevenSlices).value();
  Profile profile;
  GPULET_TRY(LatencyRows latency, read_latency(sources.latency, mig));
  for (const auto& [model, samples] : latency) {
    Result<ModelProfile> assembled = assemble_latency(samples);
    if (!assembled.ok()) return assembled.status().within(sources.latency.string() + ": " + model);
    profile.models.emplace(model, std::move(assembled).value());
  }
  if (sources.utilization) {
    GPULET_TRY(UtilizationRows utilization, read_utilization(*sources.utilization, mig));
    for (auto& [model, rows] : utilization) {
      const auto found = profile.models.find(model);
      if (found == profile.models.end()) {
        left_out.push_back(model);
      } else {
        found->second.utilization = std::move(rows);
      }
    }
  }
  if (sources.interference) {
    GPULET_TRY(std::vector<PairSample> pairs, read_interference(*sources.interference, mig));
    profile.pairs = std::move(pairs);
  }
  return profile;
}

Result<Profile> import_csv(const std::string& name, const CsvSources& sources) {
  if (Status status = check_name(name); !status.ok()) return status;
  std::vector<std::string> left_out;
  Result<Profile> assembled = assemble(sources, left_out);
  if (!assembled.ok()) return assembled;
  Profile& profile = assembled.value();
  profile.name = name;
  profile.provenance["source"] = "imported from " + sources.latency.filename().string();
  if (!left_out.empty())
    profile.provenance["left_out"] = "utilization without latency: " + joined(left_out);
  return assembled;
}

namespace {

using config::JsonCursor;

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

constexpr std::array kModelNumbers{std::pair{"memory_mb", &ModelProfile::memory_mb},
                                   std::pair{"kernels", &ModelProfile::kernels},
                                   std::pair{"input_bytes", &ModelProfile::input_bytes},
                                   std::pair{"output_bytes", &ModelProfile::output_bytes}};

// Empty without the key.
std::optional<double> positive(const JsonCursor& parent, const char* key) {
  const auto number = parent.find(key);
  if (!number) return std::nullopt;
  return number->number(config::above(0));
}

std::optional<control::Plant> read_controller(const JsonCursor& model) {
  const auto cursor = model.find("controller");
  if (!cursor) return std::nullopt;
  cursor->allow_keys({"gain_s_per_core", "zero", "at_cores"});
  control::Plant plant;
  plant.gain_s_per_core = cursor->required("gain_s_per_core").number(config::above(0));
  const JsonCursor zero = cursor->required("zero");
  plant.zero = zero.number({});
  if (plant.zero >= 1) {
    zero.fail(
        config::to_text(plant.zero) + " is not below 1",
        "identify it again with `gpulet profile run --controller --device DEVICE --models MODELS "
        "--out PROFILES`");
  }
  if (const auto cores = cursor->find("at_cores")) plant.at_cores = cores->number(config::above(0));
  return plant;
}

// Adds the contents of profile.json to the profile whose tables were read.
void read_metadata(const JsonCursor& root, const std::string& directory_name, Profile& profile) {
  root.allow_keys({"format", "name", "provenance", "pcie_gbps", "models"});
  const JsonCursor format = root.required("format");
  const std::int64_t version = format.integer(1, 1 << 30);
  if (version != kFormat) {
    format.fail(fmt::format("this program reads format {}, not {}", kFormat, version),
                "make the profile again with this version's gpulet");
  }
  const JsonCursor name = root.required("name");
  profile.name = name.name();
  if (profile.name != directory_name) {
    name.fail(fmt::format("the profile is named \"{}\" in a folder named \"{}\"", profile.name,
                          directory_name),
              "give both the same name");
  }
  if (const auto provenance = root.find("provenance")) {
    for (const auto& [key, value] : provenance->members())
      profile.provenance[key] = value.text("a text");
  }
  profile.pcie_gbps = positive(root, "pcie_gbps");
  const auto models = root.find("models");
  if (!models) return;
  for (const auto& [model, cursor] : models->members()) {
    cursor.allow_keys({"memory_mb", "kernels", "input_bytes", "output_bytes", "controller"});
    const auto found = profile.models.find(model);
    if (found == profile.models.end()) {
      cursor.fail("the model has no row in latency.csv", "measure it, or take it out here");
      continue;
    }
    for (const auto& [key, number] : kModelNumbers) found->second.*number = positive(cursor, key);
    found->second.controller = read_controller(cursor);
  }
}

// The folder that is at a path now. Holding it open keeps its inode from being reused.
class HeldFolder {
 public:
  explicit HeldFolder(const std::filesystem::path& folder)
      : descriptor_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    known_ = descriptor_.valid() && ::fstat(descriptor_.get(), &stat_) == 0;
  }

  // True where the path still names it and no file was added or removed.
  [[nodiscard]] bool stands_at(const std::filesystem::path& folder) const {
    if (!known_) return true;  // there was no folder, and reading it has failed
    struct stat now {};
    return ::stat(folder.c_str(), &now) == 0 && now.st_dev == stat_.st_dev &&
           now.st_ino == stat_.st_ino && now.st_mtim.tv_sec == stat_.st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == stat_.st_mtim.tv_nsec;
  }

 private:
  FileDescriptor descriptor_;
  bool known_ = false;
  struct stat stat_ {};
};

Result<Profile> read_once(const std::filesystem::path& profile_directory) {
  GPULET_TRY(const JsonCursor root, JsonCursor::read_file(profile_directory / kMetadataFile));
  CsvSources sources{
      .latency = profile_directory / kLatencyFile, .utilization = {}, .interference = {}};
  if (is_file(profile_directory / kUtilizationFile))
    sources.utilization = profile_directory / kUtilizationFile;
  if (is_file(profile_directory / kInterferenceFile))
    sources.interference = profile_directory / kInterferenceFile;
  std::vector<std::string> left_out;
  Result<Profile> profile = assemble(sources, left_out);
  if (!profile.ok()) return profile;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(profile_directory / "", error).lexically_normal();
  read_metadata(root, absolute.parent_path().filename().string(), profile.value());
  if (Status status = root.status(); !status.ok()) return status;
  if (is_file(profile_directory / kFitFile)) {
    GPULET_TRY(InterferenceFit fit, read_fit(profile_directory / kFitFile));
    profile.value().interference = std::move(fit);
  }
  return profile;
}

}  // namespace

Result<Profile> read_profile(const std::filesystem::path& profile_directory) {
  constexpr int kAttempts = 5;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const HeldFolder held(profile_directory);
    Result<Profile> profile = read_once(profile_directory);
    if (held.stands_at(profile_directory)) return profile;
  }
  return Status(
      StatusCode::unavailable,
      profile_directory.string() +
          " changed during each attempt to read it; let its writer finish, then try again");
}

Result<ReadProfiles> read_each_profile(const std::filesystem::path& directory) {
  constexpr const char* kFix =
      "make one with `gpulet profile run` (measures this machine) or `gpulet profile import` (from "
      "CSV)";
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) {
    return Status(StatusCode::not_found,
                  fmt::format("{}: cannot be read ({}); name a folder of profiles, or {}",
                              directory.string(), error.message(), kFix));
  }
  std::vector<std::filesystem::path> found;
  for (const std::filesystem::directory_entry& entry : entries) {
    const bool hidden =
        entry.path().filename().string().starts_with('.');  // one that is being written
    if (!hidden && is_file(entry.path() / kMetadataFile)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  if (found.empty()) {
    return Status(StatusCode::not_found, directory.string() + ": has no profile; " + kFix);
  }
  ReadProfiles read;
  for (const std::filesystem::path& path : found) {
    Result<Profile> profile = read_profile(path);
    if (profile.ok()) {
      read.profiles.emplace(path.filename().string(), std::move(profile).value());
    } else {
      read.faults.emplace(path.filename().string(), profile.status());
    }
  }
  return read;
}

Result<ProfileSet> read_profiles(const std::filesystem::path& directory) {
  Result<ReadProfiles> read = read_each_profile(directory);
  if (!read.ok()) return read.status();
  if (!read.value().faults.empty()) return read.value().faults.begin()->second;
  return std::move(read.value().profiles);
}

namespace {

Status failed(const std::filesystem::path& path, const std::string& problem,
              const std::error_code& error) {
  return {StatusCode::internal,
          fmt::format("{}: {} ({}); check the folder's permissions and the space left",
                      path.string(), problem, error.message())};
}

std::error_code last_error() { return {errno, std::generic_category()}; }

// A temporary folder next to the profile's place. The destructor removes it with its contents.
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
    for (const auto& [key, number] : kModelNumbers) {
      if (model.*number) entry[key] = *(model.*number);
    }
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
  std::vector<std::pair<const char*, std::string>> files{{kMetadataFile, metadata_text(profile)},
                                                         {kLatencyFile, latency_text(profile)}};
  const bool has_utilization =
      std::any_of(profile.models.begin(), profile.models.end(),
                  [](const auto& entry) { return !entry.second.utilization.empty(); });
  if (has_utilization) files.emplace_back(kUtilizationFile, utilization_text(profile));
  if (!profile.pairs.empty()) files.emplace_back(kInterferenceFile, interference_text(profile));
  if (profile.interference) files.emplace_back(kFitFile, fit_text(*profile.interference));
  for (const auto& [name, text] : files) {
    if (Status status = write_text(folder / name, text); !status.ok()) return status;
  }
  return {};
}

// The first free name for a backup.
std::filesystem::path backup_place(const std::filesystem::path& place) {
  const std::string name = '.' + place.filename().string() + ".bak";
  std::filesystem::path backup = place.parent_path() / name;
  std::error_code error;
  for (int number = 2; std::filesystem::exists(backup, error); ++number)
    backup = place.parent_path() / (name + '.' + std::to_string(number));
  return backup;
}

// Moves the staged folder to its place. What was there is moved to `aside`, which is the staged
// folder's own path or a free one.
Status swap_in(const std::filesystem::path& staged, const std::filesystem::path& place,
               const std::filesystem::path& aside) {
  std::error_code error;
  if (!std::filesystem::exists(place, error)) {
    std::filesystem::rename(staged, place, error);
    return error ? failed(place, "cannot be moved into place", error) : Status();
  }
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    if (aside != staged) std::filesystem::rename(staged, aside, error);
    return error ? failed(aside, "cannot be created", error) : Status();
  }
  // Not every file system can exchange folders: move the old one aside, and back should the second
  // step fail.
  std::filesystem::path moved_aside = aside;
  if (aside == staged) moved_aside += ".old";
  std::filesystem::rename(place, moved_aside, error);
  if (error) return failed(place, "cannot be replaced", error);
  std::filesystem::rename(staged, place, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::rename(moved_aside, place, ignored);
    return failed(place, "cannot be replaced", error);
  }
  if (aside == staged) std::filesystem::remove_all(moved_aside, error);
  return {};
}

// Returns the backup; empty without one.
Result<std::filesystem::path> write(const Profile& profile, const std::filesystem::path& directory,
                                    bool keep_backup) {
  if (Status status = check_name(profile.name); !status.ok()) return status;
  if (profile.models.empty()) {
    return Status(StatusCode::invalid,
                  fmt::format("profile {}: has no model; measure at least one", profile.name));
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return failed(directory, "cannot be created", error);
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
