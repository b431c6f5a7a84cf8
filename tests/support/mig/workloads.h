// MIG-serving's four simulation workloads, from a seed: its measurements are not public. 24 models
// whose throughput grows less than, as, or more than linearly with the size of the instance
// (section 2.2), and requests per second for them from normal and log-normal distributions so that
// hundreds of devices are needed (section 8.1). Figure 4 gives the shares of the three kinds; here,
// at batch 8, half of the models are sub-linear, a quarter linear and a quarter super-linear, and
// with the batch the sub-linear become fewer.
//
// A batch of b on s slices of compute takes
//   fixed_ms + compute_ms * b * (1 + crowding / m) / s,
// where m is the instance's slices of memory. What is fixed (launches, the host) is not shortened
// by slices: sub-linear. A small instance's lack of cache and bandwidth weighs on it: super-linear.
// k processes of a model in one instance (MPS) hide each other's fixed time and share the slices,
// and each further one costs 2 %:
//   (fixed_ms + k * compute_ms * ...) * (1 + 0.02 * (k - 1)).
// Milliseconds, mebibytes, requests per second. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/mig/deployment.h"

namespace gpulet::mig::testing {

inline constexpr double kSloMs = 100;
inline constexpr std::array<std::uint32_t, 6> kBatches{1, 2, 4, 8, 16, 32};

enum class Growth : std::uint8_t { sub_linear, linear, super_linear };
[[nodiscard]] std::string_view to_string(Growth growth);

struct Model {
  std::string name;
  double fixed_ms = 0;
  double compute_ms = 0;  // of a request, on one slice, were it not crowded there
  double crowding = 0;
  double memory_mb = 0;  // of a process
  double t4_in_1g = 0;   // how many times as fast a T4 is as a 1g of an A100
};

// Of one process beside processes - 1 others on an instance of so many slices.
[[nodiscard]] double latency_ms(const Model& model, std::uint32_t batch, std::uint32_t slices,
                                std::uint32_t processes = 1);

// The paper's classes: 7/7's throughput over that of a slice of the smallest instance that an
// A100 of 40 GB runs it on; linear within 6.5 and 7.5.
[[nodiscard]] Growth growth(const Model& model, std::uint32_t batch);

// At batch 8 half of them sub-linear, a quarter linear, a quarter super-linear; of 24 models three
// are too large for 1g and one for 2g.
[[nodiscard]] std::vector<Model> generated_models(std::uint64_t seed, std::size_t count = 24);

// The most requests per second of an instance with up to so many processes: of each number of them
// the largest batch whose latency is at most half of the objective, since a request that just
// missed a batch waits for a whole one before its own. 0 where none is, or no process fits into the
// memory.
[[nodiscard]] double rate_on(const Model& model, const partition::MigProfile& profile,
                             std::uint32_t most_processes = 1);

struct Workload {
  std::string name;             // normal-1, normal-2, lognormal-1, lognormal-2
  std::vector<double> devices;  // whole A100s' worth of requests, beside the models
};
[[nodiscard]] std::vector<Workload> generated_workloads(std::uint64_t seed, std::size_t models);

// Needs are the workload's devices times what a whole device serves with one process.
[[nodiscard]] Task task_of(const Workload& workload, const std::vector<Model>& models,
                           const partition::MigGeometry& geometry,
                           std::uint32_t most_processes = 1);

// T4s for the same needs, each for one service. A T4 is taken to be 1.2 to 1.6 times as fast as a
// 1g instance: 1.44 times its memory bandwidth, of which inference makes much.
[[nodiscard]] std::size_t t4_devices(const Workload& workload, const std::vector<Model>& models);

}  // namespace gpulet::mig::testing
