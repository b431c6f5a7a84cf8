// Images as the input of a model. Decodes the portable anymaps PGM and PPM, plain (P2, P3) and raw
// (P5, P6), and PNG if the program was built with libpng. Pure except for read_image; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// The formats that decode_image accepts, in words.
[[nodiscard]] std::string_view image_formats();

struct Image {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 0;   // 1: grey, 3: red, green, blue
  std::vector<float> values{};  // 0 to 1, by row, then column, then channel
};

// Fails with invalid for other formats, truncated images and sides of more than 16384 pixels.
[[nodiscard]] Result<Image> decode_image(std::span<const std::byte> bytes);
[[nodiscard]] Result<Image> read_image(const std::filesystem::path& file);

// (value - mean) / deviation, with one number for all channels or one per channel.
struct Normalisation {
  std::vector<double> mean;
  std::vector<double> deviation;
};

// Converts the image to the tensor `spec`, which must be [C,H,W] or [H,W,C] with one or three
// channels. Resizes it to H x W, with interpolation or averaging, and converts between grey and
// colour. Floating point holds 0 to 1, normalised if requested; integers hold 0 to 255. Fails with
// invalid for other shapes, BOOL and INT8, and a normalisation that does not match.
[[nodiscard]] Result<Bytes> to_tensor(const Image& image, const TensorSpec& spec,
                                      const std::optional<Normalisation>& normalisation);

}  // namespace gpulet::tools
