// What the loaders of all kinds of files share: text of a file, documents to values, relative
// paths. Any thread.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "gpulet/config/json.h"
#include "gpulet/core/status.h"

namespace gpulet::config {

// Fails with not_found, naming the file and why it cannot be read.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& file);

// `path` as written in `file`: relative to the folder that holds the file. Absolute and normal.
[[nodiscard]] std::filesystem::path resolve(const std::filesystem::path& file,
                                            const std::string& path);

// Parses the text and hands its root to `read(root) -> T`; the first error that the cursor met
// wins.
template <typename Read>
[[nodiscard]] auto parse_document(std::string_view text, const std::filesystem::path& file,
                                  Read read)
    -> Result<decltype(read(std::declval<const JsonCursor&>()))> {
  const Result<JsonCursor> root = JsonCursor::parse(text, file.string());
  if (!root.ok()) return root.status();
  auto value = read(root.value());
  if (Status status = root.value().status(); !status.ok()) return status;
  return value;
}

// The same for a file, by way of `parse(text, file)`.
template <typename Parse>
[[nodiscard]] auto load_file(const std::filesystem::path& file, Parse parse)
    -> decltype(parse(std::string_view(), file)) {
  const Result<std::string> text = read_text(file);
  if (!text.ok()) return text.status();
  return parse(text.value(), file);
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
