#include "tests/executor/boundary/inside.h"

#include <stdexcept>
#include <string>

#include "gpulet/executor/simulated_executor.h"

namespace {

using namespace gpulet;
using namespace gpulet::executor;

class Running final : public RunningBatch {
 public:
  Running(SimulatedExecutor& executor, const BatchToRun& batch)
      : executor_(executor), model_(batch.model), batch_(batch) {}

  Result<std::size_t> finish() override {
    batch_.model = model_;
    return executor_.run(batch_);
  }

 private:
  SimulatedExecutor& executor_;
  std::string model_;
  BatchToRun batch_;
};

// Runs batches as SimulatedExecutor does, and returns in its results what it was given.
class EchoExecutor final : public Executor {
 public:
  explicit EchoExecutor(Share share = kWholeDevice) : share_(share) {}

  void use_memory(std::span<std::byte> memory) override { memory_ = memory; }
  Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{.held = true,
                                 .sms = static_cast<std::uint32_t>(share_.percent),
                                 .device_sms = static_cast<std::uint32_t>(memory_.size())};
  }
  partition::DeviceHealth health() const override { return partition::DeviceHealth::not_ready; }
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    if (model.name == "throws") throw std::runtime_error("thrown while '" + model.name + "' loads");
    if (model.name == "throws a number") throw 7;
    if (model.file.empty()) return Status(StatusCode::not_found, "no file");
    if (!executor_.load(model).ok()) return executor_.load(model).status();
    numerics_ = model.numerics;
    planned_ = model.planned_batches;
    conversion_ = conversion_text(model.inputs.front());
    return model.variant + model.max_batch;
  }
  partition::LoadStages load_stages() const override {
    return {.read = std::chrono::milliseconds(planned_.size()),
            .capture = std::chrono::milliseconds(planned_.empty() ? 0 : planned_.back())};
  }
  void serving() override { serving_ = true; }
  std::optional<partition::ProcessCondition> condition() const override {
    if (!serving_) return {};
    return partition::ProcessCondition{.sms = 3, .shared_sms = 2, .sizes_to_capture = 1};
  }
  std::string failure_text() const override {
    return conversion_.empty() ? "its own words: 13" : conversion_;
  }
  double error_of(std::uint32_t variant) const override {
    return numerics_.precision == Precision::half && numerics_.channels_last
               ? numerics_.largest_error * variant
               : 0;
  }
  Result<std::size_t> run(const BatchToRun& batch) override { return executor_.run(batch); }
  std::size_t depth() const override { return 2; }
  Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override {
    if (batch.count == 0) return Status(StatusCode::invalid, "a batch of nothing");
    return std::unique_ptr<RunningBatch>(std::make_unique<Running>(executor_, batch));
  }

 private:
  const Share share_;
  std::span<std::byte> memory_;
  Numerics numerics_;
  std::vector<std::uint32_t> planned_;
  std::string conversion_;  // of the first input
  bool serving_ = false;
  SimulatedExecutor executor_;
};

class Device final : public SharedDevice {
 public:
  Result<std::unique_ptr<Executor>> add_executor(Share share,
                                                 std::span<const std::string> models) override {
    if (!share.valid() || models.size() != 2 || models.back() != "b")
      return Status(StatusCode::unavailable, "a share of " + std::to_string(share.percent));
    return std::unique_ptr<Executor>(std::make_unique<EchoExecutor>(share));
  }
};

constexpr boundary::Makers kMakers{
    .abilities = {.cuda = true},
    .prepare = [] { throw std::logic_error("nothing to prepare"); },
    .make_executor = [](const std::string& device) -> std::unique_ptr<Executor> {
      if (device == "toaster") throw std::invalid_argument("device '" + device + "'");
      if (device == "broken") throw std::runtime_error("device '" + device + "'");
      return std::make_unique<EchoExecutor>();
    },
    .make_shared_device = [](const std::string& device) -> Result<std::unique_ptr<SharedDevice>> {
      if (device == "toaster") return Status(StatusCode::invalid, "device '" + device + "'");
      return std::unique_ptr<SharedDevice>(std::make_unique<Device>());
    }};

}  // namespace

const boundary::Boundary* test_boundary() {
  static const boundary::Boundary boundary = boundary::boundary_to(kMakers);
  return &boundary;
}

const boundary::Boundary* test_boundary_of_another_version() {
  static const boundary::Boundary boundary = [] {
    boundary::Boundary made = boundary::boundary_to(kMakers);
    made.stamp = "of another version";
    return made;
  }();
  return &boundary;
}

int test_boundary_abi() { return _GLIBCXX_USE_CXX11_ABI; }
