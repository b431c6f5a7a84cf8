// The MIG instances of the fake NVML, in the file "<control file>.mig" (fake_control.h), so that
// they outlive nvmlShutdown and a test can read or create them. One line each: GPU, id, profile
// number, start, whether it has its compute instance, serial number.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/gpu/fake_control.h"

namespace gpulet::support {

struct FakeMigProfile {
  std::uint32_t number = 0;  // NVML_GPU_INSTANCE_PROFILE_*
  std::uint32_t id = 0;      // as in nvidia-smi
  std::uint32_t slices = 0;
  std::uint32_t size = 0;  // memory slices
  std::uint32_t sms = 0;
  std::uint32_t most = 0;
  std::vector<std::uint32_t> starts;
};

// The profiles of an H100, or with four slices of an A30, as in `nvidia-smi mig -lgipp`.
inline std::vector<FakeMigProfile> fake_mig_profiles(bool four_slices) {
  if (four_slices) {
    return {{0, 14, 1, 1, 14, 4, {0, 1, 2, 3}},
            {7, 21, 1, 1, 14, 1, {0, 1, 2, 3}},  // with the media engines
            {1, 5, 2, 2, 28, 2, {0, 2}},
            {3, 0, 4, 4, 56, 1, {0}}};
  }
  return {{0, 19, 1, 1, 16, 7, {0, 1, 2, 3, 4, 5, 6}},
          {7, 20, 1, 1, 16, 1, {0, 1, 2, 3, 4, 5, 6}},  // with the media engines
          {9, 15, 1, 2, 26, 4, {0, 2, 4, 6}},           // with twice the memory
          {1, 14, 2, 2, 32, 3, {0, 2, 4}},
          {2, 9, 3, 4, 60, 2, {0, 4}},
          {3, 5, 4, 4, 64, 1, {0}},
          {4, 0, 7, 8, 132, 1, {0}}};
}

struct FakeMigInstance {
  std::uint32_t gpu = 0;
  std::uint32_t id = 0;
  std::uint32_t profile = 0;  // number
  std::uint32_t start = 0;
  bool whole = true;  // has a compute instance
  std::uint32_t serial = 0;

  [[nodiscard]] std::string uuid() const {
    char text[48];
    std::snprintf(text, sizeof(text), "MIG-%08x-0000-0000-0000-%012x", gpu, serial);
    return text;
  }
};

struct FakeMig {
  std::vector<FakeMigInstance> instances;
  std::uint32_t made = 0;  // in total

  [[nodiscard]] static std::string file() { return fake_control_file() + ".mig"; }
  [[nodiscard]] static FakeMig read() {
    FakeMig state;
    std::ifstream stream(file());
    stream >> state.made;
    for (FakeMigInstance one;
         stream >> one.gpu >> one.id >> one.profile >> one.start >> one.whole >> one.serial;)
      state.instances.push_back(one);
    return state;
  }
  // Atomic for concurrent readers.
  void write() const {
    {
      std::ofstream stream(file() + ".new");
      stream << made << '\n';
      for (const FakeMigInstance& one : instances)
        stream << one.gpu << ' ' << one.id << ' ' << one.profile << ' ' << one.start << ' '
               << one.whole << ' ' << one.serial << '\n';
    }
    std::filesystem::rename(file() + ".new", file());
  }
  // Uses the lowest free id, like NVML.
  FakeMigInstance& add(std::uint32_t gpu, std::uint32_t profile, std::uint32_t start) {
    FakeMigInstance one{gpu, 1, profile, start, false, ++made};
    const auto taken = [&] {
      for (const FakeMigInstance& other : instances) {
        if (other.gpu == gpu && other.id == one.id) return true;
      }
      return false;
    };
    while (taken()) ++one.id;
    return instances.emplace_back(one);
  }
};

}  // namespace gpulet::support
