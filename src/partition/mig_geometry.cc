#include "gpulet/partition/mig_geometry.h"

#include <algorithm>

#include "gpulet/base/text.h"

namespace gpulet::partition {

struct MigGeometry::Data {
  std::string_view name;
  std::uint32_t compute_slices = 0;
  std::uint32_t memory_slices = 0;
  std::array<MigProfile, 5> profiles{};
  std::uint32_t profile_count = 0;
};

namespace {

constexpr double mb(double gib) { return gib * 1024; }

// Seven slices, with the usable memory of a 1g, a 2g, a 3g or 4g, and a 7g, in GiB.
constexpr std::array<MigProfile, 5> of_seven(double one, double two, double half, double whole) {
  return {MigProfile{1, 1, mb(one), {0, 1, 2, 3, 4, 5, 6}, 7},
          MigProfile{2, 2, mb(two), {0, 2, 4}, 3}, MigProfile{3, 4, mb(half), {0, 4}, 2},
          MigProfile{4, 4, mb(half), {0}, 1}, MigProfile{7, 8, mb(whole), {0}, 1}};
}

constexpr std::array<MigProfile, 5> of_four(double one, double two, double whole) {
  return {MigProfile{1, 1, mb(one), {0, 1, 2, 3}, 4}, MigProfile{2, 2, mb(two), {0, 2}, 2},
          MigProfile{4, 4, mb(whole), {0}, 1}};
}

}  // namespace

// The memory that devices report. For the A30, the B200 and the halves of the H200 no report was
// available; their memory follows from the names of the profiles.
std::span<const MigGeometry::Data> MigGeometry::all() {
  static constexpr std::array kAll{Data{"a100-40", 7, 8, of_seven(4.75, 9.75, 19.62, 39.5), 5},
                                   Data{"a100-80", 7, 8, of_seven(9.75, 19.62, 39.5, 79.25), 5},
                                   Data{"a30", 4, 4, of_four(6, 12, 24), 3},
                                   Data{"b200", 7, 8, of_seven(23, 45, 90, 180), 5},
                                   Data{"h100", 7, 8, of_seven(9.75, 19.62, 39.5, 79.25), 5},
                                   Data{"h200", 7, 8, of_seven(16, 32.5, 71, 140), 5}};
  return kAll;
}

std::string mig_profile_name(std::uint32_t slices) { return std::to_string(slices) + "g"; }

std::string to_string(const MigInstance& instance) {
  return mig_profile_name(instance.slices) + "@" + std::to_string(instance.start);
}

std::optional<std::uint32_t> parse_mig_profile(std::string_view name) {
  if (!name.ends_with('g')) return std::nullopt;
  const auto slices = parse_number<std::uint32_t>(name.substr(0, name.size() - 1));
  return slices && *slices > 0 ? slices : std::nullopt;
}

Result<MigGeometry> MigGeometry::of(std::string_view name) {
  for (const Data& data : all()) {
    if (data.name == name) return MigGeometry(data);
  }
  return Status(StatusCode::not_found, "unknown MIG geometry '" + std::string(name) +
                                           "'; choose one of " + joined(names()));
}

std::vector<std::string_view> MigGeometry::names() {
  std::vector<std::string_view> names;
  for (const Data& data : all()) names.push_back(data.name);
  return names;
}

MigGeometry MigGeometry::without_3g_beside_4g() const {
  MigGeometry stricter = *this;
  stricter.allows_3g_beside_4g_ = false;
  return stricter;
}

std::string_view MigGeometry::name() const { return data_->name; }

std::span<const MigProfile> MigGeometry::profiles() const {
  return {data_->profiles.data(), data_->profile_count};
}

const MigProfile* MigGeometry::find(std::uint32_t slices) const {
  const auto known = profiles();
  const auto found = std::find_if(known.begin(), known.end(), [slices](const MigProfile& profile) {
    return profile.slices == slices;
  });
  return found == known.end() ? nullptr : &*found;
}

std::uint32_t MigGeometry::compute_slices() const { return data_->compute_slices; }
std::uint32_t MigGeometry::memory_slices() const { return data_->memory_slices; }

Share MigGeometry::share_of(std::uint32_t slices) const {
  return Share{static_cast<int>(slices * 100 / data_->compute_slices)};
}

std::optional<std::uint32_t> MigGeometry::slices_of(Share share) const {
  for (const MigProfile& profile : profiles()) {
    if (share_of(profile.slices) == share) return profile.slices;
  }
  return std::nullopt;
}

bool MigGeometry::exists(const MigInstance& instance) const {
  const MigProfile* const profile = find(instance.slices);
  if (profile == nullptr) return false;
  const auto starts = profile->starts();
  return std::find(starts.begin(), starts.end(), instance.start) != starts.end();
}

bool MigGeometry::compatible(const MigInstance& one, const MigInstance& other) const {
  if (!allows_3g_beside_4g_ && std::min(one.slices, other.slices) == 3 &&
      std::max(one.slices, other.slices) == 4) {
    return false;
  }
  const std::uint32_t end_of_one = one.start + find(one.slices)->memory_slices;
  const std::uint32_t end_of_other = other.start + find(other.slices)->memory_slices;
  return end_of_one <= other.start || end_of_other <= one.start;
}

bool MigGeometry::legal(std::span<const MigInstance> instances) const {
  for (std::size_t at = 0; at < instances.size(); ++at) {
    if (!exists(instances[at])) return false;
    for (std::size_t before = 0; before < at; ++before) {
      if (!compatible(instances[before], instances[at])) return false;
    }
  }
  return true;
}

std::vector<MigLayout> MigGeometry::maximal_layouts() const {
  std::vector<MigInstance> every;
  for (const MigProfile& profile : profiles()) {
    for (const std::uint32_t start : profile.starts()) every.push_back({profile.slices, start});
  }
  std::sort(every.begin(), every.end(), [](const MigInstance& a, const MigInstance& b) {
    return a.start != b.start ? a.start < b.start : a.slices > b.slices;
  });
  const auto fits = [this](const MigLayout& layout, const MigInstance& instance) {
    return std::all_of(layout.begin(), layout.end(),
                       [&](const MigInstance& there) { return compatible(there, instance); });
  };
  std::vector<MigLayout> maximal;
  // Grows each layout in the order of starts, so that it is found once.
  std::vector<std::pair<MigLayout, std::size_t>> growing{{{}, 0}};
  while (!growing.empty()) {
    const MigLayout layout = std::move(growing.back().first);
    const std::size_t from = growing.back().second;
    growing.pop_back();
    for (std::size_t next = every.size(); next-- > from;) {
      if (!fits(layout, every[next])) continue;
      growing.emplace_back(layout, next + 1).first.push_back(every[next]);
    }
    const bool full = std::none_of(every.begin(), every.end(), [&](const MigInstance& instance) {
      return fits(layout, instance);
    });
    if (full) maximal.push_back(layout);
  }
  return maximal;
}

}  // namespace gpulet::partition
