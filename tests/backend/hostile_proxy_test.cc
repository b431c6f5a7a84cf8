// Models that attack their environment, in a proxy that is started as by a backend.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/setup.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/confine/confine.h"
#include "gpulet/partition/driver.h"
#include "tests/net/loop.h"
#include "tests/support/variable.h"

namespace gpulet::backend::hostile_proxy_test {
namespace {

constexpr std::chrono::seconds kPatience(30);

// A proxy with hostile models.
class Hostile {
 public:
  explicit Hostile(const std::vector<std::string>& models, bool sandbox = true,
                   std::map<std::string, std::string> environment = {}) {
    ProxyOptions options;
    options.program = GPULET_PROXY_HOSTILE;
    options.user = choose_proxy_user("").value();
    options.confinement.sandbox = sandbox;
    options.on_output = [this](pid_t process, const std::string& line) {
      EXPECT_EQ(process, process_ == nullptr ? process : process_->pid());
      output_.push_back(line);
    };
    ProxyCallbacks callbacks;
    callbacks.on_ready = [this](ProxyReady ready) { ready_ = std::move(ready); };
    callbacks.on_ran = [this](const BatchRan& ran, Bytes outputs) {
      status_ = ran.status;
      outputs_ = std::move(outputs);
    };
    callbacks.on_exit = [this](Status reason) { exit_ = std::move(reason); };
    auto started = ProxyProcess::start(io_.get_executor(), options, std::move(callbacks));
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    process_ = std::move(started).value();
    const TensorSpec number{"number", DataType::int64, {1}};
    LoadModels load;
    for (const auto& model : models) load.models.push_back({model, "", {number}, {number}, 1});
    load.environment = std::move(environment);
    EXPECT_TRUE(process_->load(load, {.input_capacity = 8, .output_capacity = 8}).ok());
    EXPECT_TRUE(run_until([this] { return ready_.has_value(); }));
  }

  [[nodiscard]] pid_t pid() const { return process_->pid(); }
  [[nodiscard]] const std::vector<std::string>& output() const { return output_; }

  // 0 if the attack succeeded, else its errno or count; empty if the process ended.
  std::optional<std::int64_t> ask(const std::string& model, std::int64_t number = 0) {
    auto slot = process_->take_slot(sizeof number);
    if (!slot) return std::nullopt;
    std::memcpy(slot->view().data(), &number, sizeof number);
    RunBatch batch;
    batch.id = {++last_};
    batch.model = model;
    batch.count = 1;
    batch.start_within = kPatience;
    status_.reset();
    process_->run(batch, slot->freeze());
    slot.reset();
    if (!run_until([this] { return status_ || exit_; }) || !status_) return std::nullopt;
    EXPECT_TRUE(status_->ok()) << status_->to_string();
    std::int64_t told = 0;
    std::memcpy(&told, outputs_.view().data(), sizeof told);
    outputs_ = Bytes();
    return told;
  }

 private:
  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  net::asio::io_context io_;
  std::optional<ProxyReady> ready_;
  std::optional<Status> status_;
  Bytes outputs_;
  std::optional<Status> exit_;
  std::vector<std::string> output_;
  std::uint64_t last_ = 0;
  std::unique_ptr<ProxyProcess> process_;
};

class HostileProxyTest : public ::testing::Test {
 protected:
  // Runs once, because it forks and needs a process without other threads.
  static void SetUpTestSuite() { possible_ = confine::try_in_child(); }
  void SetUp() override {
    if (!possible_.system_calls.ok()) GTEST_SKIP() << confine::describe(possible_);
  }

  static inline confine::InForce possible_;
};

using Ask = std::optional<std::int64_t>;

TEST_F(HostileProxyTest, HasNoNetwork) {
  Hostile hostile({"tcp", "tcp6", "netlink", "interfaces"});
  EXPECT_EQ(hostile.ask("tcp"), Ask(EPERM));
  EXPECT_EQ(hostile.ask("tcp6"), Ask(EPERM));
  EXPECT_EQ(hostile.ask("netlink"), Ask(EPERM));
  if (possible_.network.ok()) {
    EXPECT_EQ(hostile.ask("interfaces"), Ask(1)) << "loopback, down";
  }
}

TEST_F(HostileProxyTest, LeavesNoFiles) {
  Hostile hostile({"file"});
  EXPECT_EQ(hostile.ask("file"), Ask(EPERM));
}

// It prints more than a pipe holds, so somebody must read it; and nobody may show all of it.
TEST_F(HostileProxyTest, ItsOutputIsLimitedAndStaysBehindLines) {
  Hostile hostile({"print", "thread"});
  EXPECT_EQ(hostile.ask("print", 4), Ask(4));
  EXPECT_EQ(hostile.ask("thread"), Ask(0)) << "it serves on";
  EXPECT_FALSE(hostile.output().empty());
  EXPECT_LT(hostile.output().size(), 500U);
  for (const std::string& line : hostile.output()) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_LE(line.size(), 1100U);
  }
}

TEST_F(HostileProxyTest, HasNoSockets) {
  EXPECT_EQ(Hostile({"unix"}).ask("unix"), Ask(EPERM));
  EXPECT_EQ(Hostile({"unix"}, true, {{partition::kDeviceVariable, "cuda:0"}}).ask("unix"), Ask(0));
}

TEST_F(HostileProxyTest, SeesNoVariablesOfTheBackend) {
  const support::Variable secret("GPULET_TEST_SECRET", "not for models");
  EXPECT_EQ(Hostile({"secret"}).ask("secret"), Ask(0));
  EXPECT_EQ(Hostile({"secret"}, false).ask("secret"), Ask(0)) << "also without the sandbox";
}

TEST_F(HostileProxyTest, CannotAccessAnotherProxy) {
  Hostile neighbour({"thread"});
  Hostile hostile({"ptrace", "memory", "environ", "signal", "signal_itself"});
  for (const char* attack : {"memory", "environ"}) {
    const auto told = hostile.ask(attack, neighbour.pid());
    EXPECT_TRUE(told == EACCES || told == EPERM) << attack << ": " << told.value_or(-1);
  }
  EXPECT_EQ(hostile.ask("signal", neighbour.pid()), Ask(EPERM));
  EXPECT_EQ(hostile.ask("signal", ::getpid()), Ask(EPERM));
  EXPECT_EQ(hostile.ask("signal_itself"), Ask(0));
  EXPECT_EQ(hostile.ask("ptrace", neighbour.pid()), Ask(EPERM));
  EXPECT_EQ(neighbour.ask("thread"), Ask(0)) << "it serves on";
}

TEST_F(HostileProxyTest, CannotUseOtherSystemCalls) {
  Hostile hostile({"namespace", "bpf", "io_uring", "keyctl"});
  EXPECT_EQ(hostile.ask("namespace"), Ask(EPERM));
  EXPECT_EQ(hostile.ask("bpf"), Ask(EPERM));
  EXPECT_EQ(hostile.ask("io_uring"), Ask(ENOSYS));
  EXPECT_EQ(hostile.ask("keyctl"), Ask(EPERM));
}

#if !defined(GPULET_SANITIZED)
TEST_F(HostileProxyTest, StartsThreadsButNoProcesses) {
  Hostile hostile({"exec", "fork", "thread"});
  EXPECT_EQ(hostile.ask("exec"), Ask(EPERM));
  EXPECT_EQ(hostile.ask("fork"), Ask(EPERM));
  EXPECT_EQ(hostile.ask("thread"), Ask(0));
}
#endif

TEST_F(HostileProxyTest, MayDoAllOfThisWithoutTheSandbox) {
  Hostile hostile({"tcp", "unix", "fork"}, false);
  EXPECT_EQ(hostile.ask("tcp"), Ask(0));
  EXPECT_EQ(hostile.ask("unix"), Ask(0));
  EXPECT_EQ(hostile.ask("fork"), Ask(0));
}

}  // namespace
}  // namespace gpulet::backend::hostile_proxy_test
