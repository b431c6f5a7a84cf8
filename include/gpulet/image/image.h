// Encoded images: from the bytes of a JPEG or PNG to the input of a model. The bytes may come from
// an attacker: call decode() only in a confined process (docs/security.md). Pure; any thread.
//
// JPEG: baseline and progressive; gray, colour, CMYK and YCCK; the EXIF orientation is applied.
// PNG: all colour types and depths, interlaced, too; alpha is dropped, and so are animations.
// Colour profiles and gamma are ignored. The pixels are those that Pillow decodes.
//
// Failures are invalid, with a message for the client: no image, a corrupt or truncated one, or one
// beyond a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::image {

enum class Kind : std::uint8_t { jpeg, png };

// What the first bytes of a file say.
struct Header {
  Kind kind = Kind::jpeg;
  std::uint32_t width = 0;  // as stored: before the orientation is applied
  std::uint32_t height = 0;

  friend bool operator==(const Header&, const Header&) = default;
};

// Takes no memory for pixels.
[[nodiscard]] Result<Header> read_header(std::span<const std::byte> encoded);

struct RgbImage {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> pixels;  // row by row; three bytes each

  friend bool operator==(const RgbImage&, const RgbImage&) = default;
};

// Checks the header against `max_megapixels`, at most kMostMegapixels, before it takes memory. It
// takes at most 12 bytes for each allowed pixel, and 16 MB.
[[nodiscard]] Result<RgbImage> decode(std::span<const std::byte> encoded,
                                      std::uint32_t max_megapixels = kMostMegapixels);

// Resizes, crops and normalises into `tensor`: bilinear with antialiasing, rounded to 8 bits after
// each direction, as Pillow and torchvision do with 8-bit images. Only what the crop shows is
// computed. REQUIRES: check(preprocessing).ok(); `tensor` has the bytes of the input; the image has
// at least one pixel.
void to_tensor(const RgbImage& image, const Preprocessing& preprocessing,
               std::span<std::byte> tensor);

// decode() and to_tensor().
[[nodiscard]] Status decode_to_tensor(std::span<const std::byte> encoded,
                                      const Preprocessing& preprocessing,
                                      std::span<std::byte> tensor);

// A JPEG of 500 x 375 pixels for measurements, as large as a photo of that size, but at most
// `max_bytes` where a poorer quality makes that possible. Equal seeds give equal images. Fails with
// internal if the library cannot encode.
[[nodiscard]] Result<std::string> sample_jpeg(std::uint64_t seed, std::size_t max_bytes);

}  // namespace gpulet::image
