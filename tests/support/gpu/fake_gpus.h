// FakeGpus: a machine with the fake NVIDIA libraries that the tests build, and their configuration.
//
// The configuration has lines "<key> <value>". Lines before the first "gpu" configure the machine:
//   driver_version 580.95.05    cuda_version 13000 (13.0)
//   nvml_init, cuda_init        the results of nvmlInit_v2 and cuInit (0)
//   cuda_init hang, crash       cuInit hangs or crashes
//   nvml_hang                   1: NVML's memory query hangs while this is set
//   fail_<function>             the error of that function; see fake_cuda.cc and fake_nvml_mig.cc
// Each line "gpu" begins a GPU, which the lines after it configure:
//   uuid, name, memory_mib, used_mib, compute_major, compute_minor, sm_mhz, memory_mhz
//   mig                         1 on, 0 off, -1 unsupported
//   mig_later                   the same after a reset
//   mig_slices                  4: an A30's profiles; else an H100's
//   mig_permission              0: this process may neither list nor change instances
//   mig_in_use                  starts of instances in use, separated by blanks
//   mig_takes_ms                the duration of creating an instance (0)
//   compute_mode                NVML's number: 0 default, 2 prohibited, 3 exclusive-process
//   error                       the result of all NVML functions for this GPU: 15 is lost
//   in_mps                      1: processes are clients of an MPS daemon (0)
//   sms, step                   SMs in total, and SMs per block (132, 8)
//   tells_step                  0: does not report the step, like drivers before 13.0
//   scattered                   SMs that are in no block
// MIG instances are in another file (fake_mig.h). The configuration may be rewritten at any time.
// One object per process.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/gpu/proxy_environment.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::support {

class FakeGpus {
 public:
  explicit FakeGpus(const std::string& text) {
    write(text);
    ::setenv("GPULET_FAKE_GPUS", file().c_str(), 1);
    share_with_proxies();
  }
  ~FakeGpus() { ::unsetenv("GPULET_FAKE_GPUS"); }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  // Atomic for concurrent readers.
  void write(const std::string& text) const {
    std::filesystem::rename(folder_.write("gpus.new", text), file());
  }

  // The calls of functions that change something, in order.
  [[nodiscard]] std::vector<std::string> calls() const {
    std::vector<std::string> lines;
    std::ifstream stream(file().string() + ".calls");
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  // The folder with both libraries under their real names.
  [[nodiscard]] static std::filesystem::path libraries() { return GPULET_FAKE_GPU_LIBRARIES; }
  [[nodiscard]] static std::filesystem::path nvml() { return libraries() / "libnvidia-ml.so.1"; }
  [[nodiscard]] static std::filesystem::path cuda() { return libraries() / "libcuda.so.1"; }

 private:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "gpus"; }

  TemporaryFolder folder_;
};

}  // namespace gpulet::support
