// Images as a model's input: decoded, brought to the model's size, and its numbers.
//
// Decoded are the portable anymaps PGM and PPM, plain (P2, P3) and raw (P5, P6), and PNG where the
// program was built with libpng. Pure but for read_image; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// The formats that decode_image takes, for people.
[[nodiscard]] std::string_view image_formats();

struct Image {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 0;   // 1: grey, 3: red, green, blue
  std::vector<float> values{};  // 0 to 1, row by row, the channels of a pixel beside each other
};

// Fails (invalid) on other formats, on what is cut short and on images beyond 16384 pixels a side.
[[nodiscard]] Result<Image> decode_image(std::span<const std::byte> bytes);
[[nodiscard]] Result<Image> read_image(const std::filesystem::path& file);

// (value - mean) / deviation, with one number for all channels or one for each.
struct Normalisation {
  std::vector<double> mean;
  std::vector<double> deviation;
};

// The image as the tensor `spec`, which must be [C,H,W] or [H,W,C] with one or three channels. It
// is stretched to H x W, every pixel the mean of those that it covers, and turned grey or into
// three equal channels where the model wants that. Floating point holds 0 to 1, or what
// `normalisation` makes of it; whole types hold 0 to 255. Fails (invalid) on other shapes, BOOL and
// INT8, and on a normalisation that does not fit.
[[nodiscard]] Result<Bytes> to_tensor(const Image& image, const TensorSpec& spec,
                                      const std::optional<Normalisation>& normalisation);

}  // namespace gpulet::tools
