// JSON as text, without a document in memory: for answers that are large or written often. Other
// documents are values of nlohmann/json, which json_line() writes. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace gpulet {

// Appends a string in its quotes. Invalid UTF-8 becomes U+FFFD.
void append_json_string(std::string& json, std::string_view text);

[[nodiscard]] inline std::string json_string(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return json;
}

// A document of nlohmann/json on one line. Invalid UTF-8 becomes U+FFFD.
template <typename Document>
[[nodiscard]] std::string json_line(const Document& document) {
  return document.dump(-1, ' ', false, Document::error_handler_t::replace);
}

// {"error":"why"}
[[nodiscard]] std::string json_error(std::string_view why);

// Writes one value after the other, with the commas between them. The caller closes what it opens,
// and gives each member of an object a key.
class JsonWriter {
 public:
  explicit JsonWriter(std::size_t expected_bytes = 0) { text_.reserve(expected_bytes); }

  JsonWriter& begin(char bracket) {
    value() += bracket;
    first_ = true;
    return *this;
  }
  JsonWriter& end(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  // The next value written belongs to this key.
  JsonWriter& key(std::string_view name) {
    text(name);
    text_ += ':';
    first_ = true;
    return *this;
  }
  JsonWriter& text(std::string_view value_text) {
    append_json_string(value(), value_text);
    return *this;
  }
  // Rounded to `decimals`; null if not finite.
  JsonWriter& number(double number, int decimals = 0);
  JsonWriter& flag(bool flag) {
    value() += flag ? "true" : "false";
    return *this;
  }
  // The text, to which the caller appends one value.
  [[nodiscard]] std::string& value() {
    if (!first_) text_ += ',';
    first_ = false;
    return text_;
  }

  [[nodiscard]] std::string take() && { return std::move(text_); }

 private:
  std::string text_;
  bool first_ = true;  // of its object or list, or after a key
};

}  // namespace gpulet
