// Checks of a backend's devices against its machine.
#include "tools/cli/config_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/research/research.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::tools {
namespace {

using support::Names;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

config::DeviceConfig cpu(std::vector<std::uint32_t> cores, double memory_mb = 0) {
  config::DeviceConfig device;
  device.type = "cpu";
  device.partitioning = "cpu_quota";
  device.cores = std::move(cores);
  device.memory_mb = memory_mb;
  return device;
}

config::DeviceConfig gpu(const std::string& which, double memory_mb = 0, std::uint32_t count = 1) {
  config::DeviceConfig device;
  device.type = "card";
  device.partitioning = "mps";
  device.gpu = which;
  device.memory_mb = memory_mb;
  device.count = count;
  return device;
}

Machine machine_of(std::size_t gpus) {
  Machine machine;
  machine.cores = {0, 1, 2, 3};
  machine.memory_mb = 8000;
  for (std::size_t i = 0; i < gpus; ++i) {
    gpu::GpuInfo& info = machine.gpus.emplace_back();
    info.number = static_cast<std::uint32_t>(i);
    info.uuid = "GPU-" + std::to_string(i) + "abc";
    info.memory_bytes = 1000ULL << 20U;
  }
  if (gpus == 0) machine.no_gpus = "no driver";
  return machine;
}

std::vector<std::string> errors_of(std::vector<config::DeviceConfig> devices,
                                   const Machine& machine) {
  config::BackendConfig backend;
  backend.devices = std::move(devices);
  ConfigReport report;
  check_devices(backend, machine, "backend.json", report);
  EXPECT_THAT(report.warnings, IsEmpty());
  return report.errors;
}

TEST(CheckConfig, FindsAStoreThatCannotBeMade) {
  config::CheckedFile checked;
  checked.kind = "backend";
  checked.backend.emplace();
  const auto errors = [&](const std::string& store) {
    checked.backend->model_store = store;
    return check_config(checked, "backend.json", machine_of(0)).errors;
  };
  EXPECT_THAT(errors("/proc/gpulet/store"), ElementsAre(Names("/model_store")));
  EXPECT_THAT(errors(::testing::TempDir() + "gpulet-no-such-store"), IsEmpty());
}

TEST(CheckConfig, FindsPrecisionOfAnOnnxFile) {
  namespace onnx = support::onnx;
  const support::TemporaryFolder folder;
  const onnx::Model file{.inputs = {{"x", onnx::kFloat, {{"n", 4}}}},
                         .outputs = {{"y", onnx::kFloat, {{"n", 4}}}}};
  config::ModelConfig model;
  model.name = "net";
  model.file = folder.write("net.onnx", encode(file));
  model.inputs = {{"x", DataType::fp32, {4}}};
  model.outputs = {{"y", DataType::fp32, {4}}};
  const auto errors = [&] {
    config::CheckedFile checked;
    checked.kind = "models";
    checked.serving.emplace().models = {model};
    return check_config(checked, "models.json", {}).errors;
  };
  EXPECT_THAT(errors(), IsEmpty());
  model.numerics.precision = Precision::half;
  EXPECT_THAT(errors(), ElementsAre(Names("precision")));
}

TEST(CheckDevices, FindsMissingCores) {
  EXPECT_THAT(errors_of({cpu({0, 3})}, machine_of(0)), IsEmpty());
  EXPECT_THAT(errors_of({cpu({0, 4, 9}), cpu({7})}, machine_of(0)),
              ElementsAre(AllOf(Names("/devices/0/cores"), Names("4"), Names("9")),
                          AllOf(Names("/devices/1/cores"), Names("7"))));
  config::DeviceConfig all = cpu({});
  all.count = 4;
  EXPECT_THAT(errors_of({all}, machine_of(0)), IsEmpty());
  all.count = 5;
  EXPECT_THAT(errors_of({all}, machine_of(0)), ElementsAre(Names("/devices/0/count")));
}

TEST(CheckDevices, ComparesTheTotalMemory) {
  EXPECT_THAT(errors_of({cpu({0}, 4000), cpu({1}, 4000)}, machine_of(0)), IsEmpty());
  EXPECT_THAT(errors_of({cpu({0}, 4000), cpu({1}, 4001)}, machine_of(0)),
              ElementsAre(Names("8001 MB")));
  Machine unknown = machine_of(0);
  unknown.memory_mb = 0;
  EXPECT_THAT(errors_of({cpu({0}, 1e9)}, unknown), IsEmpty());
}

TEST(CheckDevices, FindsMissingGpus) {
  EXPECT_THAT(errors_of({gpu("0", 1000), gpu("GPU-1")}, machine_of(2)), IsEmpty());
  EXPECT_THAT(errors_of({gpu("")}, machine_of(0)), ElementsAre(Names("no driver")));
  EXPECT_THAT(errors_of({gpu("5"), gpu("1", 1001)}, machine_of(2)),
              ElementsAre(Names("/devices/0/gpu: "), Names("/devices/1/memory_mb: 1001")));
  EXPECT_THAT(errors_of({gpu("", 0, 3)}, machine_of(2)), ElementsAre(Names("3 GPUs")));
  Machine no_mps = machine_of(1);
  no_mps.no_mps = "there is no nvidia-cuda-mps-control";
  EXPECT_THAT(errors_of({gpu("0")}, no_mps), ElementsAre(Names("mps-control")));
}

// Errors of a frontend's file that has this policy and nothing else.
std::vector<std::string> errors_with_policy(std::string policy) {
  config::CheckedFile checked;
  checked.kind = "frontend";
  checked.frontend.emplace().policy = std::move(policy);
  return check_config(checked, "frontend.json", std::nullopt).errors;
}

TEST(CheckFrontend, TakesEveryPolicyOfTheTable) {
  for (const std::string_view name : research::policies().names())
    EXPECT_THAT(errors_with_policy(std::string(name)), IsEmpty()) << name;
  EXPECT_THAT(errors_with_policy("best"), ElementsAre(AllOf(Names("/policy"), Names("'best'"))));
}

}  // namespace
}  // namespace gpulet::tools
