// A backend that keeps processes for later gpulets.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <vector>

#include "tests/backend/gpu_backend.h"

namespace gpulet::backend {
namespace {

constexpr double kDeviceMegabytes = 143771;

class ParkedBackendTest : public GpuBackendTest {
 protected:
  void start(double memory_mb, bool load_ahead = false) {
    parking_ = {static_cast<std::uint32_t>(memory_mb), load_ahead};
    GpuBackendTest::start("mps");
  }
  // Returns the process that serves the gpulet.
  pid_t serve(std::uint64_t gpulet, int percent, double memory_mb) {
    const std::vector<pid_t> before = daemon_->proxies();
    ask(gpulet, percent, memory_mb);
    EXPECT_TRUE(run_until([&] { return is(gpulet, GpuletState::ready); }));
    for (const pid_t process : daemon_->proxies()) {
      if (std::find(before.begin(), before.end(), process) == before.end()) return process;
    }
    return 0;
  }
  void retire(std::uint64_t gpulet) {
    frontend_->say(RetireGpulet{{gpulet}});
    ASSERT_TRUE(run_until([&] { return is(gpulet, GpuletState::gone); }));
  }
  void expect_service(std::uint64_t batch, std::uint64_t gpulet) {
    send_batch(batch, gpulet);
    ASSERT_TRUE(run_until([&] { return results().contains(batch); }));
    EXPECT_EQ(results().at(batch), StatusCode::ok);
  }
  static bool exists(pid_t process) { return ::kill(process, 0) == 0; }
};

TEST_F(ParkedBackendTest, AProcessServesALaterGpuletOfTheSameShare) {
  start(2000);
  const pid_t process = serve(1, 40, 500);
  expect_service(1, 1);
  retire(1);
  EXPECT_EQ(daemon_->parked_proxies(), std::vector<pid_t>{process});
  EXPECT_NE(serve(2, 80, 500), process);
  EXPECT_EQ(serve(3, 40, 500), process);
  EXPECT_TRUE(daemon_->parked_proxies().empty());
  EXPECT_EQ(last_report(3)->found, (partition::FoundShare{true, 52, 132}));
  expect_service(2, 3);
  retire(3);
  EXPECT_EQ(serve(4, 40, 500), process) << "again";
}

TEST_F(ParkedBackendTest, NoProcessStaysWithoutRoom) {
  start(0);
  const pid_t process = serve(1, 40, 500);
  retire(1);
  EXPECT_TRUE(daemon_->parked_proxies().empty());
  EXPECT_FALSE(exists(process));
}

TEST_F(ParkedBackendTest, TheOldestEndsWhereThereAreTooMany) {
  start(1100);
  const pid_t first = serve(1, 20, 500);
  const pid_t second = serve(2, 40, 500);
  const pid_t third = serve(3, 80, 500);
  for (const std::uint64_t gpulet : {1U, 2U, 3U}) retire(gpulet);
  ASSERT_TRUE(run_until([&] { return daemon_->parked_proxies().size() == 2; }));
  EXPECT_FALSE(exists(first));
  EXPECT_EQ(daemon_->parked_proxies(), (std::vector<pid_t>{second, third}));
}

TEST_F(ParkedBackendTest, AGpuletWaitsForTheMemoryOfAParkedProcess) {
  start(kDeviceMegabytes);
  const pid_t parked = serve(1, 40, 0.6 * kDeviceMegabytes);
  retire(1);
  ASSERT_EQ(daemon_->parked_proxies(), std::vector<pid_t>{parked});
  ask(2, 80, 0.5 * kDeviceMegabytes);
  ASSERT_TRUE(run_until([&] { return !daemon_->proxies().empty(); }));
  EXPECT_FALSE(exists(parked)) << "before the next process started";
  ASSERT_TRUE(run_until([&] { return is(2, GpuletState::ready); }));
  expect_service(1, 2);
}

TEST_F(ParkedBackendTest, AGpuletThatWaitsCanBeRetired) {
  start(kDeviceMegabytes);
  serve(1, 40, 0.6 * kDeviceMegabytes);
  retire(1);
  ask(2, 80, 0.5 * kDeviceMegabytes);
  frontend_->say(RetireGpulet{{2}});
  ASSERT_TRUE(run_until([&] { return is(2, GpuletState::gone); }));
  ASSERT_TRUE(run_until([&] { return daemon_->parked_proxies().empty(); }));
  EXPECT_TRUE(daemon_->proxies().empty());
}

TEST_F(ParkedBackendTest, AParkedProcessThatEndsIsForgotten) {
  start(2000);
  const pid_t process = serve(1, 40, 500);
  retire(1);
  ::kill(process, SIGKILL);
  ASSERT_TRUE(run_until([&] { return daemon_->parked_proxies().empty(); }));
  EXPECT_NE(serve(2, 40, 500), process);
}

TEST_F(ParkedBackendTest, AFaultOfTheDeviceEndsThem) {
  start(2000);
  serve(1, 40, 500);
  retire(1);
  serve(2, 80, 500);
  mps_.set("fault");
  send_batch(1, 2);
  ASSERT_TRUE(run_until([&] { return daemon_->parked_proxies().empty(); }));
  mps_.clear("fault");
  ASSERT_TRUE(run_until([&] { return is(2, GpuletState::ready); }));
}

TEST_F(ParkedBackendTest, ProcessesAreLoadedAheadAtTheSizesBeside) {
  start(2000, true);
  serve(1, 40, 500);
  ASSERT_TRUE(run_until([&] { return daemon_->parked_proxies().size() == 2; }));
  const std::vector<pid_t> ahead = daemon_->parked_proxies();
  ASSERT_TRUE(run_until([&] {
    return std::all_of(ahead.begin(), ahead.end(),
                       [&](pid_t process) { return !environment_of(process).empty(); });
  }));
  const auto share = [&](pid_t process) {
    const std::string text = environment_of(process);
    const std::string name = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=";
    return std::stoi(text.substr(text.find(name) + name.size()));
  };
  EXPECT_EQ(share(ahead[0]), 80);
  EXPECT_EQ(share(ahead[1]), 20);
  EXPECT_EQ(serve(2, 80, 500), ahead[0]);
  expect_service(1, 2);
}

TEST_F(ParkedBackendTest, ItsDestructorEndsThem) {
  start(2000);
  const pid_t process = serve(1, 40, 500);
  retire(1);
  daemon_.reset();
  EXPECT_FALSE(exists(process));
}

}  // namespace
}  // namespace gpulet::backend
