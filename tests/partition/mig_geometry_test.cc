#include "gpulet/partition/mig_geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/support/names.h"

namespace gpulet::partition {
namespace {

using support::names;

MigGeometry geometry(std::string_view name) { return MigGeometry::of(name).value(); }

std::multiset<std::uint32_t> sizes_of(const MigLayout& layout) {
  std::multiset<std::uint32_t> sizes;
  for (const MigInstance& instance : layout) sizes.insert(instance.slices);
  return sizes;
}

// Independent of the code under test: checks every subset of all placements by bit masks of memory
// slices.
std::set<std::set<MigInstance>> legal_sets(const MigGeometry& geometry) {
  std::vector<std::pair<MigInstance, std::uint32_t>> placements;
  for (const MigProfile& profile : geometry.profiles()) {
    for (const std::uint32_t start : profile.starts()) {
      placements.push_back(
          {{profile.slices, start}, ((1U << profile.memory_slices) - 1U) << start});
    }
  }
  std::set<std::set<MigInstance>> legal;
  for (std::uint32_t chosen = 0; chosen < (1U << placements.size()); ++chosen) {
    std::uint32_t taken = 0;
    bool apart = true;
    std::set<MigInstance> instances;
    for (std::size_t at = 0; at < placements.size(); ++at) {
      if ((chosen >> at & 1U) == 0) continue;
      apart = apart && (taken & placements[at].second) == 0;
      taken |= placements[at].second;
      instances.insert(placements[at].first);
    }
    if (apart) legal.insert(instances);
  }
  return legal;
}

TEST(MigGeometryTest, SevenSlicesHaveNineteenMaximalLayoutsOfFourteenKinds) {
  for (const std::string_view name : {"a100-40", "a100-80", "h100", "h200", "b200"}) {
    const std::vector<MigLayout> layouts = geometry(name).maximal_layouts();
    std::set<std::multiset<std::uint32_t>> kinds;
    for (const MigLayout& layout : layouts) kinds.insert(sizes_of(layout));
    EXPECT_EQ(layouts.size(), 19U) << name;
    EXPECT_EQ(kinds.size(), 14U) << name;
    EXPECT_EQ(std::set(layouts.begin(), layouts.end()).size(), 19U) << name;
  }
}

TEST(MigGeometryTest, TheA30HasFiveMaximalLayouts) {
  EXPECT_EQ(geometry("a30").maximal_layouts().size(), 5U);
}

TEST(MigGeometryTest, ThePapersRuleForbids3gBeside4g) {
  const MigGeometry stricter = geometry("a100-80").without_3g_beside_4g();
  EXPECT_EQ(stricter.maximal_layouts().size(), 18U) << "of the 19 one has both";
  EXPECT_FALSE(stricter.legal(MigLayout{{4, 0}, {3, 4}}));
  EXPECT_TRUE(stricter.legal(MigLayout{{3, 0}, {3, 4}}));
  EXPECT_TRUE(geometry("a100-80").legal(MigLayout{{4, 0}, {3, 4}}));
  EXPECT_NE(stricter, geometry("a100-80"));
}

TEST(MigGeometryTest, ASetIsLegalExactlyWhereNoMemorySliceIsUsedTwice) {
  for (const std::string_view name : {"a100-80", "a30"}) {
    const MigGeometry known = geometry(name);
    const std::set<std::set<MigInstance>> legal = legal_sets(known);
    std::set<std::set<MigInstance>> maximal;
    for (const std::set<MigInstance>& instances : legal) {
      EXPECT_TRUE(known.legal(std::vector(instances.begin(), instances.end())));
      const bool within_another =
          std::any_of(legal.begin(), legal.end(), [&](const std::set<MigInstance>& other) {
            return other.size() > instances.size() &&
                   std::includes(other.begin(), other.end(), instances.begin(), instances.end());
          });
      if (!within_another) maximal.insert(instances);
    }
    std::set<std::set<MigInstance>> enumerated;
    for (const MigLayout& layout : known.maximal_layouts())
      enumerated.insert({layout.begin(), layout.end()});
    EXPECT_EQ(enumerated, maximal) << name;
  }
}

TEST(MigGeometryTest, RejectsUnknownAndOverlappingInstances) {
  const MigGeometry a100 = geometry("a100-80");
  EXPECT_FALSE(a100.legal(MigLayout{{5, 0}})) << "there is no 5g";
  EXPECT_FALSE(a100.legal(MigLayout{{3, 2}})) << "a 3g begins at 0 or 4";
  EXPECT_FALSE(a100.legal(MigLayout{{1, 7}})) << "no 1g may use the eighth memory slice";
  EXPECT_FALSE(a100.legal(MigLayout{{3, 0}, {3, 4}, {1, 6}})) << "two 3g take all memory";
  EXPECT_FALSE(a100.legal(MigLayout{{1, 0}, {1, 0}})) << "the same instance twice";
  EXPECT_TRUE(a100.legal({}));
}

TEST(MigGeometryTest, SharesAndProfilesMapBothWays) {
  const MigGeometry a100 = geometry("a100-40");
  std::vector<int> percent;
  for (const MigProfile& profile : a100.profiles()) {
    percent.push_back(a100.share_of(profile.slices).percent);
    EXPECT_EQ(a100.slices_of(a100.share_of(profile.slices)), profile.slices);
  }
  EXPECT_EQ(percent, (std::vector{14, 28, 42, 57, 100}));
  EXPECT_EQ(geometry("a30").share_of(2), Share{50});
  EXPECT_EQ(a100.slices_of(Share{50}), std::nullopt);
}

TEST(MigGeometryTest, SharesOfALegalSetNeverExceedTheDevice) {
  for (const std::string_view name : MigGeometry::names()) {
    for (const MigLayout& layout : geometry(name).maximal_layouts()) {
      int percent = 0;
      for (const MigInstance& instance : layout)
        percent += geometry(name).share_of(instance.slices).percent;
      EXPECT_LE(percent, 100) << name;
    }
  }
}

TEST(MigGeometryTest, FormatsProfilesLikeTheDriver) {
  EXPECT_EQ(to_string(MigInstance{3, 4}), "3g@4");
  EXPECT_EQ(parse_mig_profile("7g"), 7U);
  for (const std::string_view wrong : {"", "g", "7", "0g", "3g.40gb", "-1g", "3 g"})
    EXPECT_EQ(parse_mig_profile(wrong), std::nullopt) << wrong;
}

TEST(MigGeometryTest, AnUnknownNameFailsWithTheKnownOnes) {
  const auto unknown = MigGeometry::of("v100");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::not_found);
  EXPECT_TRUE(names(unknown.status(), "a100-80"));
}

}  // namespace
}  // namespace gpulet::partition
