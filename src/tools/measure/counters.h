// Utilisation of the L2 cache and of the device's memory while the kernels of a batch run, measured
// with Nsight Compute. CounterProgram is blocking; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/profile.h"

namespace gpulet::tools {

struct Counters {
  double l2 = 0;  // fractions of the peak of the device
  double dram = 0;
  double kernels = 0;  // launches per batch
};

inline constexpr std::string_view kL2Metric = "lts__t_sectors.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kDramMetric =
    "dram__throughput.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kDurationMetric = "gpu__time_duration.sum";

// Reads the output of `ncu --csv --page raw` with these three metrics: a header, a row of units and
// a row for each kernel of `batches` batches. Ignores other lines, such as ncu's own, which begin
// with "==". Kernels are weighted by their duration; a kernel without one of the metrics counts as
// a launch only. Fails with unavailable if ncu may not read counters, and with malformed if no
// kernel was measured; the message then holds the last line of ncu. Pure.
[[nodiscard]] Result<Counters> parse_counters(std::string_view text, std::uint32_t batches);

// The utilisation of a batch at every size at which its latency is known, from that on the whole
// device, which is the first of the result: a smaller gpulet moves the same bytes in more time, so
// a fraction falls as the latency grows. Pure.
[[nodiscard]] std::vector<profile::Utilization> scaled_to_sizes(
    const profile::Utilization& whole, const profile::LatencyTable& latency);

// Runs ncu with gpulet-kernels, which runs batches of one model.
class CounterProgram {
 public:
  struct Programs {
    std::string ncu;                // a path; empty: searched in PATH
    std::filesystem::path kernels;  // gpulet-kernels
  };
  // Fails with not_found if one of the programs is missing; the message says how to get it.
  [[nodiscard]] static Result<CounterProgram> find(const Programs& programs);

  // Measures batches of a model of the models file on the whole GPU. Runs outside MPS, where
  // counters of one process cannot be separated from those of others. Fails with cancelled if a
  // signal ended ncu.
  [[nodiscard]] Result<Counters> measure(const std::filesystem::path& models,
                                         const std::string& model, std::uint32_t batch,
                                         const std::string& gpu_uuid) const;

 private:
  CounterProgram(std::filesystem::path ncu, std::filesystem::path kernels)
      : ncu_(std::move(ncu)), kernels_(std::move(kernels)) {}
  std::filesystem::path ncu_;
  std::filesystem::path kernels_;
};

// The bandwidth from host to device, in 10^9 bytes per second, as gpulet-kernels measures it
// outside MPS. Fails with unavailable if it cannot; the message holds its last line.
[[nodiscard]] Result<double> measure_bandwidth(const std::filesystem::path& kernels,
                                               const std::string& gpu_uuid);

}  // namespace gpulet::tools
