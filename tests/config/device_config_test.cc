#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

std::string device(const std::string& members) {
  return R"({"nodes":[{"name":"n0","devices":[{"type":"v100",)" + members + "}]}]}";
}
std::string demand(const std::string& members) {
  return R"({"models":[{"name":"a",)" + members + "}]}";
}

TEST(ClusterConfig, ReadsTheContractsExample) {
  const auto nodes = parse_cluster(
      R"({"nodes":[{"name":"n0","devices":[{"type":"v100","count":4,"partitioning":"mps",
          "sizes":[20,40,50,60,80,100],"max_partitions":2,"memory_mb":16384}]}]})",
      "f.json");
  ASSERT_TRUE(nodes.ok()) << nodes.status().to_string();
  const std::vector<NodeConfig> expected = {
      {.name = "n0",
       .devices = {{.type = "v100",
                    .count = 4,
                    .partitioning = "mps",
                    .sizes = {Share{20}, Share{40}, Share{50}, Share{60}, Share{80}, Share{100}},
                    .max_partitions = 2,
                    .memory_mb = 16384,
                    .cores = {}}}}};
  EXPECT_EQ(nodes.value(), expected);
}

TEST(ClusterConfig, FillsInTheDefaults) {
  const auto nodes = parse_cluster(device(R"("partitioning":"mig")"), "f.json");
  ASSERT_TRUE(nodes.ok()) << nodes.status().to_string();
  const DeviceConfig& read = nodes.value()[0].devices[0];
  EXPECT_EQ(read.count, 1U);
  EXPECT_EQ(read.sizes.size(), 6U);
  EXPECT_EQ(read.max_partitions, 2U);
  EXPECT_EQ(read.memory_mb, 0);
}

TEST(ClusterConfig, AGpuIsNamedByNumberOrUuid) {
  const auto gpu_of = [](const std::string& members) {
    const auto nodes = parse_cluster(device(members), "f.json");
    return nodes.ok() ? nodes.value()[0].devices[0].gpu : nodes.status().to_string();
  };
  EXPECT_EQ(gpu_of(R"("partitioning":"mps")"), "");
  EXPECT_EQ(gpu_of(R"("partitioning":"mps","gpu":"0")"), "0");
  EXPECT_EQ(gpu_of(R"("partitioning":"green","gpu":12)"), "12");
  EXPECT_EQ(gpu_of(R"("partitioning":"green","count":1,"gpu":"GPU-5c3d")"), "GPU-5c3d");
}

TEST(ClusterConfig, AGpuThatIsNoneIsRefused) {
  const std::string at = "/nodes/0/devices/0/gpu: ";
  const std::string mend =
      "write its number or its UUID, as `gpulet devices` tells them: 0 or \"GPU-5c3d...\"";
  expect_errors(
      {
          {device(R"("partitioning":"mig","gpu":0)"),
           at + "a gpu belongs to devices partitioned by mps or green; this one says mig; take the "
                "gpu out"},
          {device(R"("partitioning":"mps","count":2,"gpu":0)"),
           at + "2 devices cannot be one GPU; describe each with its own gpu, or take the gpu out"},
          {device(R"("partitioning":"mps","gpu":"cuda:0")"),
           at + "\"cuda:0\" names no GPU; " + mend},
          {device(R"("partitioning":"mps","gpu":"GPU-")"), at + "\"GPU-\" names no GPU; " + mend},
          {device(R"("partitioning":"mps","gpu":"00")"), at + "\"00\" names no GPU; " + mend},
          {device(R"("partitioning":"mps","gpu":-1)"),
           at + "-1 is not allowed here; write a whole number from 0 to 4095"},
          {R"({"nodes":[{"name":"n0","devices":[{"type":"a","partitioning":"mps","gpu":1},
              {"type":"b","partitioning":"green","gpu":"1"}]}]})",
           "/nodes/0/devices/1/gpu: gpu \"1\" is listed twice in this node; describe every GPU "
           "once"},
      },
      parse_cluster);
}

TEST(ClusterConfig, ErrorsNamePlaceValueAndMend) {
  const std::string at = "/nodes/0/devices/0/";
  expect_errors(
      {
          {device(R"("count":1)"),
           at + "partitioning: is missing; write one of mps, mig, green, cpu_quota, simulated"},
          {device(R"("partitioning":"cpuquota")"),
           at + R"(partitioning: "cpuquota" is not known here; write "cpu_quota" )"
                "(known here: mps, mig, green, cpu_quota, simulated)"},
          {device(R"("partitioning":"mps","sizes":[20,40,40])"),
           at + "sizes/2: 40 does not exceed the size before it; write every size once, in "
                "ascending order"},
          {device(R"("partitioning":"mps","sizes":[0])"),
           at + "sizes/0: 0 is not allowed here; write a whole number from 1 to 100"},
          {device(R"("partitioning":"mps","sizes":[])"),
           at + "sizes: a list of 0 is not allowed here; write a list of percentages: "
                "[20,40,60,80,100]"},
          {device(R"("partitioning":"mps","cores":[0])"),
           at + "cores: cores belong to devices partitioned by cpu_quota; this one says mps; take "
                "the cores out"},
          {device(R"("partitioning":"cpu_quota","count":2,"cores":[0,1,2])"),
           at + "cores: 3 cores cannot be dealt out equally to 2 devices; write as many cores for "
                "every device"},
          {device(R"("partitioning":"cpu_quota","cores":[1,1])"),
           at + "cores: core 1 is listed twice in this node; give every core to one device only"},
          {R"({"nodes":[]})", "/nodes: a list of 0 is not allowed here; write a list of nodes"},
          {R"({"nodes":[7]})", "/nodes/0: 7 is not allowed here; write an object"},
      },
      parse_cluster);
}

TEST(DemandConfig, ReadsTheContractsExample) {
  const auto demands = parse_demand(
      R"({"models":[{"name":"resnet50","rate":400.0,"slo_ms":26.7,"max_batch":32}]})", "f.json");
  ASSERT_TRUE(demands.ok()) << demands.status().to_string();
  EXPECT_EQ(demands.value(), (std::vector<DemandConfig>{{"resnet50", 400.0, 26.7, 32}}));
}

TEST(DemandConfig, ErrorsNamePlaceValueAndMend) {
  expect_errors(
      {
          {demand(R"("rate":1)"), "/models/0/slo_ms: is missing; write a number above 0"},
          {demand(R"("rate":-1,"slo_ms":1)"),
           "/models/0/rate: -1 is not allowed here; write a number of at least 0"},
          {demand(R"("rate":null,"slo_ms":1)"),
           "/models/0/rate: null is not allowed here; write a number of at least 0"},
          {demand(R"("rate":1,"slo_ms":1,"max_batch":0)"),
           "/models/0/max_batch: 0 is not allowed here; write a whole number from 1 to 1024"},
      },
      parse_demand);
}

}  // namespace
}  // namespace gpulet::config
