// What Nsight Compute's command line tells of a batch: how busy the L2 cache and the device's
// memory were while its kernels ran.
//
// parse_counters is pure. CounterProgram runs `ncu` over gpulet-kernels, which runs batches of one
// model. Blocking; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"

namespace gpulet::tools {

// Fractions of the most that the device can do.
struct Counters {
  double l2 = 0;
  double dram = 0;
};

inline constexpr std::string_view kL2Metric = "lts__t_sectors.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kDramMetric =
    "dram__throughput.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kDurationMetric = "gpu__time_duration.sum";

// From `ncu --csv --page raw` with those three metrics: a header, a row of units, a row for each
// kernel; lines of other kinds (ncu's own begin with "==") may stand among them. Each kernel counts
// by its duration; one of which a metric is missing counts not at all. Fails with unavailable where
// ncu has no permission to read counters, telling what to do, and with malformed where no kernel
// was measured, telling what ncu said last.
[[nodiscard]] Result<Counters> parse_counters(std::string_view text);

class CounterProgram {
 public:
  struct Programs {
    std::string ncu;                // a path; empty: looked for in PATH
    std::filesystem::path kernels;  // gpulet-kernels
  };
  // Fails with not_found, telling what to do, where one of the programs is not there.
  [[nodiscard]] static Result<CounterProgram> find(const Programs& programs);

  // Of batches of that model of a models file, on that GPU as a whole, without MPS: under it,
  // counters of one process cannot be told from those of others. Fails with cancelled where a
  // signal ended it.
  [[nodiscard]] Result<Counters> measure(const std::filesystem::path& models,
                                         const std::string& model, std::uint32_t batch,
                                         const std::string& gpu_uuid) const;

 private:
  CounterProgram(std::filesystem::path ncu, std::filesystem::path kernels)
      : ncu_(std::move(ncu)), kernels_(std::move(kernels)) {}
  std::filesystem::path ncu_;
  std::filesystem::path kernels_;
};

}  // namespace gpulet::tools
