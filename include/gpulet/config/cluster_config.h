// The cluster and demand files of the command line's contract (`gpulet schedule --cluster F
// --demand F`).
//
// cluster: {"nodes":[{"name":"n0","devices":[{"type":"v100","count":4,"partitioning":"mps",
//            "sizes":[20,40,50,60,80,100],"max_partitions":2,"memory_mb":16384},
//           {"type":"a100-80","count":8,"partitioning":"mig","processes_per_instance":2},
//           {"type":"cpu","partitioning":"simulated","core_count":6}]}]}
// demand:  {"models":[{"name":"resnet50","rate":400.0,"slo_ms":26.7,"max_batch":32}]}
// scenarios: a CSV whose header is model names and whose rows are rates.
//
// Structs of this room are plain; tools turn them into schedule's values (config stands above
// schedule). Errors as in model_config.h. Blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::config {

struct DeviceConfig {
  std::string type;
  std::uint32_t count = 1;
  std::string partitioning;  // one of "mps", "mig", "green", "cpu_quota", "simulated"
  // Ascending, unique, 1..100; default 20,40,50,60,80,100. Those of the geometry, where there is
  // one.
  std::vector<Share> sizes;
  std::uint32_t max_partitions =
      2;                 // with a geometry: as many processes as its slices have room for
  double memory_mb = 0;  // 0: not limited
  std::vector<std::uint32_t>
      cores;  // cpu_quota only: the cores of each device; `count` devices take them in equal runs
  // simulated only: it is a CPU with so many cores, which executables whose cores are controlled
  // share (docs/control.md). 0: it is none.
  double core_count = 0;
  // mps, green and mig only: which GPU of its machine the one device is, by number or by UUID or
  // the start of one ("0", "GPU-5c3d"). Empty: `count` devices take the machine's GPUs in order.
  std::string gpu{};
  // Of mig, where `type` is its name unless "geometry" says another; simulated may have one, too.
  // "allow_3g_beside_4g":false is MigGeometry::without_3g_beside_4g.
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

struct Scenarios {
  std::vector<std::string> models;
  std::vector<std::vector<double>> rates;  // a row per scenario, beside `models`
};

[[nodiscard]] Result<std::vector<NodeConfig>> load_cluster(const std::filesystem::path& file);
[[nodiscard]] Result<std::vector<DemandConfig>> load_demand(const std::filesystem::path& file);
[[nodiscard]] Result<Scenarios> load_scenarios(const std::filesystem::path& file);

// The same from memory; `file` names the text in errors.
// Where `errors` is given, it gets all errors, and what could be read comes back.
[[nodiscard]] Result<std::vector<NodeConfig>> parse_cluster(std::string_view text,
                                                            const std::filesystem::path& file,
                                                            std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<std::vector<DemandConfig>> parse_demand(std::string_view text,
                                                             const std::filesystem::path& file,
                                                             std::vector<Status>* errors = nullptr);
[[nodiscard]] Result<Scenarios> parse_scenarios(std::string_view text,
                                                const std::filesystem::path& file);

}  // namespace gpulet::config
