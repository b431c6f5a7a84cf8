// The parts of decode(): each kind of file, and the orientation. Private to image.
//
// libjpeg and libpng report errors by longjmp, which runs no destructors. Each function that calls
// setjmp, and everything that such a jump leaves, has only values without destructors. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/image/image.h"

namespace gpulet::image {

[[nodiscard]] Status invalid(const std::string& what);
[[nodiscard]] Status corrupt(const char* kind, const char* why);

// The EXIF tag: 1 is upright. Where the first pixel row and column of the file belong.
using Orientation = std::uint8_t;
inline constexpr Orientation kUpright = 1;
inline constexpr Orientation kLastOrientation = 8;

// The orientation in the content of a JPEG's APP1 segment; kUpright: it states none. Trusts
// nothing.
[[nodiscard]] Orientation orientation_in(std::span<const std::uint8_t> segment) noexcept;
[[nodiscard]] RgbImage turned_upright(RgbImage image, Orientation orientation);

struct JpegHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  Orientation orientation = kUpright;
  bool has_four_channels = false;
};
[[nodiscard]] Result<JpegHeader> read_jpeg_header(std::span<const std::byte> encoded);
// REQUIRES: `header` is that of `encoded`, and its pixels are within the limit.
[[nodiscard]] Result<RgbImage> decode_jpeg(std::span<const std::byte> encoded,
                                           const JpegHeader& header, std::uint32_t max_megapixels);

[[nodiscard]] bool is_png(std::span<const std::byte> encoded);
[[nodiscard]] Result<Header> read_png_header(std::span<const std::byte> encoded);
// As decode_jpeg().
[[nodiscard]] Result<RgbImage> decode_png(std::span<const std::byte> encoded, const Header& header);

}  // namespace gpulet::image
