// Limits of memory: what the kernel says of them, and real processes that reach them.
#include "partition/drivers/memory_cgroup.h"

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

#include "gpulet/partition/drivers/cpu_quota.h"

namespace gpulet::partition {
namespace {

constexpr std::uint64_t kMegabyte = std::uint64_t{1} << 20U;

TEST(MemoryLimit, IsAMultipleOfTheNeedWithinBounds) {
  const MemoryLimits limits{.factor = 3, .floor_bytes = 1000, .device_bytes = 4000};
  EXPECT_EQ(memory_limit(limits, 500), 1500U);
  EXPECT_EQ(memory_limit(limits, 10), 1000U) << "the floor";
  EXPECT_EQ(memory_limit(limits, 3000), 4000U) << "the device";
  EXPECT_EQ(memory_limit(limits, 0), 4000U) << "not known: the device";
  EXPECT_EQ(memory_limit({.factor = 3, .floor_bytes = 1000}, 3000), 9000U);
  EXPECT_EQ(memory_limit({.factor = 3, .floor_bytes = 1000}, 0), 0U) << "nothing is known";
}

TEST(OutOfMemoryText, OfVersionTwo) {
  EXPECT_EQ(out_of_memory_v2("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\noom_group_kill 0\n"),
            OutOfMemory::no);
  EXPECT_EQ(out_of_memory_v2("max 7\noom 1\noom_kill 1\n"), OutOfMemory::at_its_limit);
  EXPECT_EQ(out_of_memory_v2("max 0\noom 0\noom_kill 1\n"), OutOfMemory::with_the_node);
  EXPECT_EQ(out_of_memory_v2(""), OutOfMemory::no);
}

TEST(OutOfMemoryText, OfVersionOne) {
  const std::string none = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n";
  const std::string one = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
  EXPECT_EQ(out_of_memory_v1(none, "67108864\n", "67108864\n"), OutOfMemory::no);
  EXPECT_EQ(out_of_memory_v1(one, "67108864\n", "67108864\n"), OutOfMemory::at_its_limit);
  EXPECT_EQ(out_of_memory_v1(one, "30000000\n", "67108864\n"), OutOfMemory::with_the_node);
  EXPECT_EQ(out_of_memory_v1("", "", ""), OutOfMemory::no);
}

// A child that takes so much memory once it is told to, and then ends with 0.
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
  // How it ended, as waitpid tells.
  int go() {
    int status = 0;
    if (::write(ends_[1], "", 1) == 1) ::waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }

 private:
  [[noreturn]] void take(std::size_t bytes) const {
    constexpr std::size_t kPage = 4096;
    char told = 0;
    if (::read(ends_[0], &told, 1) != 1) ::_exit(1);
    std::vector<char> memory(bytes);
    for (std::size_t i = 0; i < bytes; i += kPage) memory[i] = 1;
    ::_exit(memory[bytes / 2] == 1 ? 0 : 2);
  }

  std::array<int, 2> ends_{-1, -1};
  pid_t process_ = 0;
};

TEST(MemoryOfAGpulet, EndsTheProcessThatTakesMoreAndNoOther) {
  auto made = make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup,
                                    MemoryLimits{.factor = 2, .floor_bytes = kMegabyte});
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  const auto driver = std::move(made).value();
  if (!driver->traits().limits_memory) GTEST_SKIP() << "no cgroup with the memory controller here";
  // Forked while small: what a process had before counts where it was taken.
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
  // A gpulet of the same id starts anew.
  driver->release({1});
  ASSERT_TRUE(driver->grant({.gpulet = {1}, .share = {40}, .memory_bytes = 32 * kMegabyte}).ok());
  EXPECT_EQ(driver->out_of_memory({1}), OutOfMemory::no);
}

TEST(MemoryOfAGpulet, IsNotLimitedWhereNothingIsKnownOfIt) {
  auto made = make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup, MemoryLimits{});
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  const auto driver = std::move(made).value();
  Taker taker(20 * kMegabyte);
  ASSERT_TRUE(driver->grant({.gpulet = {1}, .share = {40}}).ok());
  ASSERT_TRUE(driver->attach({1}, taker.pid()).ok());
  EXPECT_TRUE(WIFEXITED(taker.go()));
  EXPECT_EQ(driver->out_of_memory({1}), OutOfMemory::no);
}

// A cgroup of version 2 for a child of this process, and a controller that it could pass on.
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

TEST(EnableBelow, MovesAProcessThatIsAloneOutOfTheWay) {
  const OwnCgroup cgroup;
  if (cgroup.controller().empty()) GTEST_SKIP() << "no controller of version 2 to pass on here";
  const auto act = [&cgroup] {
    const auto& place = cgroup.place();
    const auto self = std::to_string(::getpid());
    if (!write_cgroup_file(place.directory / "cgroup.procs", self).ok()) return 1;
    if (!enable_below(place, cgroup.controller()).ok()) return 2;
    if (!cgroup_lists(place.directory / "cgroup.subtree_control", cgroup.controller())) return 3;
    if (!read_cgroup_file(place.directory / "cgroup.procs").empty()) return 4;
    // It still knows which cgroup gpulets belong below.
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

TEST(EnableBelow, ChangesNothingWhereOthersAreThere) {
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
}  // namespace gpulet::partition
