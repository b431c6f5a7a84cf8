// JSON of requests: a streaming reader, and pieces of error messages.
// Private to net. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::net::kserve {

// ---- error messages

[[nodiscard]] inline Status invalid(std::string message) {
  return {StatusCode::invalid, std::move(message)};
}

// 'text'. Long text is cut, because it comes from a client.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string result = "'";
  result.append(text.substr(0, kLongest));
  if (text.size() > kLongest) result += "...";
  return result + '\'';
}

// "[1,28,28]". Long shapes are cut.
[[nodiscard]] inline std::string shown(std::span<const std::int64_t> shape) {
  constexpr std::size_t kMost = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size() && i < kMost; ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() > kMost ? ",...]" : "]");
}

// The refusal of an input with more rows than the model takes, or none.
[[nodiscard]] Status wrong_rows(std::string_view input, std::string_view model,
                                std::uint32_t max_batch, std::int64_t rows);

// ---- reading

// The value as JSON. Long text is cut.
[[nodiscard]] std::string shown(const Scalar& value);

// Receives a document as a sequence of events, so that untrusted JSON is never stored as a tree: a
// reader takes and limits the members that it knows and ignores the rest. This one ignores all.
class JsonReader {
 public:
  virtual ~JsonReader() = default;

  // Each returns false to stop, after refuse(). open() and close() are balanced.
  [[nodiscard]] virtual bool scalar(const Scalar& /*value*/) { return true; }
  [[nodiscard]] virtual bool key(std::string_view /*name*/) { return true; }
  [[nodiscard]] virtual bool open(bool /*array*/) {  // false: an object
    ++depth_;
    return true;
  }
  [[nodiscard]] virtual bool close() {
    --depth_;
    return true;
  }

  [[nodiscard]] const Status& refusal() const { return refusal_; }

 protected:
  // The number of open objects and arrays.
  [[nodiscard]] std::size_t depth() const { return depth_; }
  bool refuse(Status why) {
    refusal_ = std::move(why);
    return false;
  }
  bool refuse(std::string why) { return refuse(Status(StatusCode::invalid, std::move(why))); }
  // Refuses a failed status.
  bool accept(Status status) { return status.ok() || refuse(std::move(status)); }

 private:
  std::size_t depth_ = 0;
  Status refusal_;
};

// Fails with the reader's refusal, or invalid: not one JSON document, too deeply nested, or an
// object with a repeated member, which other readers of the same text could take otherwise, or with
// more than 512. A number that is an integer of 64 bits is one in every form, such as 1e3 or 2.0;
// -0 is a double.
[[nodiscard]] Status read_json(std::string_view text, JsonReader& reader);

// Triton's clients and servers write NaN, Infinity, Inf and their negatives, which JSON does not
// have. True if `text` contains one outside a string.
[[nodiscard]] bool has_non_finite(std::string_view text);
// As read_json, but accepts them as values.
[[nodiscard]] Status read_json_with_non_finite(std::string_view text, JsonReader& reader);
// The literal for a non-finite number; empty for a finite one.
[[nodiscard]] std::string_view non_finite_literal(double number);

[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace gpulet::net::kserve
