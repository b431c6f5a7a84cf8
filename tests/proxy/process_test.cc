// The proxy program, started as a backend starts it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "proxy/proxy.h"
#include "tests/proxy/descriptors.h"
#include "tests/proxy/proxy_peer.h"
#include "tests/support/names.h"

namespace gpulet::proxy {
namespace {

using support::names;
using namespace std::chrono_literals;

constexpr std::size_t kMemory = 4096;

class ProxyProcess {
 public:
  explicit ProxyProcess(ProxyPeer& peer) {
    const std::string program = std::string(GPULET_BINARY_DIR) + "/bin/gpulet-proxy-simulated";
    std::vector<std::string> words{program, "--control-fd", "3", "--memory-fd", "4"};
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    // Through high numbers, because 3 or 4 may be one of the two descriptors.
    ::posix_spawn_file_actions_adddup2(&actions, peer.proxy_socket(), 103);
    ::posix_spawn_file_actions_adddup2(&actions, peer.memory_fd(), 104);
    ::posix_spawn_file_actions_adddup2(&actions, 103, 3);
    ::posix_spawn_file_actions_adddup2(&actions, 104, 4);
    ::posix_spawn_file_actions_addclose(&actions, 103);
    ::posix_spawn_file_actions_addclose(&actions, 104);
    const int error =
        ::posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + program);
    peer.close_proxy_socket();
  }
  ~ProxyProcess() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ProxyProcess(const ProxyProcess&) = delete;
  ProxyProcess& operator=(const ProxyProcess&) = delete;

  void signal(int number) const { ::kill(process_, number); }

  // The exit code, or -1 if a signal ended the process.
  int exit_code() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = 0;
};

LoadModels echo_model() {
  const TensorSpec bytes{.name = "bytes", .type = DataType::uint8, .shape = {4}};
  return {.models = {{.name = "echo",
                      .file = "nowhere.pt",
                      .inputs = {bytes},
                      .outputs = {bytes},
                      .max_batch = 8}}};
}

TEST(ProxyProgram, AnswersThroughSharedMemoryAndExitsWithZero) {
  ProxyPeer peer(kMemory);
  ProxyProcess proxy(peer);
  peer.load(echo_model());
  ASSERT_TRUE(peer.receive_ready().status.ok());
  proxy.signal(SIGINT);  // as a ctrl-C in the backend's terminal would
  proxy.signal(SIGTERM);
  peer.write(0, "ping");
  RunBatch batch;
  batch.id = BatchId{1};
  batch.model = "echo";
  batch.count = 1;
  batch.input_bytes = 4;
  batch.output_offset = 64;
  batch.output_capacity = 4;
  batch.start_within = 1h;
  batch.simulated_latency = 3ms;
  peer.send(batch);
  const BatchRan ran = peer.receive_ran();
  EXPECT_TRUE(ran.status.ok()) << ran.status.to_string();
  EXPECT_GE(ran.executed, 3ms);
  EXPECT_EQ(peer.read(64, 4), "ping");
  peer.send(StopProxy{});
  EXPECT_EQ(proxy.exit_code(), 0);
}

TEST(ProxyProgram, ExitsWhenItsBackendIsGoneBeforeLoading) {
  ProxyPeer peer(kMemory);
  ProxyProcess proxy(peer);
  ASSERT_TRUE(std::holds_alternative<ProxyIdle>(peer.receive().value()));
  peer.close_channel();
  EXPECT_EQ(proxy.exit_code(), 0);
}

TEST(ProxyProgram, ExitsWithALineOnAMessageThatIsNotAWorker) {
  std::array<int, 2> sockets{-1, -1};
  std::array<int, 2> errors{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
  ASSERT_EQ(::pipe2(errors.data(), O_CLOEXEC), 0);
  std::string program = std::string(GPULET_BINARY_DIR) + "/bin/gpulet-proxy-simulated";
  std::string name = "--lanes-fd";
  std::string number = "103";
  std::array<char*, 4> arguments{program.data(), name.data(), number.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, sockets[1], 103);
  ::posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
  pid_t process = 0;
  ASSERT_EQ(::posix_spawn(&process, program.c_str(), &actions, nullptr, arguments.data(), environ),
            0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(sockets[1]);
  ::close(errors[1]);
  ASSERT_TRUE(send_descriptors(sockets[0], {sockets[0]}));
  int status = 0;
  ::waitpid(process, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  std::string line(200, ' ');
  line.resize(static_cast<std::size_t>(::read(errors[0], line.data(), line.size())));
  EXPECT_NE(line.find("malformed"), std::string::npos) << line;
  ::close(sockets[0]);
  ::close(errors[0]);
}

TEST(ProxyArguments, AcceptTheSocketOfAProcessOfSeveralGpulets) {
  const std::array<const char*, 2> workers{"--lanes-fd", "3"};
  const auto options = parse_arguments(workers);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options.value().workers_fd, 3);
  const std::array<const char*, 4> mixed{"--lanes-fd", "3", "--files-fd", "4"};
  EXPECT_EQ(parse_arguments(mixed).status().code(), StatusCode::invalid);
}

TEST(ProxyArguments, AreAllRequired) {
  const std::array<const char*, 4> good{"--memory-fd", "4", "--control-fd", "3"};
  const Result<ProxyOptions> options = parse_arguments(good);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options.value().control_fd, 3);
  EXPECT_EQ(options.value().memory_fd, 4);
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(parse_arguments(std::span(good).first(length)).status().code(), StatusCode::invalid);
  }
}

TEST(ProxyArguments, ErrorsNameTheArgument) {
  const std::array<const char*, 2> unknown{"--colour", "blue"};
  EXPECT_TRUE(names(parse_arguments(unknown).status(), "--colour"));
  for (const char* bad : {"", "-1", "3x", "99999999999"}) {
    const std::array<const char*, 2> arguments{"--control-fd", bad};
    EXPECT_TRUE(names(parse_arguments(arguments).status(), "'" + std::string(bad) + "'"));
  }
}

}  // namespace
}  // namespace gpulet::proxy
