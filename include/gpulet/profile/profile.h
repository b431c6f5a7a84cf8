// A profile: everything measured about the models on one type of device. Cluster files name a
// device's profile by its `type`. The file format is profiles/FORMAT.md; reading and writing is
// profile/store.h. Immutable once built; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/control/pole_placement.h"
#include "gpulet/profile/interference_fit.h"
#include "gpulet/profile/latency_table.h"

namespace gpulet::profile {

struct Utilization {
  std::uint32_t batch = 0;
  Share share;
  double l2 = 0;    // fraction 0..1
  double dram = 0;  // fraction 0..1

  friend bool operator==(const Utilization&, const Utilization&) = default;
};

// One side of a co-run: the latency of `batch` of `model` while the other runs in the rest of the
// device.
struct PairSample {
  std::string model;
  std::uint32_t batch = 0;
  Share share;
  std::string other_model;
  std::uint32_t other_batch = 0;
  Share other_share;
  double latency_ms = 0;

  friend bool operator==(const PairSample&, const PairSample&) = default;
};

struct ModelProfile {
  LatencyTable latency;
  std::vector<Utilization> utilization;  // may be empty
  std::optional<double> memory_mb;       // resident memory of the loaded model, where measured
  // Known of few profiles, and told apart by the model of InSS where they are (inss_model.h).
  std::optional<double> kernels{};       // of a batch
  std::optional<double> input_bytes{};   // of one request
  std::optional<double> output_bytes{};  // of one request
  // How its response time follows the cores that it has (gpulet profile run --controller).
  std::optional<control::Plant> controller{};
};

// Where and how it was measured: free text by key ("machine", "date", "libtorch", "partitioning",
// ...).
using Provenance = std::map<std::string, std::string, std::less<>>;

struct Profile {
  std::string name;
  Provenance provenance;
  std::map<std::string, ModelProfile, std::less<>> models;
  std::vector<PairSample> pairs;                // may be empty
  std::optional<InterferenceFit> interference;  // fitted to the pairs, where that was done
  std::optional<double> pcie_gbps;              // 10^9 bytes per second between host and device

  // nullptr where the model was not measured on this device type.
  [[nodiscard]] const ModelProfile* find(std::string_view model) const;
};

// All profiles at hand, by device type.
using ProfileSet = std::map<std::string, Profile, std::less<>>;

}  // namespace gpulet::profile
