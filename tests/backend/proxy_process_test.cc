// ProxyProcess with the simulated proxy program.
#include "gpulet/backend/proxy_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/setup.h"
#include "tests/net/loop.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"

namespace gpulet::backend::proxy_process_test {
namespace {

using std::chrono::milliseconds;
using support::holds;
using support::names;

constexpr std::chrono::seconds kPatience(20);
constexpr std::size_t kRequestBytes = 16;

LoadModels models() {
  const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
  return {{{"echo", "", {tensor}, {tensor}, 4}}};
}

RunBatch batch(std::uint64_t id, std::uint32_t count, Duration latency = {}) {
  RunBatch run;
  run.id = {id};
  run.model = "echo";
  run.count = count;
  run.start_within = std::chrono::seconds(60);
  run.simulated_latency = latency;
  return run;
}

struct Ran {
  BatchRan ran;
  Bytes outputs;
};

class ProxyProcessTest : public ::testing::Test {
 protected:
  [[nodiscard]] Status start(ProxyOptions options = {}) {
    if (options.program.empty()) options.program = GPULET_PROXY_SIMULATED;
    auto started = ProxyProcess::start(io_.get_executor(), options, callbacks());
    if (!started.ok()) return started.status();
    process_ = std::move(started).value();
    return {};
  }
  ProxyCallbacks callbacks() {
    ProxyCallbacks callbacks;
    callbacks.on_idle = [this] { idle_ = true; };
    callbacks.on_ready = [this](ProxyReady ready) { ready_ = std::move(ready); };
    callbacks.on_ran = [this](BatchRan ran, Bytes outputs) {
      ran_.push_back({std::move(ran), std::move(outputs)});
    };
    callbacks.on_exit = [this](Status reason) { exit_ = std::move(reason); };
    return callbacks;
  }
  [[nodiscard]] Status load() {
    return process_->load(
        models(), {.input_capacity = 4 * kRequestBytes, .output_capacity = 4 * kRequestBytes});
  }
  void start_and_load() {
    const auto started = start();
    ASSERT_TRUE(started.ok()) << started.to_string();
    ASSERT_TRUE(load().ok());
    ASSERT_TRUE(run_until([this] { return ready_.has_value(); }));
    ASSERT_TRUE(ready_->status.ok()) << ready_->status.to_string();
  }
  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }
  // The input of `count` requests, filled with `first`, `first` + 1, ...
  std::optional<Bytes> fill_slot(std::uint32_t count, std::uint8_t first) {
    auto slot = process_->take_slot(count * kRequestBytes);
    if (!slot) return std::nullopt;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::memset(slot->view().data() + i * kRequestBytes, first + static_cast<int>(i),
                  kRequestBytes);
    }
    return slot->freeze();
  }
  static bool exists(pid_t process) { return ::kill(process, 0) == 0 || errno != ESRCH; }

  net::asio::io_context io_;
  bool idle_ = false;
  std::optional<ProxyReady> ready_;
  std::vector<Ran> ran_;
  std::optional<Status> exit_;
  std::unique_ptr<ProxyProcess> process_;
};

TEST_F(ProxyProcessTest, RunsABatchInSharedMemory) {
  start_and_load();
  const auto input = fill_slot(3, 10);
  ASSERT_TRUE(input);
  ASSERT_TRUE(process_->holds(*input));
  process_->run(batch(7, 3), *input);
  ASSERT_TRUE(run_until([this] { return ran_.size() == 1; }));
  EXPECT_TRUE(ran_[0].ran.status.ok()) << ran_[0].ran.status.to_string();
  EXPECT_EQ(ran_[0].ran.id, BatchId{7});
  ASSERT_EQ(ran_[0].outputs.size(), 3 * kRequestBytes);
  EXPECT_EQ(std::memcmp(ran_[0].outputs.view().data(), input->view().data(), 3 * kRequestBytes), 0);
}

TEST_F(ProxyProcessTest, MakesTheInputsOfASyntheticBatch) {
  start_and_load();
  std::uint64_t id = 0;
  const auto answer_to = [&](const Bytes& input, bool synthetic) {
    RunBatch run = batch(++id, 2);
    run.synthetic = synthetic;
    ran_.clear();
    process_->run(run, input);
    EXPECT_TRUE(run_until([this] { return ran_.size() == 1; }));
    EXPECT_TRUE(ran_[0].ran.status.ok()) << ran_[0].ran.status.to_string();
    const auto view = ran_[0].outputs.view();
    return std::vector<std::byte>(view.begin(), view.end());
  };
  const std::vector<std::byte> zeros(2 * kRequestBytes);
  for (int round = 0; round < 2; ++round) {
    // Whatever the slots had before.
    for (int slot = 0; slot < 4; ++slot) EXPECT_NE(answer_to(*fill_slot(2, 10), false), zeros);
    for (int slot = 0; slot < 6; ++slot) {
      auto input = process_->take_zeros(2 * kRequestBytes);
      ASSERT_TRUE(input);
      EXPECT_EQ(answer_to(std::move(*input).freeze(), true), zeros);
    }
  }
}

TEST_F(ProxyProcessTest, MayStartAheadAndChangeItsCallbacks) {
  ProxyOptions options;
  options.in_background = true;
  ASSERT_TRUE(start(options).ok());
  ASSERT_TRUE(run_until([this] { return idle_; }));
  EXPECT_FALSE(process_->take_slot(1)) << "it has no memory yet";
  process_->set_callbacks({});
  EXPECT_FALSE(process_->holds(Bytes()));
  process_->set_callbacks(callbacks());
  ASSERT_TRUE(load().ok());
  ASSERT_TRUE(run_until([this] { return ready_.has_value(); }));
  EXPECT_TRUE(ready_->status.ok()) << ready_->status.to_string();
  EXPECT_TRUE(process_->take_slot(1));
  EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(process_->pid())),
            ::getpriority(PRIO_PROCESS, 0));
}

TEST_F(ProxyProcessTest, FreesASlotWhenItsOutputsAreDestroyed) {
  start_and_load();
  std::vector<Bytes> inputs;
  while (auto input = fill_slot(1, 1)) inputs.push_back(*input);
  ASSERT_EQ(inputs.size(), 4U);
  process_->run(batch(1, 1), inputs.back());
  inputs.pop_back();
  ASSERT_TRUE(run_until([this] { return ran_.size() == 1; }));
  EXPECT_FALSE(process_->take_slot(1)) << "its outputs still exist";
  ran_.clear();
  EXPECT_TRUE(process_->take_slot(1));
}

TEST_F(ProxyProcessTest, AFailedBatchHasNoOutputs) {
  start_and_load();
  auto unknown = batch(1, 1);
  unknown.model = "nobody";
  process_->run(unknown, *fill_slot(1, 1));
  ASSERT_TRUE(run_until([this] { return ran_.size() == 1; }));
  EXPECT_EQ(ran_[0].ran.status.code(), StatusCode::not_found);
  EXPECT_TRUE(ran_[0].outputs.empty());
}

TEST_F(ProxyProcessTest, FinishesItsBatchesBeforeItStops) {
  start_and_load();
  for (std::uint64_t id = 1; id <= 4; ++id)
    process_->run(batch(id, 1, milliseconds(20)), *fill_slot(1, 1));
  process_->stop(kPatience);
  ASSERT_TRUE(run_until([this] { return exit_.has_value(); }));
  EXPECT_TRUE(exit_->ok()) << exit_->to_string();
  ASSERT_EQ(ran_.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(ran_[i].ran.status.ok());
    EXPECT_EQ(ran_[i].ran.id.value, i + 1);
  }
  EXPECT_FALSE(exists(process_->pid())) << "it was reaped";
}

TEST_F(ProxyProcessTest, IsKilledWhenItDoesNotStopInTime) {
  start_and_load();
  process_->run(batch(1, 1, std::chrono::minutes(5)), *fill_slot(1, 1));
  process_->stop(milliseconds(50));
  ASSERT_TRUE(run_until([this] { return exit_.has_value(); }));
  EXPECT_EQ(exit_->code(), StatusCode::timeout);
  EXPECT_TRUE(ran_.empty());
}

TEST_F(ProxyProcessTest, ReportsHowAProcessWasKilled) {
  start_and_load();
  ::kill(process_->pid(), SIGKILL);
  ASSERT_TRUE(run_until([this] { return exit_.has_value(); }));
  EXPECT_EQ(exit_->code(), StatusCode::unavailable);
  EXPECT_TRUE(names(*exit_, "signal 9"));
  EXPECT_TRUE(ran_.empty());
}

TEST_F(ProxyProcessTest, ReportsTheReasonOfAKill) {
  start_and_load();
  process_->kill({StatusCode::timeout, "it hangs"});
  ASSERT_TRUE(run_until([this] { return exit_.has_value(); }));
  EXPECT_EQ(*exit_, Status(StatusCode::timeout, "it hangs"));
}

TEST_F(ProxyProcessTest, EndsAStoppedProcessToo) {
  start_and_load();
  ::kill(process_->pid(), SIGSTOP);
  process_->stop(milliseconds(50));
  ASSERT_TRUE(run_until([this] { return exit_.has_value(); }));
}

TEST_F(ProxyProcessTest, EndsItsProcessWhenDestroyed) {
  start_and_load();
  const pid_t process = process_->pid();
  EXPECT_TRUE(exists(process));
  process_.reset();
  EXPECT_FALSE(exists(process));
  io_.restart();
  io_.run();
  EXPECT_FALSE(exit_) << "no callback after destruction";
}

TEST_F(ProxyProcessTest, OutputsOutliveTheProcess) {
  start_and_load();
  process_->run(batch(1, 1), *fill_slot(1, 42));
  ASSERT_TRUE(run_until([this] { return ran_.size() == 1; }));
  process_.reset();
  EXPECT_EQ(ran_[0].outputs.view()[0], std::byte{42});
}

TEST_F(ProxyProcessTest, MayBeDestroyedInsideItsLastCallback) {
  ProxyOptions options;
  options.program = "/bin/false";
  std::unique_ptr<ProxyProcess> process;
  bool ended = false;
  ProxyCallbacks callbacks;
  callbacks.on_exit = [&](const Status& reason) {
    EXPECT_TRUE(names(reason, "exit code 1"));
    process.reset();
    ended = true;
  };
  auto started = ProxyProcess::start(io_.get_executor(), options, std::move(callbacks));
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  process = std::move(started).value();
  EXPECT_TRUE(run_until([&] { return ended; }));
}

TEST_F(ProxyProcessTest, NamesAProgramThatCannotBeStarted) {
  ProxyOptions options;
  options.program = "/nonexistent/proxy";
  const auto refused = start(options);
  EXPECT_EQ(refused.code(), StatusCode::not_found);
  EXPECT_TRUE(names(refused, "/nonexistent/proxy"));
}

TEST_F(ProxyProcessTest, PassesTheEnvironmentAndItsDescriptorsOnly) {
  // The script succeeds only if it sees the variable, fds 3 to 5, and no fd above.
  ProxyOptions options;
  options.program = GPULET_SOURCE_DIR "/tests/backend/inherits.sh";
  const support::Variable passed("GPULET_TEST", "here");
  const support::Variable kept("GPULET_TEST_SECRET", "not for models");
  options.confinement.variables = {"GPULET_TEST"};
  options.confinement.native_models = true;
  options.confinement.onnxruntime = "/opt/libonnxruntime.so";
  const auto started = start(options);
  ASSERT_TRUE(started.ok()) << started.to_string();
  ASSERT_TRUE(run_until([this] { return exit_.has_value(); }));
  EXPECT_TRUE(exit_->ok()) << exit_->to_string();
}

// The words after `name` in a file of /proc/<process>.
std::vector<std::string> words_after(const std::string& name, pid_t process, const char* file) {
  std::ifstream lines("/proc/" + std::to_string(process) + "/" + file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    return {std::istream_iterator<std::string>(rest), {}};
  }
  return {};
}
std::vector<std::string> status_of(pid_t process, const std::string& name) {
  return words_after(name + ":", process, "status");
}
using Words = std::vector<std::string>;

TEST_F(ProxyProcessTest, GainsNoPrivilegesAndLeavesNoCoreFile) {
  start_and_load();
  const pid_t process = process_->pid();
  EXPECT_EQ(status_of(process, "NoNewPrivs"), Words{"1"});
  EXPECT_EQ(status_of(process, "Umask"), Words{"0077"});
  EXPECT_EQ(status_of(process, "CapAmb"), Words{"0000000000000000"});
  const auto core = words_after("Max core file size", process, "limits");
  ASSERT_GE(core.size(), 2U);
  EXPECT_EQ(core[0] + core[1], "00") << "soft and hard limit";
}

TEST_F(ProxyProcessTest, RunsAsTheGivenUserWithoutCapabilities) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may run processes as another user";
  const auto nobody = choose_proxy_user("nobody");
  ASSERT_TRUE(nobody.ok()) << nobody.status().to_string();
  // That user has no access to the program's directory.
  const support::TemporaryFolder closed;
  ProxyOptions options;
  options.program = closed.path() / "proxy";
  options.user = nobody.value();
  std::filesystem::copy_file(GPULET_PROXY_SIMULATED, options.program);
  const auto started = start(options);
  ASSERT_TRUE(started.ok()) << started.to_string();
  ASSERT_TRUE(run_until([this] { return idle_; }));
  const pid_t process = process_->pid();
  const auto user = std::to_string(nobody.value()->user);
  const auto group = std::to_string(nobody.value()->group);
  EXPECT_EQ(status_of(process, "Uid"), Words(4, user));
  EXPECT_EQ(status_of(process, "Gid"), Words(4, group));
  Words groups;
  for (const gid_t one : nobody.value()->groups) groups.push_back(std::to_string(one));
  EXPECT_EQ(status_of(process, "Groups"), groups);
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
    EXPECT_EQ(status_of(process, set), Words{"0000000000000000"}) << set;

  ASSERT_TRUE(load().ok());
  ASSERT_TRUE(run_until([this] { return ready_.has_value(); }));
  process_->run(batch(1, 1), *fill_slot(1, 1));
  ASSERT_TRUE(run_until([this] { return ran_.size() == 1; }));
  EXPECT_TRUE(ran_[0].ran.status.ok()) << ran_[0].ran.status.to_string();
}

TEST_F(ProxyProcessTest, RejectsAModelWhoseFileCannotBeRead) {
  ASSERT_TRUE(start().ok());
  auto unreadable = models();
  unreadable.models[0].file = "/nowhere/model.pt";
  const auto loaded = process_->load(unreadable, {.input_capacity = 1, .output_capacity = 1});
  EXPECT_EQ(loaded.code(), StatusCode::not_found);
  EXPECT_TRUE(names(loaded, "/nowhere/model.pt"));
}

TEST(ProxyUser, IsEmptyIfRootRequestsRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "this is not root";
  const auto root = choose_proxy_user("root");
  ASSERT_TRUE(root.ok());
  EXPECT_FALSE(root.value().has_value());
}

TEST(ProxyUser, HasADefaultForRootOnly) {
  const auto chosen = choose_proxy_user("");
  ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
  EXPECT_EQ(chosen.value().has_value(), ::geteuid() == 0);
  EXPECT_TRUE(!chosen.value() || chosen.value()->user != 0);
}

TEST(ProxyUser, MustExistAndBeTheOwnUserWithoutRoot) {
  const auto unknown = choose_proxy_user("no-such-user");
  EXPECT_EQ(unknown.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(unknown.status(), "no-such-user"));
  if (::geteuid() == 0) return;
  EXPECT_EQ(choose_proxy_user("root").status().code(), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::backend::proxy_process_test
