// Gpulets whose processes stay loaded between measurements, each with one model. Calls block; one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/measured_proxy.h"
#include "tools/measure/pair_plan.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

struct ParkOptions {
  std::vector<config::ModelConfig> models;
  ProxyPrograms proxies;
  std::function<std::uint32_t(const PairSide& side)> largest_batch;
  std::size_t loads_at_once = 1;
};

class ParkedGpulets {
 public:
  // `device` must outlive it.
  ParkedGpulets(ParkOptions options, MeasuredDevice& device);
  ~ParkedGpulets();
  ParkedGpulets(const ParkedGpulets&) = delete;
  ParkedGpulets& operator=(const ParkedGpulets&) = delete;

  using Failures = std::map<PairGpulet, Status>;
  // Called once per loaded gpulet. False: load no more.
  using AfterLoad = std::function<bool(const PairGpulet& gpulet)>;
  // Ends all others, then loads the missing ones of these. Fails with cancelled after a signal;
  // what else prevents a gpulet from being loaded is in the result.
  [[nodiscard]] Result<Failures> keep(const std::set<PairGpulet>& gpulets,
                                      const AfterLoad& after_load);

  // nullptr: it is not loaded.
  [[nodiscard]] MeasuredProxy* find(const PairGpulet& gpulet) const;
  // Ends one, which may be hung.
  void drop(const PairGpulet& gpulet);
  // Ends all. Fails with cancelled, or with timeout if one does not end in time.
  [[nodiscard]] Status stop();

  [[nodiscard]] BlockingLoop& loop() { return loop_; }

 private:
  struct Parked {
    Parked(partition::PartitionDriver& driver, GpuletId& last) : share(driver, last) {}
    HeldShare share;
    std::unique_ptr<MeasuredProxy> proxy{};  // ends before its share
  };
  // Starts the process and its loading.
  [[nodiscard]] Status begin(const PairGpulet& gpulet);
  [[nodiscard]] Status finish(const PairGpulet& gpulet);
  // Ends those that are not in `gpulets`.
  [[nodiscard]] Status stop_others(const std::set<PairGpulet>& gpulets);

  const ParkOptions options_;
  MeasuredDevice& device_;
  GpuletId last_gpulet_;
  BlockingLoop loop_;
  ProxyFactory factory_;
  std::map<PairGpulet, std::unique_ptr<Parked>> parked_;
};

}  // namespace gpulet::tools
