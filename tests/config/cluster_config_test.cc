#include "gpulet/config/cluster_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

std::string device(const std::string& members) {
  return R"({"nodes":[{"name":"n0","devices":[{"type":"v100",)" + members + "}]}]}";
}
std::string demand(const std::string& members) {
  return R"({"models":[{"name":"a",)" + members + "}]}";
}

TEST(ClusterConfig, ReadsTheDocumentedExample) {
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
          {device(R"("partitioning":"simulated","core_count":0)"), at, "4096"},
          {device(R"("partitioning":"cpu_quota","core_count":2)"), at, "cpu_quota"},
          {device(R"("partitioning":"simulated","geometry":"a30","core_count":2)"), at, "MIG"},
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

TEST(ClusterConfig, RefusesAnInvalidGpu) {
  const std::string at = "/nodes/0/devices/0/gpu: ";
  expect_errors(
      {
          {device(R"("partitioning":"simulated","gpu":0)"), at, "simulated"},
          {device(R"("partitioning":"mps","count":2,"gpu":0)"), at, "2 devices"},
          {device(R"("partitioning":"mps","gpu":"cuda:0")"), at, R"("cuda:0")"},
          {device(R"("partitioning":"mps","gpu":"GPU-")"), at, R"("GPU-")"},
          {device(R"("partitioning":"mps","gpu":"00")"), at, R"("00")"},
          {device(R"("partitioning":"mps","gpu":"4096")"), at, R"("4096")"},
          {device(R"("partitioning":"mps","gpu":"")"), at, "UUID"},
          {device(R"("partitioning":"mps","gpu":-1)"), at, "-1"},
          {R"({"nodes":[{"name":"n0","devices":[{"type":"a","partitioning":"mps","gpu":1},
              {"type":"b","partitioning":"green","gpu":"1"}]}]})",
           "/nodes/0/devices/1/gpu: ", R"("1")"},
      },
      parse_cluster);
}

TEST(ClusterConfig, TheGeometryGivesTheSizes) {
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

TEST(ClusterConfig, RefusesAnInvalidGeometry) {
  const std::string at = "/nodes/0/devices/0/";
  expect_errors(
      {
          {device(R"("partitioning":"mig")"), at + "geometry: "},
          {device(R"("partitioning":"mig","geometry":"h1000")"), at + "geometry: ", R"("h1000")"},
          {device(R"("partitioning":"simulated","geometry":7)"), at + "geometry: "},
          {device(R"("partitioning":"mps","geometry":"h100")"), at + "geometry: "},
          {device(R"("partitioning":"mig","geometry":"h100","sizes":[14])"), at + "sizes: "},
          {device(R"("partitioning":"mig","geometry":"h100","allow_3g_beside_4g":"no")"),
           at + "allow_3g_beside_4g: ", R"("no")"},
          {device(R"("partitioning":"mig","geometry":"h100","processes_per_instance":9)"),
           at + "processes_per_instance: "},
          {device(R"("partitioning":"simulated","processes_per_instance":2)"),
           at + "processes_per_instance: "},
          {device(R"("partitioning":"mps","allow_3g_beside_4g":false)"),
           at + "allow_3g_beside_4g: "},
      },
      parse_cluster);
}

TEST(ClusterConfig, ErrorsNamePlaceAndValue) {
  const std::string at = "/nodes/0/devices/0/";
  expect_errors(
      {
          {device(R"("count":1)"), at + "partitioning: "},
          {device(R"("partitioning":"cpuquota")"), at + "partitioning: ", R"("cpuquota")"},
          {device(R"("partitioning":"mps","sizes":[20,40,40])"), at + "sizes/2: "},
          {device(R"("partitioning":"mps","sizes":[0])"), at + "sizes/0: "},
          {device(R"("partitioning":"mps","sizes":[])"), at + "sizes: "},
          {device(R"("partitioning":"mps","cores":[0])"), at + "cores: "},
          {device(R"("partitioning":"cpu_quota","count":2,"cores":[0,1,2])"), at + "cores: "},
          {device(R"("partitioning":"cpu_quota","cores":[1,1])"), at + "cores: "},
          {R"({"nodes":[]})", "/nodes: "},
          {R"({"nodes":[7]})", "/nodes/0: "},
      },
      parse_cluster);
}

TEST(DemandConfig, ReadsTheDocumentedExample) {
  const auto demands = parse_demand(
      R"({"models":[{"name":"resnet50","rate":400.0,"slo_ms":26.7,"max_batch":32}]})", "f.json");
  ASSERT_TRUE(demands.ok()) << demands.status().to_string();
  EXPECT_EQ(demands.value().models, (std::vector<DemandConfig>{{"resnet50", 400.0, 26.7, 32}}));
  EXPECT_TRUE(demands.value().applications.empty());
}

// A demand of the models a and b, and of one application with these nodes.
std::string with_nodes(const std::string& nodes) {
  return R"({"models":[{"name":"a","rate":0,"slo_ms":9},{"name":"b","rate":0,"slo_ms":9}],)"
         R"("applications":[{"name":"app","rate":5,"slo_ms":20,"nodes":[)" +
         nodes + "]}]}";
}

TEST(DemandConfig, ReadsApplications) {
  const auto demand =
      parse_demand(with_nodes(R"({"name":"first","model":"a"},)"
                              R"({"name":"many","model":"b","count":6,"after":["first"]},)"
                              R"({"name":"last","model":"a","after":["many","first"]})"),
                   "f.json");
  ASSERT_TRUE(demand.ok()) << demand.status().to_string();
  const std::vector<DemandNode> nodes{
      {"first", "a"}, {"many", "b", 6, {0}}, {"last", "a", 1, {1, 0}}};
  EXPECT_EQ(demand.value().applications, (std::vector<ApplicationDemand>{{"app", 5, 20, nodes}}));
}

TEST(DemandConfig, ErrorsNamePlaceAndValue) {
  expect_errors(
      {
          {demand(R"("rate":1)"), "/models/0/slo_ms: "},
          {demand(R"("rate":-1,"slo_ms":1)"), "/models/0/rate: "},
          {demand(R"("rate":null,"slo_ms":1)"), "/models/0/rate: "},
          {demand(R"("rate":1,"slo_ms":1,"max_batch":0)"), "/models/0/max_batch: "},
      },
      parse_demand);
}

TEST(DemandConfig, ErrorsOfApplicationsNamePlaceAndFix) {
  const std::string at = "/applications/0/";
  const std::string first = R"({"name":"n","model":"a"},)";
  const std::string named_like_a_model =
      R"({"models":[{"name":"a","rate":0,"slo_ms":9}],"applications":[)"
      R"({"name":"a","rate":1,"slo_ms":9,"nodes":[{"name":"n","model":"a"}]}]})";
  expect_errors(
      {
          {with_nodes(""), at + "nodes: "},
          {with_nodes(R"({"name":"n"})"), at + "nodes/0/model: "},
          {with_nodes(R"({"model":"a"})"), at + "nodes/0/name: "},
          {with_nodes(R"({"name":"n","model":"aa"})"), at + "nodes/0/model: ", R"("a")"},
          {with_nodes(R"({"name":"n","model":"a","inputs":[]})"), at + "nodes/0", "inputs"},
          {with_nodes(R"({"name":"n","model":"a","count":0})"), at + "nodes/0/count: "},
          {with_nodes(R"({"name":"n","model":"a","count":65})"), at + "nodes/0/count: "},
          {with_nodes(first + R"({"name":"m","model":"a","count":64})"),
           at + "nodes: ", "65 calls"},
          {with_nodes(first + R"({"name":"n","model":"b"})"), at + "nodes/1/name: "},
          {with_nodes(first + R"({"name":"m","model":"b","after":[]})"), at + "nodes/1/after: "},
          {with_nodes(first + R"({"name":"m","model":"b","after":["m"]})"),
           at + "nodes/1/after/0: ", "before it"},
          {with_nodes(first + R"({"name":"m","model":"b","after":["n","n"]})"),
           at + "nodes/1/after/1: ", "twice"},
          {named_like_a_model, at + "name: "},
      },
      parse_demand);
}

}  // namespace
}  // namespace gpulet::config
