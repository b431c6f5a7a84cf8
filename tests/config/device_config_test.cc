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
  const auto nodes = parse_cluster(device(R"("partitioning":"green")"), "f.json");
  ASSERT_TRUE(nodes.ok()) << nodes.status().to_string();
  const DeviceConfig& read = nodes.value()[0].devices[0];
  EXPECT_EQ(read.count, 1U);
  EXPECT_EQ(read.sizes.size(), 6U);
  EXPECT_EQ(read.max_partitions, 2U);
  EXPECT_EQ(read.memory_mb, 0);
}

TEST(ClusterConfig, ASimulatedDeviceWithCoresIsACpu) {
  const auto nodes =
      parse_cluster(device(R"("partitioning":"simulated","core_count":6)"), "f.json");
  ASSERT_TRUE(nodes.ok()) << nodes.status().to_string();
  EXPECT_EQ(nodes.value()[0].devices[0].core_count, 6);
  const std::string at = "/nodes/0/devices/0/core_count: ";
  expect_errors(
      {
          {device(R"("partitioning":"simulated","core_count":0)"),
           at + "0 is not allowed here; write a number above 0 and up to 4096"},
          {device(R"("partitioning":"cpu_quota","core_count":2)"),
           at +
               "core_count belongs to simulated devices; this one says cpu_quota; write its cores, "
               "for example \"cores\":[0,1]"},
          {device(R"("partitioning":"simulated","geometry":"a30","core_count":2)"),
           at + "a device that MIG divides has no CPU cores; take the core_count or the geometry "
                "out"},
      },
      parse_cluster);
}

TEST(ClusterConfig, AGpuIsNamedByNumberOrUuid) {
  const auto gpu_of = [](const std::string& members) {
    const auto nodes = parse_cluster(device(members), "f.json");
    return nodes.ok() ? nodes.value()[0].devices[0].gpu : nodes.status().to_string();
  };
  EXPECT_EQ(gpu_of(R"("partitioning":"mps")"), "");
  EXPECT_EQ(gpu_of(R"("partitioning":"mps","gpu":"0")"), "0");
  EXPECT_EQ(gpu_of(R"("partitioning":"green","gpu":12)"), "12");
  EXPECT_EQ(gpu_of(R"("partitioning":"mig","geometry":"a30","gpu":3)"), "3");
  EXPECT_EQ(gpu_of(R"("partitioning":"green","count":1,"gpu":"GPU-5c3d")"), "GPU-5c3d");
}

TEST(ClusterConfig, AGpuThatIsNoneIsRefused) {
  const std::string at = "/nodes/0/devices/0/gpu: ";
  const std::string mend =
      "write its number or its UUID, as `gpulet devices` tells them: 0 or \"GPU-5c3d...\"";
  expect_errors(
      {
          {device(R"("partitioning":"simulated","gpu":0)"),
           at + "a gpu belongs to devices partitioned by mps, green or mig; this one says "
                "simulated; take the gpu out"},
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

TEST(ClusterConfig, AGeometryBringsTheSizesOfItsInstances) {
  const auto read = [](const std::string& members) {
    const auto nodes = parse_cluster(device(members), "f.json");
    EXPECT_TRUE(nodes.ok()) << nodes.status().to_string();
    return nodes.ok() ? nodes.value()[0].devices[0] : DeviceConfig();
  };
  const auto geometry = [](std::string_view name) {
    return partition::MigGeometry::of(name).value();
  };
  const DeviceConfig seven = read(R"("partitioning":"mig","geometry":"a100-80")");
  EXPECT_EQ(seven.geometry, geometry("a100-80"));
  EXPECT_EQ(seven.sizes,
            (std::vector<Share>{Share{14}, Share{28}, Share{42}, Share{57}, Share{100}}));
  EXPECT_EQ(seven.processes_per_instance, 1U);
  EXPECT_EQ(seven.max_partitions, 7U);

  const DeviceConfig four =
      read(R"("partitioning":"simulated","geometry":"a30","processes_per_instance":2,"count":3)");
  EXPECT_EQ(four.sizes, (std::vector<Share>{Share{25}, Share{50}, Share{100}}));
  EXPECT_EQ(four.processes_per_instance, 2U);
  EXPECT_EQ(four.max_partitions, 8U);
  EXPECT_EQ(read(R"("partitioning":"mig","geometry":"a30","max_partitions":3)").max_partitions, 3U);
  EXPECT_FALSE(read(R"("partitioning":"simulated")").geometry);

  const DeviceConfig strict =
      read(R"("partitioning":"mig","geometry":"h100","allow_3g_beside_4g":false)");
  EXPECT_EQ(strict.geometry, geometry("h100").without_3g_beside_4g());
  EXPECT_EQ(read(R"("partitioning":"mig","geometry":"h100","allow_3g_beside_4g":true)").geometry,
            geometry("h100"));
  const auto typed = parse_cluster(
      R"({"nodes":[{"name":"n0","devices":[{"type":"h200","partitioning":"mig"}]}]})", "f.json");
  ASSERT_TRUE(typed.ok()) << typed.status().to_string();
  EXPECT_EQ(typed.value()[0].devices[0].geometry, geometry("h200")) << "the type says which it is";
}

TEST(ClusterConfig, AGeometryThatIsNoneIsRefused) {
  const std::string at = "/nodes/0/devices/0/";
  const std::string names = "a100-40, a100-80, a30, b200, h100, h200";
  const std::string no_instances =
      "is about instances of MIG, and this device has none; take it out, or name a \"geometry\"";
  expect_errors(
      {
          {device(R"("partitioning":"mig")"), at + "geometry: is missing; write one of " + names},
          {device(R"("partitioning":"mig","geometry":"h1000")"),
           at + "geometry: \"h1000\" is not known here; write \"h100\" (known here: " + names +
               ")"},
          {device(R"("partitioning":"simulated","geometry":7)"),
           at + "geometry: 7 is not allowed here; write one of " + names},
          {device(R"("partitioning":"mps","geometry":"h100")"),
           at + "geometry: a geometry belongs to devices partitioned by mig or simulated; this one "
                "says mps; take the geometry out"},
          {device(R"("partitioning":"mig","geometry":"h100","sizes":[14])"),
           at + "sizes: the sizes of instances are those of the geometry h100; take the sizes out"},
          {device(R"("partitioning":"mig","geometry":"h100","allow_3g_beside_4g":"no")"),
           at + "allow_3g_beside_4g: \"no\" is not allowed here; write true or false"},
          {device(R"("partitioning":"mig","geometry":"h100","processes_per_instance":9)"),
           at + "processes_per_instance: 9 is not allowed here; write a whole number from 1 to 8"},
          {device(R"("partitioning":"simulated","processes_per_instance":2)"),
           at + "processes_per_instance: " + no_instances},
          {device(R"("partitioning":"mps","allow_3g_beside_4g":false)"),
           at + "allow_3g_beside_4g: " + no_instances},
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
