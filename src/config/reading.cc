#include "config/reading.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "config/description.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kLongestQuote = 60;

}  // namespace

Result<std::string> read_text(const std::filesystem::path& file) {
  const auto cannot = [&file](const std::string& why) {
    return Status(StatusCode::not_found,
                  fmt::format("{}: cannot be read ({}); check the path", file.string(), why));
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

ObjectReader& ObjectReader::required(std::string_view key, Reader reader, std::string_view help) {
  keys_.push_back({key, std::move(reader), help, true});
  return *this;
}

ObjectReader& ObjectReader::optional(std::string_view key, Reader reader, std::string_view help) {
  keys_.push_back({key, std::move(reader), help, false});
  return *this;
}

void ObjectReader::read() const {
  if (Description* const description = Description::of(object_)) describe(*description);
  std::vector<std::string_view> known;
  for (const Key& key : keys_) known.push_back(key.name);
  object_.allow_keys(known);
  for (const Key& key : keys_) {
    if (key.required) {
      key.reader.read(object_.required(key.name));
    } else if (const auto found = object_.find(key.name)) {
      key.reader.read(*found);
    }
  }
}

void ObjectReader::describe(Description& description) const {
  for (const Key& key : keys_) {
    description.add({.pointer = object_.required(key.name).pointer(),
                     .value = {},
                     .required = key.required,
                     .otherwise = key.required ? std::string() : key.reader.otherwise(),
                     .help = std::string(key.help)});
  }
}

Reader name(std::string& field) { return into(field, std::mem_fn(&JsonCursor::name)); }

Reader boolean(bool& field) { return into(field, std::mem_fn(&JsonCursor::boolean)); }

Reader seconds(Duration& field, NumberRange range) {
  return {[&field, range](const JsonCursor& at) { field = from_seconds(at.number(range)); },
          stated(to_seconds(field), range)};
}

Reader milliseconds(Duration& field, NumberRange range) {
  return {[&field, range](const JsonCursor& at) { field = from_ms(at.number(range)); },
          stated(to_ms(field), range)};
}

Reader elsewhere(std::string_view expected, std::string otherwise) {
  return {[expected](const JsonCursor& at) {
            if (!expected.empty()) static_cast<void>(describes(at, expected));
          },
          std::move(otherwise)};
}

void UniqueNames::add(const std::string& name, const JsonCursor& place) {
  if (seen_.insert(name).second) return;
  place.fail(fmt::format("a {} called {} is defined above", kind_, in_quotes(name)),
             fmt::format("give every {} a unique name", kind_));
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char character : text.substr(0, kLongestQuote)) {
    if (is_control(character)) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
    } else {
      result += character;
    }
  }
  if (text.size() > kLongestQuote) result += "...";
  return result + '"';
}

}  // namespace gpulet::config
