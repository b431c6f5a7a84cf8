// Shared by the readers of all configuration files: text of a file, documents to values, the keys
// of an object, quoting, and objects that occur in several kinds of files. Errors of readers and of
// the read_* functions are recorded at the cursor. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
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

namespace gpulet::config {

// Fails with not_found, naming the file and why it cannot be read.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& file);

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

// Reads the value at the cursor into a field, which must outlive the reader.
using Reader = std::function<void(const JsonCursor&)>;

// The table of an object's keys. read() records an error for every other key, then calls the
// readers in the order of the table: that of a required key always, the others where the key is
// present.
class ObjectReader {
 public:
  explicit ObjectReader(JsonCursor object) : object_(std::move(object)) {}
  ObjectReader& required(std::string_view key, Reader read);
  ObjectReader& optional(std::string_view key, Reader read);
  // Keys that other code reads.
  ObjectReader& elsewhere(std::initializer_list<std::string_view> keys);
  void read() const;

 private:
  struct Key {
    std::string_view name;
    Reader read;
    bool required = false;
  };
  JsonCursor object_;
  std::vector<Key> keys_;
};

// The result of `read(cursor)`. The field may also be a std::optional, here and below.
template <typename Field, typename Read>
[[nodiscard]] Reader into(Field& field, Read read) {
  return [&field, read](const JsonCursor& at) { field = read(at); };
}
template <typename Field>
[[nodiscard]] Reader number(Field& field, NumberRange range) {
  return [&field, range](const JsonCursor& at) { field = at.number(range); };
}
template <typename Field>
[[nodiscard]] Reader count(Field& field, std::uint32_t least, std::uint32_t most) {
  return [&field, least, most](const JsonCursor& at) { field = at.count(least, most); };
}
template <typename Field>
[[nodiscard]] Reader path(Field& field, std::string_view expected) {
  return [&field, expected](const JsonCursor& at) { field = at.path(expected); };
}
// `names` are the values of a text, or belong to the values of an enumeration or bool in order.
template <typename Field>
[[nodiscard]] Reader choice(Field& field, std::vector<std::string_view> names) {
  return [&field, names = std::move(names)](const JsonCursor& at) {
    const std::size_t chosen = at.choice(names);
    if constexpr (std::is_constructible_v<Field, std::string>) {
      field = std::string(names[chosen]);
    } else {
      field = static_cast<Field>(chosen);
    }
  };
}
[[nodiscard]] Reader seconds(Duration& field, NumberRange range);
[[nodiscard]] Reader milliseconds(Duration& field, NumberRange range);
[[nodiscard]] Reader name(std::string& field);

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
// The same for a list of at least one, and for a document whose only key is such a list: "models".
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
template <typename Read>
[[nodiscard]] auto parse_named(std::string_view text, const std::filesystem::path& file,
                               std::vector<Status>* errors, const std::string& kind, Read read) {
  return parse_document(text, file, errors, [&](const JsonCursor& root) {
    std::vector<decltype(read(root))> all;
    const std::string key = kind + "s";
    ObjectReader(root).required(key, named(all, kind, read)).read();
    return all;
  });
}

// True for devices that are real GPUs: partitioned by mps, mig or green.
[[nodiscard]] bool is_on_gpu(const DeviceConfig& device);

// The list "devices" of a node in a cluster file or of a backend file: at least one device, and no
// core or GPU in two devices.
[[nodiscard]] std::vector<DeviceConfig> read_devices(const JsonCursor& cursor);

[[nodiscard]] std::vector<TensorSpec> read_tensors(const JsonCursor& cursor);

// An element of the list "models" of the models file.
[[nodiscard]] ModelConfig read_model(const JsonCursor& cursor);

}  // namespace gpulet::config
