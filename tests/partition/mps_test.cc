// The MPS driver against a fake of NVIDIA's control program; needs no GPU.
#include "partition/drivers/mps.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <thread>

#include "gpulet/partition/drivers/drivers.h"
#include "partition/drivers/process_control.h"
#include "tests/support/gpu/fake_mps.h"
#include "tests/support/names.h"

namespace gpulet::partition {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using support::FakeMps;
using support::has_line;
using support::holds;
using support::names;

const std::string kUuid = "GPU-11111111-2222-3333-4444-555555555555";
constexpr seconds kPatience(20);

bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(10));
  return condition();
}

// A process that runs until it is killed.
class Victim {
 public:
  Victim() : process_(::fork()) {
    if (process_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Victim() {
    ::kill(process_, SIGKILL);
    if (!waited_) ::waitpid(process_, nullptr, 0);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  [[nodiscard]] pid_t process() const { return process_; }
  [[nodiscard]] bool has_ended() {
    if (!waited_) waited_ = ::waitpid(process_, nullptr, WNOHANG) == process_;
    return waited_;
  }

 private:
  pid_t process_;
  bool waited_ = false;
};

// ---- the command runner

TEST(Command, PassesInputAndCapturesBothOutputs) {
  const auto answer = run_command({.program = "/bin/sh",
                                   .arguments = {"-c", "cat; echo $A$B >&2; exit 3"},
                                   .environment = {{"A", "a"}},
                                   .without = {"B"},
                                   .input = "said\n"});
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(answer.value().exit_code, 3);
  EXPECT_EQ(answer.value().text, "said\na\n");
}

TEST(Command, KillsTheProcessGroupAtTheTimeout) {
  const auto answer = run_command({.program = "/bin/sh",
                                   .arguments = {"-c", "sleep 1000 & sleep 1000"},
                                   .patience = milliseconds(50)});
  EXPECT_EQ(answer.status().code(), StatusCode::timeout);
}

TEST(Command, DoesNotWaitForADaemonThatKeepsTheOutputOpen) {
  const auto answer =
      run_command({.program = "/bin/sh", .arguments = {"-c", "echo started; sleep 5 & exit 0"}});
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(answer.value().text, "started\n");
}

TEST(Command, TruncatesLongOutput) {
  const auto answer =
      run_command({.program = "/bin/sh", .arguments = {"-c", "head -c 1000000 /dev/zero"}});
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(answer.value().text.size(), 64U << 10U);
}

TEST(Command, RunsAsTheGivenUser) {
  if (::getuid() != 0) GTEST_SKIP() << "requires root";
  const auto answer = run_command({.program = "/bin/sh",
                                   .arguments = {"-c", "id -u; id -g; id -G"},
                                   .user = 12345,
                                   .group = 54321});
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(answer.value().text, "12345\n54321\n54321\n");
}

// ---- the daemon

TEST(MpsDaemon, StartsForOneGpuWithItsOwnFoldersAndQuitsAtTheEnd) {
  const FakeMps fake;
  ::setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10", 1);
  {
    auto daemon = MpsDaemon::start(fake.options(), kUuid);
    ::unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    ASSERT_TRUE(daemon.ok()) << daemon.status().to_string();
    EXPECT_FALSE(daemon.value()->adopted());
    EXPECT_TRUE(daemon.value()->running());
    const auto environment = daemon.value()->client_environment();
    EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), kUuid);
    for (const auto& [name, value] : environment)
      EXPECT_TRUE(has_line(fake.recorded("environment"), name + "=" + value));
    EXPECT_FALSE(holds(fake.recorded("environment"), "PERCENTAGE"));
    EXPECT_FALSE(fake.received("percentage")) << "shares are never set through the daemon";
  }
  EXPECT_TRUE(fake.received("quit -t"));
  EXPECT_FALSE(std::filesystem::exists(fake.pid_file(kUuid)));
}

TEST(MpsDaemon, AdoptsARunningDaemonAndLeavesItRunning) {
  const FakeMps fake;
  auto first = MpsDaemon::start(fake.options(), kUuid);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  {
    const auto second = MpsDaemon::start(fake.options(), kUuid);
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    EXPECT_TRUE(second.value()->adopted());
  }
  EXPECT_FALSE(fake.received("quit"));
  EXPECT_TRUE(first.value()->running());
}

TEST(MpsDaemon, DoesNotAdoptADaemonThatLimitsItsClients) {
  const FakeMps fake;
  const auto first = MpsDaemon::start(fake.options(), kUuid);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  fake.set("percentage", "40.0\n");
  const auto second = MpsDaemon::start(fake.options(), kUuid);
  EXPECT_EQ(second.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(second.status(), "40.0 %"));
}

TEST(MpsDaemon, RemovesTheFilesOfADeadDaemon) {
  const FakeMps fake;
  std::filesystem::create_directories(fake.pid_file(kUuid).parent_path());
  const auto left = fake.pid_file(kUuid).parent_path() / "control";
  std::ofstream(left) << "a stale socket";
  std::ofstream(fake.pid_file(kUuid)) << ::getpid() << "\n";  // reused by another process
  const auto daemon = MpsDaemon::start(fake.options(), kUuid);
  ASSERT_TRUE(daemon.ok()) << daemon.status().to_string();
  EXPECT_FALSE(daemon.value()->adopted());
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST(MpsDaemon, NamesTheMissingProgram) {
  const FakeMps fake;
  auto options = fake.options();
  options.control = "nvidia-cuda-mps-control-of-nobody";
  const auto daemon = MpsDaemon::start(options, kUuid);
  EXPECT_EQ(daemon.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(daemon.status(), "nvidia-cuda-mps-control-of-nobody"));
}

TEST(MpsDaemon, ReportsWhyItDoesNotStart) {
  const FakeMps fake;
  fake.set("refuse");
  const auto refused = MpsDaemon::start(fake.options(), kUuid);
  EXPECT_EQ(refused.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(refused.status(), "told to refuse"));

  fake.clear("refuse");
  fake.set("hang");
  auto options = fake.options();
  options.patience = milliseconds(200);
  EXPECT_EQ(MpsDaemon::start(options, kUuid).status().code(), StatusCode::timeout);

  options.directory /= std::string(100, 'x');
  const auto too_long = MpsDaemon::start(options, kUuid);
  EXPECT_EQ(too_long.status().code(), StatusCode::invalid);
}

TEST(MpsDaemon, NamesARunningDaemonThatDoesNotAnswer) {
  const FakeMps fake;
  const auto first = MpsDaemon::start(fake.options(), kUuid);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  fake.set("mute");
  auto options = fake.options();
  options.patience = milliseconds(200);
  const auto second = MpsDaemon::start(options, kUuid);
  EXPECT_EQ(second.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(second.status(), std::to_string(FakeMps::pid_in(fake.pid_file(kUuid)))));
  fake.clear("mute");
}

TEST(MpsDaemon, ReportsTheServersStateAndClients) {
  const FakeMps fake;
  const auto daemon = MpsDaemon::start(fake.options(), kUuid);
  ASSERT_TRUE(daemon.ok()) << daemon.status().to_string();
  const auto state = [&] { return daemon.value()->state().value(); };
  EXPECT_EQ(state(), MpsServerState::none);
  fake.set("servers", "701\n");
  EXPECT_EQ(state(), MpsServerState::active);
  fake.set("status", "INITIALIZING\n");
  EXPECT_EQ(state(), MpsServerState::initializing);
  fake.set("status", "FAULT\n");
  EXPECT_EQ(state(), MpsServerState::fault);
  fake.set("status", "DANCING\n");
  EXPECT_TRUE(names(daemon.value()->state().status(), "DANCING"));

  fake.set("clients", "801\n802\n");
  EXPECT_TRUE(daemon.value()->terminate(802).ok());
  EXPECT_TRUE(fake.received("terminate_client 701 802"));
  EXPECT_EQ(daemon.value()->terminate(803).code(), StatusCode::not_found);
  fake.set("refuse_termination");
  EXPECT_EQ(daemon.value()->terminate(801).code(), StatusCode::unavailable);
}

// ---- the driver

std::unique_ptr<PartitionDriver> make_driver(const FakeMps& fake, std::uint32_t max_clients = 48) {
  auto driver = make_mps_driver(
      {.uuid = kUuid, .memory_bytes = 80ULL << 30U, .sms = 132, .max_clients = max_clients},
      fake.options());
  EXPECT_TRUE(driver.ok()) << driver.status().to_string();
  return driver.ok() ? std::move(driver).value() : nullptr;
}

TEST(MpsDriver, SetsSharesInTheEnvironmentOfEachProcess) {
  const FakeMps fake;
  const auto driver = make_driver(fake);
  const auto one = driver->grant({{1}, {20}});
  const auto other = driver->grant({{2}, {80}});
  ASSERT_TRUE(one.ok() && other.ok());
  const auto& environment = one.value().environment;
  EXPECT_EQ(environment.at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "20");
  EXPECT_EQ(environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=16384M");
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), kUuid);
  EXPECT_EQ(environment.at("CUDA_MPS_PIPE_DIRECTORY"), fake.pid_file(kUuid).parent_path());
  EXPECT_EQ(environment.at(kExpectedShareVariable), "20");
  EXPECT_EQ(environment.at(kDeviceSmsVariable), "132");
  EXPECT_EQ(environment.at(kDeviceVariable), "cuda:0");
  EXPECT_EQ(other.value().environment.at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "80");
  EXPECT_FALSE(fake.received("set_")) << "a setting of the server would apply to all clients";
}

TEST(MpsDriver, LimitsMemoryByTheNeedOfTheModels) {
  const FakeMps fake;
  const auto driver = make_driver(fake);
  constexpr std::uint64_t kGigabyte = 1U << 30U;
  const auto some = driver->grant({{1}, {20}, 4 * kGigabyte});
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some.value().environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=6144M")
      << "a quarter more, and a gigabyte for the process";
  const auto most = driver->grant({{2}, {20}, 75 * kGigabyte});
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(most.value().environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=81920M")
      << "at most the device's memory";
}

TEST(MpsDriver, KeepsTheContractOfGrants) {
  const FakeMps fake;
  const auto driver = make_driver(fake, 2);
  EXPECT_EQ(driver->grant({{1}, {0}}).status().code(), StatusCode::invalid);
  EXPECT_EQ(driver->grant({{1}, {101}}).status().code(), StatusCode::invalid);
  ASSERT_TRUE(driver->grant({{1}, {100}}).ok());
  EXPECT_EQ(driver->grant({{1}, {20}}).status().code(), StatusCode::internal);
  ASSERT_TRUE(driver->grant({{2}, {100}}).ok()) << "percentages are caps: they need not add up";
  EXPECT_EQ(driver->grant({{3}, {20}}).status().code(), StatusCode::unavailable);
  driver->release({1});
  EXPECT_TRUE(driver->grant({{3}, {20}}).ok());
  EXPECT_EQ(driver->traits().fault, FaultReach::device);
  EXPECT_EQ(driver->traits().change, ChangeOfSize::new_process);
}

TEST(MpsDriver, TerminatesAClientThroughTheDaemonBeforeKillingIt) {
  const FakeMps fake;
  const auto driver = make_driver(fake);
  Victim client;
  const auto command = "terminate_client 701 " + std::to_string(client.process());
  fake.set("servers", "701\n");
  fake.set("clients", std::to_string(client.process()) + "\n");
  EXPECT_TRUE(driver->end({1}, client.process()));
  EXPECT_TRUE(driver->end({1}, client.process()));
  ASSERT_TRUE(becomes_true([&] { return client.has_ended(); }));
  EXPECT_TRUE(fake.received(command));
  const auto commands = fake.recorded("commands");
  EXPECT_EQ(commands.find(command), commands.rfind(command)) << "once";
}

TEST(MpsDriver, KillsProcessesThatTheDaemonDoesNotTerminate) {
  const FakeMps fake;
  const auto driver = make_driver(fake);
  Victim stranger;
  EXPECT_TRUE(driver->end({1}, stranger.process()));
  ASSERT_TRUE(becomes_true([&] { return stranger.has_ended(); }));
  EXPECT_FALSE(fake.received("terminate_client"));

  Victim client;
  fake.set("servers", "701\n");
  fake.set("clients", std::to_string(client.process()) + "\n");
  fake.set("refuse_termination");
  EXPECT_TRUE(driver->end({2}, client.process()));
  ASSERT_TRUE(becomes_true([&] { return client.has_ended(); }));
}

TEST(MpsDriver, RestartsADaemonThatExitsAndGrantsNothingMeanwhile) {
  const FakeMps fake;
  const auto driver = make_driver(fake);
  ASSERT_TRUE(driver->ready());
  const auto before = FakeMps::pid_in(fake.pid_file(kUuid));
  fake.set("refuse");
  FakeMps::kill_daemon(fake.pid_file(kUuid));
  ASSERT_TRUE(becomes_true([&] { return !driver->ready(); }));
  EXPECT_EQ(driver->grant({{1}, {20}}).status().code(), StatusCode::unavailable);
  fake.clear("refuse");
  ASSERT_TRUE(becomes_true([&] { return driver->ready(); }));
  EXPECT_NE(FakeMps::pid_in(fake.pid_file(kUuid)), before);
  EXPECT_TRUE(driver->grant({{1}, {20}}).ok());
}

}  // namespace
}  // namespace gpulet::partition
