// Workloads like MIG-serving's four simulation workloads, whose measurements are not public. 24
// models whose throughput grows less than, as, or more than linearly with the size of the instance
// (section 2.2), and requests per second for them from normal and log-normal distributions so that
// hundreds of devices are needed (section 8.1). The text of the paper does not give the number of
// models of each kind. Here it is an argument: at batch 8 a part of the models is sub-linear, and
// half of the others is linear and half super-linear. With the batch the sub-linear become fewer.
//
// A batch of b on s slices of compute takes
//   fixed_ms + compute_ms * b * (1 + crowding / m) / s,
// where m is the number of memory slices of the instance. The fixed time (launches, host) does not
// depend on the slices, which makes a model sub-linear. Crowding models the smaller cache and
// bandwidth of small instances, which makes a model super-linear. k processes of a model in one
// instance (MPS) hide each other's fixed time and share the slices, and each additional process
// costs 2 %:
//   (fixed_ms + k * compute_ms * ...) * (1 + 0.02 * (k - 1)).
// Milliseconds, mebibytes, requests per second. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/mig.h"

namespace gpulet::schedule::mig::testing {

inline constexpr double kSloMs = 100;
inline constexpr std::array<std::uint32_t, 6> kBatches{1, 2, 4, 8, 16, 32};

enum class Growth : std::uint8_t { sub_linear, linear, super_linear };
[[nodiscard]] std::string_view to_string(Growth growth);

struct Model {
  std::string name;
  double fixed_ms = 0;
  double compute_ms = 0;  // per request on one slice, without crowding
  double crowding = 0;
  double memory_mb = 0;  // per process
  double t4_in_1g = 0;   // speed of a T4 relative to a 1g of an A100
};

// What a batch may take, and its largest size. The paper's objective is the batch's own latency.
// The default leaves half of the objective to a request that just missed a batch and waits for it.
struct BatchLimit {
  double ms = kSloMs / 2;
  std::uint32_t largest = kBatches.back();
};

// The latency of one of `processes` processes on an instance.
[[nodiscard]] double latency_ms(const Model& model, std::uint32_t batch, std::uint32_t slices,
                                std::uint32_t processes = 1);

// The paper's classes, by the throughput of 7/7 relative to one slice of the smallest instance of
// an A100-40 that has enough memory: linear between 6.5 and 7.5.
[[nodiscard]] Growth growth(const Model& model, std::uint32_t batch);

// `sub_linear`: the part of the models that is sub-linear at batch 8; the others are linear and
// super-linear in equal numbers. A model keeps its kind, and a kind its draws, when the part grows,
// unless it becomes sub-linear. Of 24 models three are too large for 1g and one for 2g.
[[nodiscard]] std::vector<Model> generated_models(std::uint64_t seed, std::size_t count = 24,
                                                  double sub_linear = 0.5);

// The maximum rate of an instance over all numbers of processes up to `most_processes`. Uses the
// largest batch within the limit. 0 where no batch is fast enough or the memory is too small.
[[nodiscard]] double rate_on(const Model& model, const partition::MigProfile& profile,
                             std::uint32_t most_processes = 1, const BatchLimit& limit = {});

struct Workload {
  std::string name;             // normal-1, normal-2, lognormal-1, lognormal-2
  std::vector<double> devices;  // by model: the need in whole A100s
};
[[nodiscard]] std::vector<Workload> generated_workloads(std::uint64_t seed, std::size_t models);

// The needs are the workload's devices times the rate of a whole device with one process.
[[nodiscard]] DeploymentTask task_of(const Workload& workload, const std::vector<Model>& models,
                                     const partition::MigGeometry& geometry,
                                     std::uint32_t most_processes = 1,
                                     const BatchLimit& limit = {});

// The number of T4s for the same needs, one service on each. Assumes that a T4 is 1.2 to 1.6 times
// as fast as a 1g instance; it has 1.44 times the memory bandwidth.
[[nodiscard]] std::size_t t4_devices(const Workload& workload, const std::vector<Model>& models,
                                     const BatchLimit& limit = {});

}  // namespace gpulet::schedule::mig::testing
