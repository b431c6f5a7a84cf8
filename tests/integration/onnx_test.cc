// ONNX models on a real backend: which program serves them, and what it answers. The frontend is
// scripted; the program of other models is a simulated one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/daemon.h"
#include "gpulet/base/sha256.h"
#include "gpulet/partition/drivers/drivers.h"
#include "tests/backend/frontend_end.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchscript_archive.h"

namespace gpulet::backend::onnx_test {
namespace {

namespace asio = net::asio;
namespace onnx = support::onnx;

constexpr std::chrono::seconds kPatience(60);
constexpr std::uint64_t kMostWarmBytes = 60 * kBytesPerMegabyte;

std::string program(const char* name) { return std::string(GPULET_BINARY_DIR) + "/bin/" + name; }

// y = 2 x
std::string twice() {
  return encode(onnx::Model{.inputs = {{"x", onnx::kFloat, {{"n", 2}}}},
                            .outputs = {{"y", onnx::kFloat, {{"n", 2}}}},
                            .nodes = {{"Add", {"x", "x"}, {"y"}}}});
}
std::string archive() { return support::archive(support::kMembers, true); }

// The first characters of the program's name.
std::string name_of(pid_t process) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/comm"), name);
  return name;
}
bool is_onnx(pid_t process) {
  return std::string_view("gpulet-proxy-onnx").starts_with(name_of(process));
}

std::uint64_t resident_bytes(pid_t process) {
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/" + std::to_string(process) + "/statm") >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

class OnnxBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config::BackendConfig config;
    config.node = "n0";
    config.warm_proxies = 1;
    config.frontends = {port_.address()};
    auto driver = partition::make_cpu_quota_driver(partition::usable_cores());
    ASSERT_TRUE(driver.ok()) << driver.status().to_string();
    HostedDevice device;
    device.offer.device.key = {"n0", 0};
    device.offer.device.type = "cpu";
    device.offer.device.partitioning = "cpu_quota";
    device.driver = std::move(driver).value();
    device.proxy_program = program("gpulet-proxy-simulated");
    device.onnx_program = program("gpulet-proxy-onnx");
    std::vector<HostedDevice> devices;
    devices.push_back(std::move(device));
    // If this runs as root, proxies run as another user.
    auto store = store::ModelStore::open(folder_.path() / "store", {.readable_by_others = true});
    auto user = choose_proxy_user("");
    ASSERT_TRUE(store.ok() && user.ok());
    daemon_ = BackendDaemon::start(io_, {config, std::move(devices), std::move(store).value(),
                                         nullptr, std::move(user).value()});
    frontend_ = port_.accept(kPatience);
    ASSERT_NE(frontend_, nullptr);
  }

  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  // Starts a gpulet with these models, by file content, and returns its last report.
  GpuletReport make_gpulet(const std::vector<std::string>& files) {
    const TensorSpec x{"x", DataType::fp32, {2}};
    const TensorSpec y{"y", DataType::fp32, {2}};
    return make_gpulet(files, {.inputs = {x}, .outputs = {y}, .max_batch = 4});
  }
  // The models are declared as that one.
  GpuletReport make_gpulet(const std::vector<std::string>& files, ModelToServe declared) {
    CreateGpulet create{{1}, 0, {50}, {}};
    std::map<std::string, std::string> contents;
    for (const std::string& file : files) {
      contents.emplace(sha256_of(file), file);
      declared.name = "m" + std::to_string(create.models.size());
      declared.sha256 = sha256_of(file);
      create.models.push_back(declared);
    }
    frontend_->say(create);
    std::size_t given = 0;
    GpuletReport last;
    const bool came = run_until([&] {
      const auto wanted = frontend_->heard<ModelPieceRequest>();
      for (; given < wanted.size(); ++given) give(contents.at(wanted[given].sha256));
      for (const GpuletReport& report : frontend_->heard<GpuletReport>()) last = report;
      return last.state == GpuletState::ready || last.state == GpuletState::failed;
    });
    EXPECT_TRUE(came);
    return last;
  }

  Result<std::vector<float>> run(const std::vector<float>& input, std::uint32_t count = 0) {
    Batch batch;
    batch.id = {1};
    batch.gpulet = {1};
    batch.model = "m0";
    batch.count = count > 0 ? count : static_cast<std::uint32_t>(input.size() / 2);
    batch.start_within = kPatience;
    const auto bytes = std::as_bytes(std::span(input));
    batch.inputs = {Bytes::own({bytes.begin(), bytes.end()})};
    frontend_->say(batch);
    EXPECT_TRUE(run_until([this] { return !frontend_->heard<BatchResult>().empty(); }));
    const BatchResult result = frontend_->heard<BatchResult>().front();
    if (!result.status.ok()) return result.status;
    std::vector<float> output(result.outputs.size() / sizeof(float));
    std::memcpy(output.data(), result.outputs.view().data(), result.outputs.size());
    return output;
  }

  support::TemporaryFolder folder_;
  asio::io_context io_;
  FrontendPort port_{io_};
  std::unique_ptr<BackendDaemon> daemon_;
  std::unique_ptr<FrontendEnd> frontend_;

 private:
  void give(const std::string& file) {
    const auto bytes = std::as_bytes(std::span(file));
    frontend_->say(
        ModelPiece{sha256_of(file), 0, bytes.size(), Bytes::own({bytes.begin(), bytes.end()})});
  }
};

TEST_F(OnnxBackendTest, ServesOnnxModelsByTheirOwnProgram) {
  const GpuletReport report = make_gpulet({twice()});
  ASSERT_EQ(report.state, GpuletState::ready) << report.status.to_string();
  EXPECT_TRUE(is_onnx(daemon_->proxies().at(0))) << name_of(daemon_->proxies().at(0));
  const auto output = run({1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_EQ(output.value(), (std::vector<float>{2, 4, 6, 8, 10, 12}));
}

TEST_F(OnnxBackendTest, ServesModelsWithoutABatchDimension) {
  namespace onnx = support::onnx;
  const onnx::Model model{
      .inputs = {{"state", onnx::kFloat, std::vector<onnx::Dimension>{2, "n", 1}},
                 {"rate", onnx::kFloat, std::vector<onnx::Dimension>{}}},
      .outputs = {{"next", onnx::kFloat, std::vector<onnx::Dimension>{2, "n", 1}}},
      .nodes = {{"Mul", {"state", "rate"}, {"next"}}}};
  ModelToServe declared{
      .inputs = {{"state", DataType::fp32, {2, 1, 1}}, {"rate", DataType::fp32, {}}},
      .outputs = {{"next", DataType::fp32, {2, 1, 1}}},
      .max_batch = 1};
  for (TensorSpec& input : declared.inputs) input.whole = true;
  declared.outputs[0].whole = true;
  declared.inputs[1].range = ValueRange{2, 2};
  const GpuletReport report = make_gpulet({encode(model)}, declared);
  ASSERT_EQ(report.state, GpuletState::ready) << report.status.to_string();
  const auto output = run({3, 4, 10}, 1);
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_EQ(output.value(), (std::vector<float>{30, 40}));
}

TEST_F(OnnxBackendTest, KeepsSmallWarmProcessesOfIt) {
  ASSERT_EQ(make_gpulet({twice()}).state, GpuletState::ready);
  pid_t warm = 0;
  ASSERT_TRUE(run_until([&] {
    for (const pid_t process : daemon_->warm_proxies()) {
      if (is_onnx(process)) warm = process;
    }
    return warm != 0;
  }));
  if (!std::string_view(GPULET_SANITIZERS).empty()) return;
  EXPECT_LE(resident_bytes(warm), kMostWarmBytes);
  RecordProperty("warm_bytes", std::to_string(resident_bytes(warm)));
}

TEST_F(OnnxBackendTest, ServesOtherModelsByTheOtherProgram) {
  ASSERT_EQ(make_gpulet({archive()}).state, GpuletState::ready);
  EXPECT_FALSE(is_onnx(daemon_->proxies().at(0)));
}

TEST_F(OnnxBackendTest, ServesBothKindsInOneGpuletByTheOtherProgram) {
  ASSERT_EQ(make_gpulet({twice(), archive()}).state, GpuletState::ready);
  EXPECT_FALSE(is_onnx(daemon_->proxies().at(0)));
}

TEST_F(OnnxBackendTest, BlamesTheFileForItsFaults) {
  const GpuletReport report = make_gpulet({"no model"});
  EXPECT_EQ(report.state, GpuletState::failed);
  EXPECT_EQ(report.cause, FailureCause::model_file);
}

TEST(OnnxSetup, FindsTheProgramUnlessAnotherOneIsConfigured) {
  const support::TemporaryFolder folder;
  config::BackendConfig config;
  config.node = "n0";
  config.model_store = folder.path() / "store";
  config.devices.resize(1);
  config.devices[0].type = "cpu";
  config.devices[0].partitioning = "cpu_quota";
  auto setup = make_setup(config);
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  EXPECT_EQ(setup.value().devices.at(0).proxy_program, program("gpulet-proxy"));
  EXPECT_EQ(setup.value().devices.at(0).onnx_program, program("gpulet-proxy-onnx"));
  config.proxy = program("gpulet-proxy");
  setup = make_setup(config);
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  EXPECT_TRUE(setup.value().devices.at(0).onnx_program.empty());
}

}  // namespace
}  // namespace gpulet::backend::onnx_test
