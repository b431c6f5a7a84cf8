// Readers of JSON documents and CSV tables with precise errors.
//
// Errors are sticky: a reader records an error, returns a neutral value (zero, an empty string, no
// elements) and goes on; the caller asks for status() once, at the end. A message reads
// "<file>: <place>: <what is wrong>; <how to fix it>", where the place is a JSON pointer
// ("/models/0/name"), "line 3, column 7" of text that is not JSON, or "line 12" of a table. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::config {

class Description;

// The numbers that a field accepts.
struct NumberRange {
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
  bool above_least = false;  // exclude `least` itself

  // False for NaN and the infinities, whatever the bounds.
  [[nodiscard]] bool holds(double number) const;
  // "a number above 0", "a number of at least 0", "a number from 0 to 1"
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] constexpr NumberRange above(double bound) {
  return {.least = bound, .above_least = true};
}
[[nodiscard]] constexpr NumberRange at_least(double bound) { return {.least = bound}; }
[[nodiscard]] constexpr NumberRange between(double least, double most) {
  return {.least = least, .most = most};
}
// Above 0 and up to `most`.
[[nodiscard]] constexpr NumberRange up_to(double most) {
  return {.least = 0, .most = most, .above_least = true};
}

// The shortest text that reads back as the same number: "0.1", "400".
[[nodiscard]] std::string to_text(double number);

// A place in a JSON document. After an error at a place, errors around and inside it are dropped,
// because they usually follow from the first. Unknown and repeated keys are errors. All cursors of
// a document share it.
class JsonCursor {
 public:
  // The root of a document. Fails with not_found (the file cannot be read) or invalid (not JSON, or
  // nested too deeply).
  [[nodiscard]] static Result<JsonCursor> read_file(const std::filesystem::path& file);
  [[nodiscard]] static Result<JsonCursor> parse(std::string_view text,
                                                const std::string& file_name);

  // The document's first error, or ok.
  [[nodiscard]] Status status() const;
  // All recorded errors in order, at most 100.
  [[nodiscard]] std::vector<Status> errors() const;
  // True where no error was recorded at this place or inside it.
  [[nodiscard]] bool valid() const;
  // Records an error at this place.
  void fail(std::string_view what, std::string_view fix) const;
  // "/models/0/name"
  [[nodiscard]] const std::string& pointer() const { return pointer_; }

  // Objects. A value of another type is an error. allow_keys() records one error per key that is
  // not in `known`.
  void allow_keys(const std::vector<std::string_view>& known) const;
  // The member. Where it is missing, the returned cursor records the error when it is read.
  [[nodiscard]] JsonCursor required(std::string_view key) const;
  [[nodiscard]] std::optional<JsonCursor> find(std::string_view key) const;
  // All members, by name.
  [[nodiscard]] std::vector<std::pair<std::string, JsonCursor>> members() const;

  // Arrays. `expected` completes "write ...": "a list of core numbers".
  [[nodiscard]] std::vector<JsonCursor> elements(
      std::string_view expected, std::size_t least = 0,
      std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  // Scalars.
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] double number(const NumberRange& range) const;
  // REQUIRES: the bounds fit a double exactly.
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  // True where the value is that whole number, written without a fraction. Records no error.
  [[nodiscard]] bool holds(std::int64_t number) const;
  [[nodiscard]] std::uint32_t count(std::uint32_t least, std::uint32_t most) const;
  // A string that is not empty and has no control characters.
  [[nodiscard]] std::string text(std::string_view expected) const;
  // Such a string as a path, resolved().
  [[nodiscard]] std::filesystem::path path(std::string_view expected) const;
  // The path made absolute and normal. A relative path starts at the folder of the document's file.
  [[nodiscard]] std::filesystem::path resolved(const std::string& path) const;
  // What resolved() has returned for this document so far, and the document's own file.
  [[nodiscard]] std::vector<std::filesystem::path> named_files() const;
  // [A-Za-z0-9._-]+
  [[nodiscard]] std::string name() const;
  // Index of the value among `choices`.
  [[nodiscard]] std::size_t choice(const std::vector<std::string_view>& choices) const;

  // What the value is; missing: there is none. Records no error.
  enum class Type : std::uint8_t { missing, array, text, other };
  [[nodiscard]] Type type() const;

 private:
  friend class Description;
  struct Node;
  struct Document;
  class TreeBuilder;

  // The root of a description, which must outlive all cursors of it.
  [[nodiscard]] static JsonCursor describing(Description& description);
  // Null: of a document.
  [[nodiscard]] Description* description() const;

  JsonCursor(std::shared_ptr<Document> document, const Node* node, std::string pointer)
      : document_(std::move(document)), node_(node), pointer_(std::move(pointer)) {}
  [[nodiscard]] JsonCursor child(const Node* node, std::string_view key) const;
  // The value if it has that type, otherwise nullptr.
  template <typename T>
  [[nodiscard]] const T* value() const;
  // Records that the value is not `expected`.
  void fail_expected(std::string_view expected) const;
  [[nodiscard]] std::string describe() const;

  std::shared_ptr<Document> document_;
  const Node* node_;  // inside document_; nullptr: missing
  std::string pointer_;
};

// True for [A-Za-z0-9._-]+ other than "." and "..", which is what models, nodes and device types
// may be called. Such a name is also a safe file name.
[[nodiscard]] bool is_name(std::string_view text);
// The same, or the name of a bucket (core/bucket.h): a model in profiles and plans.
[[nodiscard]] bool is_planned_name(std::string_view text);

// The rows of a CSV file whose first line names its columns. Fields are separated by commas, may be
// in double quotes (two double quotes inside mean one), and lose surrounding blanks. Empty lines, a
// byte order mark and carriage returns are ignored. Only the first error is kept; next() returns
// false after it.
class CsvReader {
 public:
  // Fails with not_found (the file cannot be read) or invalid (no header line, a column named
  // twice).
  [[nodiscard]] static Result<CsvReader> read_file(const std::filesystem::path& file);
  [[nodiscard]] static Result<CsvReader> parse(std::string text, std::string file_name);

  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  // The positions of the columns, in the order of `names`. A missing column is an error.
  [[nodiscard]] std::vector<std::size_t> require_columns(
      std::initializer_list<std::string_view> names);
  [[nodiscard]] std::optional<std::size_t> find_column(std::string_view name) const;

  // Moves to the next row; false at the end and after an error.
  [[nodiscard]] bool next();
  // Line of the current row, counted from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

  // Fields of the current row.
  [[nodiscard]] bool empty(std::size_t column) const { return fields_[column].empty(); }
  [[nodiscard]] std::string_view text(std::size_t column) const { return fields_[column]; }
  // Of a model: is_planned_name().
  [[nodiscard]] std::string name(std::size_t column);
  [[nodiscard]] double number(std::size_t column, const NumberRange& range);
  [[nodiscard]] std::uint32_t count(std::size_t column, std::uint32_t least, std::uint32_t most);

  [[nodiscard]] Status status() const { return status_; }
  // Records an error at the current row.
  void fail(std::string_view what, std::string_view fix);

 private:
  CsvReader(std::string text, std::string file_name)
      : text_(std::move(text)), file_name_(std::move(file_name)) {}
  // Splits the next non-empty line into fields_. False at the end or after an error.
  [[nodiscard]] bool split_next_line();
  [[nodiscard]] bool split(std::string_view line);
  void fail_field(std::size_t column, std::string_view expected);

  std::string text_;
  std::string file_name_;
  std::size_t position_ = 0;  // in text_, of the next line
  std::size_t line_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
  Status status_;
};

}  // namespace gpulet::config
