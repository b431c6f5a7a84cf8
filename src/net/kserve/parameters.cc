#include "gpulet/net/kserve/parameters.h"

#include <algorithm>
#include <limits>

#include "gpulet/core/queue_rules.h"
#include "json_events.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::chrono::microseconds kLongestTimeout = std::chrono::hours(24);

Status wrong(std::string_view name, std::string_view wanted, const Scalar& value) {
  return invalid("parameter " + in_quotes(name) + " must be " + std::string(wanted) + "; was " +
                 shown(value));
}

Result<std::uint64_t> natural(std::string_view name, const Scalar& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return *number;
  return wrong(name, "an integer of at least 0", value);
}

Status take_natural(std::optional<std::uint64_t>& into, std::string_view name,
                    const Scalar& value) {
  const Result<std::uint64_t> number = natural(name, value);
  if (number.ok()) into = number.value();
  return number.status();
}

// What clients send that begin no sequence.
bool is_no_sequence(const Scalar& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return *number == 0;
  if (const auto* text = std::get_if<std::string_view>(&value)) return text->empty();
  const auto* flag = std::get_if<bool>(&value);
  return flag != nullptr && !*flag;
}

}  // namespace

Status take_parameter(RequestParameters& parameters, std::string_view name, const Scalar& value) {
  if (name == "timeout") {
    const Result<std::uint64_t> timeout = natural(name, value);
    if (timeout.ok()) {
      constexpr auto kMost = static_cast<std::uint64_t>(kLongestTimeout.count());
      parameters.timeout = std::chrono::microseconds(std::min(timeout.value(), kMost));
    }
    return timeout.status();
  }
  if (name == "priority") {
    const Result<std::uint64_t> priority = natural(name, value);
    if (priority.ok()) {
      const bool possible = priority.value() <= kMostPriorityLevels;
      parameters.priority = possible ? static_cast<std::uint32_t>(priority.value()) : 0;
    }
    return priority.status();
  }
  if (name == "binary_data_output") {
    const auto* binary = std::get_if<bool>(&value);
    if (binary == nullptr) return wrong(name, "true or false", value);
    parameters.binary_data_output = *binary;
    return {};
  }
  if (name == "sequence_id" || name == "sequence_start" || name == "sequence_end") {
    if (is_no_sequence(value)) return {};
    return invalid("parameter " + in_quotes(name) +
                   " is not supported: requests are batched without regard to sequences");
  }
  return {};
}

Status take_parameter(TensorParameters& parameters, std::string_view name, const Scalar& value) {
  if (name == "binary_data_size") return take_natural(parameters.binary_data_size, name, value);
  if (name == "shared_memory_offset") return take_natural(parameters.region_offset, name, value);
  if (name == "shared_memory_byte_size") return take_natural(parameters.region_bytes, name, value);
  if (name == "shared_memory_region") {
    const auto* region = std::get_if<std::string_view>(&value);
    if (region == nullptr) return wrong(name, "a region's name", value);
    parameters.region = std::string(*region);
    return {};
  }
  if (name == "binary_data") {
    const auto* binary = std::get_if<bool>(&value);
    if (binary == nullptr) return wrong(name, "true or false", value);
    parameters.binary_data = *binary;
    return {};
  }
  if (name == "classification") {
    const Result<std::uint64_t> classes = natural(name, value);
    if (classes.ok()) {
      parameters.classification = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(classes.value(), std::numeric_limits<std::uint32_t>::max()));
    }
    return classes.status();
  }
  return {};
}

Result<std::optional<RegionSlice>> region_of(const TensorParameters& parameters) {
  if (!parameters.region && !parameters.region_offset && !parameters.region_bytes)
    return std::optional<RegionSlice>();
  if (!parameters.region || !parameters.region_bytes) {
    return invalid(
        "a tensor in shared memory needs 'shared_memory_region' and 'shared_memory_byte_size'");
  }
  return std::optional(RegionSlice{.region = *parameters.region,
                                   .offset = parameters.region_offset.value_or(0),
                                   .bytes = *parameters.region_bytes});
}

}  // namespace gpulet::net::kserve
