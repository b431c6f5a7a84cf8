#include "tools/serve/byte_inputs.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"

namespace gpulet::tools {
namespace {

struct Wanted {
  std::optional<config::ImageFormat> format{};  // empty: that of the model
  InputConversion conversion{};
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::vector<double>> numbers_in(std::string_view text) {
  std::vector<double> numbers;
  for (const std::string_view part : split(text, ',')) {
    const auto number = parse_number<double>(part);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

// What follows the name of the input, without the colon before it. Empty: it has another form.
std::optional<Wanted> parse_wanted(std::string_view text) {
  Wanted wanted;
  if (text.empty()) return wanted;
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts[0] != "NCHW" && parts[0] != "NHWC") return std::nullopt;
  wanted.format = parts[0] == "NCHW" ? config::ImageFormat::nchw : config::ImageFormat::nhwc;
  if (parts.size() == 1) return wanted;
  if (parts.size() == 2 && parts[1] == "imagenet") {
    wanted.conversion.mean = {0.485, 0.456, 0.406};
    wanted.conversion.deviation = {0.229, 0.224, 0.225};
    return wanted;
  }
  if (parts.size() != 3) return std::nullopt;
  auto mean = numbers_in(parts[1]);
  auto deviation = numbers_in(parts[2]);
  if (!mean || !deviation) return std::nullopt;
  wanted.conversion.mean = std::move(*mean);
  wanted.conversion.deviation = std::move(*deviation);
  return wanted;
}

// What follows the input in a text that names it. Names may have colons, too.
std::optional<std::string_view> rest_after(std::string_view text, const std::string& name) {
  if (!text.starts_with(name)) return std::nullopt;
  text.remove_prefix(name.size());
  if (text.empty()) return text;
  if (text.front() != ':') return std::nullopt;
  return text.substr(1);
}

Status convert(const Wanted& wanted, TensorSpec& input, config::ModelConfig& model) {
  if (input.conversion || input.image)
    return {StatusCode::invalid, "the models file converts this input already"};
  if (is_dynamic(input)) return {StatusCode::invalid, "an input of any size is not converted"};
  const auto own = model.formats.find(input.name);
  const auto to = own == model.formats.end() ? config::ImageFormat::nchw : own->second;
  const auto from = wanted.format.value_or(to);
  InputConversion conversion = wanted.conversion;
  conversion.to_channels_last = to == config::ImageFormat::nhwc;
  conversion.from_channels_last = from == config::ImageFormat::nhwc;
  GPULET_TRY(input, sent_input(input, std::move(conversion)));
  if (wanted.format) model.formats[input.name] = from;
  return {};
}

// Returns whether the model has the input.
Result<bool> set_one(const std::string& text, config::ModelConfig& model) {
  for (TensorSpec& input : model.inputs) {
    auto rest = rest_after(text, input.name);
    if (!rest) rest = rest_after(text, model.name + '/' + input.name);
    if (!rest) continue;
    const std::optional<Wanted> wanted = parse_wanted(*rest);
    if (!wanted) {
      return Status(StatusCode::invalid,
                    "write INPUT, INPUT:NHWC, INPUT:NHWC:imagenet or INPUT:NHWC:MEAN:STD, such as "
                    "image:NHWC:0.485,0.456,0.406:0.229,0.224,0.225");
    }
    if (Status converted = convert(*wanted, input, model); !converted.ok()) return converted;
    return true;
  }
  return false;
}

}  // namespace

Status set_byte_inputs(const std::vector<std::string>& texts,
                       std::vector<config::ModelConfig>& models) {
  for (const std::string& text : texts) {
    bool used = false;
    for (config::ModelConfig& model : models) {
      const Result<bool> set = set_one(text, model);
      if (!set.ok()) return set.status().within("--uint8 " + text);
      used = used || set.value();
    }
    if (!used) {
      return {StatusCode::invalid,
              fmt::format("--uint8 {}: no model has such an input; correct the name", text)};
    }
  }
  return {};
}

}  // namespace gpulet::tools
