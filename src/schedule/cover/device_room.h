// What of a device is still to be divided while it is being filled: a share and a number of
// partitions, or what MIG's layouts leave beside what was taken. Pure; a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/cover/relaxation.h"
#include "schedule/problem.h"

namespace gpulet::schedule {

class DeviceRoom {
 public:
  // Of a whole device; `known` outlives it.
  explicit DeviceRoom(const DeviceClass& known);

  // Whether one more of that size (an index) fits.
  [[nodiscard]] bool holds(std::uint32_t size) const;
  // REQUIRES: it holds it.
  void take(std::uint32_t size);
  // Whether one more is surely the last one.
  [[nodiscard]] bool is_last() const;
  // The most that what is left is worth, at the relaxation's prices.
  [[nodiscard]] double worth(const Relaxation& relaxation, std::size_t device_class) const;

 private:
  const DeviceClass* known_;
  int free_percent_;
  std::uint32_t partitions_;          // that it may still get
  std::vector<std::uint32_t> taken_;  // of each size; where MIG divides the device
};

}  // namespace gpulet::schedule
