#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>

#include "gpulet/base/random.h"
#include "gpulet/image/image.h"
// After the others: it includes none of what it needs.
#include <jpeglib.h>

namespace gpulet::image {
namespace {

constexpr std::uint32_t kWidth = 500;
constexpr std::uint32_t kHeight = 375;
constexpr std::array kQualities{85, 60, 30, 10, 1};

// Waves of several sizes and some noise: about as hard to compress as a photo.
RgbImage pattern(std::uint64_t seed) {
  constexpr std::size_t kWaves = 4;
  constexpr double kAmplitude = 28;
  constexpr std::uint64_t kNoise = 20;
  Random random(seed);
  std::array<std::array<double, 3>, kWaves * kChannels> waves{};
  for (auto& [across, down, phase] : waves) {
    across = random.uniform() * 0.12;
    down = random.uniform() * 0.12;
    phase = random.uniform() * 6.28;
  }
  RgbImage image{kWidth, kHeight, {}};
  image.pixels.reserve(std::size_t{kWidth} * kHeight * kChannels);
  for (std::uint32_t y = 0; y < kHeight; ++y) {
    for (std::uint32_t x = 0; x < kWidth; ++x) {
      const auto noise = static_cast<double>(random.below(kNoise));
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        double value = 128 + noise - static_cast<double>(kNoise) / 2;
        for (std::size_t i = 0; i < kWaves; ++i) {
          const auto& [across, down, phase] = waves[channel * kWaves + i];
          value += kAmplitude * std::sin(across * x + down * y + phase);
        }
        image.pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
    }
  }
  return image;
}

// The library allocates `bytes`.
struct Encoded {
  const std::uint8_t* pixels = nullptr;
  int quality = 0;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
};

struct Errors {
  jpeg_error_mgr manager{};  // first: the library knows only this member
  std::jmp_buf jump{};
};

[[noreturn]] void fail(j_common_ptr codec) {
  std::longjmp(reinterpret_cast<Errors*>(codec->err)->jump, 1);  // NOLINT(cert-err52-cpp)
}

void write_rows(jpeg_compress_struct& file, Encoded& encoded) {
  jpeg_create_compress(&file);
  jpeg_mem_dest(&file, &encoded.bytes, &encoded.size);
  file.image_width = kWidth;
  file.image_height = kHeight;
  file.input_components = static_cast<int>(kChannels);
  file.in_color_space = JCS_RGB;
  jpeg_set_defaults(&file);
  jpeg_set_quality(&file, encoded.quality, TRUE);
  jpeg_start_compress(&file, TRUE);
  while (file.next_scanline < kHeight) {
    const std::size_t at = std::size_t{file.next_scanline} * kWidth * kChannels;
    auto* row = const_cast<JSAMPROW>(encoded.pixels + at);
    jpeg_write_scanlines(&file, &row, 1);
  }
  jpeg_finish_compress(&file);
}

// As run() of jpeg.cc.
bool encode(Encoded& encoded) {
  jpeg_compress_struct file{};
  Errors errors;
  file.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = fail;
  if (setjmp(errors.jump) != 0) {  // NOLINT(cert-err52-cpp): the library is C
    jpeg_destroy_compress(&file);
    return false;
  }
  write_rows(file, encoded);
  jpeg_destroy_compress(&file);
  return true;
}

}  // namespace

Result<std::string> sample_jpeg(std::uint64_t seed, std::size_t max_bytes) {
  const RgbImage image = pattern(seed);
  std::string smallest;
  for (const int quality : kQualities) {
    Encoded encoded{.pixels = image.pixels.data(), .quality = quality};
    // After a failure the library may have freed them.
    if (!encode(encoded))
      return Status(StatusCode::internal, "libjpeg cannot encode a sample image");
    smallest.assign(reinterpret_cast<const char*>(encoded.bytes), encoded.size);
    std::free(encoded.bytes);  // NOLINT: the library allocated them
    if (smallest.size() <= max_bytes) break;
  }
  return smallest;
}

}  // namespace gpulet::image
