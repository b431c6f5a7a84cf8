#include "protocol/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpulet/core/bucket.h"

namespace gpulet::protocol {
namespace {

constexpr std::size_t kSha256Digits = 64;
constexpr std::uint64_t kMaxMicroseconds = static_cast<std::uint64_t>(
    std::chrono::duration_cast<std::chrono::microseconds>(kMaxDuration).count());

bool is_lower_hex(char digit) {
  return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
}

std::string at_most(std::uint64_t limit, std::uint64_t value) {
  return fmt::format("must be at most {}; was {}", limit, value);
}

// The length of the valid UTF-8 character at the start of `text`; 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte_at = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte_at(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  // Some second bytes would make overlong forms, surrogates or numbers too large.
  unsigned char least_second = 0x80;
  unsigned char largest_second = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (first == 0xe0) least_second = 0xa0;
  if (first == 0xed) largest_second = 0x9f;
  if (first == 0xf0) least_second = 0x90;
  if (first == 0xf4) largest_second = 0x8f;
  if (length == 0 || text.size() < length) return 0;
  if (byte_at(1) < least_second || byte_at(1) > largest_second) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte_at(i) < 0x80 || byte_at(i) > 0xbf) return 0;
  }
  return length;
}

}  // namespace

// ---- writing

std::uint64_t to_microseconds(Duration duration) {
  const Duration bounded = std::clamp(duration, Duration::zero(), kMaxDuration);
  return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::microseconds>(bounded).count());
}

std::string to_valid_text(const std::string& text, std::size_t max_bytes) {
  std::string valid;
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::size_t length = character_bytes(rest);
    const std::string_view character = length > 0 ? rest.substr(0, length) : std::string_view("?");
    if (valid.size() + character.size() > max_bytes) break;
    valid += character;
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return valid;
}

void to_wire(const Status& status, wire::Status* to) {
  if (status.ok()) return;
  to->set_code(static_cast<std::uint32_t>(status.code()));
  to->set_message(to_valid_text(status.message(), kMaxStatusMessageBytes));
}

namespace {

void to_wire(const InputConversion& conversion, wire::InputConversion* to) {
  to->set_type(static_cast<std::uint32_t>(conversion.type));
  to->set_from_channels_last(conversion.from_channels_last);
  to->set_to_channels_last(conversion.to_channels_last);
  to->set_scale(conversion.scale);
  to->mutable_mean()->Add(conversion.mean.begin(), conversion.mean.end());
  to->mutable_deviation()->Add(conversion.deviation.begin(), conversion.deviation.end());
}

bool transmits_images(Shapes shapes) {
  return shapes == Shapes::declared || shapes == Shapes::converted;
}

void to_wire(const image::Preprocessing& image, wire::Preprocessing* to) {
  to->set_width(image.width);
  to->set_height(image.height);
  to->set_layout(static_cast<std::uint32_t>(image.layout));
  to->mutable_mean()->Add(image.mean.begin(), image.mean.end());
  to->mutable_scale()->Add(image.scale.begin(), image.scale.end());
  to->set_type(static_cast<std::uint32_t>(image.type));
  to->set_shorter_side(image.shorter_side);
  to->set_max_megapixels(image.max_megapixels);
}

}  // namespace

void to_wire(const std::vector<TensorSpec>& specs, Shapes shapes,
             google::protobuf::RepeatedPtrField<wire::Tensor>* to) {
  for (const TensorSpec& spec : specs) {
    wire::Tensor* const tensor = to->Add();
    tensor->set_name(spec.name);
    tensor->set_type(static_cast<std::uint32_t>(spec.type));
    tensor->mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
    tensor->set_max_bytes(spec.max_bytes);
    if (shapes == Shapes::converted && spec.conversion)
      to_wire(*spec.conversion, tensor->mutable_conversion());
    if (transmits_images(shapes) && spec.image) to_wire(*spec.image, tensor->mutable_image());
    if (shapes == Shapes::converted && spec.range) {
      tensor->mutable_range()->set_least(spec.range->least);
      tensor->mutable_range()->set_most(spec.range->most);
    }
    tensor->set_whole(spec.whole);
  }
}

// ---- checks

std::string Checks::path() const {
  if (outer_ == nullptr) return {};
  return outer_->path() + std::string(name_) + '.';
}

void Checks::fail(std::string_view field, std::string_view why) {
  if (!ok()) return;
  failure_->status =
      Status(StatusCode::malformed,
             fmt::format("{}: {}{}: {}", to_string(failure_->type), path(), field, why));
}

bool Checks::check_count(std::string_view field, std::size_t count, std::size_t most) {
  if (count > most) fail(field, "its number of elements " + at_most(most, count));
  return count <= most;
}

std::string Checks::check_text(std::string_view field, const std::string& value,
                               std::size_t max_bytes) {
  if (value.size() <= max_bytes) return value;
  fail(field, "its length " + at_most(max_bytes, value.size()));
  return {};
}

std::string Checks::check_sha256(std::string_view field, const std::string& value) {
  // Files are named after it, so that nothing but a digest may pass.
  if (value.size() == kSha256Digits && std::all_of(value.begin(), value.end(), is_lower_hex))
    return value;
  fail(field, fmt::format("must be 64 lower-case hexadecimal digits; was \"{}\"",
                          value.substr(0, kSha256Digits)));
  return {};
}

Duration Checks::check_duration(std::string_view field, std::uint64_t microseconds) {
  if (microseconds <= kMaxMicroseconds) return std::chrono::microseconds(microseconds);
  fail(field, at_most(kMaxMicroseconds, microseconds));
  return {};
}

double Checks::check_amount(std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return value;
  fail(field, fmt::format("must be finite and not negative; was {:f}", value));
  return 0;
}

std::uint32_t Checks::check_range(std::string_view field, std::uint32_t value, std::uint32_t least,
                                  std::uint32_t most) {
  if (value >= least && value <= most) return value;
  fail(field, fmt::format("must be {}..{}; was {}", least, most, value));
  return most;
}

Status Checks::check_status(std::string_view field, const wire::Status& value) {
  Checks checks(*this, field);
  const std::uint32_t code =
      checks.check_range("code", value.code(), 0, static_cast<std::uint32_t>(kLastStatusCode));
  if (code == 0 || !ok()) return {};
  return {static_cast<StatusCode>(code),
          checks.check_text("message", value.message(), kMaxStatusMessageBytes)};
}

std::optional<image::Preprocessing> Checks::check_image(std::string_view field,
                                                        const wire::Tensor& tensor) {
  const wire::Preprocessing& value = tensor.image();
  image::Preprocessing image;
  image.width = value.width();
  image.height = value.height();
  image.layout = static_cast<image::Layout>(
      check_range("layout", value.layout(), 0, static_cast<std::uint32_t>(image::Layout::nhwc)));
  image.shorter_side = value.shorter_side();
  image.max_megapixels = value.max_megapixels();
  image.type = static_cast<DataType>(
      check_range("type", value.type(), 0, static_cast<std::uint32_t>(DataType::bytes)));
  if (value.mean_size() != static_cast<int>(image::kChannels) ||
      value.scale_size() != static_cast<int>(image::kChannels)) {
    fail(field, "an encoded image has a mean and a scale for each channel");
    return std::nullopt;
  }
  std::copy(value.mean().begin(), value.mean().end(), image.mean.begin());
  std::copy(value.scale().begin(), value.scale().end(), image.scale.begin());
  if (const Status possible = image::check(image); !possible.ok()) fail(field, possible.message());
  const bool is_string = tensor.type() == static_cast<std::uint32_t>(DataType::bytes) &&
                         tensor.shape_size() == 1 && tensor.shape(0) == 1;
  if (!is_string) fail(field, "an encoded image must be BYTES [1]");
  return image;
}

std::vector<TensorSpec> Checks::check_tensors(
    std::string_view field, const google::protobuf::RepeatedPtrField<wire::Tensor>& values,
    Shapes shapes) {
  std::vector<TensorSpec> specs;
  if (!check_count(field, static_cast<std::size_t>(values.size()), kMaxTensors)) return specs;
  specs.reserve(static_cast<std::size_t>(values.size()));
  for (const wire::Tensor& value : values) {
    if (value.type() < 1 || value.type() > static_cast<std::uint32_t>(DataType::bytes)) {
      fail(field, fmt::format("unknown tensor type {}", value.type()));
      break;
    }
    if (!check_count(field, static_cast<std::size_t>(value.shape_size()), kMaxDimensions)) break;
    specs.push_back({check_text(field, value.name(), kMaxNameBytes),
                     static_cast<DataType>(value.type()),
                     {value.shape().begin(), value.shape().end()},
                     value.max_bytes()});
    TensorSpec& spec = specs.back();
    spec.whole = value.whole();
    if (transmits_images(shapes) && value.has_image()) spec.image = check_image(field, value);
    if (shapes == Shapes::converted && value.has_range())
      spec.range = check_values(field, value.range());
    if (shapes != Shapes::converted || !value.has_conversion()) continue;
    spec.conversion = check_conversion(field, value.conversion());
    if (!ok()) break;
    if (const Status valid = gpulet::check_conversion(spec); !valid.ok())
      fail(field, valid.message());
  }
  if (shapes == Shapes::unchecked) return specs;
  const Result<std::size_t> bytes =
      byte_size(shapes == Shapes::declared ? with_length(specs, 1) : specs);
  if (!bytes.ok()) fail(field, bytes.status().message());
  return specs;
}

ValueRange Checks::check_values(std::string_view field, const wire::ValueRange& value) {
  const ValueRange range{value.least(), value.most()};
  const bool possible = std::isfinite(range.least) && std::isfinite(range.most);
  if (!possible || range.least > range.most)
    fail(field, "a range of values has a least and a most");
  return range;
}

InputConversion Checks::check_conversion(std::string_view field,
                                         const wire::InputConversion& value) {
  const auto mean = static_cast<std::size_t>(value.mean_size());
  const auto deviation = static_cast<std::size_t>(value.deviation_size());
  if (!check_count(field, std::max(mean, deviation), kMostConvertedChannels)) return {};
  return {.type = static_cast<DataType>(
              check_range(field, value.type(), 1, static_cast<std::uint32_t>(DataType::fp64))),
          .from_channels_last = value.from_channels_last(),
          .to_channels_last = value.to_channels_last(),
          .scale = value.scale(),
          .mean = {value.mean().begin(), value.mean().end()},
          .deviation = {value.deviation().begin(), value.deviation().end()}};
}

std::optional<partition::MigInstance> Checks::check_instance(std::string_view field,
                                                             const wire::MigInstance& value) {
  const partition::MigInstance instance{value.slices(), value.start()};
  if (instance == partition::MigInstance()) return std::nullopt;
  const bool possible =
      instance.slices > 0 && instance.slices <= kMaxSlices && instance.start < kMaxSlices;
  if (!possible) fail(field, "no device has an instance " + to_string(instance));
  return instance;
}

std::optional<partition::MigGeometry> Checks::check_geometry(const wire::Device& value) {
  constexpr std::string_view kField = "mig_geometry";
  if (value.mig_geometry().empty()) return std::nullopt;
  const auto geometry =
      partition::MigGeometry::of(check_text(kField, value.mig_geometry(), kMaxNameBytes));
  if (!geometry.ok()) {
    fail(kField, geometry.status().message());
    return std::nullopt;
  }
  return value.without_3g_beside_4g() ? geometry.value().without_3g_beside_4g() : geometry.value();
}

}  // namespace gpulet::protocol
