#include "net/codec/field_reader.h"

#include <algorithm>
#include <cmath>

namespace gpulet::net {
namespace {

constexpr std::size_t kSha256Digits = 64;
constexpr std::uint32_t kMaxDataType = static_cast<std::uint32_t>(DataType::fp64);
constexpr std::uint32_t kMaxStatusCode = static_cast<std::uint32_t>(kLastStatusCode);
constexpr std::uint64_t kMaxMicroseconds = static_cast<std::uint64_t>(
    std::chrono::duration_cast<std::chrono::microseconds>(kMaxDuration).count());

bool is_lower_hex(char digit) {
  return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
}

std::string at_most(std::uint64_t limit, std::uint64_t value) {
  return "at most " + std::to_string(limit) + "; was " + std::to_string(value);
}

}  // namespace

void FieldReader::fail(std::string_view field, std::string_view why) {
  if (!failure_.ok()) return;
  failure_ = Status(StatusCode::malformed, std::string(to_string(message_)) + ": " +
                                               std::string(field) + ": " + std::string(why));
}

std::string FieldReader::text(const std::string& value, std::string_view field,
                              std::size_t max_bytes) {
  if (value.size() > max_bytes) {
    fail(field, "its length must be " + at_most(max_bytes, value.size()));
    return {};
  }
  return value;
}

std::string FieldReader::name(const std::string& value, std::string_view field) {
  return text(value, field, kMaxNameBytes);
}

std::string FieldReader::sha256(const std::string& value) {
  // Files are named after it: nothing but a digest may pass.
  if (value.size() != kSha256Digits || !std::all_of(value.begin(), value.end(), is_lower_hex)) {
    fail("sha256", "must be 64 lower-case hexadecimal digits; was \"" +
                       value.substr(0, kSha256Digits) + "\"");
    return {};
  }
  return value;
}

Duration FieldReader::duration(std::uint64_t microseconds, std::string_view field) {
  if (microseconds > kMaxMicroseconds) {
    fail(field, "must be " + at_most(kMaxMicroseconds, microseconds));
    return {};
  }
  return std::chrono::microseconds(microseconds);
}

Share FieldReader::share(std::uint32_t percent, int least) {
  if (percent > 100 || static_cast<int>(percent) < least) {
    fail("size",
         "must be " + std::to_string(least) + "..100 percent; was " + std::to_string(percent));
    return kWholeDevice;
  }
  return Share{static_cast<int>(percent)};
}

double FieldReader::amount(double value, std::string_view field) {
  if (!std::isfinite(value) || value < 0) {
    fail(field, "must be finite and not negative; was " + std::to_string(value));
    return 0;
  }
  return value;
}

std::uint32_t FieldReader::batch(std::uint32_t requests, std::string_view field,
                                 std::uint32_t least) {
  if (requests < least || requests > kMaxBatch) {
    fail(field, "must be " + std::to_string(least) + ".." + std::to_string(kMaxBatch) + "; was " +
                    std::to_string(requests));
    return 1;
  }
  return requests;
}

Status FieldReader::status(const wire::Status& value) {
  if (value.code() > kMaxStatusCode) {
    fail("status.code", "must be " + at_most(kMaxStatusCode, value.code()));
    return {};
  }
  if (value.code() == 0) return {};
  return {static_cast<StatusCode>(value.code()),
          text(value.message(), "status.message", kMaxStatusMessageBytes)};
}

Numerics FieldReader::numerics(const wire::Numerics& value) {
  return {one_of(value.precision(), Precision::bfloat16, "numerics.precision"),
          value.channels_last(), amount(value.largest_error(), "numerics.largest_error")};
}

std::optional<partition::MigInstance> FieldReader::instance(const wire::MigInstance& value) {
  const partition::MigInstance instance{value.slices(), value.start()};
  if (instance == partition::MigInstance()) return std::nullopt;
  const bool possible =
      instance.slices > 0 && instance.slices <= kMaxSlices && instance.start < kMaxSlices;
  if (!possible) fail("instance", "no device has an instance " + to_string(instance));
  return instance;
}

std::optional<partition::MigGeometry> FieldReader::geometry(const wire::Device& value) {
  if (value.mig_geometry().empty()) return std::nullopt;
  const auto geometry =
      partition::MigGeometry::of(name(value.mig_geometry(), "devices.mig_geometry"));
  if (!geometry.ok()) {
    fail("devices.mig_geometry", geometry.status().message());
    return std::nullopt;
  }
  return value.without_3g_beside_4g() ? geometry.value().without_3g_beside_4g() : geometry.value();
}

partition::FoundShare FieldReader::found(const wire::FoundShare& value) {
  return {value.held(), value.sms(), value.device_sms()};
}

std::vector<TensorSpec> FieldReader::unchecked_tensors(
    const google::protobuf::RepeatedPtrField<wire::Tensor>& values, std::string_view field) {
  std::vector<TensorSpec> specs;
  if (!count(static_cast<std::size_t>(values.size()), kMaxTensors, field)) return specs;
  specs.reserve(static_cast<std::size_t>(values.size()));
  for (const wire::Tensor& value : values) {
    if (value.type() < 1 || value.type() > kMaxDataType) {
      fail(field, "no tensor has type " + std::to_string(value.type()));
      break;
    }
    if (!count(static_cast<std::size_t>(value.shape_size()), kMaxDimensions, field)) break;
    specs.push_back({name(value.name(), field),
                     static_cast<DataType>(value.type()),
                     {value.shape().begin(), value.shape().end()}});
  }
  return specs;
}

std::vector<TensorSpec> FieldReader::tensors(
    const google::protobuf::RepeatedPtrField<wire::Tensor>& values, std::string_view field) {
  std::vector<TensorSpec> specs = unchecked_tensors(values, field);
  if (const Result<std::size_t> bytes = byte_size(specs); !bytes.ok())
    fail(field, bytes.status().message());
  return specs;
}

bool FieldReader::count(std::size_t count, std::size_t limit, std::string_view field) {
  if (count > limit) fail(field, "their number must be " + at_most(limit, count));
  return count <= limit;
}

void FieldReader::no_payload(const Bytes& payload) {
  if (!payload.empty())
    fail("payload", "there must be none; was " + std::to_string(payload.size()) + " bytes");
}

}  // namespace gpulet::net
