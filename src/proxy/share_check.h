// Whether a process may serve with what it found of its device. Pure.
//
// A device whose partitioning caps a process by its environment gives the whole of it to one that
// the cap does not reach, at everybody else's cost, and nothing fails. So a process that is told to
// expect a share serves only where the device says that it is held, and to no more than that.
#pragma once

#include <cstdint>
#include <optional>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/partition/found_device.h"

namespace gpulet::proxy {

// From the values of the two variables of partition/driver.h; null: not set.
struct ExpectedShare {
  std::optional<Share> share;
  std::uint32_t device_sms = 0;  // 0: not known
};
// Fails with invalid, naming the variable.
[[nodiscard]] Result<ExpectedShare> parse_expected_share(const char* share, const char* device_sms);

// Fills in the device's SMs where the device does not tell them. Fails with unavailable: nothing
// holds the share, or it is larger than expected by more than the coarsest step that a GPU has.
[[nodiscard]] Result<partition::FoundShare> check_share(const ExpectedShare& expected,
                                                        partition::FoundShare found);

}  // namespace gpulet::proxy
