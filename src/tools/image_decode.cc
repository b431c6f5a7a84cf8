#include <algorithm>
#include <charconv>
#include <string>

#include "tools/image.h"
#include "tools/infer_input.h"
#ifdef GPULET_HAS_PNG
#include <png.h>
#endif

namespace gpulet::tools {
namespace {

constexpr std::uint32_t kLongestSide = 16384;
constexpr std::uint32_t kLargestSample = 65535;

Status invalid(const std::string& what) { return {StatusCode::invalid, what}; }

Status check_sides(std::uint64_t width, std::uint64_t height) {
  if (width >= 1 && height >= 1 && width <= kLongestSide && height <= kLongestSide) return {};
  return invalid("an image must be 1 to " + std::to_string(kLongestSide) +
                 " pixels wide and high; was " + std::to_string(width) + " x " +
                 std::to_string(height));
}

// The numbers of a portable anymap, one after another; a '#' begins a comment.
class AnymapReader {
 public:
  explicit AnymapReader(std::string_view text) : text_(text) {}

  std::optional<std::uint32_t> number() {
    skip_blanks();
    std::uint32_t number = 0;
    const char* const begin = text_.data() + at_;
    const auto read = std::from_chars(begin, text_.data() + text_.size(), number);
    if (read.ec != std::errc()) return std::nullopt;
    at_ += static_cast<std::size_t>(read.ptr - begin);
    return number;
  }

  // One sample of one byte or two, the high one first.
  std::optional<std::uint32_t> raw(std::size_t bytes) {
    if (text_.size() - at_ < bytes) return std::nullopt;
    std::uint32_t sample = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      sample = sample << 8U | static_cast<unsigned char>(text_[at_++]);
    return sample;
  }

  void skip(std::size_t bytes) { at_ = std::min(at_ + bytes, text_.size()); }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

bool is_anymap(std::string_view text) {
  return text.size() > 2 && text[0] == 'P' &&
         (text[1] == '2' || text[1] == '3' || text[1] == '5' || text[1] == '6');
}

Result<Image> decode_anymap(std::string_view text) {
  const char kind = text[1];
  const bool plain = kind == '2' || kind == '3';
  AnymapReader reader(text);
  reader.skip(2);
  const auto width = reader.number();
  const auto height = reader.number();
  const auto largest = reader.number();
  if (!width || !height || !largest || *largest < 1 || *largest > kLargestSample)
    return invalid("the anymap's header must hold width, height and a largest sample up to 65535");
  if (const Status sides = check_sides(*width, *height); !sides.ok()) return sides;
  reader.skip(1);  // the one blank that ends the header
  Image image{*width, *height, kind == '3' || kind == '6' ? 3U : 1U};
  const std::size_t count = std::size_t{*width} * *height * image.channels;
  const std::size_t bytes = *largest > 255 ? 2 : 1;
  // A header alone does not make us take the memory: a sample needs at least a byte.
  if (count > text.size()) return invalid("the anymap is cut short");
  image.values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto sample = plain ? reader.number() : reader.raw(bytes);
    if (!sample || *sample > *largest)
      return invalid("the anymap is cut short, or a sample is above its largest: sample " +
                     std::to_string(i) + " of " + std::to_string(count));
    image.values.push_back(static_cast<float>(*sample) / static_cast<float>(*largest));
  }
  return image;
}

#ifdef GPULET_HAS_PNG
bool is_png(std::string_view text) { return text.starts_with("\x89PNG\r\n\x1a\n"); }

// libpng's handle, which holds memory until it is freed.
class PngImage {
 public:
  PngImage() { image_.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image_); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  png_image* get() { return &image_; }
  png_image* operator->() { return &image_; }

 private:
  png_image image_{};
};

Result<Image> decode_png(std::string_view bytes) {
  PngImage png;
  if (png_image_begin_read_from_memory(png.get(), bytes.data(), bytes.size()) == 0)
    return invalid(std::string("the PNG cannot be read: ") + png->message);
  if (const Status sides = check_sides(png->width, png->height); !sides.ok()) return sides;
  const bool coloured = (png->format & PNG_FORMAT_FLAG_COLOR) != 0;
  png->format = coloured ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  std::vector<std::uint8_t> samples(PNG_IMAGE_SIZE(*png.get()));
  const png_color black{0, 0, 0};  // behind what is transparent
  if (png_image_finish_read(png.get(), &black, samples.data(), 0, nullptr) == 0)
    return invalid(std::string("the PNG cannot be read: ") + png->message);
  Image image{png->width, png->height, coloured ? 3U : 1U};
  image.values.reserve(samples.size());
  for (const std::uint8_t sample : samples)
    image.values.push_back(static_cast<float>(sample) / 255.0F);
  return image;
}
#endif

}  // namespace

std::string_view image_formats() {
#ifdef GPULET_HAS_PNG
  return "PNG, PGM or PPM";
#else
  return "PGM or PPM";
#endif
}

Result<Image> decode_image(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (is_anymap(text)) return decode_anymap(text);
#ifdef GPULET_HAS_PNG
  if (is_png(text)) return decode_png(text);
#endif
  return invalid("is not of a format that can be read here; convert it to " +
                 std::string(image_formats()));
}

Result<Image> read_image(const std::filesystem::path& file) {
  const Result<std::vector<std::byte>> bytes = read_file(file);
  if (!bytes.ok()) return bytes.status();
  Result<Image> image = decode_image(bytes.value());
  if (!image.ok()) return image.status().within(file.string());
  return image;
}

}  // namespace gpulet::tools
