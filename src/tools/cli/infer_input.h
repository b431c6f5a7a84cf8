// The inputs of `gpulet infer`: reads them from a file or an image, and converts tensors to numbers
// and back. Any thread.
//
// A file that ends in .json holds one of
//   {"inputs":[{"name":"image","shape":[1,28,28],"datatype":"FP32","data":[...]}]}
//   {"image":[...], "other":[...]}
//   [...]                           for a model with one input
// Values may be nested like the shape, or flat. The name may be left out if the model has one
// input; shape and datatype are optional and must match the model. The first form is also the body
// of a request in the Open Inference Protocol, whose shapes begin with the number of requests, so a
// leading 1 is allowed. Values of BYTES are strings. Any other file holds the raw tensors one after
// another in the model's order; for a model with one string as input, the string itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// Dynamic dimensions of `inputs` (core/bucket.h) get the size that the number of values gives them.
// BYTES are elements without padding (core/tensor.h). Fails with not_found or invalid; the
// message begins with the file. Blocking file I/O.
[[nodiscard]] Result<Bytes> read_infer_input(const std::filesystem::path& file,
                                             std::vector<TensorSpec>& inputs);

// The same for a JSON text. Error messages begin with the place in it.
[[nodiscard]] Result<Bytes> parse_infer_input(std::string_view json,
                                              std::vector<TensorSpec>& inputs);

// The element at `index`; BOOL is 0 or 1. REQUIRES: it exists, and is no string. Pure, like the
// functions below.
[[nodiscard]] double value_at(DataType type, std::span<const std::byte> bytes, std::size_t index);

// All elements, each with the fewest digits that identify it, and null if not finite. Strings may
// be no UTF-8.
[[nodiscard]] nlohmann::ordered_json values_json(DataType type, std::span<const std::byte> bytes);

// Appends the value as an element of that type, floating point rounded to the nearest value. Fails
// with invalid for a value that is not a number (BOOL: not true, false, 0 or 1), a fraction for an
// integer type, and a number that the type cannot hold; the message holds the value.
Status append_value(DataType type, const nlohmann::json& value, std::vector<std::byte>& bytes);
Status append_value(DataType type, double value, std::vector<std::byte>& bytes);

// ---- images (image.cc): the portable anymaps PGM and PPM, plain (P2, P3) and raw (P5, P6), and
// PNG if the program was built with libpng. Pure except for read_image.

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
