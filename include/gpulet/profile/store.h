// Profiles on disk: import from CSV, write, read back. Formats: profiles/FORMAT.md and the CSV
// columns of the `gpulet profile import` contract. Errors name the file, the line or JSON pointer,
// and the mend. Blocking file I/O.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

struct CsvSources {
  std::filesystem::path latency;                     // model,batch,partition,latency_ms
  std::optional<std::filesystem::path> utilization;  // model,batch,partition,l2_util,dram_util
  std::optional<std::filesystem::path>
      interference;  // model,batch,partition,other_model,other_batch,other_partition,latency_ms
  // Whose instances partitions name; nothing: those of a device of seven slices.
  std::optional<partition::MigGeometry> mig{};
};

// Columns are found by their header names, in any order; further columns are ignored. A partition
// is a percentage, or an instance of MIG ("3g"), which stands for its share.
[[nodiscard]] Result<Profile> import_csv(const std::string& name, const CsvSources& sources);

// Writes directory/<name>/...; replaces what was there as a whole or not at all.
[[nodiscard]] Status write_profile(const Profile& profile, const std::filesystem::path& directory);

// The same, and keeps what was there beside it as `.<name>.bak`, or `.<name>.bak.2` and so on where
// there are such backups. Readers ignore those names. Returns the backup; empty where there was
// nothing to keep.
[[nodiscard]] Result<std::filesystem::path> replace_profile(const Profile& profile,
                                                            const std::filesystem::path& directory);

// Reads again, a few times at most, where the folder was replaced meanwhile: the files of one
// profile are never mixed with those of the profile before it.
[[nodiscard]] Result<Profile> read_profile(const std::filesystem::path& profile_directory);

// Every profile below `directory`. A directory without any is an error that says how to make one.
[[nodiscard]] Result<ProfileSet> read_profiles(const std::filesystem::path& directory);

struct ReadProfiles {
  ProfileSet profiles;
  std::map<std::string, Status> faults;  // by name: those that could not be read
};
// The same, but one that cannot be read does not keep the others from being read.
[[nodiscard]] Result<ReadProfiles> read_each_profile(const std::filesystem::path& directory);

}  // namespace gpulet::profile
