// InputConverter: makes the tensor that a model takes of the one that clients send (InputConversion
// of core/tensor.h), on the CPU, in the copy that puts a batch into the model's input. Each number
// is rounded once, so that equal bytes give equal numbers in every order and in every batch.
// Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

class InputConverter {
 public:
  // REQUIRES: the spec has a conversion, check_conversion() and a size.
  explicit InputConverter(const TensorSpec& spec);

  // The bytes of one request for the model.
  [[nodiscard]] std::size_t model_bytes() const;

  // Converts a batch of whole requests. REQUIRES: `to` has model_bytes() for each of them.
  void convert(std::span<const std::byte> from, std::span<std::byte> to) const;

 private:
  // How far the next pixel and the next channel are, in elements.
  struct Order {
    std::size_t pixel = 1;
    std::size_t channel = 0;
  };
  [[nodiscard]] Order order(bool channels_last) const;
  template <typename Number>
  void convert_as(std::span<const std::byte> from, std::span<std::byte> to) const;

  DataType type_;
  std::size_t channels_ = 1;
  std::size_t pixels_ = 0;  // numbers of one channel
  Order from_;
  Order to_;
  // The bits of the model's number for each of the 256 bytes, channel after channel.
  std::vector<std::uint32_t> numbers_;
};

// By input; empty where there is nothing to convert. Fails as check_conversion().
[[nodiscard]] Result<std::vector<std::optional<InputConverter>>> converters_of(
    const std::vector<TensorSpec>& inputs);

}  // namespace gpulet::executor
