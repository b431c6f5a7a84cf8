// Proxies and backends that die under load: every request gets exactly one answer, and serving
// continues.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpulet/gpu/cuda_driver.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mps.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

struct Outcome {
  std::size_t served = 0;
  std::size_t refused = 0;
};

Outcome one_answer_each(const StreamClient& client, std::uint64_t first, std::uint64_t end) {
  Outcome outcome;
  for (std::uint64_t tag = first; tag < end; ++tag) {
    const auto found = client.replies().find(tag);
    const std::size_t answers = found == client.replies().end() ? 0 : found->second.size();
    EXPECT_EQ(answers, 1U) << "request " << tag;
    if (answers == 0) continue;
    if (found->second[0].status.ok()) {
      ++outcome.served;
    } else {
      ++outcome.refused;
    }
  }
  return outcome;
}

// Stops the processes. A signal takes effect when the kernel next runs the process's main thread;
// on a busy machine its other threads still work until then.
void stop(const std::vector<pid_t>& processes) {
  const auto is_stopped = [](pid_t process) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    std::getline(stat, text);
    const std::size_t name_ends = text.rfind(')');  // the name may hold any other character
    // Gone, stopped, or a zombie.
    return name_ends == std::string::npos ||
           std::string_view("TZ").find(text.at(name_ends + 2)) != std::string_view::npos;
  };
  for (const pid_t process : processes) ::kill(process, SIGSTOP);
  for (const pid_t process : processes) {
    while (!is_stopped(process)) std::this_thread::yield();
  }
}

TEST(FailuresTest, AKilledProxyIsReplacedUnderLoad) {
  Cluster cluster({{"a", 4, 3000, 60}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  const InferRequest request = byte_request("a", 0);
  std::uint64_t end = client.load(request, 60, seconds(1), 1, 1, seconds(10));
  for (int i = 0; i < 3; ++i) {
    // Sends requests before the kill and waits for answers after it, so that the proxy dies with a
    // batch.
    for (int k = 0; k < 4; ++k) client.send(byte_request("a", end++));
    for (const pid_t proxy : cluster.proxies("n0")) ::kill(proxy, SIGKILL);
    end = client.load(request, 60, seconds(1), end, static_cast<std::uint64_t>(i) + 2, seconds(10));
  }
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == end - 1; }, seconds(15)));
  const Outcome outcome = one_answer_each(client, 1, end);
  EXPECT_EQ(outcome.refused, 0U);  // a restart takes far less than the SLO
}

// The batch does not end, and the hang is not detected yet.
TEST(FailuresTest, ARequestOnAStoppedProxyIsAnsweredAtItsDeadline) {
  Cluster cluster({{"a", 4, 3000, 20}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  stop(cluster.proxies("n0"));
  InferRequest request = byte_request("a", 1);
  request.timeout = std::chrono::milliseconds(500);
  const auto reply = client.ask(request, seconds(15));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->status.code(), StatusCode::too_late);
  for (const pid_t proxy : cluster.proxies("n0")) ::kill(proxy, SIGCONT);
  const auto discarded = [&] { return cluster.status().models.at(0).counters.discarded == 1; };
  EXPECT_TRUE(client.run_until(discarded, seconds(10)));
  const serve::ModelCounters counters = cluster.status().models.at(0).counters;
  EXPECT_EQ(counters.discarded, 1U);
  EXPECT_EQ(counters.overdue, 1U);
  EXPECT_EQ(counters.dropped, 1U);
  EXPECT_EQ(counters.served, 0U);
  EXPECT_EQ(counters.failed, 0U);
  EXPECT_EQ(cluster.status().models.at(0).crashes, 0U);
}

// The stopped process is killed, and another one runs its batches.
TEST(FailuresTest, AStoppedProxyIsReplacedAsHung) {
  Cluster cluster({{"a", 4, 15000, 20}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  const auto before = cluster.proxies("n0");
  stop(before);
  const auto reply = client.ask(byte_request("a", 1), seconds(12));
  ASSERT_TRUE(reply.has_value());
  EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
  for (const pid_t proxy : cluster.proxies("n0"))
    EXPECT_EQ(std::count(before.begin(), before.end(), proxy), 0) << "a stopped process";
  EXPECT_EQ(cluster.status().models.at(0).crashes, 0U);
}

TEST(FailuresTest, AStoppedProxyFailsNoRequestIfAnotherServes) {
  Cluster cluster({{"a", 4, 8000, 40}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  cluster.add_backend("n1");
  StreamClient client(cluster.client_port());
  stop(cluster.proxies("n0"));
  const std::uint64_t end = client.load(byte_request("a", 0), 20, seconds(1), 1, 1, seconds(15));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == end - 1; }, seconds(15)));
  EXPECT_EQ(one_answer_each(client, 1, end).refused, 0U);
}

TEST(FailuresTest, AKilledBackendIsReplacedByAnotherNode) {
  Cluster cluster({{"a", 4, 5000, 40}, {"b", 4, 5000, 40}});
  const pid_t victim = cluster.spawn_backend("n0");
  cluster.add_backend("n1");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  std::uint64_t end = client.load(byte_request("a", 0), 40, seconds(1), 1, 1, seconds(10));
  end = client.load(byte_request("b", 0), 40, seconds(1), end, 2, seconds(10));
  for (int k = 0; k < 4; ++k) client.send(byte_request("a", end++));
  ::kill(victim, SIGKILL);
  end = client.load(byte_request("a", 0), 40, seconds(2), end, 3, seconds(10));
  end = client.load(byte_request("b", 0), 40, seconds(2), end, 4, seconds(10));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == end - 1; }, seconds(15)));
  const Outcome outcome = one_answer_each(client, 1, end);
  EXPECT_EQ(outcome.refused, 0U);  // the other node takes over well within the SLO
  EXPECT_EQ(cluster.status().backends.size(), 1U);
}

TEST(FailuresTest, ASilentBackendIsDisconnectedAndMayReturn) {
  Cluster cluster({{"a", 4, 8000, 40}});
  const pid_t sleeper = cluster.spawn_backend("n0");
  cluster.wait_until_serving();
  cluster.add_backend("n1");
  StreamClient client(cluster.client_port());
  ASSERT_TRUE(client.run_until([&] { return cluster.status().backends.size() == 2; }, seconds(10)));
  ::kill(sleeper, SIGSTOP);
  const std::uint64_t end = client.load(byte_request("a", 0), 40, seconds(1), 1, 1, seconds(15));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == end - 1; }, seconds(15)));
  EXPECT_EQ(one_answer_each(client, 1, end).refused, 0U);
  ::kill(sleeper, SIGCONT);
  EXPECT_TRUE(client.run_until([&] { return cluster.status().backends.size() == 2; }, seconds(20)));
}

TEST(FailuresTest, ADisconnectedClientAffectsNoOther) {
  Cluster cluster({{"a", 4, 2000, 60}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  StreamClient steady(cluster.client_port());
  std::uint64_t end = 1;
  for (int i = 0; i < 5; ++i) {
    {
      StreamClient fleeting(cluster.client_port());
      for (std::uint64_t tag = 1; tag <= 20; ++tag) fleeting.send(byte_request("a", tag));
      fleeting.run_until([&] { return !fleeting.replies().empty(); }, seconds(5));
    }
    end =
        steady.load(byte_request("a", 0), 40, std::chrono::milliseconds(300), end, 3, seconds(10));
  }
  ASSERT_TRUE(steady.run_until([&] { return steady.replies().size() == end - 1; }, seconds(10)));
  EXPECT_EQ(one_answer_each(steady, 1, end).refused, 0U);
}

TEST(FailuresTest, AFatalGpuFaultEndsItsProcessesAndFailsNoRequest) {
  const support::FakeGpus gpus("gpu\nuuid GPU-1234\nmemory_mib 81920\n");
  const support::FakeMps mps;
  Cluster cluster({{"a", 4, 10'000, 40}, {"b", 4, 10'000, 40}});
  // The query of CUDA forks, which needs a process without other threads.
  const Status no_cuda(StatusCode::unavailable, "no CUDA");
  cluster.add_gpu_backend("n0", "mps",
                          {.nvml = support::FakeGpus::nvml(),
                           .query_cuda =
                               [&](const auto&) {
                                 return std::vector{gpu::CudaQueryResult{no_cuda, no_cuda}};
                               },
                           .mps = mps.options()});
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  std::uint64_t end = client.load(byte_request("a", 0), 40, seconds(1), 1, 1, seconds(10));
  const auto before = cluster.proxies("n0");
  mps.set("status", "FAULT\n");
  mps.set("fault");
  for (int k = 0; k < 4; ++k) client.send(byte_request("a", end++));
  for (int k = 0; k < 4; ++k) client.send(byte_request("b", end++));
  ASSERT_TRUE(client.run_until([&] { return !mps.recorded("refused").empty(); }, seconds(10)));
  mps.clear("fault");
  mps.clear("status");
  end = client.load(byte_request("b", 0), 40, seconds(1), end, 2, seconds(10));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == end - 1; }, seconds(15)));
  EXPECT_EQ(one_answer_each(client, 1, end).refused, 0U);
  for (const pid_t process : cluster.proxies("n0")) {
    EXPECT_EQ(std::count(before.begin(), before.end(), process), 0)
        << "a process from before the fault";
  }
}

}  // namespace
}  // namespace gpulet::testing
