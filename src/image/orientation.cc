#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "image/codecs.h"

namespace gpulet::image {
namespace {

// The numbers of a TIFF structure; zero beyond its end.
class Tiff {
 public:
  explicit Tiff(std::span<const std::uint8_t> bytes) noexcept : bytes_(bytes) {
    little_endian_ = bytes.size() >= 2 && bytes[0] == 'I' && bytes[1] == 'I';
  }

  [[nodiscard]] std::uint32_t number(std::size_t at, std::size_t width) const noexcept {
    if (at > bytes_.size() || width > bytes_.size() - at) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < width; ++i)
      value = value << 8U | bytes_[at + (little_endian_ ? width - 1 - i : i)];
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool little_endian_ = false;
};

}  // namespace

Orientation orientation_in(std::span<const std::uint8_t> segment) noexcept {
  constexpr std::array<std::uint8_t, 6> kPrefix{'E', 'x', 'i', 'f', 0, 0};
  constexpr std::uint32_t kOrientationTag = 0x0112;
  constexpr std::uint32_t kShort = 3;
  constexpr std::size_t kEntryBytes = 12;
  if (segment.size() < kPrefix.size() ||
      !std::equal(kPrefix.begin(), kPrefix.end(), segment.begin()))
    return kUpright;
  const Tiff tiff(segment.subspan(kPrefix.size()));
  constexpr std::uint32_t kTiffMagic = 42;
  if (tiff.number(2, 2) != kTiffMagic) return kUpright;
  const std::size_t directory = tiff.number(4, 4);
  const std::uint32_t entries = tiff.number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const std::uint32_t value = tiff.number(entry + 8, 2);
    const bool known =
        tiff.number(entry + 2, 2) == kShort && value >= 1 && value <= kLastOrientation;
    return known ? static_cast<Orientation>(value) : kUpright;
  }
  return kUpright;
}

RgbImage turned_upright(RgbImage image, Orientation orientation) {
  if (orientation == kUpright) return image;
  // 2: mirrored; 3: turned by half; 4: upside down; 5 to 8: the same with rows for columns.
  const bool swaps = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage upright{image.width, image.height, std::vector<std::uint8_t>(image.pixels.size())};
  if (swaps) std::swap(upright.width, upright.height);
  auto to = upright.pixels.begin();
  for (std::size_t row = 0; row < upright.height; ++row) {
    for (std::size_t column = 0; column < upright.width; ++column) {
      std::size_t x = swaps ? row : column;
      std::size_t y = swaps ? column : row;
      if (from_right) x = image.width - 1 - x;
      if (from_below) y = image.height - 1 - y;
      const auto pixel =
          image.pixels.begin() + static_cast<std::ptrdiff_t>((y * image.width + x) * kChannels);
      to = std::copy_n(pixel, kChannels, to);
    }
  }
  return upright;
}

}  // namespace gpulet::image
