// JsonLine: JSON text on one line, written from front to back without a document in between: a page
// of hundreds of devices is told every second, on the thread that serves. One thread at a time.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace gpulet::frontend {

class JsonLine {
 public:
  explicit JsonLine(std::size_t expected_bytes = 0) { text_.reserve(expected_bytes); }

  JsonLine& begin(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  JsonLine& end(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  // What is written next is its value.
  JsonLine& key(std::string_view name) {
    text(name);
    text_ += ':';
    first_ = true;
    return *this;
  }
  JsonLine& text(std::string_view value) {
    separate();
    text_ += '"';
    for (const char one : value) append_escaped(one);
    text_ += '"';
    return *this;
  }
  // Rounded to so many decimals; null where it is not a number.
  JsonLine& number(double value, int decimals = 0) {
    constexpr double kWhole = 9e15;  // beyond, a double has no halves
    separate();
    std::array<char, 32> digits{};
    char* const end = digits.data() + digits.size();
    if (!std::isfinite(value)) {
      text_ += "null";
    } else if (value == std::floor(value) && std::abs(value) < kWhole) {
      text_.append(digits.data(),
                   std::to_chars(digits.data(), end, static_cast<long long>(value)).ptr);
    } else if (std::abs(value) < kWhole) {
      text_.append(
          digits.data(),
          std::to_chars(digits.data(), end, value, std::chars_format::fixed, decimals).ptr);
    } else {
      text_.append(digits.data(), std::to_chars(digits.data(), end, value).ptr);
    }
    return *this;
  }
  JsonLine& flag(bool value) {
    separate();
    text_ += value ? "true" : "false";
    return *this;
  }

  [[nodiscard]] std::string take() && { return std::move(text_); }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  void append_escaped(char one) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(one);
    if (one == '"' || one == '\\') {
      text_ += '\\';
      text_ += one;
    } else if (code < 0x20) {
      text_ += "\\u00";
      text_ += kHex[code >> 4U];
      text_ += kHex[code & 15U];
    } else {
      text_ += one;
    }
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace gpulet::frontend
