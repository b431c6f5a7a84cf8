// BackendDaemon with the simulated proxy program and a scripted frontend.
#include "backend/daemon.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "gpulet/base/sha256.h"
#include "gpulet/partition/drivers/drivers.h"
#include "tests/backend/frontend_end.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience(30);
constexpr std::size_t kRequestBytes = 16;
constexpr std::uint32_t kSimulated = 0;
constexpr std::uint32_t kPaced = 1;
constexpr std::uint32_t kDivided = 2;

const std::string kModelText = "the contents of a model file";
constexpr std::uint64_t kStoreBytes = 100;

std::string model_sha256() { return sha256_of(kModelText); }

std::shared_ptr<const profile::ProfileSet> profiles() {
  profile::Profile measured;
  measured.name = "sim";
  auto table = profile::LatencyTable::create(
      {{1, {20}, 1.0}, {4, {20}, 2.0}, {1, {100}, 1.0}, {4, {100}, 2.0}});
  measured.models.emplace("echo",
                          profile::ModelProfile{std::move(table).value(), {}, std::nullopt});
  return std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"sim", measured}});
}

HostedDevice device(std::uint32_t number, const std::string& partitioning,
                    std::unique_ptr<partition::PartitionDriver> driver) {
  HostedDevice made;
  made.offer.device.key = {"n0", number};
  made.offer.device.type = "sim";
  made.offer.device.partitioning = partitioning;
  made.offer.device.sizes = {{20}, {100}};
  made.offer.mechanism = driver->mechanism();
  made.offer.traits = driver->traits();
  made.driver = std::move(driver);
  made.proxy_program = GPULET_PROXY_SIMULATED;
  return made;
}

class BackendDaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config::BackendConfig config;
    config.node = "n0";
    config.frontends = {port_.address()};
    config.model_store = directory_.path();
    std::vector<HostedDevice> devices;
    devices.push_back(device(kSimulated, "simulated", partition::make_simulated_driver()));
    auto paced = partition::make_cpu_quota_driver(partition::usable_cores(),
                                                  partition::CpuMechanism::pacing);
    ASSERT_TRUE(paced.ok()) << paced.status().to_string();
    devices.push_back(device(kPaced, "cpu_quota", std::move(paced).value()));
    const auto geometry = partition::MigGeometry::of("a100-80").value();
    devices.push_back(
        device(kDivided, "simulated",
               partition::make_simulated_driver(partition::SimulatedInstances{geometry})));
    devices.back().offer.device.mig = geometry;
    auto store = store::ModelStore::open(directory_.path(), {.max_bytes = kStoreBytes});
    ASSERT_TRUE(store.ok());
    auto user = choose_proxy_user("");
    ASSERT_TRUE(user.ok()) << user.status().to_string();
    backend::Setup setup{config, std::move(devices), std::move(store).value(), profiles(),
                         std::move(user).value()};
    daemon_ = BackendDaemon::start(io_, std::move(setup));
    accept();
  }

  // Accepts the backend's next connection and welcomes it.
  void accept() {
    frontend_.reset();
    frontend_ = port_.accept(kPatience);
    ASSERT_NE(frontend_, nullptr);
    ASSERT_TRUE(run_until([this] { return !frontend_->heard<Hello>().empty(); }));
  }

  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  void ask(std::uint64_t gpulet, std::uint32_t on_device = kSimulated) {
    const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
    frontend_->say(
        CreateGpulet{{gpulet}, on_device, {20}, {{"echo", model_sha256(), {tensor}, {tensor}, 4}}});
  }
  // Requests a gpulet of a model other than "echo" and sends its file.
  void ask_and_give(std::uint64_t gpulet, char filling, std::size_t bytes) {
    const std::string text(bytes, filling);
    const auto view = std::as_bytes(std::span(text));
    const auto sha256 = sha256_of(text);
    const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
    const auto wanted = frontend_->heard<ModelPieceRequest>().size();
    frontend_->say(CreateGpulet{
        {gpulet}, kPaced, {20}, {{std::string(1, filling), sha256, {tensor}, {tensor}, 4}}});
    ASSERT_TRUE(run_until([&] { return frontend_->heard<ModelPieceRequest>().size() > wanted; }));
    frontend_->say(ModelPiece{sha256, 0, text.size(), Bytes::own({view.begin(), view.end()})});
  }
  [[nodiscard]] bool has_stored(char filling, std::size_t bytes) const {
    return std::filesystem::exists(directory_.path() /
                                   (sha256_of(std::string(bytes, filling)) + ".pt"));
  }
  void ask_in(std::uint64_t gpulet, partition::MigInstance instance) {
    const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
    CreateGpulet asked{{gpulet},
                       kDivided,
                       partition::MigGeometry::of("a100-80").value().share_of(instance.slices),
                       {{"echo", model_sha256(), {tensor}, {tensor}, 4}}};
    asked.instance = instance;
    frontend_->say(std::move(asked));
  }
  // The last report of the gpulet, once the condition holds.
  std::optional<GpuletReport> report_of(std::uint64_t gpulet, GpuletState state) {
    std::optional<GpuletReport> last;
    const bool came = run_until([&] {
      for (auto& report : frontend_->heard<GpuletReport>()) {
        if (report.id.value == gpulet) last = std::move(report);
      }
      return last && last->state == state;
    });
    return came ? last : std::nullopt;
  }
  [[nodiscard]] std::optional<GpuletState> last_state() const {
    const auto reports = frontend_->heard<GpuletReport>();
    return reports.empty() ? std::nullopt : std::optional(reports.back().state);
  }
  bool comes_to(GpuletState state) {
    return run_until([this, state] { return last_state() == state; });
  }
  void send_batch(std::uint64_t id, std::uint64_t gpulet, std::uint8_t filling = 1) {
    Batch batch;
    batch.id = {id};
    batch.gpulet = {gpulet};
    batch.model = "echo";
    batch.count = 2;
    batch.start_within = kPatience;
    batch.expected_duration = milliseconds(1);
    batch.inputs = {Bytes::own(std::vector<std::byte>(2 * kRequestBytes, std::byte{filling}))};
    frontend_->say(batch);
  }
  bool answered(std::size_t batches) {
    return run_until([this, batches] { return frontend_->heard<BatchResult>().size() >= batches; });
  }
  bool stop() {
    bool stopped = false;
    daemon_->stop([&] { stopped = true; });
    return run_until([&] { return stopped; });
  }

  support::TemporaryFolder directory_;
  asio::io_context io_{1};
  FrontendPort port_{io_};
  std::unique_ptr<BackendDaemon> daemon_;
  std::unique_ptr<FrontendEnd> frontend_;
};

TEST_F(BackendDaemonTest, OffersItsDevicesAndServesABatch) {
  const auto hello = frontend_->heard<Hello>().at(0);
  EXPECT_EQ(hello.node, "n0");
  ASSERT_EQ(hello.devices.size(), 3U);
  EXPECT_EQ(hello.devices[kSimulated].mechanism, "simulated");
  EXPECT_EQ(hello.devices[kPaced].mechanism, "pacing");
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  send_batch(7, 1, 42);
  ASSERT_TRUE(answered(1));
  const auto result = frontend_->heard<BatchResult>()[0];
  EXPECT_EQ(result.id, BatchId{7});
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_GE(result.executed, from_ms(1.0)) << "the profile's latency";
  ASSERT_EQ(result.outputs.size(), 2 * kRequestBytes);
  EXPECT_EQ(result.outputs.view().back(), std::byte{42});
}

TEST_F(BackendDaemonTest, AGpuletOccupiesItsInstance) {
  ask_in(1, {4, 0});
  const auto served = report_of(1, GpuletState::ready);
  ASSERT_TRUE(served);
  EXPECT_EQ(served->instance, (partition::MigInstance{4, 0}));
  ask_in(2, {3, 4});
  ASSERT_TRUE(report_of(2, GpuletState::ready));
  ask_in(3, {2, 2});
  const auto refused = report_of(3, GpuletState::restarting);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status.message(),
            "the instance 2g@2 cannot be created while 4g@0 is in use by gpulet 1");
  frontend_->say(RetireGpulet{{3}});
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(report_of(1, GpuletState::gone));
  ask_in(4, {2, 2});
  EXPECT_TRUE(report_of(4, GpuletState::ready)) << "the 3g beside it served on";
  send_batch(7, 2);
  ASSERT_TRUE(answered(1));
  EXPECT_TRUE(frontend_->heard<BatchResult>()[0].status.ok());
}

TEST_F(BackendDaemonTest, RunsProxiesWithoutRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may run processes as another user";
  ask(1, kPaced);
  ASSERT_TRUE(run_until([this] { return !frontend_->heard<ModelPieceRequest>().empty(); }));
  const auto bytes = std::as_bytes(std::span(kModelText));
  frontend_->say(
      ModelPiece{model_sha256(), 0, bytes.size(), Bytes::own({bytes.begin(), bytes.end()})});
  ASSERT_TRUE(comes_to(GpuletState::ready));
  const auto proxies = daemon_->proxies();
  ASSERT_EQ(proxies.size(), 1U);
  std::ifstream status("/proc/" + std::to_string(proxies[0]) + "/status");
  const std::string text((std::istreambuf_iterator<char>(status)), {});
  EXPECT_EQ(text.find("Uid:\t0"), std::string::npos) << text;
  EXPECT_NE(text.find("CapEff:\t0000000000000000"), std::string::npos) << text;
  EXPECT_NE(text.find("NoNewPrivs:\t1"), std::string::npos) << text;
  send_batch(7, 1);
  ASSERT_TRUE(answered(1));
  EXPECT_TRUE(frontend_->heard<BatchResult>()[0].status.ok());
}

TEST_F(BackendDaemonTest, AnswersEachOfManyBatchesOnce) {
  ask(1);
  ask(2);
  ASSERT_TRUE(run_until([this] {
    const auto reports = frontend_->heard<GpuletReport>();
    return std::count_if(reports.begin(), reports.end(), [](const auto& report) {
             return report.state == GpuletState::ready;
           }) == 2;
  }));
  constexpr std::size_t kBatches = 200;
  for (std::size_t id = 1; id <= kBatches; ++id) {
    send_batch(id, 1 + id % 2, static_cast<std::uint8_t>(id));
    if (id % 4 == 0) {
      ASSERT_TRUE(answered(id));
    }
  }
  std::vector<int> answers(kBatches + 1, 0);
  for (const auto& result : frontend_->heard<BatchResult>()) {
    ++answers[result.id.value];
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    ASSERT_EQ(result.outputs.view()[3], static_cast<std::byte>(result.id.value))
        << "somebody else's answer";
  }
  for (std::size_t id = 1; id <= kBatches; ++id) EXPECT_EQ(answers[id], 1) << id;
}

TEST_F(BackendDaemonTest, AnswersForAKilledProxyAndRestartsIt) {
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  ASSERT_EQ(daemon_->proxies().size(), 1U);
  const pid_t killed = daemon_->proxies()[0];
  ::kill(killed, SIGSTOP);  // it cannot answer before it dies
  send_batch(7, 1);
  send_batch(8, 1);
  // Received after the two batches, so the proxy has them by then.
  ask(1);
  const auto reports = frontend_->heard<GpuletReport>().size();
  ASSERT_TRUE(run_until([&] { return frontend_->heard<GpuletReport>().size() > reports; }));
  ::kill(killed, SIGKILL);
  ASSERT_TRUE(answered(2));
  for (const auto& result : frontend_->heard<BatchResult>()) {
    EXPECT_EQ(result.status.code(), StatusCode::unavailable);
  }
  // The last report may still be from before the kill.
  ASSERT_TRUE(run_until([&] {
    const auto all = frontend_->heard<GpuletReport>();
    return all.back().state == GpuletState::ready &&
           std::any_of(all.begin(), all.end(),
                       [](const auto& one) { return one.state == GpuletState::restarting; });
  }));
  ASSERT_EQ(daemon_->proxies().size(), 1U);
  EXPECT_NE(daemon_->proxies()[0], killed);
  send_batch(9, 1);
  ASSERT_TRUE(answered(3));
  EXPECT_TRUE(frontend_->heard<BatchResult>().back().status.ok());
}

TEST_F(BackendDaemonTest, ReportsItsGpuletsToAFrontendThatReturns) {
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  const auto proxies = daemon_->proxies();
  accept();
  const auto hello = frontend_->heard<Hello>().at(0);
  ASSERT_EQ(hello.gpulets.size(), 1U);
  EXPECT_EQ(hello.gpulets[0].state, GpuletState::ready);
  EXPECT_EQ(daemon_->proxies(), proxies);
  send_batch(7, 1);
  ASSERT_TRUE(answered(1));
  EXPECT_TRUE(frontend_->heard<BatchResult>()[0].status.ok());
}

TEST_F(BackendDaemonTest, FetchesAMissingModelOnce) {
  ask(1, kPaced);
  ASSERT_TRUE(run_until([this] { return !frontend_->heard<ModelPieceRequest>().empty(); }));
  EXPECT_EQ(frontend_->heard<ModelPieceRequest>()[0].sha256, model_sha256());
  const auto bytes = std::as_bytes(std::span(kModelText));
  const auto text = Bytes::own({bytes.begin(), bytes.end()});
  frontend_->say(ModelPiece{model_sha256(), 0, text.size(), text.slice(0, 10)});
  frontend_->say(ModelPiece{model_sha256(), 10, text.size(), text.slice(10, text.size() - 10)});
  ASSERT_TRUE(comes_to(GpuletState::ready));
  ask(2, kPaced);
  ASSERT_TRUE(run_until([this] {
    const auto report = frontend_->heard<GpuletReport>().back();
    return report.id == GpuletId{2} && report.state == GpuletState::ready;
  }));
  EXPECT_EQ(frontend_->heard<ModelPieceRequest>().size(), 1U);
}

TEST_F(BackendDaemonTest, EvictsOnlyFilesOfEndedGpulets) {
  ask_and_give(1, 'a', 60);
  ASSERT_TRUE(report_of(1, GpuletState::ready));
  ask_and_give(2, 'b', 60);
  const auto refused = report_of(2, GpuletState::failed);
  ASSERT_TRUE(refused) << "the store has room for one";
  EXPECT_EQ(refused->status.code(), StatusCode::unavailable);
  EXPECT_EQ(refused->cause, FailureCause::node_disk);
  EXPECT_TRUE(has_stored('a', 60));
  frontend_->say(RetireGpulet{{2}});
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(report_of(1, GpuletState::gone));
  ask_and_give(3, 'b', 60);
  ASSERT_TRUE(report_of(3, GpuletState::ready));
  EXPECT_FALSE(has_stored('a', 60));
  EXPECT_TRUE(has_stored('b', 60));
  // It restarts from its file, which was not evicted.
  ::kill(daemon_->proxies().at(0), SIGKILL);
  ASSERT_TRUE(report_of(3, GpuletState::restarting));
  ASSERT_TRUE(report_of(3, GpuletState::ready));
}

TEST_F(BackendDaemonTest, KeepsTwoWarmProxiesAndReplacesThem) {
  const auto warm = [this] { return daemon_->warm_proxies(); };
  ASSERT_TRUE(run_until([&] { return warm().size() == 2; }));
  const auto before = warm();
  ask(1, kSimulated);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  EXPECT_EQ(daemon_->proxies(), std::vector<pid_t>{before[0]});
  send_batch(7, 1);
  ASSERT_TRUE(answered(1));
  EXPECT_TRUE(frontend_->heard<BatchResult>()[0].status.ok());
  ASSERT_TRUE(run_until([&] { return warm().size() == 2; }));
  EXPECT_EQ(warm()[0], before[1]);

  ::kill(before[1], SIGKILL);
  ASSERT_TRUE(run_until([&] { return warm().size() == 2 && warm()[0] != before[1]; }));
  EXPECT_EQ(frontend_->heard<GpuletReport>().back().state, GpuletState::ready)
      << "no gpulet's failure";
}

TEST_F(BackendDaemonTest, AWarmProxyThatDiesIsAFailureOfItsGpulet) {
  ASSERT_TRUE(run_until([this] { return daemon_->warm_proxies().size() == 2; }));
  ::kill(daemon_->warm_proxies()[0], SIGSTOP);  // it can neither load nor answer
  ask(1, kSimulated);
  ASSERT_TRUE(run_until([this] { return daemon_->proxies().size() == 1; }));
  ::kill(daemon_->proxies()[0], SIGKILL);
  ASSERT_TRUE(comes_to(GpuletState::restarting));
  ASSERT_TRUE(comes_to(GpuletState::ready));
}

TEST_F(BackendDaemonTest, RetiresALoadingGpuletAtOnce) {
  ASSERT_TRUE(run_until([this] { return !daemon_->warm_proxies().empty(); }));
  ::kill(daemon_->warm_proxies()[0], SIGSTOP);
  ask(1, kSimulated);
  ASSERT_TRUE(run_until([this] { return daemon_->proxies().size() == 1; }));
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(comes_to(GpuletState::gone));
  EXPECT_TRUE(daemon_->proxies().empty());
}

TEST_F(BackendDaemonTest, FailsAGpuletWhoseModelIsMissing) {
  ask(1, kPaced);
  ASSERT_TRUE(run_until([this] { return !frontend_->heard<ModelPieceRequest>().empty(); }));
  frontend_->say(ModelPiece{model_sha256(), 0, 0, {}});
  ASSERT_TRUE(comes_to(GpuletState::failed));
  EXPECT_EQ(frontend_->heard<GpuletReport>().back().status.code(), StatusCode::not_found);
}

TEST_F(BackendDaemonTest, DisconnectsAMalformedFrontendAndKeepsItsGpulets) {
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  frontend_->send_rubbish();
  ASSERT_TRUE(run_until([this] { return frontend_->closed(); }));
  accept();
  EXPECT_EQ(frontend_->heard<Hello>().at(0).gpulets.size(), 1U);
}

TEST_F(BackendDaemonTest, ReconnectsAfterARefusalAndKeepsItsGpulets) {
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  for (int i = 0; i < 2; ++i) {
    frontend_->say(Refused{{StatusCode::invalid, "two nodes have this name"}});
    ASSERT_TRUE(run_until([this] { return frontend_->closed(); }));
    accept();
    EXPECT_EQ(frontend_->heard<Hello>().front().gpulets.size(), 1U);
  }
}

TEST_F(BackendDaemonTest, EndsARetiredGpulet) {
  ask(1, kSimulated);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  send_batch(7, 1);
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(comes_to(GpuletState::gone));
  EXPECT_TRUE(frontend_->heard<BatchResult>().at(0).status.ok()) << "what it held was finished";
  EXPECT_TRUE(daemon_->proxies().empty());
}

TEST_F(BackendDaemonTest, StopsCleanly) {
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  send_batch(7, 1);
  ask(1);  // the report confirms that the batch was received
  const auto reports = frontend_->heard<GpuletReport>().size();
  ASSERT_TRUE(run_until([&] { return frontend_->heard<GpuletReport>().size() > reports; }));
  bool stopped = false;
  daemon_->stop([&] { stopped = true; });
  ASSERT_TRUE(run_until([this] { return !frontend_->heard<Draining>().empty(); }));
  frontend_->say(RetireGpulet{{1}});  // other gpulets have replaced it
  ASSERT_TRUE(run_until([&] { return stopped && frontend_->closed(); }));
  ASSERT_EQ(frontend_->heard<BatchResult>().size(), 1U);
  EXPECT_TRUE(frontend_->heard<BatchResult>()[0].status.ok())
      << "what was in flight is answered first";
  EXPECT_EQ(last_state(), GpuletState::gone);
  EXPECT_TRUE(daemon_->proxies().empty());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(BackendDaemonTest, StopsWithoutAFrontend) {
  port_.close();
  frontend_.reset();
  EXPECT_TRUE(stop());
}

TEST_F(BackendDaemonTest, LeavesNoProcessWhenDestroyed) {
  ask(1);
  ASSERT_TRUE(comes_to(GpuletState::ready));
  send_batch(7, 1);
  daemon_.reset();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  io_.restart();
  frontend_.reset();
  io_.run_for(milliseconds(10));
}

}  // namespace
}  // namespace gpulet::backend
