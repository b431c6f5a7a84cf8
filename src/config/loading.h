// What the loaders of all kinds of files share: text of a file, documents to values, relative
// paths. Any thread.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/core/status.h"

namespace gpulet::config {

// Fails with not_found, naming the file and why it cannot be read.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& file);

// `path` as written in `file`: relative to the folder that holds the file. Absolute and normal.
[[nodiscard]] std::filesystem::path resolve(const std::filesystem::path& file,
                                            const std::string& path);

// Parses the text and hands its root to `read(root) -> T`. Fails with the first error that the
// cursor met. Where `errors` is given, it gets all of them, and what could be read comes back, with
// neutral values in the place of what could not.
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

// The same for a file, by way of `parse(text, file, errors)`.
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

// Names that may occur once. `what` is singular: "model".
class UniqueNames {
 public:
  explicit UniqueNames(std::string what) : what_(std::move(what)) {}
  // Records an error at the cursor where the name was seen before.
  void add(const std::string& name, const JsonCursor& place);

 private:
  std::string what_;
  std::set<std::string> seen_;
};

}  // namespace gpulet::config
