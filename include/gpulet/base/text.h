// Text helpers: trimming, joining, strict number parsing, escaping of untrusted text, spelling
// suggestions, and JSON as text. Pure; any thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace gpulet {

// `text` without the leading and trailing characters that occur in `blanks`.
[[nodiscard]] std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

// The parts in their order, with the separator between each two.
template <typename Part>
[[nodiscard]] std::string joined(const std::vector<Part>& parts,
                                 std::string_view separator = ", ") {
  std::string text;
  for (const Part& part : parts) {
    if (&part != parts.data()) text += separator;
    text += part;
  }
  return text;
}

// The number that the whole of `text` denotes, by the rules of std::from_chars: no blanks, no plus
// sign, no locale. Empty where anything else follows the number or it does not fit the type.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

[[nodiscard]] bool is_utf8(std::string_view text);

inline constexpr std::size_t kLongestLogText = 4096;

// Untrusted text as one line of printable UTF-8 for a log or a terminal. Control characters become
// \n, \t or \x1b; bytes that are not UTF-8, and invisible characters such as those that change the
// direction of writing, become \xNN byte by byte; a backslash becomes two, so the result is
// unambiguous. Text beyond `most_bytes` is dropped and its length appended: "(+17 bytes)".
[[nodiscard]] std::string escaped(std::string_view text, std::size_t most_bytes = kLongestLogText);

// The number of characters to insert, delete or replace to turn `from` into `to`. Compares only the
// first 64 characters of each, because the cost is the product of the lengths.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

// The candidate with the smallest edit distance to `word`; among equals the one with the longest
// common prefix: "slo" is nearer to "slo_ms" than to "file". Empty without candidates.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       const std::vector<std::string_view>& candidates);

// The nearest candidate that is close enough for a "did you mean": at least half of the characters
// of the longer word match, or `word` is its prefix. Empty where none is.
[[nodiscard]] std::string_view similar(std::string_view word,
                                       const std::vector<std::string_view>& candidates);

// ---- commands
//
// Commands of `gpulet` that messages propose, with every option that the command requires, so that
// they run once the words in capitals are replaced. A test parses all commands that messages
// propose (tests/tools/proposed_commands_test.cc). Pure; any thread.

// Measures one model: DEVICE is cpu:0 or cuda:0, MODELS the models file, PROFILES the folder of
// profiles.
[[nodiscard]] inline std::string measure_command(std::string_view model) {
  return "gpulet profile run --only " + std::string(model) +
         " --device DEVICE --models MODELS --out PROFILES";
}

// Measures how the models of a device slow each other down.
[[nodiscard]] inline std::string measure_interference_command() {
  return "gpulet profile interference --device DEVICE --models MODELS --profile PROFILES";
}

// JSON without a document in memory: for answers that are large or written often. Other documents
// are values of nlohmann/json, which json_line() and json_page() write.

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

// The same over several lines, indented by two spaces, with a newline at the end: what commands
// print for --json.
template <typename Document>
[[nodiscard]] std::string json_page(const Document& document) {
  return document.dump(2, ' ', false, Document::error_handler_t::replace) + '\n';
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
