#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/executor/simulated_executor.h"
#include "proxy/proxy.h"
#include "tests/proxy/descriptors.h"
#include "tests/proxy/proxy_peer.h"
#include "tests/support/executor/puppet_executor.h"
#include "tests/support/names.h"

namespace gpulet::proxy {
namespace {

using support::names;
using namespace std::chrono_literals;

constexpr std::size_t kMemory = 4096;
constexpr std::size_t kOutput = 1024;  // offset of the outputs

LoadModels echo_model() {
  const TensorSpec bytes{.name = "bytes", .type = DataType::uint8, .shape = {4}};
  return {.models = {{.name = "echo",
                      .file = "nowhere.pt",
                      .inputs = {bytes},
                      .outputs = {bytes},
                      .max_batch = 8}}};
}

RunBatch batch(std::uint64_t id, std::uint32_t count) {
  RunBatch run;
  run.id = BatchId{id};
  run.model = "echo";
  run.count = count;
  run.input_offset = 0;
  run.input_bytes = 4ULL * count;
  run.output_offset = kOutput;
  run.output_capacity = 4ULL * count;
  run.start_within = 1h;
  return run;
}

// Forwards to an executor of the test, which outlives the proxy.
class BorrowedExecutor final : public executor::Executor {
 public:
  explicit BorrowedExecutor(Executor& owner) : owner_(owner) {}
  Result<std::uint32_t> load(const ModelToLoad& model) override { return owner_.load(model); }
  Result<std::size_t> run(const executor::BatchToRun& batch) override { return owner_.run(batch); }

 private:
  Executor& owner_;
};

// A proxy in a thread of this process.
class ServedProxy {
 public:
  ServedProxy(ProxyPeer& peer, executor::Executor& executor, int files_fd = -1)
      : status_(std::async(std::launch::async, [&peer, &executor, files_fd] {
          Program program;
          program.make_executor = [&executor] {
            return std::make_unique<BorrowedExecutor>(executor);
          };
          Status status = serve({peer.proxy_socket(), peer.memory_fd(), files_fd}, program);
          ::shutdown(peer.proxy_socket(),
                     SHUT_RDWR);  // as the end of a process would; the peer then stops waiting
          return status;
        })) {}

  Status ended() { return status_.get(); }

 private:
  std::future<Status> status_;
};

TEST(ServedProxy, LoadsRunsAndStops) {
  ProxyPeer peer(kMemory);
  executor::SimulatedExecutor executor;
  ServedProxy proxy(peer, executor);

  peer.load(echo_model());
  const ProxyReady ready = peer.receive_ready();
  EXPECT_TRUE(ready.status.ok()) << ready.status.to_string();
  EXPECT_GT(ready.memory_bytes, 0U);

  peer.write(0, "oneetwoo");
  peer.send(batch(7, 2));
  const BatchRan ran = peer.receive_ran();
  EXPECT_TRUE(ran.status.ok()) << ran.status.to_string();
  EXPECT_EQ(ran.id, BatchId{7});
  EXPECT_EQ(ran.output_bytes, 8U);
  EXPECT_EQ(peer.read(kOutput, 8), "oneetwoo");

  peer.send(StopProxy{});
  EXPECT_TRUE(proxy.ended().ok());
}

TEST(ServedProxy, MakesItsExecutorInTheEnvironmentOfLoadModels) {
  ProxyPeer peer(kMemory);
  executor::PuppetExecutor puppet;
  std::string seen;
  Program program;
  bool prepared = false;
  program.prepare = [&prepared] { prepared = true; };
  program.make_executor = [&] {
    const char* value = std::getenv("GPULET_TEST_SHARE");
    seen = value == nullptr ? "nothing" : value;
    return std::make_unique<BorrowedExecutor>(puppet);
  };
  auto ended = std::async(std::launch::async, [&] {
    return serve({peer.proxy_socket(), peer.memory_fd()}, program);
  });
  ASSERT_TRUE(std::holds_alternative<ProxyIdle>(peer.receive().value()));
  EXPECT_TRUE(prepared);
  peer.send(batch(1, 1));
  EXPECT_EQ(peer.receive_ran().status.code(), StatusCode::not_found);
  EXPECT_TRUE(seen.empty()) << "no executor yet";

  LoadModels models = echo_model();
  models.models[0].variant = 6;
  models.environment = {{"GPULET_TEST_SHARE", "40"}};
  peer.load(models);
  const ProxyReady ready = peer.receive_ready();
  EXPECT_TRUE(ready.status.ok()) << ready.status.to_string();
  EXPECT_EQ(ready.variants, std::vector<std::uint32_t>{7}) << "the executor's result";
  EXPECT_EQ(seen, "40");
  peer.load(models);
  EXPECT_EQ(peer.receive_ready().status.code(), StatusCode::invalid)
      << "it already serves a gpulet";
  peer.send(StopProxy{});
  EXPECT_TRUE(ended.get().ok());
}

TEST(ServedProxy, LoadsNothingIfTheMemoryIsSmallerThanAnnounced) {
  ProxyPeer peer(kMemory);
  executor::PuppetExecutor executor;
  ServedProxy proxy(peer, executor);
  for (const std::uint64_t announced : {std::uint64_t{0}, std::uint64_t{kMemory} + 1}) {
    LoadModels models = echo_model();
    models.memory_bytes = announced;
    peer.send(models);
    EXPECT_EQ(peer.receive_ready().status.code(), StatusCode::invalid);
  }
  peer.send(StopProxy{});
  EXPECT_TRUE(proxy.ended().ok());
}

TEST(ServedProxy, ReportsWhyLoadingFailed) {
  ProxyPeer peer(kMemory);
  executor::PuppetExecutor executor;
  executor.fail_loading({StatusCode::not_found, "nowhere.pt: no such file"});
  ServedProxy proxy(peer, executor);
  peer.load(echo_model());
  EXPECT_EQ(peer.receive_ready().status, Status(StatusCode::not_found, "nowhere.pt: no such file"));
  peer.send(StopProxy{});
  EXPECT_TRUE(proxy.ended().ok());
}

// Fails every load with the contents of the file.
class ReadingExecutor final : public executor::Executor {
 public:
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    std::ifstream file(model.file);
    std::string text;
    std::getline(file, text);
    const std::string path = model.file;
    return Status(StatusCode::invalid, path + " holds " + text).within("model 'echo': " + path);
  }
  Result<std::size_t> run(const executor::BatchToRun&) override { return std::size_t{0}; }
};

TEST(ServedProxy, ReadsTheReceivedFileAndNamesNoPathOfTheStore) {
  ProxyPeer peer(kMemory);
  ReadingExecutor executor;
  std::array<int, 2> files{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, files.data()), 0);
  const int file = ::memfd_create("model", MFD_CLOEXEC);
  ASSERT_EQ(::write(file, "weights", 7), 7);
  ASSERT_TRUE(send_descriptors(files[0], {file}));
  ServedProxy proxy(peer, executor, files[1]);
  peer.load(echo_model());
  EXPECT_EQ(peer.receive_ready().status,
            Status(StatusCode::invalid, "model 'echo': its file holds weights"));
  peer.load(echo_model());
  EXPECT_EQ(peer.receive_ready().status.code(), StatusCode::invalid)
      << "it already serves a gpulet";
  peer.send(StopProxy{});
  EXPECT_TRUE(proxy.ended().ok());
  for (const int one : {files[0], files[1], file}) ::close(one);
}

TEST(ServedProxy, RejectsAModelWithoutItsFile) {
  ProxyPeer peer(kMemory);
  ReadingExecutor executor;
  std::array<int, 2> files{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, files.data()), 0);
  ServedProxy proxy(peer, executor, files[1]);
  peer.load(echo_model());
  const Status refused = peer.receive_ready().status;
  EXPECT_EQ(refused.code(), StatusCode::malformed) << refused.to_string();
  EXPECT_TRUE(names(refused, "nowhere.pt"));
  peer.send(StopProxy{});
  EXPECT_TRUE(proxy.ended().ok());
  for (const int one : files) ::close(one);
}

TEST(ServedProxy, RejectsBadBatchesAndServesTheNext) {
  ProxyPeer peer(kMemory);
  executor::SimulatedExecutor executor;
  ServedProxy proxy(peer, executor);
  peer.load(echo_model());
  ASSERT_TRUE(peer.receive_ready().status.ok());

  RunBatch beyond_the_end = batch(1, 1);
  beyond_the_end.input_offset = kMemory - 3;
  RunBatch overflowing = batch(2, 1);
  overflowing.output_offset = ~std::uint64_t{0} - 4;
  RunBatch endless = batch(3, 1);
  endless.output_capacity = std::uint64_t{1} << 63U;
  RunBatch overlapping = batch(4, 2);
  overlapping.output_offset = 7;
  RunBatch wrong_size = batch(5, 2);
  wrong_size.input_bytes = 7;
  RunBatch no_room = batch(6, 2);
  no_room.output_capacity = 7;
  std::uint64_t id = 0;
  for (const auto& [bad, code] :
       {std::pair(beyond_the_end, StatusCode::invalid), std::pair(overflowing, StatusCode::invalid),
        std::pair(endless, StatusCode::invalid), std::pair(overlapping, StatusCode::invalid),
        std::pair(wrong_size, StatusCode::internal), std::pair(no_room, StatusCode::internal)}) {
    peer.send(bad);
    const BatchRan ran = peer.receive_ran();
    EXPECT_EQ(ran.id, BatchId{++id});
    EXPECT_EQ(ran.status.code(), code) << ran.status.to_string();
    EXPECT_EQ(ran.cause, FailureCause::unknown) << "the backend's fault, not a client's";
    EXPECT_EQ(ran.output_bytes, 0U);
  }
  RunBatch unknown = batch(7, 1);
  unknown.model = "gone";
  peer.send(unknown);
  EXPECT_EQ(peer.receive_ran().status.code(), StatusCode::not_found);

  peer.send(batch(8, 1));
  EXPECT_TRUE(peer.receive_ran().status.ok());
  peer.close_channel();
  EXPECT_TRUE(proxy.ended().ok());
}

TEST(ServedProxy, MeasuresWaitingTimeFromArrival) {
  ProxyPeer peer(kMemory);
  executor::PuppetExecutor executor;
  ServedProxy proxy(peer, executor);
  peer.load(echo_model());
  ASSERT_TRUE(peer.receive_ready().status.ok());
  peer.send(batch(1, 1));
  executor.wait_until_started(1);

  RunBatch hurried = batch(2, 1);
  hurried.start_within = 2ms;
  peer.send(hurried);
  peer.send(batch(3, 1));
  peer.wait_until_read();
  // The proxy read the third batch, so it has stamped the second, whose window starts to close.
  const auto window_closed = std::chrono::steady_clock::now() + 20ms;
  while (std::chrono::steady_clock::now() < window_closed) std::this_thread::yield();
  executor.permit(2);

  EXPECT_TRUE(peer.receive_ran().status.ok());
  const BatchRan refused = peer.receive_ran();
  EXPECT_EQ(refused.id, BatchId{2});
  EXPECT_EQ(refused.status.code(), StatusCode::too_late);
  EXPECT_GT(refused.queued, hurried.start_within);
  EXPECT_TRUE(peer.receive_ran().status.ok());
  EXPECT_EQ(executor.started().size(), 2U);
  peer.send(StopProxy{});
  EXPECT_TRUE(proxy.ended().ok());
}

TEST(ServedProxy, FinishesBatchesSentBeforeTheStop) {
  ProxyPeer peer(kMemory);
  executor::PuppetExecutor executor;
  ServedProxy proxy(peer, executor);
  peer.load(echo_model());
  ASSERT_TRUE(peer.receive_ready().status.ok());
  for (std::uint64_t id = 1; id <= 3; ++id) peer.send(batch(id, 1));
  peer.send(StopProxy{});
  executor.permit(3);
  for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(peer.receive_ran().id, BatchId{id});
  EXPECT_TRUE(proxy.ended().ok());
}

TEST(ServedProxy, EndsAfterTheRunningBatchWhenItsPeerIsGone) {
  ProxyPeer peer(kMemory);
  executor::PuppetExecutor executor;
  ServedProxy proxy(peer, executor);
  peer.load(echo_model());
  ASSERT_TRUE(peer.receive_ready().status.ok());
  peer.send(batch(1, 1));
  executor.wait_until_started(1);
  peer.close_channel();
  executor.permit(1);
  // Either writing the answer fails, or the reader sees the end of the stream first.
  const Status status = proxy.ended();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::unavailable) << status.to_string();
}

TEST(ServedProxy, EndsWithMalformedOnBytesThatAreNotACommand) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), protocol::encode(ProxyMessage(BatchRan{})).head}) {
    ProxyPeer peer(kMemory);
    executor::PuppetExecutor executor;
    ServedProxy proxy(peer, executor);
    peer.send_bytes(bytes);
    EXPECT_EQ(proxy.ended().code(), StatusCode::malformed);
  }
}

TEST(ServedProxy, EndsWithMalformedOnATruncatedFrame) {
  const std::string frame = protocol::encode(ProxyCommand(batch(1, 1))).head;
  for (const std::size_t length : {std::size_t{5}, frame.size() - 1}) {
    ProxyPeer peer(kMemory);
    executor::PuppetExecutor executor;
    ServedProxy proxy(peer, executor);
    peer.send_bytes(frame.substr(0, length));
    peer.close_channel();
    EXPECT_EQ(proxy.ended().code(), StatusCode::malformed);
  }
}

}  // namespace
}  // namespace gpulet::proxy
