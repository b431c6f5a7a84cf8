#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tools/image.h"
#include "tools/tensor_values.h"

namespace gpulet::tools {
namespace {

constexpr double kLargestWhole = 255;

Status invalid(const std::string& what) { return {StatusCode::invalid, what}; }

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

// One pixel of the result: what of which pixels of the source, from `first` on.
struct Cover {
  std::size_t first = 0;
  std::vector<float> weights;
};

// A triangle as wide as a pixel of the larger of both: between pixels where the image grows, the
// mean of all that is covered where it shrinks.
std::vector<Cover> covers(std::uint32_t from, std::uint32_t to) {
  const double scale = static_cast<double>(from) / to;
  const double reach = std::max(scale, 1.0);
  std::vector<Cover> all(to);
  for (std::uint32_t i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale - 0.5;
    const auto first = static_cast<std::int64_t>(std::max(std::ceil(centre - reach), 0.0));
    const auto last = static_cast<std::int64_t>(std::min(std::floor(centre + reach), from - 1.0));
    all[i].first = static_cast<std::size_t>(first);
    double sum = 0;
    for (std::int64_t at = first; at <= last; ++at) {
      const double weight = std::max(1 - std::abs(static_cast<double>(at) - centre) / reach, 0.0);
      all[i].weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : all[i].weights) weight = static_cast<float>(weight / sum);
  }
  return all;
}

Image with_width(const Image& image, std::uint32_t width) {
  const std::vector<Cover> columns = covers(image.width, width);
  Image resized{width, image.height, image.channels};
  resized.values.reserve(std::size_t{width} * image.height * image.channels);
  for (std::size_t row = 0; row < image.height; ++row) {
    for (const Cover& cover : columns) {
      for (std::size_t channel = 0; channel < image.channels; ++channel) {
        float value = 0;
        for (std::size_t i = 0; i < cover.weights.size(); ++i) {
          const std::size_t pixel = row * image.width + cover.first + i;
          value += cover.weights[i] * image.values[pixel * image.channels + channel];
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
  for (const Cover& cover : covers(image.height, height)) {
    for (std::size_t column = 0; column < row_values; ++column) {
      float value = 0;
      for (std::size_t i = 0; i < cover.weights.size(); ++i)
        value += cover.weights[i] * image.values[(cover.first + i) * row_values + column];
      resized.values.push_back(value);
    }
  }
  return resized;
}

Image with_channels(const Image& image, std::uint32_t channels) {
  if (channels == image.channels) return image;
  Image turned{image.width, image.height, channels};
  const std::size_t pixels = std::size_t{image.width} * image.height;
  turned.values.reserve(pixels * channels);
  for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
    if (channels == 3) {
      turned.values.insert(turned.values.end(), 3, image.values[pixel]);
    } else {
      const float* const colour = &image.values[pixel * 3];
      turned.values.push_back(0.299F * colour[0] + 0.587F * colour[1] + 0.114F * colour[2]);
    }
  }
  return turned;
}

Status check(const TensorSpec& spec, const std::optional<Normalisation>& normalisation,
             std::uint32_t channels) {
  if (spec.type == DataType::boolean || spec.type == DataType::int8)
    return invalid("an image does not fit the model's input " + spec.name + ' ' + to_string(spec));
  if (!normalisation) return {};
  if (spec.type < DataType::fp16)
    return invalid("mean and deviation are for inputs of floating point; " + spec.name + " is " +
                   to_string(spec));
  for (const std::vector<double>* const numbers :
       {&normalisation->mean, &normalisation->deviation}) {
    if (numbers->size() != 1 && numbers->size() != channels)
      return invalid("mean and deviation take one number, or one for each of the " +
                     std::to_string(channels) + " channels; were " +
                     std::to_string(numbers->size()));
  }
  for (const double deviation : normalisation->deviation) {
    if (!(deviation > 0)) return invalid("a deviation must be above 0");
  }
  return {};
}

double of_channel(const std::vector<double>& numbers, std::size_t channel) {
  return numbers.size() == 1 ? numbers.front() : numbers[channel];
}

}  // namespace

Result<Bytes> to_tensor(const Image& image, const TensorSpec& spec,
                        const std::optional<Normalisation>& normalisation) {
  const std::optional<Layout> layout = layout_of(spec);
  if (!layout)
    return invalid("an image needs an input of shape [C,H,W] or [H,W,C] with 1 or 3 channels; " +
                   spec.name + " is " + to_string(spec));
  if (const Status fits = check(spec, normalisation, layout->channels); !fits.ok()) return fits;
  const Image fitted = with_channels(with_height(with_width(image, layout->width), layout->height),
                                     layout->channels);

  const std::size_t pixels = std::size_t{layout->width} * layout->height;
  const auto value_of = [&](std::size_t pixel, std::size_t channel) {
    const double value = fitted.values[pixel * layout->channels + channel];
    if (spec.type < DataType::fp16)
      return std::nearbyint(std::clamp(value, 0.0, 1.0) * kLargestWhole);
    if (!normalisation) return value;
    return (value - of_channel(normalisation->mean, channel)) /
           of_channel(normalisation->deviation, channel);
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
