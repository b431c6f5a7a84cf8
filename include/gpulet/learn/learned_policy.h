// A placement that was learned, as a value and as one file: what it was trained for, and the
// network that decides. The file is a line that names the format, a line of JSON, and the weights
// as 32-bit floats, least significant byte first, whose SHA-256 the JSON holds. Reading and writing
// are blocking file I/O; the rest is pure; any thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"
#include "gpulet/learn/network.h"
#include "gpulet/learn/placement_task.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::learn {

struct LearnedPolicy {
  PlacementTask task;
  Network network;  // from what observe() says to the logits of all heads
  // How it came about, in words by key: "episodes", "seed", ...
  std::map<std::string, std::string> training;
};

// As the file's bytes.
[[nodiscard]] std::string to_bytes(const LearnedPolicy& policy);
// Fails (invalid) on anything that to_bytes() did not write; `file_name` names it in errors.
[[nodiscard]] Result<LearnedPolicy> parse_policy(std::string_view bytes,
                                                 const std::string& file_name);

// Replaces the file as a whole or not at all.
[[nodiscard]] Status write_policy(const LearnedPolicy& policy, const std::filesystem::path& file);
[[nodiscard]] Result<LearnedPolicy> read_policy(const std::filesystem::path& file);

}  // namespace gpulet::learn
