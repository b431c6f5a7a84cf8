// GpuMonitor: polls whether the offered GPUs are still present, and how much power they draw.
//
// NVML may hang on a failing GPU, so a separate thread calls it; the thread is abandoned if NVML
// does not return. A GPU counts as lost only if NVML says so, also after NVML was loaded anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "gpulet/base/alive.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::backend {

struct GpuMonitorOptions {
  std::filesystem::path nvml = gpu::Nvml::kLibrary;
  Duration interval = std::chrono::seconds(5);
  Duration warn_after = std::chrono::seconds(10);  // of one poll, that NVML hangs
};

class GpuMonitor {
 public:
  struct Sample {
    Status fault;  // not ok: the GPU is lost
    gpu::GpuPower power{};
  };
  // Called after each poll for every GPU that is present or lost.
  using OnSample = std::function<void(std::uint32_t device, const Sample& sample)>;

  // `gpus`: the UUID of each device that is a GPU; does nothing if it is empty. Used on the
  // executor's strand, on which it calls `on_sample`.
  GpuMonitor(const net::asio::any_io_executor& executor, std::map<std::uint32_t, std::string> gpus,
             GpuMonitorOptions options, OnSample on_sample);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

 private:
  class Poller;
  void set_timer();
  void poll();
  void report(const std::map<std::uint32_t, Sample>& samples);

  const GpuMonitorOptions options_;
  const OnSample on_sample_;
  net::Alarm timer_;
  AliveToken alive_;
  std::shared_ptr<Poller> poller_;
  std::thread thread_;
  Duration hung_for_{};
};

}  // namespace gpulet::backend
