// FakeGpus: a machine whose NVIDIA libraries are those that the tests build, and what they answer.
//
// The text is lines of a key, a blank and a value. Before the first "gpu" they are of the machine:
//   driver_version 580.95.05    cuda_version 13000 (13.0)
//   nvml_init, cuda_init        what nvmlInit_v2 and cuInit return (0)
//   cuda_init hang, crash       what cuInit does
//   nvml_hang                   1: NVML does not answer about memory while that is so
//   fail_<function>             what that function of the driver returns; see fake_cuda.cc and
//                               fake_nvml_mig.cc
// Each line "gpu" begins one, of which the lines after it tell:
//   uuid, name, memory_mib, used_mib, compute_major, compute_minor, sm_mhz, memory_mhz
//   mig                         1 on, 0 off, -1 the GPU knows no MIG
//   mig_later                   the same after a reset
//   mig_slices                  4: an A30's profiles; else an H100's
//   mig_permission              0: this process may neither see instances nor change them
//   mig_in_use                  starts of instances that somebody holds, blanks between
//   mig_takes_ms                how long making an instance takes (0)
//   compute_mode                NVML's number: 0 default, 2 prohibited, 3 exclusive-process
//   error                       what every function of NVML returns of this GPU: 15 it is lost
//   in_mps                      1: contexts on it are an MPS daemon's (0)
//   sms, step                   SMs, and those of a block (132, 8)
//   tells_step                  0: it does not tell the step, as drivers before 13.0
//   scattered                   SMs that are in no block though they would fill some
// Instances that MIG divides it into are in a file of their own (fake_mig.h).
// May be written again at any time. One at a time in a process; tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/gpu/passed_on.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::support {

class FakeGpus {
 public:
  explicit FakeGpus(const std::string& text) {
    write(text);
    ::setenv("GPULET_FAKE_GPUS", file().c_str(), 1);
    pass_on_to_proxies();
  }
  ~FakeGpus() { ::unsetenv("GPULET_FAKE_GPUS"); }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  // At once, for whoever reads it meanwhile.
  void write(const std::string& text) const {
    std::filesystem::rename(folder_.write("gpus.new", text), file());
  }

  // What was called, in order, of the functions that change something.
  [[nodiscard]] std::vector<std::string> calls() const {
    std::vector<std::string> lines;
    std::ifstream stream(file().string() + ".calls");
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  // Where the dynamic linker finds the two under their own names.
  [[nodiscard]] static std::filesystem::path libraries() { return GPULET_FAKE_GPU_LIBRARIES; }
  [[nodiscard]] static std::filesystem::path nvml() { return libraries() / "libnvidia-ml.so.1"; }
  [[nodiscard]] static std::filesystem::path cuda() { return libraries() / "libcuda.so.1"; }

 private:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "gpus"; }

  TemporaryFolder folder_;
};

}  // namespace gpulet::support
