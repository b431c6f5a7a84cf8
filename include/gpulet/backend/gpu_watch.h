// GpuWatch: looks every few seconds whether the GPUs that are offered are still there and what they
// draw, and tells.
//
// NVML may hang on a GPU that fails, so it is asked on a thread of its own, which is given up where
// it does not come back. A GPU that NVML does not answer about is not called lost for that. Before
// one is, NVML is loaded anew and asked again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"

namespace gpulet::backend {

struct GpuWatchOptions {
  std::filesystem::path nvml = gpu::Nvml::kLibrary;
  Duration every = std::chrono::seconds(5);
  Duration patience = std::chrono::seconds(10);  // for one look, before the log says that it hangs
};

class GpuWatch {
 public:
  // What a look found of a GPU.
  struct Finding {
    Status fault;  // ok: it is there; else it is lost
    gpu::GpuPower power{};
  };
  // Told after every look, of every GPU that is there or is lost.
  using Tell = std::function<void(std::uint32_t device, const Finding& found)>;

  // `gpus`: the UUID of each device that is one. On the executor's strand, as `tell`. Does nothing
  // where there are none.
  GpuWatch(const net::asio::any_io_executor& executor, std::map<std::uint32_t, std::string> gpus,
           GpuWatchOptions options, Tell tell);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

 private:
  class Worker;
  void set_timer();
  void look();
  void take(const std::map<std::uint32_t, Finding>& findings);

  const GpuWatchOptions options_;
  const Tell tell_;
  net::Alarm timer_;
  std::shared_ptr<int> alive_ =
      std::make_shared<int>(0);  // gone: what was posted has nobody to tell
  std::shared_ptr<Worker> worker_;
  std::thread thread_;
  Duration hung_for_{};
};

}  // namespace gpulet::backend
