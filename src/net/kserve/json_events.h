// A JSON document as a row of events, so that what a stranger sends is never kept as a tree: its
// reader takes what it knows, bounds it, and lets the rest pass. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/kserve/parameters.h"

namespace gpulet::net::kserve {

// As JSON, long text cut.
[[nodiscard]] std::string shown(const Scalar& value);

class JsonReader {
 public:
  virtual ~JsonReader() = default;

  // Each returns whether to go on; it does not after refuse(). Opens and closes match.
  [[nodiscard]] virtual bool scalar(const Scalar& value) = 0;
  [[nodiscard]] virtual bool key(std::string_view name) = 0;
  [[nodiscard]] virtual bool open(bool array) = 0;  // else an object
  [[nodiscard]] virtual bool close() = 0;

  [[nodiscard]] const Status& refusal() const { return refusal_; }

 protected:
  bool refuse(Status why) {
    refusal_ = std::move(why);
    return false;
  }
  bool refuse(std::string why) { return refuse(Status(StatusCode::invalid, std::move(why))); }
  // False where `status` is a refusal.
  bool accept(Status status) { return status.ok() || refuse(std::move(status)); }

 private:
  Status refusal_;
};

// Fails (invalid) where the text is not one JSON document, is nested too deeply, or the reader
// refuses it.
[[nodiscard]] Status read_json(std::string_view text, JsonReader& reader);

// The numbers that are no JSON but that Triton's clients and servers write: NaN, Infinity and Inf,
// each perhaps behind a minus.
[[nodiscard]] bool has_non_finite(std::string_view text);
// As read_json, and takes them wherever JSON has a value.
[[nodiscard]] Status read_json_with_non_finite(std::string_view text, JsonReader& reader);
// As they are written; nothing where the number is finite.
[[nodiscard]] std::string_view non_finite_literal(double number);

[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace gpulet::net::kserve
