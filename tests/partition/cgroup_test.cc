// Finding out where the cgroups are, and what the kernel is asked for: pure.
#include "partition/drivers/cgroup.h"

#include <gtest/gtest.h>

namespace gpulet::partition {
namespace {

using std::chrono::microseconds;

TEST(CgroupPlaces, FindsTheUnifiedHierarchy) {
  const auto places =
      find_cgroup_places("29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
                         "0::/user.slice/user-1000.slice/session-3.scope\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].version, CgroupVersion::v2);
  EXPECT_EQ(places[0].directory, "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope");
}

TEST(CgroupPlaces, FindsTheCpuControllerAmongThoseOfVersionOne) {
  const auto places = find_cgroup_places(
      "31 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
      "4:cpuset:/\n3:cpu,cpuacct:/daemon\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0], (CgroupPlace{CgroupVersion::v1, "/sys/fs/cgroup/cpu,cpuacct/daemon"}));
}

TEST(CgroupPlaces, OffersVersionTwoFirstWhereBothAreMounted) {
  const auto places = find_cgroup_places(
      "32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      "1:cpu:/\n0::/\n");
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0], (CgroupPlace{CgroupVersion::v2, "/sys/fs/cgroup/unified"}));
  EXPECT_EQ(places[1], (CgroupPlace{CgroupVersion::v1, "/sys/fs/cgroup/cpu"}));
}

TEST(CgroupPlaces, FollowsAContainersMountOfItsOwnPart) {
  const auto places =
      find_cgroup_places("32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
                         "1:cpu:/docker/abc/inner\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].directory, "/sys/fs/cgroup/cpu/inner");
}

TEST(CgroupPlaces, UsesTheMountWhereThePathIsOutsideOfIt) {
  const auto places = find_cgroup_places(
      "32 31 0:29 / /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n", "0::/../other\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].directory, "/mnt/my groups");
}

TEST(CgroupPlaces, FindsNothingInOtherText) {
  EXPECT_TRUE(find_cgroup_places("", "").empty());
  EXPECT_TRUE(
      find_cgroup_places("22 1 8:1 / / rw - ext4 /dev/sda1 rw\nnonsense\n", "0::/\n").empty());
  EXPECT_TRUE(
      find_cgroup_places("32 31 0:29 / /c rw - cgroup cgroup rw,cpu\n", "1:memory:/\n").empty());
}

TEST(CgroupName, TellsTheBackendThatMadeIt) {
  EXPECT_EQ(owner_of_cgroup("gpulet-4711-12"), 4711);
  EXPECT_EQ(owner_of_cgroup("gpulet-4711-"), 0);
  EXPECT_EQ(owner_of_cgroup("gpulet--12"), 0);
  EXPECT_EQ(owner_of_cgroup("gpulet-x-12"), 0);
  EXPECT_EQ(owner_of_cgroup("system.slice"), 0);
}

TEST(CpuBandwidth, HasAShortPeriodUnlessTheKernelForbidsIt) {
  EXPECT_EQ(bandwidth_of(1.0), (CpuBandwidth{microseconds(10'000), microseconds(10'000)}));
  EXPECT_EQ(bandwidth_of(0.2), (CpuBandwidth{microseconds(2'000), microseconds(10'000)}));
  EXPECT_EQ(bandwidth_of(3.2), (CpuBandwidth{microseconds(32'000), microseconds(10'000)}));
  EXPECT_EQ(bandwidth_of(0.05), (CpuBandwidth{microseconds(1'000), microseconds(20'000)}));
  EXPECT_EQ(bandwidth_of(0.01), (CpuBandwidth{microseconds(1'000), microseconds(100'000)}));
}

}  // namespace
}  // namespace gpulet::partition
