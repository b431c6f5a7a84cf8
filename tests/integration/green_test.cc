// A GPU with green contexts, all of it fake: one process serves all of its gpulets.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gpulet/gpu/cuda_driver.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mps.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

ClusterChanges planning_every_second() {
  return {.frontend = [](config::FrontendConfig& config) { config.period = seconds(1); },
          .backend = {}};
}

class GreenTest : public ::testing::Test {
 protected:
  GreenTest() {
    cluster_.add_gpu_backend("n0", "green",
                             {.nvml = support::FakeGpus::nvml(),
                              .cuda = support::FakeGpus::cuda(),
                              .query_cuda = [this](const auto&) { return found_; },
                              .mps = folder_.options()});
    cluster_.wait_until_serving();
  }
  std::set<std::uint64_t> gpulets() {
    std::set<std::uint64_t> ids;
    for (const auto& gpulet : cluster_.status().gpulets) ids.insert(gpulet.id.value);
    return ids;
  }
  void expect_each_served_once(std::uint64_t end) {
    ASSERT_TRUE(
        client_.run_until([&] { return client_.replies().size() == end - 1; }, seconds(15)));
    for (std::uint64_t tag = 1; tag < end; ++tag) {
      const auto& replies = client_.replies().at(tag);
      EXPECT_EQ(replies.size(), 1U) << "request " << tag;
      EXPECT_TRUE(replies[0].status.ok()) << tag << ": " << replies[0].status.to_string();
    }
  }
  // As many blocks of 8 of the 132 SMs as fit in the share, none of them shared.
  static bool has_its_sms(const serve::GpuletRecord& gpulet) {
    const auto percent = static_cast<std::uint32_t>(gpulet.size.percent);
    const std::uint32_t sms = percent == 100 ? 132 : 132 * percent / 100 / 8 * 8;
    EXPECT_TRUE(gpulet.found.held);
    EXPECT_LE(gpulet.found.sms, sms);
    return gpulet.condition.sms == sms && gpulet.condition.shared_sms == 0;
  }
  bool all_have_their_sms() {
    const auto status = cluster_.status();
    const auto ends = [](const serve::GpuletStatus& one) {
      return one.gpulet.state != GpuletState::ready || one.gpulet.retiring;
    };
    return !std::all_of(status.gpulets.begin(), status.gpulets.end(), ends) &&
           std::all_of(status.gpulets.begin(), status.gpulets.end(),
                       [&](const auto& one) { return ends(one) || has_its_sms(one.gpulet); });
  }
  // A gpulet that grows does so once the old ones are gone, and tells it after a batch. The next
  // plan may be in progress. Returns the next tag.
  std::uint64_t expect_sms_of_the_shares(std::uint64_t end) {
    for (int round = 0; round < 30 && !all_have_their_sms(); ++round) {
      end = client_.load(byte_request("b", 0), 20, std::chrono::milliseconds(300), end, 7,
                         seconds(10));
      client_.send(byte_request("a", end++));
    }
    EXPECT_TRUE(all_have_their_sms());
    return end;
  }

  static constexpr const char* kUuid = "GPU-11111111-2222-3333-4444-555555555555";
  const support::FakeGpus gpus_{std::string("gpu\nuuid ") + kUuid + "\nmemory_mib 81920\n"};
  // The query forks. AddressSanitizer's allocator, unlike glibc's, may be locked in a child forked
  // beside other threads, so the query precedes the cluster.
  const std::vector<gpu::CudaQueryResult> found_ =
      gpu::query_cuda({.uuids = {kUuid}, .library = support::FakeGpus::cuda()});
  const support::FakeMps folder_;
  Cluster cluster_{{{"a", 4, 10'000, 40}, {"b", 4, 10'000, 40}}, {}, planning_every_second()};
  StreamClient client_{cluster_.client_port()};
};

TEST_F(GreenTest, AChangeOfPlanUnderLoadNeedsNoProcessAndFailsNoRequest) {
  const auto processes = cluster_.proxies("n0");
  ASSERT_EQ(processes.size(), 1U);
  const auto before = gpulets();
  std::uint64_t end = expect_sms_of_the_shares(1);
  for (std::uint64_t round = 1; round <= 15 && gpulets() == before; ++round) {
    end = client_.load(byte_request("b", 0), 300, std::chrono::milliseconds(500), end, round,
                       seconds(10));
    client_.send(byte_request("a", end++));
  }
  ASSERT_NE(gpulets(), before) << "the plan did not change";
  end = client_.load(byte_request("b", 0), 300, seconds(1), end, 99, seconds(10));
  expect_each_served_once(end);
  ASSERT_TRUE(client_.run_until([&] { return !cluster_.status().reorganising; }, seconds(15)));
  EXPECT_EQ(cluster_.proxies("n0"), processes);
  const auto loaded = folder_.recorded("loaded");
  EXPECT_EQ(std::count(loaded.begin(), loaded.end(), '\n'), 2) << loaded;
  expect_each_served_once(expect_sms_of_the_shares(end));
}

TEST_F(GreenTest, TheDeathOfTheProcessFailsNoRequest) {
  const auto before = cluster_.proxies("n0");
  std::uint64_t end = 1;
  for (int k = 0; k < 4; ++k) client_.send(byte_request("a", end++));
  for (int k = 0; k < 4; ++k) client_.send(byte_request("b", end++));
  for (const pid_t process : before) ::kill(process, SIGKILL);
  end = client_.load(byte_request("b", 0), 40, seconds(1), end, 2, seconds(10));
  expect_each_served_once(end);
  ASSERT_EQ(cluster_.proxies("n0").size(), 1U);
  EXPECT_NE(cluster_.proxies("n0"), before);
}

}  // namespace
}  // namespace gpulet::testing
