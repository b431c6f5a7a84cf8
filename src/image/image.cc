#include "gpulet/image/image.h"

#include <fmt/format.h>

#include "image/codecs.h"

namespace gpulet::image {

Status invalid(const std::string& what) { return {StatusCode::invalid, what}; }

Status corrupt(const char* kind, const char* why) {
  return invalid(fmt::format("the {} cannot be decoded: {}; send a whole, valid file", kind, why));
}

namespace {

constexpr std::uint64_t kPixelsPerMegapixel = 1'000'000;

bool is_jpeg(std::span<const std::byte> encoded) {
  return encoded.size() >= 3 && encoded[0] == std::byte{0xff} && encoded[1] == std::byte{0xd8} &&
         encoded[2] == std::byte{0xff};
}

Status no_image(std::span<const std::byte> encoded) {
  if (encoded.empty()) return invalid("the image is empty; send the bytes of a JPEG or PNG file");
  return invalid("the bytes are neither a JPEG nor a PNG; send the file as it is");
}

Status check_pixels(std::uint32_t width, std::uint32_t height, std::uint32_t max_megapixels) {
  if (std::uint64_t{width} * height <= max_megapixels * kPixelsPerMegapixel) return {};
  return invalid(fmt::format(
      "the image has {} x {} pixels, and at most {} megapixels are decoded; send a smaller one",
      width, height, max_megapixels));
}

Result<RgbImage> decode_turned_jpeg(std::span<const std::byte> encoded,
                                    std::uint32_t max_megapixels) {
  GPULET_TRY(const JpegHeader header, read_jpeg_header(encoded));
  if (Status fits = check_pixels(header.width, header.height, max_megapixels); !fits.ok())
    return fits;
  GPULET_TRY(RgbImage image, decode_jpeg(encoded, header, max_megapixels));
  return turned_upright(std::move(image), header.orientation);
}

}  // namespace

Result<Header> read_header(std::span<const std::byte> encoded) {
  if (is_png(encoded)) return read_png_header(encoded);
  if (!is_jpeg(encoded)) return no_image(encoded);
  GPULET_TRY(const JpegHeader header, read_jpeg_header(encoded));
  return Header{Kind::jpeg, header.width, header.height};
}

Result<RgbImage> decode(std::span<const std::byte> encoded, std::uint32_t max_megapixels) {
  if (is_jpeg(encoded)) return decode_turned_jpeg(encoded, max_megapixels);
  if (!is_png(encoded)) return no_image(encoded);
  GPULET_TRY(const Header header, read_png_header(encoded));
  if (Status fits = check_pixels(header.width, header.height, max_megapixels); !fits.ok())
    return fits;
  return decode_png(encoded, header);
}

Status decode_to_tensor(std::span<const std::byte> encoded, const Preprocessing& preprocessing,
                        std::span<std::byte> tensor) {
  GPULET_TRY(const RgbImage image, decode(encoded, preprocessing.max_megapixels));
  to_tensor(image, preprocessing, tensor);
  return {};
}

}  // namespace gpulet::image
