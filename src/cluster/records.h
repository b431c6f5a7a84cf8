// The values of a cluster's keys, to and from JSON. Parsing is bounded and fails with malformed;
// unknown fields are ignored. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/cluster/membership.h"

namespace gpulet::cluster {

inline constexpr std::string_view kClusterKey = "cluster";
inline constexpr std::string_view kLeaderKey = "leader";
inline constexpr std::string_view kMembersPrefix = "members/";

inline constexpr std::uint64_t kMostBase = std::uint64_t{1} << 63U;  // its sum with a revision fits
// Backends may make a cluster exceed a term up to this one: then the base stays below its limit.
inline constexpr std::uint64_t kMostTermOfBackends = std::uint64_t{1} << 62U;

struct ClusterRecord {
  std::string name;
  std::uint64_t base = 0;  // added to the revision of a leadership
};
// Of members/NAME and of leader.
struct MemberRecord {
  Member member;
  std::string incarnation;
};

[[nodiscard]] std::string to_json(const ClusterRecord& record);
[[nodiscard]] std::string to_json(const MemberRecord& record);
[[nodiscard]] Result<ClusterRecord> parse_cluster(std::string_view text);
[[nodiscard]] Result<MemberRecord> parse_member(std::string_view text);

}  // namespace gpulet::cluster
