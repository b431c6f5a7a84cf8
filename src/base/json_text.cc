#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gpulet/base/text.h"

namespace gpulet {
namespace {

bool is_plain(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return byte >= 0x20 && byte < 0x7f && letter != '"' && letter != '\\';
}

}  // namespace

void append_json_string(std::string& json, std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), is_plain)) {
    json += json_line(nlohmann::json(text));
    return;
  }
  json += '"';
  json += text;
  json += '"';
}

std::string json_error(std::string_view why) {
  return std::move(JsonWriter().begin('{').key("error").text(why).end('}')).take();
}

JsonWriter& JsonWriter::number(double number, int decimals) {
  constexpr double kMaxWhole = 9e15;  // larger doubles have no fraction
  std::string& text = value();
  if (!std::isfinite(number)) {
    text += "null";
    return *this;
  }
  std::array<char, 32> digits{};
  char* const begin = digits.data();
  char* const end = begin + digits.size();
  std::to_chars_result written{};
  if (std::abs(number) >= kMaxWhole) {
    written = std::to_chars(begin, end, number);
  } else if (number == std::floor(number)) {
    written = std::to_chars(begin, end, static_cast<long long>(number));
  } else {
    written = std::to_chars(begin, end, number, std::chars_format::fixed, decimals);
  }
  text.append(begin, written.ptr);
  return *this;
}

}  // namespace gpulet
