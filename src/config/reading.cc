#include "config/reading.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <system_error>

#include "gpulet/config/readers.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kLongestQuote = 60;

}  // namespace

Result<std::string> read_text(const std::filesystem::path& file) {
  const auto cannot = [&file](const std::string& why) {
    return Status(StatusCode::not_found,
                  file.string() + ": cannot be read (" + why + "); check the path");
  };
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) return cannot("it is a directory");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return cannot(std::generic_category().message(errno));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) return cannot("reading failed");
  return text;
}

std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
  return (folder / path).lexically_normal();
}

void UniqueNames::add(const std::string& name, const JsonCursor& place) {
  if (!seen_.insert(name).second) {
    place.fail("a " + what_ + " called " + in_quotes(name) + " is defined above",
               "give every " + what_ + " a unique name");
  }
}

std::string in_quotes(std::string_view text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char character : text.substr(0, kLongestQuote)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      result += "\\x";
      result += kHexDigits[byte >> 4U];
      result += kHexDigits[byte & 0xfU];
    } else {
      result += character;
    }
  }
  if (text.size() > kLongestQuote) result += "...";
  return result + '"';
}

bool NumberRange::holds(double number) const {
  if (!std::isfinite(number) || number > most) return false;
  return above_least ? number > least : number >= least;
}

std::string NumberRange::describe() const {
  const bool bounded_below = least != std::numeric_limits<double>::lowest();
  const bool bounded_above = most != std::numeric_limits<double>::max();
  std::string text = "a number";
  if (above_least) {
    text += " above " + to_text(least);
    if (bounded_above) text += " and up to " + to_text(most);
  } else if (bounded_below && bounded_above) {
    text += " from " + to_text(least) + " to " + to_text(most);
  } else if (bounded_below) {
    text += " of at least " + to_text(least);
  } else if (bounded_above) {
    text += " up to " + to_text(most);
  }
  return text;
}

std::string to_text(double number) {
  std::array<char, 32> buffer{};  // the shortest form of a double has at most 24 characters
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return {buffer.data(), written.ptr};
}

}  // namespace gpulet::config
