// Shared by the readers of all configuration files: text of a file, documents to values, the keys
// of an object, quoting, and objects that occur in several kinds of files. Errors of readers and of
// the read_* functions are recorded at the cursor. Any thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/text.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/readers.h"
#include "gpulet/core/ids.h"

namespace gpulet::config {

// Fails with not_found, naming the file and why it cannot be read.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& file);

// Of most durations in seconds.
inline constexpr NumberRange kSeconds = up_to(86400);

[[nodiscard]] constexpr bool is_control(char character) {
  return (character >= '\0' && character < ' ') || character == '\x7f';
}

// The text in double quotes, with control characters escaped and long text cut.
[[nodiscard]] std::string in_quotes(std::string_view text);

// Parses the text and passes its root to `read(root) -> T`. Without `errors`, fails with the
// document's first error. With `errors`, stores all of them there and returns what could be read,
// with neutral values in the place of what could not.
template <typename Read>
[[nodiscard]] auto parse_document(std::string_view text, const std::filesystem::path& file,
                                  std::vector<Status>* errors, Read read)
    -> Result<decltype(read(std::declval<const JsonCursor&>()))> {
  const Result<JsonCursor> root = JsonCursor::parse(text, file.string());
  if (!root.ok()) {
    if (errors != nullptr) errors->push_back(root.status());
    return root.status();
  }
  auto value = read(root.value());
  if (errors != nullptr) {
    *errors = root.value().errors();
    return value;
  }
  if (Status status = root.value().status(); !status.ok()) return status;
  return value;
}

// The same for a file, through `parse(text, file, errors)`.
template <typename Parse>
[[nodiscard]] auto load_file(const std::filesystem::path& file, Parse parse,
                             std::vector<Status>* errors = nullptr)
    -> decltype(parse(std::string_view(), file, errors)) {
  const Result<std::string> text = read_text(file);
  if (!text.ok()) {
    if (errors != nullptr) errors->push_back(text.status());
    return text.status();
  }
  return parse(text.value(), file, errors);
}

// The value as a file would state it. Empty where it is empty or has no such text.
template <typename Value>
[[nodiscard]] std::string as_json(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return to_text(static_cast<double>(value));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return value.empty() ? std::string() : in_quotes(value);
  } else if constexpr (std::is_same_v<Value, std::filesystem::path>) {
    return as_json(value.string());
  } else if constexpr (std::is_same_v<Value, Share>) {
    return std::to_string(value.percent);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? as_json(*value) : std::string();
  } else if constexpr (requires { to_string(value); }) {
    return in_quotes(to_string(value));
  } else if constexpr (requires { value.begin() != value.end(); }) {
    std::vector<std::string> elements;
    elements.reserve(static_cast<std::size_t>(std::distance(value.begin(), value.end())));
    for (const auto& element : value) elements.push_back(as_json(element));
    return elements.empty() ? std::string() : '[' + joined(elements, ",") + ']';
  } else {
    return {};
  }
}
// The number of a field that accepts a range. Empty where a file cannot state it, such as a 0 that
// stands for "no limit".
[[nodiscard]] inline std::string stated(double number, const NumberRange& range) {
  return range.holds(number) ? to_text(number) : std::string();
}
template <typename Number>
[[nodiscard]] std::string stated(const std::optional<Number>& number, const NumberRange& range) {
  return number ? stated(*number, range) : std::string();
}

// Reads the value of a key, mostly into a field, which must outlive the reader.
class Reader {
 public:
  // `otherwise`: the value that the key has where it is absent, as JSON, for descriptions.
  template <std::invocable<const JsonCursor&> Read>
  Reader(Read read, std::string otherwise = {})
      : read_(std::move(read)), otherwise_(std::move(otherwise)) {}
  void read(const JsonCursor& at) const { read_(at); }
  [[nodiscard]] const std::string& otherwise() const { return otherwise_; }

 private:
  std::function<void(const JsonCursor&)> read_;
  std::string otherwise_;
};

// The table of an object's keys, each with a help text of one or more sentences, which belongs to
// docs/configuration.md. read() records an error for every other key, then calls the readers in the
// order of the table: that of a required key always, the others where the key is present. In a
// description (description.h), it adds the keys first.
class ObjectReader {
 public:
  explicit ObjectReader(JsonCursor object) : object_(std::move(object)) {}
  ObjectReader& required(std::string_view key, Reader reader, std::string_view help);
  ObjectReader& optional(std::string_view key, Reader reader, std::string_view help);
  void read() const;

 private:
  struct Key {
    std::string_view name;
    Reader reader;
    std::string_view help;
    bool required = false;
  };
  void describe(Description& description) const;

  JsonCursor object_;
  std::vector<Key> keys_;
};

// Readers into a field, whose value at this moment is the default of the key. The field may also be
// a std::optional.

// The result of `read(cursor)`.
template <typename Field, typename Read>
[[nodiscard]] Reader into(Field& field, Read read) {
  return {[&field, read](const JsonCursor& at) { field = read(at); }, as_json(field)};
}
template <typename Field>
[[nodiscard]] Reader number(Field& field, NumberRange range) {
  return {[&field, range](const JsonCursor& at) { field = at.number(range); },
          stated(field, range)};
}
template <typename Field>
[[nodiscard]] Reader count(Field& field, std::uint32_t least, std::uint32_t most) {
  return {[&field, least, most](const JsonCursor& at) { field = at.count(least, most); },
          stated(field, between(least, most))};
}
template <typename Field>
[[nodiscard]] Reader path(Field& field, std::string_view expected) {
  return {[&field, expected](const JsonCursor& at) { field = at.path(expected); }, as_json(field)};
}
// `names` are the values of a text, or belong to the values of an enumeration or bool in order.
template <typename Field>
[[nodiscard]] Reader choice(Field& field, std::vector<std::string_view> names) {
  if constexpr (std::is_convertible_v<std::string, Field>) {
    return {[&field, names = std::move(names)](const JsonCursor& at) {
              field = std::string(names[at.choice(names)]);
            },
            as_json(field)};
  } else {
    std::string otherwise = in_quotes(names[static_cast<std::size_t>(field)]);
    return {[&field, names = std::move(names)](const JsonCursor& at) {
              field = static_cast<Field>(at.choice(names));
            },
            std::move(otherwise)};
  }
}
[[nodiscard]] Reader seconds(Duration& field, NumberRange range);
[[nodiscard]] Reader milliseconds(Duration& field, NumberRange range);
[[nodiscard]] Reader name(std::string& field);
[[nodiscard]] Reader boolean(bool& field);
// Of a key that other code reads. `expected`: what it accepts, where that code does not tell it a
// description. `otherwise` as in Reader.
[[nodiscard]] Reader elsewhere(std::string_view expected = {}, std::string otherwise = {});

// Finds names that occur twice. `kind` is singular: "model".
class UniqueNames {
 public:
  explicit UniqueNames(std::string kind) : kind_(std::move(kind)) {}
  // Records an error at the cursor where the name was added before.
  void add(const std::string& name, const JsonCursor& place);

 private:
  std::string kind_;
  std::set<std::string> seen_;
};

// The objects that `read` makes of the elements, each with its own "name".
template <typename Read>
[[nodiscard]] auto read_named(const std::vector<JsonCursor>& elements, const std::string& kind,
                              Read read) {
  std::vector<decltype(read(elements.front()))> all;
  UniqueNames names(kind);
  for (const JsonCursor& element : elements) {
    all.push_back(read(element));
    names.add(all.back().name, element.required("name"));
  }
  return all;
}
// The same for a list of at least one.
template <typename Field, typename Read>
[[nodiscard]] Reader named(Field& field, const std::string& kind, Read read) {
  return [&field, kind, read](const JsonCursor& at) {
    field = read_named(at.elements("a list of " + kind + "s", 1), kind, read);
  };
}
// The applications of a list beside the models of the document: a name occurs once among both.
template <typename Field, typename Models, typename Read>
[[nodiscard]] Reader named_beside(Field& field, const Models& models, Read read) {
  return [&field, &models, read](const JsonCursor& list) {
    UniqueNames names("model or application");
    if (list.status().ok()) {
      for (const auto& model : models) names.add(model.name, list);
    }
    for (const JsonCursor& element : list.elements("a list of applications")) {
      field.push_back(read(element));
      names.add(field.back().name, element.required("name"));
    }
  };
}
// The model of that name; null, with an error at the cursor, where there is none.
template <typename Model>
[[nodiscard]] const Model* find_model(const JsonCursor& place, const std::string& model,
                                      const std::vector<Model>& models) {
  std::vector<std::string_view> names;
  for (const Model& one : models) {
    if (one.name == model) return &one;
    names.push_back(one.name);
  }
  const std::string_view meant = similar(model, names);
  place.fail("there is no model " + in_quotes(model),
             meant.empty() ? "correct the name, or add it to the models"
                           : "write " + in_quotes(meant) + ", or add it to the models");
  return nullptr;
}

// True for devices that are real GPUs: partitioned by mps, mig or green.
[[nodiscard]] bool is_on_gpu(const DeviceConfig& device);

// The list "devices" of a node in a cluster file or of a backend file: at least one device, and no
// core or GPU in two devices.
[[nodiscard]] std::vector<DeviceConfig> read_devices(const JsonCursor& cursor);

[[nodiscard]] std::vector<TensorSpec> read_tensors(const JsonCursor& cursor);

// One number of the range for all channels of an image, or a list with one for each.
[[nodiscard]] std::vector<double> read_channels(const JsonCursor& cursor, const NumberRange& range);

// The key "from" of the inputs, whose other keys have been read: makes these inputs what clients
// send, with their conversions (core/tensor.h), and their formats those of clients.
void read_conversions(const JsonCursor& inputs, ModelConfig& model);

// An element of the list "models" of the models file.
[[nodiscard]] ModelConfig read_model(const JsonCursor& cursor);

}  // namespace gpulet::config
