// The policy `inss` (InSS, section 5.5): a learned placement decides which model gets which share
// of which device; the batch search (research/batch_search.h) decides the batches.
//
// A learned policy is one file: a line with the format, a line of JSON, and the weights as 32-bit
// floats, least significant byte first. The JSON contains the SHA-256 of the weights.
// Functions with a path do blocking file I/O; the rest is pure. Any thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/schedule/policy.h"
#include "research/learn/network.h"
#include "research/learn/placement.h"

namespace gpulet::learn {

// Replaces the file atomically: writes FILE.new, then renames it. Fails (internal); the message
// names the file.
[[nodiscard]] Status write_file(const std::filesystem::path& file, std::string_view content);
// Reads a whole file. Fails (not_found); the message names the file.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& file);

struct LearnedPolicy {
  PlacementTask task;
  Network network;  // from observe() to the logits of all heads
  // Texts about the training, by key: "episodes", "seed", ...
  std::map<std::string, std::string> training;
};

// The content of the policy's file.
[[nodiscard]] std::string to_bytes(const LearnedPolicy& policy);
// Fails (invalid) on bytes that to_bytes() did not write. Errors contain `file_name`.
[[nodiscard]] Result<LearnedPolicy> parse_policy(std::string_view bytes,
                                                 const std::string& file_name);

// Replaces the file atomically.
[[nodiscard]] Status write_policy(const LearnedPolicy& policy, const std::filesystem::path& file);
[[nodiscard]] Result<LearnedPolicy> read_policy(const std::filesystem::path& file);

// Keeps the current placement if other batches can hold the rates (case 1); otherwise the network
// places all models again (case 2). If the input does not fit the policy's task, or the plan breaks
// a rule, `cover` makes the plan and a note gives the reason.
[[nodiscard]] std::unique_ptr<schedule::Policy> make_inss_policy(LearnedPolicy learned);

// The policy in the file. Fails with not_found or invalid; also where there is no name of a file.
[[nodiscard]] Result<std::unique_ptr<schedule::Policy>> read_inss_policy(
    const std::filesystem::path& file);

}  // namespace gpulet::learn
