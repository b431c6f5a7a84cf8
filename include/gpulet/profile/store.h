// Profiles on disk: import from CSV, write, read. Formats: profiles/FORMAT.md. Errors name the
// file, the line or JSON pointer, and the fix. Blocking file I/O.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

struct CsvSources {
  std::filesystem::path latency;                     // model,batch,partition,latency_ms
  std::optional<std::filesystem::path> utilization;  // model,batch,partition,l2_util,dram_util
  std::optional<std::filesystem::path>
      interference;  // model,batch,partition,other_model,other_batch,other_partition,latency_ms
  // The geometry whose instances partitions may name; empty: that of a device of seven slices.
  std::optional<partition::MigGeometry> mig{};
};

// Columns are found by their header names, in any order; other columns are ignored. A partition is
// a percentage or a MIG instance ("3g"), which is converted to its share.
[[nodiscard]] Result<Profile> import_csv(const std::string& name, const CsvSources& sources);

// Writes directory/<name>/... and replaces an existing profile atomically.
[[nodiscard]] Status write_profile(const Profile& profile, const std::filesystem::path& directory);

// Writes like write_profile() and keeps the previous profile as `.<name>.bak`, or `.<name>.bak.2`
// and so on where backups exist. Readers ignore those names. Returns the backup; empty without a
// previous profile.
[[nodiscard]] Result<std::filesystem::path> replace_profile(const Profile& profile,
                                                            const std::filesystem::path& directory);

// Retries a few times where the folder is replaced during the read, so that files of two versions
// are never mixed.
[[nodiscard]] Result<Profile> read_profile(const std::filesystem::path& profile_directory);

// Every profile below `directory`. Fails with not_found without any.
[[nodiscard]] Result<ProfileSet> read_profiles(const std::filesystem::path& directory);

struct ReadProfiles {
  ProfileSet profiles;
  std::map<std::string, Status> faults;  // by name: profiles that could not be read
};
// The same, but a profile that cannot be read does not prevent reading the others.
[[nodiscard]] Result<ReadProfiles> read_each_profile(const std::filesystem::path& directory);

}  // namespace gpulet::profile
