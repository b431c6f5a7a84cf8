// FieldReader: takes the fields of one message into values of their own, and keeps the first
// failure. A decoder reads everything and asks for the failure once, at its end. Private to
// net/codec. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet.pb.h"
#include "gpulet/core/numerics.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/net/codec/frame.h"
#include "gpulet/net/codec/limits.h"
#include "gpulet/partition/found_device.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::net {

class FieldReader {
 public:
  explicit FieldReader(MessageType message) : message_(message) {}

  [[nodiscard]] bool ok() const { return failure_.ok(); }
  [[nodiscard]] const Status& failure() const { return failure_; }

  // Each of these fails where the value is out of its range, and then gives any valid value.
  [[nodiscard]] std::string text(const std::string& value, std::string_view field,
                                 std::size_t max_bytes);
  [[nodiscard]] std::string name(const std::string& value, std::string_view field);
  [[nodiscard]] std::string sha256(const std::string& value);
  [[nodiscard]] Duration duration(std::uint64_t microseconds, std::string_view field);
  [[nodiscard]] Share share(std::uint32_t percent, int least);
  [[nodiscard]] double amount(double value, std::string_view field);  // finite, not negative
  [[nodiscard]] std::uint32_t batch(std::uint32_t requests, std::string_view field,
                                    std::uint32_t least);
  [[nodiscard]] Status status(const wire::Status& value);
  [[nodiscard]] Numerics numerics(const wire::Numerics& value);
  [[nodiscard]] std::optional<partition::MigInstance> instance(const wire::MigInstance& value);
  [[nodiscard]] std::optional<partition::MigGeometry> geometry(const wire::Device& value);
  [[nodiscard]] static partition::FoundShare found(const wire::FoundShare& value);
  // An enumeration whose values are 0..last.
  template <typename Enumeration>
  [[nodiscard]] Enumeration one_of(std::uint32_t value, Enumeration last, std::string_view field) {
    if (value <= static_cast<std::uint32_t>(last)) return static_cast<Enumeration>(value);
    fail(field, "no peer of this version knows " + std::to_string(value));
    return {};
  }
  // Of a model: every dimension is at least 1.
  [[nodiscard]] std::vector<TensorSpec> tensors(
      const google::protobuf::RepeatedPtrField<wire::Tensor>& values, std::string_view field);
  // Of a request: its dimensions are whatever the client wrote.
  [[nodiscard]] std::vector<TensorSpec> unchecked_tensors(
      const google::protobuf::RepeatedPtrField<wire::Tensor>& values, std::string_view field);

  // At most `limit` elements may be read of a list that has `count`. False, and a failure, where it
  // has more.
  [[nodiscard]] bool count(std::size_t count, std::size_t limit, std::string_view field);
  void no_payload(const Bytes& payload);
  void fail(std::string_view field, std::string_view why);

 private:
  MessageType message_;
  Status failure_;
};

}  // namespace gpulet::net
