// What the protocol's parameters say, of a request and of one of its tensors, and which outputs
// they ask for: whether they came as JSON or over gRPC. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/kserve/infer_call.h"
#include "gpulet/net/kserve/model.h"

namespace gpulet::net::kserve {

// null, true and false, negative integers, other integers, other numbers, text. An integer that no
// 64 bits hold is another number. Text lives as long as what it was read from.
using Scalar =
    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string_view>;

struct RequestParameters {
  Duration timeout{};  // zero: the model's SLO
  bool binary_data_output = false;
  // 1 is the highest; 0: the model's default, as for one beyond all levels.
  std::uint32_t priority = 0;
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

struct NamedOutput {
  std::string name;
  TensorParameters parameters{};
};
// In the order of `outputs`, or all of the model's where there are none. `binary`: those that do
// not say otherwise. Fails (invalid) where the model has no such output, it is asked for twice, or
// it has no form in JSON and is asked for in none other.
[[nodiscard]] Result<std::vector<AskedOutput>> asked_outputs(std::span<const NamedOutput> outputs,
                                                             bool binary, const Model& model);

}  // namespace gpulet::net::kserve
