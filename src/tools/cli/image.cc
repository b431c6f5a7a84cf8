#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "gpulet/base/files.h"
#include "tools/cli/infer_input.h"
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
  return invalid(fmt::format("an image must be 1 to {} pixels wide and high; was {} x {}",
                             kLongestSide, width, height));
}

// Reads the numbers of a portable anymap; a '#' begins a comment.
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

  // Reads a sample of one or two bytes, big-endian.
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
    return invalid(
        "the header of the anymap must hold width, height and a largest sample up to 65535");
  if (const Status sides = check_sides(*width, *height); !sides.ok()) return sides;
  reader.skip(1);  // the blank that ends the header
  Image image{*width, *height, kind == '3' || kind == '6' ? 3U : 1U};
  const std::size_t count = std::size_t{*width} * *height * image.channels;
  const std::size_t bytes = *largest > 255 ? 2 : 1;
  // Checked before the memory is allocated: a sample needs at least a byte.
  if (count > text.size()) return invalid("the anymap is truncated");
  image.values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto sample = plain ? reader.number() : reader.raw(bytes);
    if (!sample || *sample > *largest)
      return invalid(fmt::format(
          "the anymap is truncated, or a sample exceeds its largest value: sample {} of {}", i,
          count));
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
  const png_color black{0, 0, 0};  // behind transparent pixels
  if (png_image_finish_read(png.get(), &black, samples.data(), 0, nullptr) == 0)
    return invalid(std::string("the PNG cannot be read: ") + png->message);
  Image image{png->width, png->height, coloured ? 3U : 1U};
  image.values.reserve(samples.size());
  for (const std::uint8_t sample : samples)
    image.values.push_back(static_cast<float>(sample) / 255.0F);
  return image;
}
#endif

constexpr double kLargestWhole = 255;

struct Layout {
  std::uint32_t channels = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  bool channels_first = true;
};

bool is_channels(std::int64_t dimension) { return dimension == 1 || dimension == 3; }

std::optional<Layout> layout_of(const TensorSpec& spec) {
  if (spec.shape.size() != 3 || !byte_size(spec).ok()) return std::nullopt;
  const auto side = [&spec](std::size_t index) {
    return static_cast<std::uint32_t>(spec.shape[index]);
  };
  if (is_channels(spec.shape[0])) return Layout{side(0), side(1), side(2), true};
  if (is_channels(spec.shape[2])) return Layout{side(2), side(0), side(1), false};
  return std::nullopt;
}

// The source pixels that contribute to one pixel of the result, from `first` on.
struct Weights {
  std::size_t first = 0;
  std::vector<float> values;
};

// The weights of a triangle filter as wide as a pixel of the coarser image: linear interpolation
// where the image grows, an average where it shrinks.
std::vector<Weights> resampling_weights(std::uint32_t from, std::uint32_t to) {
  const double scale = static_cast<double>(from) / to;
  const double reach = std::max(scale, 1.0);
  std::vector<Weights> all(to);
  for (std::uint32_t i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale - 0.5;
    const auto first = static_cast<std::int64_t>(std::max(std::ceil(centre - reach), 0.0));
    const auto last = static_cast<std::int64_t>(std::min(std::floor(centre + reach), from - 1.0));
    all[i].first = static_cast<std::size_t>(first);
    double sum = 0;
    for (std::int64_t at = first; at <= last; ++at) {
      const double weight = std::max(1 - std::abs(static_cast<double>(at) - centre) / reach, 0.0);
      all[i].values.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : all[i].values) weight = static_cast<float>(weight / sum);
  }
  return all;
}

Image with_width(const Image& image, std::uint32_t width) {
  const std::vector<Weights> columns = resampling_weights(image.width, width);
  Image resized{width, image.height, image.channels};
  resized.values.reserve(std::size_t{width} * image.height * image.channels);
  for (std::size_t row = 0; row < image.height; ++row) {
    for (const Weights& weights : columns) {
      for (std::size_t channel = 0; channel < image.channels; ++channel) {
        float value = 0;
        for (std::size_t i = 0; i < weights.values.size(); ++i) {
          const std::size_t pixel = row * image.width + weights.first + i;
          value += weights.values[i] * image.values[pixel * image.channels + channel];
        }
        resized.values.push_back(value);
      }
    }
  }
  return resized;
}

Image with_height(const Image& image, std::uint32_t height) {
  const std::size_t row_values = std::size_t{image.width} * image.channels;
  Image resized{image.width, height, image.channels};
  resized.values.reserve(row_values * height);
  for (const Weights& weights : resampling_weights(image.height, height)) {
    for (std::size_t column = 0; column < row_values; ++column) {
      float value = 0;
      for (std::size_t i = 0; i < weights.values.size(); ++i)
        value += weights.values[i] * image.values[(weights.first + i) * row_values + column];
      resized.values.push_back(value);
    }
  }
  return resized;
}

Image with_channels(const Image& image, std::uint32_t channels) {
  if (channels == image.channels) return image;
  Image converted{image.width, image.height, channels};
  const std::size_t pixels = std::size_t{image.width} * image.height;
  converted.values.reserve(pixels * channels);
  for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
    if (channels == 3) {
      converted.values.insert(converted.values.end(), 3, image.values[pixel]);
    } else {
      const float* const colour = &image.values[pixel * 3];
      converted.values.push_back(0.299F * colour[0] + 0.587F * colour[1] + 0.114F * colour[2]);
    }
  }
  return converted;
}

Status check(const TensorSpec& spec, const std::optional<Normalisation>& normalisation,
             std::uint32_t channels) {
  if (spec.type == DataType::boolean || spec.type == DataType::int8 || spec.type == DataType::bytes)
    return invalid(fmt::format("an image cannot become the model's input {} {}; use --input",
                               spec.name, to_string(spec)));
  if (!normalisation) return {};
  if (spec.type < DataType::fp16)
    return invalid(fmt::format("--mean and --std are for floating-point inputs; {} is {}",
                               spec.name, to_string(spec)));
  for (const std::vector<double>* const numbers :
       {&normalisation->mean, &normalisation->deviation}) {
    if (numbers->size() != 1 && numbers->size() != channels)
      return invalid(fmt::format(
          "--mean and --std take one number, or one for each of the {} channels; the command line "
          "has {}",
          channels, numbers->size()));
  }
  for (const double deviation : normalisation->deviation) {
    if (!(deviation > 0)) return invalid("--std must be above 0");
  }
  return {};
}

double channel_value(const std::vector<double>& numbers, std::size_t channel) {
  return numbers.size() == 1 ? numbers.front() : numbers[channel];
}

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
  return invalid("unknown image format; convert the image to " + std::string(image_formats()));
}

Result<Image> read_image(const std::filesystem::path& file) {
  GPULET_TRY(const std::vector<std::byte> bytes, read_file(file));
  Result<Image> image = decode_image(bytes);
  if (!image.ok()) return image.status().within(file.string());
  return image;
}

Result<Bytes> to_tensor(const Image& image, const TensorSpec& spec,
                        const std::optional<Normalisation>& normalisation) {
  const std::optional<Layout> layout = layout_of(spec);
  if (!layout)
    return invalid(fmt::format(
        "an image needs an input of shape [C,H,W] or [H,W,C] with 1 or 3 channels; {} is {}",
        spec.name, to_string(spec)));
  if (const Status fits = check(spec, normalisation, layout->channels); !fits.ok()) return fits;
  const Image fitted = with_channels(with_height(with_width(image, layout->width), layout->height),
                                     layout->channels);

  const std::size_t pixels = std::size_t{layout->width} * layout->height;
  const auto value_of = [&](std::size_t pixel, std::size_t channel) {
    const double value = fitted.values[pixel * layout->channels + channel];
    if (spec.type < DataType::fp16)
      return std::nearbyint(std::clamp(value, 0.0, 1.0) * kLargestWhole);
    if (!normalisation) return value;
    return (value - channel_value(normalisation->mean, channel)) /
           channel_value(normalisation->deviation, channel);
  };
  std::vector<std::byte> bytes;
  bytes.reserve(byte_size(spec).value());
  for (std::size_t i = 0; i < pixels * layout->channels; ++i) {
    const bool first = layout->channels_first;
    const std::size_t pixel = first ? i % pixels : i / layout->channels;
    const std::size_t channel = first ? i / pixels : i % layout->channels;
    if (const Status added = append_value(spec.type, value_of(pixel, channel), bytes); !added.ok())
      return added;
  }
  return Bytes::own(std::move(bytes));
}

}  // namespace gpulet::tools
