#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "gpulet/core/tensor.h"

namespace gpulet {
namespace {

constexpr std::size_t kImageDimensions = 3;
constexpr double kLargestFp16 = 65504;
constexpr double kLargestByte = 255;

double largest_of(DataType type) {
  return type == DataType::fp16 ? kLargestFp16
                                : static_cast<double>(std::numeric_limits<float>::max());
}

Status refused(const TensorSpec& spec, const std::string& what) {
  return {StatusCode::invalid, "tensor " + spec.name + ": " + what};
}

// `what`: "mean". The numbers are one for all channels, or one for each.
Status check_count(const TensorSpec& spec, const char* what, std::size_t count) {
  if (count == 1) return {};
  if (spec.shape.size() != kImageDimensions) {
    return refused(spec, std::string(what) +
                             " must be one number, because only a tensor of three dimensions has "
                             "channels");
  }
  const std::int64_t channels =
      spec.conversion->from_channels_last ? spec.shape.back() : spec.shape.front();
  if (static_cast<std::int64_t>(count) == channels && count <= kMostConvertedChannels) return {};
  return refused(spec, std::string(what) + " has " + std::to_string(count) +
                           " numbers, but the tensor has " + std::to_string(channels) +
                           " channels; must be one for each, up to " +
                           std::to_string(kMostConvertedChannels) + ", or one for all");
}

Status check_numbers(const TensorSpec& spec) {
  const InputConversion& conversion = *spec.conversion;
  const auto positive = [](double number) { return std::isfinite(number) && number > 0; };
  if (!positive(conversion.scale) ||
      !std::all_of(conversion.deviation.begin(), conversion.deviation.end(), positive))
    return refused(spec, "scale and std must be finite and above 0");
  for (const ChannelConversion& channel : channels_of(conversion)) {
    const double largest = channel.factor * kLargestByte + std::fabs(channel.offset);
    if (largest <= largest_of(conversion.type)) continue;  // false of what is not a number, too
    return refused(spec, "scale, mean and std make numbers beyond those of " +
                             std::string(to_string(conversion.type)));
  }
  return {};
}

TensorSpec decoded(const std::string& name, const image::Preprocessing& image) {
  const std::int64_t width = image.width;
  const std::int64_t height = image.height;
  constexpr auto kDepth = static_cast<std::int64_t>(image::kChannels);
  return {.name = name,
          .type = image.type,
          .shape = image.layout == image::Layout::nchw
                       ? std::vector<std::int64_t>{kDepth, height, width}
                       : std::vector<std::int64_t>{height, width, kDepth}};
}

}  // namespace

std::vector<ChannelConversion> channels_of(const InputConversion& conversion) {
  const std::vector<double>& mean = conversion.mean;
  const std::vector<double>& deviation = conversion.deviation;
  std::vector<ChannelConversion> channels(std::max(mean.size(), deviation.size()));
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const double divisor = deviation[deviation.size() == 1 ? 0 : i];
    channels[i] = {conversion.scale / divisor, -mean[mean.size() == 1 ? 0 : i] / divisor};
  }
  return channels;
}

Status check_conversion(const TensorSpec& spec) {
  const InputConversion& conversion = *spec.conversion;
  if (spec.type != DataType::uint8 ||
      (conversion.type != DataType::fp32 && conversion.type != DataType::fp16))
    return refused(spec, "only UINT8 is converted, to FP32 or FP16");
  if (conversion.from_channels_last != conversion.to_channels_last &&
      spec.shape.size() != kImageDimensions)
    return refused(spec, "only a tensor of three dimensions has channels to put in another order");
  if (Status mean = check_count(spec, "mean", conversion.mean.size()); !mean.ok()) return mean;
  if (Status deviation = check_count(spec, "std", conversion.deviation.size()); !deviation.ok())
    return deviation;
  return check_numbers(spec);
}

TensorSpec model_input(const TensorSpec& spec) {
  if (spec.image) return decoded(spec.name, *spec.image);
  if (!spec.conversion) return spec;
  TensorSpec taken = spec;
  taken.type = spec.conversion->type;
  taken.conversion.reset();
  if (spec.shape.size() != kImageDimensions) return taken;
  const bool from_last = spec.conversion->from_channels_last;
  if (from_last == spec.conversion->to_channels_last) return taken;
  const auto channels = from_last ? taken.shape.end() - 1 : taken.shape.begin() + 1;
  std::rotate(taken.shape.begin(), channels, taken.shape.end());
  return taken;
}

std::vector<TensorSpec> model_inputs(const std::vector<TensorSpec>& specs) {
  std::vector<TensorSpec> taken;
  taken.reserve(specs.size());
  for (const TensorSpec& spec : specs) taken.push_back(model_input(spec));
  return taken;
}

Result<TensorSpec> sent_input(const TensorSpec& taken, InputConversion conversion) {
  TensorSpec sent = taken;
  sent.type = DataType::uint8;
  conversion.type = taken.type;
  const bool reorders = conversion.from_channels_last != conversion.to_channels_last;
  if (reorders && sent.shape.size() == kImageDimensions) {
    const auto first = conversion.to_channels_last ? sent.shape.end() - 1 : sent.shape.begin() + 1;
    std::rotate(sent.shape.begin(), first, sent.shape.end());
  }
  sent.conversion = std::move(conversion);
  if (Status valid = check_conversion(sent); !valid.ok()) return valid;
  return sent;
}

bool take_same_requests(const std::vector<TensorSpec>& left, const std::vector<TensorSpec>& right) {
  const auto same = [](const TensorSpec& one, const TensorSpec& other) {
    return one.name == other.name && one.type == other.type && one.shape == other.shape &&
           one.max_bytes == other.max_bytes && one.whole == other.whole;
  };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), same);
}

std::string conversion_text(const TensorSpec& spec) {
  if (spec.image) return to_string(*spec.image);
  if (!spec.conversion) return {};
  const InputConversion& conversion = *spec.conversion;
  const auto exact = [](double number) {
    return ' ' + std::to_string(std::bit_cast<std::uint64_t>(number));
  };
  std::string text = to_string(model_input(spec)) + " from " +
                     (conversion.from_channels_last ? "NHWC" : "NCHW") + " scale" +
                     exact(conversion.scale) + " mean";
  for (const double number : conversion.mean) text += exact(number);
  text += " std";
  for (const double number : conversion.deviation) text += exact(number);
  return text;
}

}  // namespace gpulet
