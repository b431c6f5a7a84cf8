#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/profile/store.h"
#include "profile/assemble.h"
#include "profile/files.h"
#include "profile/fit_store.h"

namespace gpulet::profile {
namespace {

using config::JsonCursor;

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// Empty where the key is not there.
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
    zero.fail(config::to_text(plant.zero) + " is not below 1",
              "identify it again with `gpulet profile run --controller`");
  }
  if (const auto cores = cursor->find("at_cores")) plant.at_cores = cores->number(config::above(0));
  return plant;
}

// Fills in what profile.json says about the profile whose tables were read.
void read_metadata(const JsonCursor& root, const std::string& directory_name, Profile& profile) {
  root.allow_keys({"format", "name", "provenance", "pcie_gbps", "models"});
  const JsonCursor format = root.required("format");
  const std::int64_t version = format.integer(1, 1 << 30);
  if (version != kFormat) {
    format.fail(
        "this program reads format " + std::to_string(kFormat) + ", not " + std::to_string(version),
        "make the profile again with this version's gpulet");
  }
  const JsonCursor name = root.required("name");
  profile.name = name.name();
  if (profile.name != directory_name) {
    name.fail("the profile calls itself \"" + profile.name + "\" in a folder called \"" +
                  directory_name + '"',
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
    found->second.memory_mb = positive(cursor, "memory_mb");
    found->second.kernels = positive(cursor, "kernels");
    found->second.input_bytes = positive(cursor, "input_bytes");
    found->second.output_bytes = positive(cursor, "output_bytes");
    found->second.controller = read_controller(cursor);
  }
}

// The folder that stands at a path now. It is held open, so that no later folder there can have its
// inode.
class HeldFolder {
 public:
  explicit HeldFolder(const std::filesystem::path& folder)
      : descriptor_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    known_ = descriptor_ >= 0 && ::fstat(descriptor_, &facts_) == 0;
  }
  ~HeldFolder() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  // The path still leads to it, and no file came or went.
  [[nodiscard]] bool stands_at(const std::filesystem::path& folder) const {
    if (!known_) return true;  // no folder was there: what reading it said holds
    struct stat now {};
    return ::stat(folder.c_str(), &now) == 0 && now.st_dev == facts_.st_dev &&
           now.st_ino == facts_.st_ino && now.st_mtim.tv_sec == facts_.st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == facts_.st_mtim.tv_nsec;
  }

 private:
  int descriptor_;
  bool known_ = false;
  struct stat facts_ {};
};

Result<Profile> read_once(const std::filesystem::path& profile_directory) {
  const Result<JsonCursor> root = JsonCursor::read_file(profile_directory / kMetadataFile);
  if (!root.ok()) return root.status();
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
  read_metadata(root.value(), absolute.parent_path().filename().string(), profile.value());
  if (Status status = root.value().status(); !status.ok()) return status;
  if (is_file(profile_directory / kFitFile)) {
    Result<InterferenceFit> fit = read_fit(profile_directory / kFitFile);
    if (!fit.ok()) return fit.status();
    profile.value().interference = std::move(fit).value();
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
  return Status(StatusCode::unavailable, profile_directory.string() +
                                             " was written again each time it was read; let its "
                                             "writer finish, then try again");
}

Result<ReadProfiles> read_each_profile(const std::filesystem::path& directory) {
  constexpr const char* kMend =
      "make one with `gpulet profile run` (measures this machine) or `gpulet profile import` (from "
      "CSV)";
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) {
    return Status(StatusCode::not_found, directory.string() + ": cannot be read (" +
                                             error.message() + "); name a folder of profiles, or " +
                                             kMend);
  }
  std::vector<std::filesystem::path> found;
  for (const std::filesystem::directory_entry& entry : entries) {
    const bool hidden =
        entry.path().filename().string().starts_with('.');  // one that is being written
    if (!hidden && is_file(entry.path() / kMetadataFile)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  if (found.empty()) {
    return Status(StatusCode::not_found, directory.string() + ": holds no profile; " + kMend);
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

}  // namespace gpulet::profile
