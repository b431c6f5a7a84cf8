// In what numbers a model computes, where its device can. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpulet {

enum class Precision : std::uint8_t {
  full = 0,  // as the file has it
  half = 1,  // IEEE half; a device that has no such arithmetic (the CPU) keeps full precision
  bfloat16 = 2,
};

// As written above: "full", "half", "bfloat16".
[[nodiscard]] constexpr std::string_view to_string(Precision precision) {
  if (precision == Precision::half) return "half";
  return precision == Precision::bfloat16 ? "bfloat16" : "full";
}

struct Numerics {
  Precision precision = Precision::full;
  bool channels_last = false;  // how images lie in memory while they are computed
  // A model that computes otherwise than its file says is compared with itself as the file has it,
  // on the sample batch that loading runs: the largest difference in an output, as a fraction of
  // the largest magnitude in it. Above this the model is refused.
  double largest_error = 0.02;

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

}  // namespace gpulet
