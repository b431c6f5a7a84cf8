// The cluster and demand files of `gpulet schedule --cluster F --demand F`, and the workload file
// of the load generator.
//
// cluster: {"nodes":[{"name":"n0","devices":[{"type":"v100","count":4,"partitioning":"mps",
//            "sizes":[20,40,50,60,80,100],"max_partitions":2,"memory_mb":16384},
//           {"type":"a100-80","count":8,"partitioning":"mig","processes_per_instance":2},
//           {"type":"cpu","partitioning":"simulated","core_count":6}]}]}
// demand:  {"models":[{"name":"resnet50","rate":400.0,"slo_ms":26.7,"max_batch":32}],
//   "applications":[{"name":"traffic","rate":50,"slo_ms":202,"nodes":[
//     {"name":"detect","model":"ssd"},{"name":"faces","model":"resnet50","count":3,
//      "after":["detect"]}]}]}
// scenarios: a CSV whose header is names of models and applications and whose rows are rates.
// workload: {"models":[{"name":"lenet","rate":100,"slo_ms":50,"arrivals":"poisson",
//      "input":{"file":"../models/digits.f32","labels":"../models/digits.labels"}},
//     {"name":"resnet50","rate":5,"slo_ms":400,"arrivals":"uniform"},
//     {"name":"bert","slo_ms":400,"arrivals":"closed","concurrency":4}]}
//
// A node of a demanded application makes `count` calls at the same time, when the request arrives
// or when all calls of the nodes in `after` are answered.
//
// `arrivals`: "poisson" and "uniform" are open loops at `rate`; "closed" keeps `concurrency`
// requests in flight. `rate` belongs to the open loops and `concurrency` to the closed one.
// `input.file` contains raw requests (little endian, the model's inputs in order); `labels` is a
// text file with one integer per request, compared with the arg max of the first output. Without
// `input`, the tensors are random and seeded. Paths are relative to the JSON file.
//
// Errors as in model_config.h. Values; any thread. The load_* functions do blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::config {

struct DeviceConfig {
  std::string type;
  std::uint32_t count = 1;
  std::string partitioning;  // one of "mps", "mig", "green", "cpu_quota", "simulated"
  // Ascending, unique, 1..100; default 20,40,50,60,80,100, or the sizes of the geometry.
  std::vector<Share> sizes;
  std::uint32_t max_partitions = 2;  // with a geometry: the processes that fit its slices
  double memory_mb = 0;              // 0: not limited
  // cpu_quota only: the cores, divided among the `count` devices in equal runs.
  std::vector<std::uint32_t> cores;
  // simulated only: a CPU with this many cores, shared by controlled model instances
  // (docs/control.md). 0: not a CPU.
  double core_count = 0;
  // mps, green and mig only: the GPU's number, UUID or the start of its UUID ("0", "GPU-5c3d").
  // Empty: the `count` devices are the machine's GPUs in order.
  std::string gpu{};
  // mig and simulated only. Named by the key "geometry", or for mig by `type`.
  // "allow_3g_beside_4g":false gives MigGeometry::without_3g_beside_4g().
  std::optional<partition::MigGeometry> geometry{};
  std::uint32_t processes_per_instance = 1;  // with a geometry: 1..8
  friend bool operator==(const DeviceConfig&, const DeviceConfig&) = default;
};

struct NodeConfig {
  std::string name;
  std::vector<DeviceConfig> devices;
  friend bool operator==(const NodeConfig&, const NodeConfig&) = default;
};

struct DemandConfig {
  std::string name;
  double rate = 0;
  double slo_ms = 0;
  std::uint32_t max_batch = 32;
  friend bool operator==(const DemandConfig&, const DemandConfig&) = default;
};

struct DemandNode {
  std::string name;  // unique in the application
  std::string model;
  std::uint32_t count = 1;           // calls at the same time
  std::vector<std::size_t> after{};  // indices of earlier nodes; empty: the request
  friend bool operator==(const DemandNode&, const DemandNode&) = default;
};

// An application (config/model_config.h) without its tensors.
struct ApplicationDemand {
  std::string name;
  double rate = 0;
  double slo_ms = 0;              // for the whole request
  std::vector<DemandNode> nodes;  // at most 64 calls
  friend bool operator==(const ApplicationDemand&, const ApplicationDemand&) = default;
};

struct DemandFile {
  std::vector<DemandConfig> models;
  std::vector<ApplicationDemand> applications;  // of these models; names are unique among both
};

struct Scenarios {
  std::vector<std::string> models;         // or applications
  std::vector<std::vector<double>> rates;  // one row per scenario, in the order of `models`
};

enum class Arrivals : std::uint8_t { poisson, uniform, closed };

struct WorkloadInput {
  std::filesystem::path file;
  std::optional<std::filesystem::path> labels;
};

struct WorkloadModel {
  std::string name;
  double rate = 0;
  double slo_ms = 0;
  Arrivals arrivals = Arrivals::poisson;
  std::uint32_t concurrency = 1;  // closed loop only
  std::optional<WorkloadInput> input;
  // The shortest and the longest request to a model with dynamic dimensions; all lengths between
  // them are equally frequent. Empty: those of its buckets.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> lengths{};
  std::map<std::string, ValueRange> ranges{};  // of the random values, by input
};

[[nodiscard]] Result<std::vector<NodeConfig>> load_cluster(const std::filesystem::path& file);
[[nodiscard]] Result<DemandFile> load_demand(const std::filesystem::path& file);
[[nodiscard]] Result<Scenarios> load_scenarios(const std::filesystem::path& file);
[[nodiscard]] Result<std::vector<WorkloadModel>> load_workload(const std::filesystem::path& file);

// Parse text in memory. `file` names the text in errors and is the base of its relative paths. With
// `errors`, they store all errors there and return what could be read.
[[nodiscard]] Result<std::vector<NodeConfig>> parse_cluster(std::string_view text,
                                                            const std::filesystem::path& file,
                                                            std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<DemandFile> parse_demand(std::string_view text,
                                              const std::filesystem::path& file,
                                              std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<std::vector<WorkloadModel>> parse_workload(
    std::string_view text, const std::filesystem::path& file,
    std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<Scenarios> parse_scenarios(std::string_view text,
                                                const std::filesystem::path& file);

}  // namespace gpulet::config
