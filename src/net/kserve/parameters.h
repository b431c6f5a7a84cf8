// What the protocol's parameters say: of a request and of one of its tensors. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/kserve/infer_call.h"
#include "json_events.h"

namespace gpulet::net::kserve {

struct RequestParameters {
  Duration timeout{};  // zero: the model's SLO
  bool binary_data_output = false;
};

struct TensorParameters {
  std::optional<bool> binary_data{};
  std::optional<std::uint64_t> binary_data_size{};
  std::uint32_t classification = 0;
  std::optional<std::string> region{};
  std::optional<std::uint64_t> region_offset{};
  std::optional<std::uint64_t> region_bytes{};
};

// Takes one parameter. Those that nobody knows are left alone. Fails (invalid) where a known one
// has the wrong type or range, or is not supported.
[[nodiscard]] Status take_parameter(RequestParameters& parameters, std::string_view name,
                                    const Scalar& value);
[[nodiscard]] Status take_parameter(TensorParameters& parameters, std::string_view name,
                                    const Scalar& value);

// Nothing where the tensor does not lie in shared memory. Fails (invalid) where half is missing.
[[nodiscard]] Result<std::optional<RegionSlice>> region_of(const TensorParameters& parameters);

}  // namespace gpulet::net::kserve
