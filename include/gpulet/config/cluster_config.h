// The cluster and demand files of `gpulet schedule --cluster F --demand F`, the workload file of
// the load generator, and traces, which the simulator and the load generator follow.
// docs/configuration.md has the keys. A member has the name of its key, and its initialiser is the
// default; the readers have the bounds and the help texts (config/reading.h).
//
// Scenarios are a CSV whose header is names of models and applications and whose rows are rates.
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

#include "gpulet/base/random.h"
#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::config {

struct DeviceConfig {
  std::string type;
  std::uint32_t count = 1;
  std::string partitioning;
  std::vector<Share> sizes;          // ascending, unique; never empty once read
  std::uint32_t max_partitions = 2;  // with a geometry: the processes that fit its slices
  double memory_mb = 0;              // 0: not limited
  std::vector<std::uint32_t> cores;  // of cpu_quota only
  double core_count = 0;             // of simulated only; 0: not a CPU
  // Of mps, green and mig only: the GPU's number, UUID or the start of its UUID ("0", "GPU-5c3d").
  // Empty: the `count` devices are the machine's GPUs in order.
  std::string gpu{};
  // Of mig and simulated only. Named by the key "geometry", or for mig by `type`.
  // "allow_3g_beside_4g":false gives MigGeometry::without_3g_beside_4g().
  std::optional<partition::MigGeometry> geometry{};
  std::uint32_t processes_per_instance = 1;  // with a geometry
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
  std::uint32_t count = 1;
  std::vector<std::size_t> after{};  // indices of earlier nodes; empty: the request
  friend bool operator==(const DemandNode&, const DemandNode&) = default;
};

// An application (config/model_config.h) without its tensors.
struct ApplicationDemand {
  std::string name;
  double rate = 0;
  double slo_ms = 0;
  std::vector<DemandNode> nodes;
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
  std::uint32_t concurrency = 1;  // of a closed loop only
  std::optional<WorkloadInput> input;
  // The shortest and the longest request. Empty: those of the buckets.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> lengths{};
  std::map<std::string, ValueRange> ranges{};  // by input
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

// ---- traces

// A load read from a CSV file. Its header selects one of two kinds:
//   time_s,model,count   `count` requests of the model arrive at that time; without the column: one
//   time_s,model,rate    from that time on, requests of the model arrive at random with that mean
//                        rate per second; before its first row a model has the rate of the demand
//                        or workload file
// Times are seconds since the start of the load and ascend within a model. A row may name an
// application in place of a model.
struct Arrival {
  double at_s = 0;
  std::uint32_t count = 1;

  friend bool operator==(const Arrival&, const Arrival&) = default;
};
struct RateStep {
  double at_s = 0;
  double rate = 0;

  friend bool operator==(const RateStep&, const RateStep&) = default;
};

// By model or application. One of the two maps is empty.
struct Trace {
  std::map<std::string, std::vector<Arrival>> arrivals;
  std::map<std::string, std::vector<RateStep>> rates;
};

// Fails with not_found or invalid, naming the file, the line and the fix.
[[nodiscard]] Result<Trace> read_trace(const std::filesystem::path& file);
// The same for text in memory; `file_name` names it in errors.
[[nodiscard]] Result<Trace> parse_trace(std::string text, std::string file_name);

// The trace with its times divided by `speed` and its rates multiplied by `rate`. Counts stay.
// REQUIRES: speed > 0, rate >= 0.
[[nodiscard]] Trace scaled_trace(Trace trace, double speed, double rate);

// The times at which requests for one target arrive. Equal arguments give equal times: the
// simulator and the load generator send the same requests. One thread at a time.
class TraceArrivals {
 public:
  // `rate`: that of the target before its first row; an empty trace leaves it for ever. A trace of
  // arrivals has no others. `share` of the rates arrives. The trace outlives this. REQUIRES: rate
  // and share are at least 0.
  TraceArrivals(const Trace& trace, const std::string& target, double rate, std::uint64_t seed,
                double share = 1);

  // The next arrival in seconds since the start of the load; infinity if there is none. Never
  // decreases.
  [[nodiscard]] double next_s();

 private:
  [[nodiscard]] double next_random_s();
  [[nodiscard]] double next_given_s();

  Random random_;
  std::vector<RateStep> steps_;  // the first one at 0
  std::size_t step_ = 0;
  double at_s_ = 0;
  bool given_;                                      // by the trace; otherwise random
  const std::vector<Arrival>* arrivals_ = nullptr;  // null: none of this target
  std::size_t position_ = 0;
  std::uint32_t taken_ = 0;  // arrivals taken at that position
};

}  // namespace gpulet::config
