// `gpulet devices` on machines whose NVIDIA libraries are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mig.h"
#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using support::FakeGpus;
using support::holds;
using support::names;
using support::Variable;
using ::testing::Not;

constexpr const char* kTwo =
    "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\nname NVIDIA H200\n"
    "gpu\nuuid GPU-ffffffff-0000-0000-0000-000000000000\nname NVIDIA A30\nerror 15\n";

nlohmann::json devices_as_json() {
  const ProgramResult result = run_gpulet({"devices", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return nlohmann::json::parse(result.output);
}

constexpr const char* kTorchWithCuda =
    "echo TorchScript cpu yes; echo TorchScript cuda yes; echo ONNX cpu yes; echo ONNX cuda no: x";
constexpr const char* kTorchWithoutCuda =
    "echo TorchScript cpu yes; echo TorchScript cuda no: no CUDA here; echo ONNX cpu yes; "
    "echo ONNX cuda no: no CUDA here";

std::string onnx_file() {
  support::onnx::Model model;
  model.inputs = {{"x", support::onnx::kFloat, {{"batch", 2}}}};
  model.outputs = {{"y", support::onnx::kFloat, {{"batch", 2}}}};
  model.nodes = {{"Identity", {"x"}, {"y"}}};
  return support::onnx::encode(model);
}

// A folder with this program and others beside it.
class Site {
 public:
  Site() {
    std::error_code error;
    std::filesystem::create_hard_link(GPULET_PROGRAM, folder_.path() / "gpulet", error);
    if (error) std::filesystem::copy_file(GPULET_PROGRAM, folder_.path() / "gpulet");
    std::filesystem::permissions(folder_.write("nvidia-cuda-mps-control", "#!/bin/sh\n"),
                                 std::filesystem::perms::owner_all);
  }

  // A program that says what the script prints.
  void add(const std::string& name, const std::string& script) const {
    const auto program = folder_.write(name, "#!/bin/sh\n" + script + '\n');
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  [[nodiscard]] ProgramResult gpulet(const std::vector<std::string>& arguments) const {
    return run_program_at((folder_.path() / "gpulet").string(), arguments);
  }
  [[nodiscard]] nlohmann::json devices() const {
    const ProgramResult result = gpulet({"devices", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return nlohmann::json::parse(result.output);
  }
  [[nodiscard]] nlohmann::json format(const std::string& name) const {
    const nlohmann::json document = devices();
    for (const nlohmann::json& one : document["serving"]["formats"]) {
      if (one["format"] == name) return one;
    }
    return {};
  }

 private:
  support::TemporaryFolder folder_;
  const Variable path_{"PATH", folder_.path().string() + ":/bin:/usr/bin"};
};

class Devices : public ::testing::Test {
 protected:
  const Variable libraries_{"LD_LIBRARY_PATH", FakeGpus::libraries().string()};
};

TEST_F(Devices, ListsGpusAndTheirDivision) {
  const FakeGpus machine(kTwo);
  const ProgramResult result = run_gpulet({"devices"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(names(result.output, "CPU", "580.95.05", "CUDA 13.0", "NVIDIA H200", "GPU-00112233",
                    "143771", "9.0", "132", "128 SMs", "GPU 1", "GPU is lost"));
}

TEST_F(Devices, PrintsADocument) {
  const support::TemporaryFolder programs;
  const auto control = programs.write("nvidia-cuda-mps-control", "#!/bin/sh\n");
  std::filesystem::permissions(control, std::filesystem::perms::owner_all);
  const Variable path("PATH", programs.path().string());
  const FakeGpus machine(std::string("cuda_version 12020\n") + kTwo);
  const nlohmann::json document = devices_as_json();
  EXPECT_FALSE(document["cpu"]["cores"].empty());
  EXPECT_EQ(document["cuda"], "12.2");
  EXPECT_EQ(document["mps"]["program"], control.string());
  const nlohmann::json& first = document["gpus"][0];
  EXPECT_EQ(first["uuid"], "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(first["memory_mb"], 143771);
  EXPECT_EQ(first["sms"], 132);
  EXPECT_EQ(first["mig"], false);
  EXPECT_EQ(first["green"]["possible"], false);
  EXPECT_TRUE(names(first["green"]["reason"].get<std::string>(), "12.4"));
  EXPECT_TRUE(names(document["gpus"][1]["fault"].get<std::string>(), "GPU is lost"));
}

TEST_F(Devices, PrintsTheEntryOfEachUsableGpu) {
  const Site site;
  site.add("gpulet-proxy", kTorchWithCuda);
  const FakeGpus machine(kTwo);
  const nlohmann::json serving = site.devices()["serving"];
  EXPECT_EQ(serving["devices"], "1 GPU");
  EXPECT_FALSE(serving.contains("reason"));
  ASSERT_EQ(serving["backend_devices"].size(), 1U);
  const nlohmann::json& entry = serving["backend_devices"][0];
  EXPECT_EQ(entry["type"], "h200");
  EXPECT_EQ(entry["partitioning"], "mps");
  EXPECT_EQ(entry["gpu"], "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

// The programs are built beside this one where their libraries are there.
TEST_F(Devices, PrintsTheEntryOfTheCoresWithoutAGpu) {
  const FakeGpus machine("nvml_init 9\n");
  const nlohmann::json document = devices_as_json();
  const nlohmann::json& serving = document["serving"];
  ASSERT_EQ(serving["backend_devices"].size(), 1U);
  EXPECT_EQ(serving["backend_devices"][0]["type"], "cpu-core");
  EXPECT_EQ(serving["backend_devices"][0]["cores"], document["cpu"]["cores"]);
  EXPECT_FALSE(serving["reason"].get<std::string>().empty());
  for (const nlohmann::json& format : serving["formats"])
    EXPECT_TRUE(format["possible"] ? format.contains("program") : format.contains("reason"));
}

TEST_F(Devices, TellsWhyTheCoresServe) {
  const Site site;
  const FakeGpus machine(kTwo);
  nlohmann::json serving = site.devices()["serving"];  // no program
  EXPECT_EQ(serving["backend_devices"][0]["type"], "h200");
  EXPECT_TRUE(serving["formats"].empty());
  EXPECT_TRUE(names(serving["no_formats"].get<std::string>(), "gpulet-proxy"));

  site.add("gpulet-proxy", kTorchWithoutCuda);
  serving = site.devices()["serving"];
  EXPECT_EQ(serving["backend_devices"][0]["type"], "cpu-core");
  EXPECT_TRUE(names(serving["reason"].get<std::string>(), "no CUDA here"));
  const nlohmann::json torch = site.format("TorchScript");
  EXPECT_EQ(torch["cpu"], true);
  EXPECT_EQ(torch["gpu"], false);
  EXPECT_EQ(torch["gpu_reason"], "no CUDA here");

  site.add("gpulet-proxy", kTorchWithCuda);
  EXPECT_EQ(site.devices()["serving"]["devices"], "1 GPU");
  EXPECT_EQ(site.format("TorchScript")["possible"], true);
  EXPECT_EQ(site.format("ONNX")["possible"], false);
}

TEST_F(Devices, TellsThatMpsIsMissing) {
  const Site site;
  site.add("gpulet-proxy", kTorchWithCuda);
  const FakeGpus machine(kTwo);
  const Variable path("PATH", "/nowhere");
  const nlohmann::json serving = site.devices()["serving"];
  EXPECT_EQ(serving["backend_devices"][0]["type"], "cpu-core");
  EXPECT_TRUE(names(serving["reason"].get<std::string>(), "nvidia-cuda-mps-control"));
}

TEST_F(Devices, ServeOnAGpuThatCannotIsRefused) {
  const Site site;
  site.add("gpulet-proxy", kTorchWithoutCuda);
  const FakeGpus machine(kTwo);
  const support::TemporaryFolder models;
  const std::string file = models.write("m.onnx", onnx_file()).string();
  const std::string files = (models.path() / "files").string();
  for (const char* const device : {"gpu", "cuda:0", "cuda:1", "cuda:7"}) {
    const ProgramResult result = site.gpulet({"serve", file, "--device", device, "--write", files});
    EXPECT_EQ(result.exit_code == 1 || result.exit_code == 2, true) << device << result.exit_code;
    EXPECT_TRUE(names(result.errors, device));
  }
}

TEST_F(Devices, GivesTheReasonWithoutADriver) {
  const FakeGpus machine("nvml_init 9\n");
  const ProgramResult result = run_gpulet({"devices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(names(result.output, "GPU: none", "Driver Not Loaded"));
  const nlohmann::json document = devices_as_json();
  EXPECT_TRUE(document["gpus"].empty());
  EXPECT_TRUE(names(document["no_gpus"].get<std::string>(), "modprobe nvidia"));
  EXPECT_FALSE(holds(document["no_gpus"].get<std::string>(), "\n"));
}

TEST_F(Devices, ListsAGpuThatCudaHides) {
  const FakeGpus machine("cuda_init 100\ngpu\nuuid GPU-aa\nmig 1\ngpu\nuuid GPU-bb\n");
  const nlohmann::json gpus = devices_as_json()["gpus"];
  EXPECT_EQ(gpus[0]["mig"], true);
  EXPECT_TRUE(names(gpus[0]["green"]["reason"].get<std::string>(), "MIG"));
  EXPECT_FALSE(gpus[1].contains("sms"));
  EXPECT_TRUE(names(gpus[1]["green"]["reason"].get<std::string>(), "no CUDA-capable device"));
}

TEST_F(Devices, ListsMigInstances) {
  const FakeGpus machine("gpu\nuuid GPU-aa\nmig 1\n");
  support::FakeMig there;
  there.add(0, 2, 4).whole = true;
  there.write();
  EXPECT_TRUE(names(run_gpulet({"devices"}).output, "3g@4"));
  const nlohmann::json instance = devices_as_json()["gpus"][0]["mig_instances"].at(0);
  EXPECT_EQ(instance["uuid"], there.instances[0].uuid());
  EXPECT_EQ(instance["sms"], 60);
}

}  // namespace
}  // namespace gpulet::tools
