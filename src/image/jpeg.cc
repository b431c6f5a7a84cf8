#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstring>

#include "image/codecs.h"
// After the others: it includes none of what it needs.
#include <jerror.h>
#include <jpeglib.h>

namespace gpulet::image {
namespace {

constexpr std::size_t kChannelsOfCmyk = 4;
constexpr unsigned kMostMarkerBytes = 65533;
// A progressive file may have any number of scans, and each visits all pixels. Encoders write about
// ten.
constexpr int kMostScans = 100;
constexpr std::uint64_t kMostScannedPixels = std::uint64_t{1} << 30U;
// Of the library, for each allowed pixel: the coefficients of a progressive file.
constexpr long kBytesPerPixel = 8;
constexpr long kOtherBytes = 8L << 20U;
constexpr long kPixelsPerMegapixel = 1'000'000;

// What a call of the library is for, and how it ended. Values without destructors.
struct Job {
  const std::uint8_t* encoded = nullptr;
  std::size_t encoded_bytes = 0;
  long most_memory_bytes = kOtherBytes;
  JpegHeader header{};
  std::uint8_t* pixels = nullptr;    // three bytes each
  std::uint8_t* cmyk_row = nullptr;  // where the file has four channels
  std::array<char, JMSG_LENGTH_MAX> failure{};
};

struct Errors {
  jpeg_error_mgr manager{};  // first: the library knows only this member
  std::jmp_buf jump{};
  Job* job = nullptr;
};

Errors& errors_of(j_common_ptr codec) { return *reinterpret_cast<Errors*>(codec->err); }

[[noreturn]] void fail(j_common_ptr codec) {
  Errors& errors = errors_of(codec);
  errors.manager.format_message(codec, errors.job->failure.data());
  std::longjmp(errors.jump, 1);  // NOLINT(cert-err52-cpp): the library is C
}

[[noreturn]] void fail_with(j_common_ptr codec, const char* why) {
  Errors& errors = errors_of(codec);
  std::snprintf(errors.job->failure.data(), errors.job->failure.size(), "%s", why);
  std::longjmp(errors.jump, 1);  // NOLINT(cert-err52-cpp): the library is C
}

// The library invents what it cannot read, and warns. These warnings mean that pixels are missing.
bool is_damage(int warning) {
  switch (warning) {
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    default:
      return false;
  }
}

void take_message(j_common_ptr codec, int level) {
  if (level < 0 && is_damage(codec->err->msg_code)) fail(codec);
}

void watch_scans(j_common_ptr codec) {
  const auto& file = *reinterpret_cast<j_decompress_ptr>(codec);
  const auto scans = static_cast<std::uint64_t>(file.input_scan_number);
  const std::uint64_t pixels = std::uint64_t{file.image_width} * file.image_height;
  if (file.input_scan_number > kMostScans || scans * pixels > kMostScannedPixels)
    fail_with(codec, "it has more scans than an image of its size needs");
}

void read_orientation(const jpeg_decompress_struct& file, Job& job) {
  for (const jpeg_marker_struct* marker = file.marker_list; marker != nullptr;
       marker = marker->next) {
    const Orientation orientation = orientation_in({marker->data, marker->data_length});
    if (orientation == kUpright) continue;
    job.header.orientation = orientation;
    return;
  }
}

void begin(jpeg_decompress_struct& file, Job& job) {
  jpeg_create_decompress(&file);
  file.mem->max_memory_to_use = job.most_memory_bytes;
  jpeg_mem_src(&file, job.encoded, job.encoded_bytes);
  jpeg_save_markers(&file, JPEG_APP0 + 1, kMostMarkerBytes);
  jpeg_read_header(&file, TRUE);
}

void take_header(jpeg_decompress_struct& file, Job& job) {
  begin(file, job);
  // No program writes such files, and decoding them is hardly tested.
  if (file.arith_code != FALSE)
    fail_with(reinterpret_cast<j_common_ptr>(&file), "its coding is arithmetic; use Huffman's");
  job.header.width = file.image_width;
  job.header.height = file.image_height;
  job.header.has_four_channels = file.num_components == static_cast<int>(kChannelsOfCmyk);
  read_orientation(file, job);
}

std::uint8_t product(unsigned a, unsigned b) {  // of fractions of 255, rounded
  const unsigned scaled = a * b + 128;
  return static_cast<std::uint8_t>((scaled + (scaled >> 8U)) >> 8U);
}

// The values are those of inks, inverted, as all programs write them.
void to_rgb(const std::uint8_t* cmyk, std::size_t width, std::uint8_t* rgb) {
  for (std::size_t x = 0; x < width; ++x, cmyk += kChannelsOfCmyk, rgb += kChannels) {
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      const unsigned ink = 255U - cmyk[channel];
      rgb[channel] = static_cast<std::uint8_t>(cmyk[3] - product(ink, cmyk[3]));
    }
  }
}

void take_pixels(jpeg_decompress_struct& file, Job& job) {
  begin(file, job);
  jpeg_progress_mgr progress{};
  progress.progress_monitor = watch_scans;
  file.progress = &progress;
  file.out_color_space = job.header.has_four_channels ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&file);
  if (file.output_width != job.header.width || file.output_height != job.header.height)
    fail_with(reinterpret_cast<j_common_ptr>(&file), "its size changed");
  const std::size_t row_bytes = std::size_t{job.header.width} * kChannels;
  std::uint8_t* rgb = job.pixels;
  while (file.output_scanline < file.output_height) {
    JSAMPROW row = job.header.has_four_channels ? job.cmyk_row : rgb;
    if (jpeg_read_scanlines(&file, &row, 1) != 1)
      fail_with(reinterpret_cast<j_common_ptr>(&file), "it ends early");
    if (job.header.has_four_channels) to_rgb(row, job.header.width, rgb);
    rgb += row_bytes;
  }
  // What follows the pixels does not matter: jpeg_finish_decompress() would demand its end.
}

// Calls take(file, job). False: the library failed, and job.failure says why.
bool run(Job& job, void (*take)(jpeg_decompress_struct& file, Job& job)) {
  jpeg_decompress_struct file{};
  Errors errors;
  file.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = fail;
  errors.manager.emit_message = take_message;
  errors.job = &job;
  if (setjmp(errors.jump) != 0) {  // NOLINT(cert-err52-cpp): the library is C
    jpeg_destroy_decompress(&file);
    return false;
  }
  take(file, job);
  jpeg_destroy_decompress(&file);
  return true;
}

Job job_of(std::span<const std::byte> encoded) {
  Job job;
  job.encoded = reinterpret_cast<const std::uint8_t*>(encoded.data());
  job.encoded_bytes = encoded.size();
  return job;
}

}  // namespace

Result<JpegHeader> read_jpeg_header(std::span<const std::byte> encoded) {
  Job job = job_of(encoded);
  if (!run(job, take_header)) return corrupt("JPEG", job.failure.data());
  return job.header;
}

Result<RgbImage> decode_jpeg(std::span<const std::byte> encoded, const JpegHeader& header,
                             std::uint32_t max_megapixels) {
  RgbImage image{header.width, header.height, {}};
  image.pixels.resize(std::size_t{header.width} * header.height * kChannels);
  std::vector<std::uint8_t> cmyk_row;
  if (header.has_four_channels) cmyk_row.resize(std::size_t{header.width} * kChannelsOfCmyk);
  Job job = job_of(encoded);
  job.most_memory_bytes =
      static_cast<long>(max_megapixels) * kPixelsPerMegapixel * kBytesPerPixel + kOtherBytes;
  job.header = header;
  job.pixels = image.pixels.data();
  job.cmyk_row = cmyk_row.data();
  if (!run(job, take_pixels)) return corrupt("JPEG", job.failure.data());
  return image;
}

}  // namespace gpulet::image
