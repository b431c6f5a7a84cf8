#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "image/codecs.h"

namespace gpulet::image {
namespace {

constexpr std::array<std::uint8_t, 8> kSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::size_t kFirstBytes = 24;  // up to width and height
constexpr png_alloc_size_t kMostChunkBytes = 1U << 20U;
// Chunks that say nothing about pixels, with their zeros.
constexpr std::array<png_byte, 60> kIgnoredChunks{
    'i', 'C', 'C', 'P', 0, 'i', 'T', 'X', 't', 0, 't', 'E', 'X', 't', 0, 'z', 'T', 'X', 't', 0,
    's', 'P', 'L', 'T', 0, 'h', 'I', 'S', 'T', 0, 'e', 'X', 'I', 'f', 0, 'p', 'C', 'A', 'L', 0,
    's', 'C', 'A', 'L', 0, 'p', 'H', 'Y', 's', 0, 't', 'I', 'M', 'E', 0, 'o', 'F', 'F', 's', 0};
constexpr std::size_t kChunkNameBytes = 5;

std::uint32_t big_endian(std::span<const std::byte> bytes) {
  std::uint32_t value = 0;
  for (const std::byte one : bytes) value = value << 8U | std::to_integer<std::uint32_t>(one);
  return value;
}

// As that of jpeg.cc.
struct Job {
  const std::byte* encoded = nullptr;
  std::size_t left_bytes = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint8_t* pixels = nullptr;
  std::array<char, 128> failure{};
};

[[noreturn]] void fail(png_structp file, png_const_charp why) {
  Job& job = *static_cast<Job*>(png_get_error_ptr(file));
  std::snprintf(job.failure.data(), job.failure.size(), "%s", why);
  png_longjmp(file, 1);
}

void ignore_warning(png_structp /*file*/, png_const_charp /*what*/) {}

void read_bytes(png_structp file, png_bytep to, png_size_t count) {
  Job& job = *static_cast<Job*>(png_get_io_ptr(file));
  if (count > job.left_bytes) png_error(file, "it ends early");
  std::memcpy(to, job.encoded, count);
  job.encoded += count;
  job.left_bytes -= count;
}

// Any kind of pixels becomes RGB with 8 bits.
void choose_rgb(png_structp file, png_infop info) {
  png_set_palette_to_rgb(file);
  png_set_expand_gray_1_2_4_to_8(file);
  png_set_scale_16(file);
  png_set_gray_to_rgb(file);
  png_set_strip_alpha(file);
  const int passes = png_set_interlace_handling(file);
  static_cast<void>(passes);
  png_read_update_info(file, info);
}

void read_pixels(png_structp file, png_infop info, Job& job) {
  png_set_read_fn(file, &job, read_bytes);
  png_set_chunk_malloc_max(file, kMostChunkBytes);
  png_set_keep_unknown_chunks(file, PNG_HANDLE_CHUNK_NEVER, kIgnoredChunks.data(),
                              static_cast<int>(kIgnoredChunks.size() / kChunkNameBytes));
  png_read_info(file, info);
  const bool interlaced = png_get_interlace_type(file, info) != PNG_INTERLACE_NONE;
  choose_rgb(file, info);
  const std::size_t row_bytes = std::size_t{job.width} * kChannels;
  if (png_get_image_width(file, info) != job.width ||
      png_get_image_height(file, info) != job.height || png_get_rowbytes(file, info) != row_bytes)
    png_error(file, "its size changed");
  const int passes = interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1;
  for (int pass = 0; pass < passes; ++pass) {
    for (std::uint32_t y = 0; y < job.height; ++y)
      png_read_row(file, job.pixels + y * row_bytes, nullptr);
  }
}

// False: the library failed, and job.failure says why.
bool run(Job& job) {
  png_structp file = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, fail, ignore_warning);
  if (file == nullptr) return false;
  png_infop info = png_create_info_struct(file);
  if (info == nullptr) {
    png_destroy_read_struct(&file, nullptr, nullptr);
    return false;
  }
  if (setjmp(png_jmpbuf(file)) != 0) {  // NOLINT(cert-err52-cpp): the library is C
    png_destroy_read_struct(&file, &info, nullptr);
    return false;
  }
  read_pixels(file, info, job);
  png_destroy_read_struct(&file, &info, nullptr);
  return true;
}

}  // namespace

bool is_png(std::span<const std::byte> encoded) {
  return encoded.size() >= kSignature.size() &&
         std::memcmp(encoded.data(), kSignature.data(), kSignature.size()) == 0;
}

// The first chunk is the header: its length, "IHDR", width, height.
Result<Header> read_png_header(std::span<const std::byte> encoded) {
  constexpr std::string_view kFirstChunk("\0\0\0\x0dIHDR", 8);
  if (encoded.size() < kFirstBytes) return corrupt("PNG", "it ends early");
  if (std::memcmp(encoded.data() + kSignature.size(), kFirstChunk.data(), kFirstChunk.size()) != 0)
    return corrupt("PNG", "it does not begin with its header");
  const Header header{Kind::png, big_endian(encoded.subspan(16, 4)),
                      big_endian(encoded.subspan(20, 4))};
  if (header.width == 0 || header.height == 0) return corrupt("PNG", "it has no pixels");
  return header;
}

Result<RgbImage> decode_png(std::span<const std::byte> encoded, const Header& header) {
  RgbImage image{header.width, header.height, {}};
  image.pixels.resize(std::size_t{header.width} * header.height * kChannels);
  Job job{.encoded = encoded.data(),
          .left_bytes = encoded.size(),
          .width = header.width,
          .height = header.height,
          .pixels = image.pixels.data()};
  if (!run(job)) return corrupt("PNG", job.failure.data());
  return image;
}

}  // namespace gpulet::image
