// Cgroups: the parsers, and real processes that reach their memory limits.
#include "partition/drivers/cgroup.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::partition::cgroup_test {
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

TEST(CgroupPlaces, FindsTheCpuControllerOfVersionOne) {
  const auto places = find_cgroup_places(
      "31 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
      "4:cpuset:/\n3:cpu,cpuacct:/daemon\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0], (CgroupPlace{CgroupVersion::v1, "/sys/fs/cgroup/cpu,cpuacct/daemon"}));
}

TEST(CgroupPlaces, ListsVersionTwoFirst) {
  const auto places = find_cgroup_places(
      "32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      "1:cpu:/\n0::/\n");
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0], (CgroupPlace{CgroupVersion::v2, "/sys/fs/cgroup/unified"}));
  EXPECT_EQ(places[1], (CgroupPlace{CgroupVersion::v1, "/sys/fs/cgroup/cpu"}));
}

TEST(CgroupPlaces, ResolvesTheMountOfAContainer) {
  const auto places =
      find_cgroup_places("32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
                         "1:cpu:/docker/abc/inner\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].directory, "/sys/fs/cgroup/cpu/inner");
}

TEST(CgroupPlaces, UsesTheMountWhereThePathIsOutside) {
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

TEST(CgroupName, NamesTheBackendThatMadeIt) {
  EXPECT_EQ(owner_of_cgroup("gpulet-4711-12"), 4711);
  EXPECT_EQ(owner_of_cgroup("gpulet-4711-"), 0);
  EXPECT_EQ(owner_of_cgroup("gpulet--12"), 0);
  EXPECT_EQ(owner_of_cgroup("gpulet-x-12"), 0);
  EXPECT_EQ(owner_of_cgroup("system.slice"), 0);
}

TEST(CpuBandwidth, HasAShortPeriodWhereTheKernelAllowsIt) {
  EXPECT_EQ(bandwidth_of(1.0), (CpuBandwidth{microseconds(10'000), microseconds(10'000)}));
  EXPECT_EQ(bandwidth_of(0.2), (CpuBandwidth{microseconds(2'000), microseconds(10'000)}));
  EXPECT_EQ(bandwidth_of(3.2), (CpuBandwidth{microseconds(32'000), microseconds(10'000)}));
  EXPECT_EQ(bandwidth_of(0.05), (CpuBandwidth{microseconds(1'000), microseconds(20'000)}));
  EXPECT_EQ(bandwidth_of(0.01), (CpuBandwidth{microseconds(1'000), microseconds(100'000)}));
}

constexpr std::uint64_t kMegabyte = std::uint64_t{1} << 20U;

TEST(MemoryLimit, IsAMultipleOfTheNeedWithinBounds) {
  const MemoryLimits limits{.factor = 3, .floor_bytes = 1000, .device_bytes = 4000};
  EXPECT_EQ(memory_limit(limits, 500), 1500U);
  EXPECT_EQ(memory_limit(limits, 10), 1000U) << "the floor";
  EXPECT_EQ(memory_limit(limits, 3000), 4000U) << "the device";
  EXPECT_EQ(memory_limit(limits, 0), 4000U) << "unknown need: the device";
  EXPECT_EQ(memory_limit({.factor = 3, .floor_bytes = 1000}, 3000), 9000U);
  EXPECT_EQ(memory_limit({.factor = 3, .floor_bytes = 1000}, 0), 0U) << "no limit";
}

TEST(OutOfMemoryText, ParsesVersionTwo) {
  EXPECT_EQ(out_of_memory_v2("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\noom_group_kill 0\n"),
            OutOfMemory::no);
  EXPECT_EQ(out_of_memory_v2("max 7\noom 1\noom_kill 1\n"), OutOfMemory::at_its_limit);
  EXPECT_EQ(out_of_memory_v2("max 0\noom 0\noom_kill 1\n"), OutOfMemory::with_the_node);
  EXPECT_EQ(out_of_memory_v2(""), OutOfMemory::no);
}

TEST(OutOfMemoryText, ParsesVersionOne) {
  const std::string none = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n";
  const std::string one = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
  EXPECT_EQ(out_of_memory_v1(none, "67108864\n", "67108864\n"), OutOfMemory::no);
  EXPECT_EQ(out_of_memory_v1(one, "67108864\n", "67108864\n"), OutOfMemory::at_its_limit);
  EXPECT_EQ(out_of_memory_v1(one, "30000000\n", "67108864\n"), OutOfMemory::with_the_node);
  EXPECT_EQ(out_of_memory_v1("", "", ""), OutOfMemory::no);
}

// A child that allocates the memory when go() is called, and then exits with 0.
class Taker {
 public:
  explicit Taker(std::size_t bytes) {
    if (::pipe(ends_.data()) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) take(bytes);
  }
  ~Taker() {
    ::close(ends_[0]);
    ::close(ends_[1]);
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  [[nodiscard]] pid_t pid() const { return process_; }
  // Returns the status of waitpid.
  int go() {
    int status = 0;
    if (::write(ends_[1], "", 1) == 1) ::waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }

 private:
  [[noreturn]] void take(std::size_t bytes) const {
    constexpr std::size_t kPage = 4096;
    char byte = 0;
    if (::read(ends_[0], &byte, 1) != 1) ::_exit(1);
    std::vector<char> memory(bytes);
    for (std::size_t i = 0; i < bytes; i += kPage) memory[i] = 1;
    ::_exit(memory[bytes / 2] == 1 ? 0 : 2);
  }

  std::array<int, 2> ends_{-1, -1};
  pid_t process_ = 0;
};

TEST(MemoryOfAGpulet, KillsOnlyTheProcessThatExceedsItsLimit) {
  auto made = make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup,
                                    MemoryLimits{.factor = 2, .floor_bytes = kMegabyte});
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  const auto driver = std::move(made).value();
  if (!driver->traits().limits_memory) GTEST_SKIP() << "no cgroup with the memory controller here";
  // Forked while small: memory counts in the cgroup where it was allocated.
  Taker greedy(200 * kMegabyte);
  Taker modest(20 * kMegabyte);
  ASSERT_TRUE(driver->grant({.gpulet = {1}, .share = {40}, .memory_bytes = 32 * kMegabyte}).ok());
  ASSERT_TRUE(driver->grant({.gpulet = {2}, .share = {40}, .memory_bytes = 32 * kMegabyte}).ok());
  ASSERT_TRUE(driver->attach({1}, greedy.pid()).ok());
  ASSERT_TRUE(driver->attach({2}, modest.pid()).ok());
  EXPECT_EQ(driver->out_of_memory({1}), OutOfMemory::no);
  const int ended = greedy.go();
  EXPECT_TRUE(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL) << ended;
  EXPECT_EQ(driver->out_of_memory({1}), OutOfMemory::at_its_limit);
  const int finished = modest.go();
  EXPECT_TRUE(WIFEXITED(finished)) << finished;
  EXPECT_EQ(driver->out_of_memory({2}), OutOfMemory::no);
  // The next gpulet with this id starts without a record.
  driver->release({1});
  ASSERT_TRUE(driver->grant({.gpulet = {1}, .share = {40}, .memory_bytes = 32 * kMegabyte}).ok());
  EXPECT_EQ(driver->out_of_memory({1}), OutOfMemory::no);
}

TEST(MemoryOfAGpulet, IsNotLimitedWhereTheNeedIsUnknown) {
  auto made = make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup, MemoryLimits{});
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  const auto driver = std::move(made).value();
  Taker taker(20 * kMegabyte);
  ASSERT_TRUE(driver->grant({.gpulet = {1}, .share = {40}}).ok());
  ASSERT_TRUE(driver->attach({1}, taker.pid()).ok());
  EXPECT_TRUE(WIFEXITED(taker.go()));
  EXPECT_EQ(driver->out_of_memory({1}), OutOfMemory::no);
}

// A version 2 cgroup for a child of this process, and a controller to enable below it.
class OwnCgroup {
 public:
  OwnCgroup() {
    for (const auto& place : own_cgroup_places("cpu")) {
      if (place.version != CgroupVersion::v2) continue;
      for (const char* name : {"memory", "hugetlb", "misc", "rdma"}) {
        if (!cgroup_lists(place.directory / "cgroup.controllers", name)) continue;
        if (!write_cgroup_file(place.directory / "cgroup.subtree_control", "+" + std::string(name))
                 .ok()) {
          continue;
        }
        controller_ = name;
        place_ = {CgroupVersion::v2,
                  place.directory / ("gpulet-test-" + std::to_string(::getpid()))};
        std::error_code error;
        if (!std::filesystem::create_directory(place_.directory, error)) controller_.clear();
        return;
      }
    }
  }
  ~OwnCgroup() {
    if (controller_.empty()) return;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(place_.directory, error)) {
      if (entry.is_directory()) ::rmdir(entry.path().c_str());
    }
    ::rmdir(place_.directory.c_str());
  }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  [[nodiscard]] const CgroupPlace& place() const { return place_; }
  [[nodiscard]] const std::string& controller() const { return controller_; }

 private:
  CgroupPlace place_;
  std::string controller_;
};

TEST(EnableBelow, MovesTheOnlyProcessOutOfTheCgroup) {
  const OwnCgroup cgroup;
  if (cgroup.controller().empty()) GTEST_SKIP() << "no controller of version 2 to pass on here";
  const auto act = [&cgroup] {
    const auto& place = cgroup.place();
    const auto self = std::to_string(::getpid());
    if (!write_cgroup_file(place.directory / "cgroup.procs", self).ok()) return 1;
    if (!enable_below(place, cgroup.controller()).ok()) return 2;
    if (!cgroup_lists(place.directory / "cgroup.subtree_control", cgroup.controller())) return 3;
    if (!read_cgroup_file(place.directory / "cgroup.procs").empty()) return 4;
    // The parent cgroup of the gpulets stays the same.
    for (const auto& own : own_cgroup_places("cpu")) {
      if (own.version == CgroupVersion::v2 && own.directory != place.directory) return 5;
    }
    return enable_below(place, cgroup.controller()).ok() ? 0 : 6;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act());
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(EnableBelow, ChangesNothingWhereOtherProcessesAreInTheCgroup) {
  const OwnCgroup cgroup;
  if (cgroup.controller().empty()) GTEST_SKIP() << "no controller of version 2 to pass on here";
  const Taker other(kMegabyte);
  ASSERT_TRUE(
      write_cgroup_file(cgroup.place().directory / "cgroup.procs", std::to_string(other.pid()))
          .ok());
  EXPECT_FALSE(enable_below(cgroup.place(), cgroup.controller()).ok());
  EXPECT_EQ(read_cgroup_file(cgroup.place().directory / "cgroup.procs"),
            std::to_string(other.pid()) + "\n");
}

}  // namespace

}  // namespace gpulet::partition::cgroup_test
