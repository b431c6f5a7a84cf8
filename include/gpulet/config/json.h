// JsonCursor: a place in a JSON document that knows its file and its JSON pointer.
//
// Errors are sticky: they are kept with the document, the question that met one returns a neutral
// value (zero, an empty string, no elements), and the reader asks for status() once, at the end.
// That keeps reading code straight. One error is kept of a place, the places around it and those in
// it, since what follows from an error is none. A message reads "<file>: <json pointer>: <what is
// wrong>; <the mend>"; text that is not JSON is reported as
// "<file>: line 3, column 7: ...". Unknown and repeated keys are errors.
// A cursor shares the document with all other cursors of it: one thread at a time.
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

#include "gpulet/config/number_range.h"
#include "gpulet/core/status.h"

namespace gpulet::config {

class JsonCursor {
 public:
  // The root of a document. Fails with not_found (the file cannot be read) or invalid (not JSON, or
  // nested deeper than any file of this project).
  [[nodiscard]] static Result<JsonCursor> read_file(const std::filesystem::path& file);
  [[nodiscard]] static Result<JsonCursor> parse(std::string_view text,
                                                const std::string& file_name);

  // The document's first error, or ok.
  [[nodiscard]] Status status() const;
  // All of them (some hundred at most), in the order in which they were met.
  [[nodiscard]] std::vector<Status> errors() const;
  // Whether there is no error at this place or in it.
  [[nodiscard]] bool sound() const;
  // Records an error at this place.
  void fail(std::string_view what, std::string_view mend) const;
  // "/models/0/name"
  [[nodiscard]] const std::string& pointer() const { return pointer_; }

  // Objects. A value of another type is an error.
  void allow_keys(std::initializer_list<std::string_view> known) const;
  // The member; where it is missing, a cursor that any question turns into the error "is missing;
  // ...".
  [[nodiscard]] JsonCursor required(std::string_view key) const;
  [[nodiscard]] std::optional<JsonCursor> find(std::string_view key) const;
  // All members, by name.
  [[nodiscard]] std::vector<std::pair<std::string, JsonCursor>> members() const;

  // Arrays. `expected` completes "write ...": "a list of core numbers".
  [[nodiscard]] std::vector<JsonCursor> elements(
      std::string_view expected, std::size_t least = 0,
      std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  // Scalars.
  [[nodiscard]] bool truth() const;
  [[nodiscard]] double number(const NumberRange& range) const;
  // REQUIRES: the bounds fit a double exactly.
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  // It is that whole number, written without a fraction.
  [[nodiscard]] bool holds(std::int64_t value) const;
  [[nodiscard]] std::uint32_t count(std::uint32_t least, std::uint32_t most) const;
  // Not empty and without control characters.
  [[nodiscard]] std::string text(std::string_view expected) const;
  // [A-Za-z0-9._-]+
  [[nodiscard]] std::string name() const;
  // Index of the value among `choices`.
  [[nodiscard]] std::size_t choice(const std::vector<std::string_view>& choices) const;

  // What kind of value stands here; no errors.
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_text() const;

 private:
  struct Node;
  struct Document;
  class TreeBuilder;

  JsonCursor(std::shared_ptr<Document> document, const Node* node, std::string pointer)
      : document_(std::move(document)), node_(node), pointer_(std::move(pointer)) {}
  [[nodiscard]] JsonCursor child(const Node* node, std::string_view key) const;
  // Records that something else than `expected` stands here.
  void fail_expected(std::string_view expected) const;
  [[nodiscard]] std::string describe() const;

  std::shared_ptr<Document> document_;
  const Node* node_;  // inside document_; nullptr: missing
  std::string pointer_;
};

// True for [A-Za-z0-9._-]+ other than "." and "..": what models, nodes and device types may be
// called. Such a name is also a safe file name.
[[nodiscard]] bool is_name(std::string_view text);

}  // namespace gpulet::config
