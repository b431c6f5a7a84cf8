// Writer and Reader: the two directions of a field list. A message is described once, by a function
// fields(codec, value) that names its fields; with a Writer it fills the protobuf message, with a
// Reader it checks the protobuf message and fills the value. A Reader keeps the first failure, so
// that a list needs no error handling. Private to protocol. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet.pb.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/tensor.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/protocol/frame.h"
#include "protocol/limits.h"

namespace gpulet::protocol {

// Access to one protobuf field. Made by the macros below, because generated setters are templates.
template <typename Get, typename Set>
struct Field {
  Get get;
  Set set;  // for messages and lists: returns a pointer to the mutable field
  std::string_view name;
};
template <typename Get, typename Set>
Field(Get, Set, const char*) -> Field<Get, Set>;

#define GPULET_FIELD(field_name)                                                         \
  ::gpulet::protocol::Field {                                                            \
    [](const auto& wire) -> decltype(auto) { return wire.field_name(); },                \
        [](auto& wire, const auto& value) { wire.set_##field_name(value); }, #field_name \
  }
#define GPULET_PART(field_name)                                             \
  ::gpulet::protocol::Field {                                               \
    [](const auto& wire) -> decltype(auto) { return wire.field_name(); },   \
        [](auto& wire) { return wire.mutable_##field_name(); }, #field_name \
  }
// An optional message.
#define GPULET_OPTIONAL_PART(field_name)                                                     \
  ::gpulet::protocol::Field {                                                                \
    [](const auto& wire) { return wire.has_##field_name() ? &wire.field_name() : nullptr; }, \
        [](auto& wire) { return wire.mutable_##field_name(); }, #field_name                  \
  }
// An optional scalar.
#define GPULET_OPTIONAL(field_name)                                                      \
  ::gpulet::protocol::Field {                                                            \
    [](const auto& wire) {                                                               \
      return wire.has_##field_name() ? std::optional(wire.field_name()) : std::nullopt;  \
    },                                                                                   \
        [](auto& wire, const auto& value) { wire.set_##field_name(value); }, #field_name \
  }

// Rounded up, so that a short time does not become none; limited to what receivers accept.
[[nodiscard]] std::uint64_t to_microseconds(Duration duration);
// Replaces invalid UTF-8 by '?', which protobuf requires, and cuts between characters. For text
// from elsewhere, such as error messages.
[[nodiscard]] std::string to_valid_text(const std::string& text, std::size_t max_bytes);
void to_wire(const Status& status, wire::Status* to);

// What a Reader demands of tensors. fixed: they have elements; declared: dimensions may be dynamic,
// too (core/bucket.h). Admission checks a request's shapes. converted: fixed, and an input may have
// a conversion, which no other list transmits. Declared and converted inputs may be encoded images.
enum class Shapes : std::uint8_t { fixed, declared, unchecked, converted };

void to_wire(const std::vector<TensorSpec>& specs, Shapes shapes,
             google::protobuf::RepeatedPtrField<wire::Tensor>* to);

template <typename Wire>
class Writer {
 public:
  static constexpr bool kReads = false;
  template <typename T>
  using Value = const T;

  explicit Writer(Wire& wire) : wire_(wire) {}

  void plain(const auto& field, const auto& value) { field.set(wire_, value); }
  void text(const auto& field, const std::string& value, std::size_t) { field.set(wire_, value); }
  void cut_text(const auto& field, const std::string& value, std::size_t max_bytes) {
    field.set(wire_, to_valid_text(value, max_bytes));
  }
  void name(const auto& field, const std::string& value) { field.set(wire_, value); }
  void sha256(const auto& field, const std::string& value) { field.set(wire_, value); }
  void duration(const auto& field, Duration value) { field.set(wire_, to_microseconds(value)); }
  void amount(const auto& field, double value) { field.set(wire_, value); }
  void maybe_amount(const auto& field, const std::optional<double>& value) {
    if (value) field.set(wire_, *value);
  }
  void batch(const auto& field, std::uint32_t requests, std::uint32_t) {
    field.set(wire_, requests);
  }
  void share(const auto& field, Share value, int) {
    field.set(wire_, static_cast<std::uint32_t>(value.percent));
  }
  void one_of(const auto& field, auto value, auto, auto) {
    field.set(wire_, static_cast<std::uint32_t>(value));
  }
  // Always present.
  void status(const auto& field, const Status& value) { to_wire(value, field.set(wire_)); }
  // Absent where ok.
  void failure(const auto& field, const Status& value) {
    if (!value.ok()) to_wire(value, field.set(wire_));
  }
  void tensors(const auto& field, const std::vector<TensorSpec>& specs, Shapes shapes) {
    to_wire(specs, shapes, field.set(wire_));
  }
  void part(const auto& field, const auto& value) {
    Writer<std::remove_pointer_t<decltype(field.set(wire_))>> writer(*field.set(wire_));
    fields(writer, value);
  }
  template <typename T>
  void maybe_part(const auto& field, const std::optional<T>& value) {
    if (value) part(field, *value);
  }
  void list(const auto& field, const auto& values, std::size_t) {
    auto& to = *field.set(wire_);
    for (const auto& value : values) {
      Writer<std::remove_pointer_t<decltype(to.Add())>> writer(*to.Add());
      fields(writer, value);
    }
  }
  void numbers(const auto& field, const auto& values, std::size_t) {
    field.set(wire_)->Add(values.begin(), values.end());
  }
  void batches(const auto& field, const std::vector<std::uint32_t>& values, std::uint32_t) {
    numbers(field, values, kMaxPlannedBatches);
  }
  void durations(const auto& field, const std::vector<Duration>& values, std::size_t) {
    for (const Duration value : values) field.set(wire_)->Add(to_microseconds(value));
  }
  void names(const auto& field, const std::vector<std::string>& values, std::size_t) {
    for (const std::string& value : values) *field.set(wire_)->Add() = value;
  }
  void shares(const auto& field, const std::vector<Share>& values, std::size_t) {
    for (const Share value : values)
      field.set(wire_)->Add(static_cast<std::uint32_t>(value.percent));
  }
  // At most `most` texts.
  void cut_texts(const auto& field, const std::vector<std::string>& values, std::size_t most,
                 std::size_t max_bytes) {
    for (std::size_t i = 0; i < values.size() && i < most; ++i)
      *field.set(wire_)->Add() = values[i].substr(0, max_bytes);
  }
  void instance(const auto& field, const std::optional<partition::MigInstance>& value) {
    if (!value) return;
    field.set(wire_)->set_slices(value->slices);
    field.set(wire_)->set_start(value->start);
  }
  void geometry(const std::optional<partition::MigGeometry>& value) {
    if (!value) return;
    wire_.set_mig_geometry(std::string(value->name()));
    wire_.set_without_3g_beside_4g(!value->allows_3g_beside_4g());
  }

 private:
  Wire& wire_;
};

// The checks of a Reader. Each returns a valid value if it fails.
class Checks {
 public:
  explicit Checks(MessageType type) : own_{type, {}}, failure_(&own_) {}
  Checks(const Checks& outer, std::string_view name)
      : failure_(outer.failure_), outer_(&outer), name_(name) {}
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;

  [[nodiscard]] bool ok() const { return failure_->status.ok(); }
  [[nodiscard]] const Status& error() const { return failure_->status; }

  void fail(std::string_view field, std::string_view why);
  // False, after fail(), if a list is longer than `most`.
  [[nodiscard]] bool check_count(std::string_view field, std::size_t count, std::size_t most);
  [[nodiscard]] std::string check_text(std::string_view field, const std::string& value,
                                       std::size_t max_bytes);
  [[nodiscard]] std::string check_sha256(std::string_view field, const std::string& value);
  [[nodiscard]] Duration check_duration(std::string_view field, std::uint64_t microseconds);
  [[nodiscard]] double check_amount(std::string_view field, double value);
  // Fails unless least <= value <= most.
  [[nodiscard]] std::uint32_t check_range(std::string_view field, std::uint32_t value,
                                          std::uint32_t least, std::uint32_t most);
  [[nodiscard]] Status check_status(std::string_view field, const wire::Status& value);
  [[nodiscard]] std::optional<image::Preprocessing> check_image(std::string_view field,
                                                                const wire::Tensor& tensor);
  [[nodiscard]] std::vector<TensorSpec> check_tensors(
      std::string_view field, const google::protobuf::RepeatedPtrField<wire::Tensor>& values,
      Shapes shapes);
  [[nodiscard]] InputConversion check_conversion(std::string_view field,
                                                 const wire::InputConversion& value);
  [[nodiscard]] ValueRange check_values(std::string_view field, const wire::ValueRange& value);
  [[nodiscard]] std::optional<partition::MigInstance> check_instance(
      std::string_view field, const wire::MigInstance& value);
  [[nodiscard]] std::optional<partition::MigGeometry> check_geometry(const wire::Device& value);

 private:
  struct Failure {
    MessageType type{};
    Status status{};
  };
  [[nodiscard]] std::string path() const;

  Failure own_;
  Failure* failure_;
  const Checks* outer_ = nullptr;
  std::string_view name_;
};

template <typename Wire>
class Reader : public Checks {
 public:
  static constexpr bool kReads = true;
  template <typename T>
  using Value = T;

  Reader(const Wire& wire, MessageType type) : Checks(type), wire_(wire) {}
  Reader(const Wire& wire, const Checks& outer, std::string_view name)
      : Checks(outer, name), wire_(wire) {}

  void plain(const auto& field, auto& value) { value = field.get(wire_); }
  void text(const auto& field, std::string& value, std::size_t max_bytes) {
    value = check_text(field.name, field.get(wire_), max_bytes);
  }
  void cut_text(const auto& field, std::string& value, std::size_t max_bytes) {
    text(field, value, max_bytes);
  }
  void name(const auto& field, std::string& value) { text(field, value, kMaxNameBytes); }
  void sha256(const auto& field, std::string& value) {
    value = check_sha256(field.name, field.get(wire_));
  }
  void duration(const auto& field, Duration& value) {
    value = check_duration(field.name, field.get(wire_));
  }
  void amount(const auto& field, double& value) {
    value = check_amount(field.name, field.get(wire_));
  }
  void maybe_amount(const auto& field, std::optional<double>& value) {
    value = field.get(wire_);
    if (value) value = check_amount(field.name, *value);
  }
  void batch(const auto& field, std::uint32_t& requests, std::uint32_t least) {
    requests = check_range(field.name, field.get(wire_), least, kMaxBatch);
  }
  void share(const auto& field, Share& value, int least) {
    value = Share{static_cast<int>(
        check_range(field.name, field.get(wire_), static_cast<std::uint32_t>(least), 100))};
  }
  template <typename Enumeration>
  void one_of(const auto& field, Enumeration& value, Enumeration first, Enumeration last) {
    value = static_cast<Enumeration>(check_range(field.name, field.get(wire_),
                                                 static_cast<std::uint32_t>(first),
                                                 static_cast<std::uint32_t>(last)));
  }
  void status(const auto& field, Status& value) {
    value = check_status(field.name, field.get(wire_));
  }
  void failure(const auto& field, Status& value) { status(field, value); }
  void tensors(const auto& field, std::vector<TensorSpec>& specs, Shapes shapes) {
    specs = check_tensors(field.name, field.get(wire_), shapes);
  }
  void part(const auto& field, auto& value) {
    Reader<std::remove_cvref_t<decltype(field.get(wire_))>> reader(field.get(wire_), *this,
                                                                   field.name);
    fields(reader, value);
  }
  template <typename T>
  void maybe_part(const auto& field, std::optional<T>& value) {
    const auto* const from = field.get(wire_);
    if (from == nullptr) return;
    Reader<std::remove_cvref_t<decltype(*from)>> reader(*from, *this, field.name);
    fields(reader, value.emplace());
  }
  void list(const auto& field, auto& values, std::size_t most) {
    const auto& from = field.get(wire_);
    if (!check_count(field.name, static_cast<std::size_t>(from.size()), most)) return;
    values.reserve(static_cast<std::size_t>(from.size()));
    for (const auto& one : from) {
      Reader<std::remove_cvref_t<decltype(one)>> reader(one, *this, field.name);
      fields(reader, values.emplace_back());
    }
  }
  void numbers(const auto& field, auto& values, std::size_t most) {
    const auto& from = field.get(wire_);
    if (check_count(field.name, static_cast<std::size_t>(from.size()), most))
      values.assign(from.begin(), from.end());
  }
  // Each of 1 to `most` requests.
  void batches(const auto& field, std::vector<std::uint32_t>& values, std::uint32_t most) {
    const auto& from = field.get(wire_);
    if (!check_count(field.name, static_cast<std::size_t>(from.size()), kMaxPlannedBatches)) return;
    for (const std::uint32_t one : from) values.push_back(check_range(field.name, one, 1, most));
  }
  void durations(const auto& field, std::vector<Duration>& values, std::size_t most) {
    const auto& from = field.get(wire_);
    if (!check_count(field.name, static_cast<std::size_t>(from.size()), most)) return;
    values.reserve(static_cast<std::size_t>(from.size()));
    for (const std::uint64_t one : from) values.push_back(check_duration(field.name, one));
  }
  void names(const auto& field, std::vector<std::string>& values, std::size_t most) {
    cut_texts(field, values, most, kMaxNameBytes);
  }
  void shares(const auto& field, std::vector<Share>& values, std::size_t most) {
    const auto& from = field.get(wire_);
    if (!check_count(field.name, static_cast<std::size_t>(from.size()), most)) return;
    for (const std::uint32_t percent : from)
      values.push_back(Share{static_cast<int>(check_range(field.name, percent, 1, 100))});
  }
  void cut_texts(const auto& field, std::vector<std::string>& values, std::size_t most,
                 std::size_t max_bytes) {
    const auto& from = field.get(wire_);
    if (!check_count(field.name, static_cast<std::size_t>(from.size()), most)) return;
    for (const std::string& one : from) values.push_back(check_text(field.name, one, max_bytes));
  }
  void instance(const auto& field, std::optional<partition::MigInstance>& value) {
    value = check_instance(field.name, field.get(wire_));
  }
  void geometry(std::optional<partition::MigGeometry>& value) { value = check_geometry(wire_); }

 private:
  const Wire& wire_;
};

}  // namespace gpulet::protocol
