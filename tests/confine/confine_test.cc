// The rights that a confined process lacks. Each case runs in a child process.
#include "gpulet/confine/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>  // shm_open
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace gpulet::confine {
namespace {

constexpr int kFailed = 200;

// The return value of `act` (0..255) in a child process.
int in_child(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kFailed + 1;
}

int in_filtered_child(const std::function<int()>& act) {
  return in_child([&act] { return filter_system_calls().ok() ? act() : kFailed; });
}

int errno_of(long result) { return result >= 0 ? 0 : errno; }

class ConfineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto possible = try_in_child();
    if (!possible.system_calls.ok()) GTEST_SKIP() << describe(possible);
  }
};

TEST(OthersMayEnter, LooksAtAllFoldersAbove) {
  namespace fs = std::filesystem;
  std::string name = fs::temp_directory_path() / "gpulet-enter-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path outer = name;
  const fs::path inner = outer / "bin";
  fs::create_directory(inner);
  fs::permissions(inner, fs::perms(0755));
  fs::permissions(outer, fs::perms(0700));
  EXPECT_FALSE(others_may_enter(inner));
  fs::permissions(outer, fs::perms(0711));
  EXPECT_TRUE(others_may_enter(inner));
  fs::permissions(inner, fs::perms(0750));
  EXPECT_FALSE(others_may_enter(inner));
  EXPECT_FALSE(others_may_enter(outer / "none"));
  fs::remove_all(outer);
}

TEST_F(ConfineTest, RefusesTheNetwork) {
  for (const int domain : {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET}) {
    EXPECT_EQ(in_filtered_child([=] { return errno_of(::socket(domain, SOCK_DGRAM, 0)); }), EPERM)
        << domain;
  }
  EXPECT_EQ(in_filtered_child([] { return errno_of(::socket(AF_UNIX, SOCK_STREAM, 0)); }), 0);
}

TEST_F(ConfineTest, RefusesAllSocketsWithTheSecondFilter) {
  EXPECT_EQ(in_filtered_child([] {
              if (!filter_sockets_and_new_files().ok()) return kFailed;
              return errno_of(::socket(AF_UNIX, SOCK_STREAM, 0));
            }),
            EPERM);
}

TEST_F(ConfineTest, RefusesNewFilesWithTheSecondFilter) {
  std::string folder = std::filesystem::temp_directory_path() / "gpulet-confine-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string old = folder + "/old";
  std::ofstream(old) << "content";
  const auto refused = [](const std::function<long()>& act) {
    return in_filtered_child(
        [&act] { return filter_sockets_and_new_files().ok() ? errno_of(act()) : kFailed; });
  };
  const std::string made = folder + "/new";
  const mode_t mode = 0600;
  EXPECT_EQ(refused([&] { return ::open(made.c_str(), O_CREAT | O_RDWR, mode); }), EPERM);
  EXPECT_EQ(refused([&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR, mode); }), EPERM);
  EXPECT_EQ(refused([&] { return ::shm_open("/gpulet-confine", O_CREAT | O_RDWR, mode); }), EPERM);
  EXPECT_EQ(refused([&] { return ::syscall(SYS_creat, made.c_str(), mode); }), EPERM);
  EXPECT_EQ(refused([&] { return ::syscall(SYS_openat2, AT_FDCWD, made.c_str(), nullptr, 0); }),
            ENOSYS);
  EXPECT_EQ(refused([&] { return ::mkdir(made.c_str(), mode); }), EPERM);
  EXPECT_EQ(refused([&] { return ::symlink(old.c_str(), made.c_str()); }), EPERM);
  EXPECT_EQ(refused([&] { return ::link(old.c_str(), made.c_str()); }), EPERM);
  for (const long call : {SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open})
    EXPECT_EQ(refused([call] { return ::syscall(call, 0, 0, 0, 0); }), EPERM) << call;
  EXPECT_EQ(refused([&] { return ::open(folder.c_str(), O_DIRECTORY | O_RDONLY); }), 0);
  EXPECT_EQ(refused([&] { return ::open(old.c_str(), O_RDONLY); }), 0);
  std::filesystem::remove_all(folder);
}

TEST_F(ConfineTest, RefusesToAdministerTheMachine) {
  EXPECT_EQ(in_filtered_child([] { return errno_of(::unshare(CLONE_NEWUSER)); }), EPERM);
  EXPECT_EQ(in_filtered_child([] { return errno_of(::mount("", "/mnt", "tmpfs", 0, "")); }), EPERM);
  EXPECT_EQ(in_filtered_child([] { return errno_of(::chroot("/")); }), EPERM);
  for (const long call :
       {SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_userfaultfd, SYS_kexec_load, SYS_reboot,
        SYS_swapon, SYS_init_module, SYS_setns, SYS_process_vm_readv, SYS_open_by_handle_at}) {
    EXPECT_EQ(in_filtered_child([=] { return errno_of(::syscall(call, 0, 0, 0, 0, 0, 0)); }), EPERM)
        << call;
  }
  EXPECT_EQ(in_filtered_child([] { return errno_of(::syscall(SYS_io_uring_setup, 0, nullptr)); }),
            ENOSYS);
}

TEST_F(ConfineTest, MaySignalOnlyItself) {
  const pid_t parent = ::getpid();
  EXPECT_EQ(in_filtered_child([=] { return errno_of(::kill(parent, 0)); }), EPERM);
  EXPECT_EQ(in_filtered_child([] { return errno_of(::kill(0, 0)); }), EPERM);
  EXPECT_EQ(in_filtered_child([] { return errno_of(::kill(-1, 0)); }), EPERM);
  EXPECT_EQ(in_filtered_child([] { return errno_of(::kill(::getpid(), 0)); }), 0);
}

TEST_F(ConfineTest, AppliesToPresentAndNewThreads) {
  const auto act = [] {
    int before = kFailed;
    int after = kFailed;
    std::atomic<bool> filtered{false};
    std::thread early([&] {
      while (!filtered) std::this_thread::yield();
      before = errno_of(::socket(AF_INET, SOCK_STREAM, 0));
    });
    if (!filter_system_calls().ok()) return kFailed;
    filtered = true;
    early.join();
    std::thread([&] { after = errno_of(::socket(AF_INET, SOCK_STREAM, 0)); }).join();
    return before == EPERM && after == EPERM ? 0 : 1;
  };
  EXPECT_EQ(in_child(act), 0);
}

#if !defined(GPULET_SANITIZED)
TEST_F(ConfineTest, StartsNoProgramsOrProcesses) {
  EXPECT_EQ(in_filtered_child([] { return errno_of(::execl("/bin/true", "true", nullptr)); }),
            EPERM);
  EXPECT_EQ(in_filtered_child([] { return errno_of(::fork()); }), EPERM);
}
#endif

TEST(Network, TheNewNamespaceIsEmpty) {
  if (const auto possible = try_in_child(); !possible.network.ok())
    GTEST_SKIP() << describe(possible);
  const auto own = network_namespace();
  ASSERT_FALSE(own.empty());
  EXPECT_EQ(in_child([&own] {
              if (!leave_network(own).ok() || network_namespace() == own) return kFailed;
              std::ifstream lines("/proc/self/net/dev");
              int interfaces = 0;
              for (std::string line; std::getline(lines, line);)
                interfaces += line.find(':') == std::string::npos ? 0 : 1;
              return interfaces;
            }),
            1)
      << "loopback, which is down";
}

// Like a backend that is not root.
TEST(Network, AnUnprivilegedProcessLeavesItAndKeepsItsUser) {
  constexpr uid_t kSomebody = 65534;
  const auto act = [] {
    if (::geteuid() == 0 && (::setresgid(kSomebody, kSomebody, kSomebody) != 0 ||
                             ::setresuid(kSomebody, kSomebody, kSomebody) != 0)) {
      return kFailed;
    }
    const auto own = network_namespace();
    const auto user = ::geteuid();
    if (!leave_network(own).ok()) return 2;  // this system requires root
    return network_namespace() != own && ::geteuid() == user ? 0 : 1;
  };
  const int result = in_child(act);
  if (result == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(result, 0);
}

TEST(Network, IsLeftOnlyOnce) {
  EXPECT_EQ(in_child([] {
              const auto own = network_namespace();
              const bool left = leave_network("net:[1]").ok();
              return left && network_namespace() == own ? 0 : 1;
            }),
            0)
      << "it already differs from the namespace of its parent";
}

}  // namespace
}  // namespace gpulet::confine
