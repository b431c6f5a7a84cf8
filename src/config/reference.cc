#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "config/description.h"
#include "config/file_readers.h"
#include "gpulet/config/check_file.h"

namespace gpulet::config {
namespace {

template <typename Read>
FileReference describe(std::string name, std::string purpose, Read read) {
  Description description;
  static_cast<void>(read(description.root()));
  return {std::move(name), std::move(purpose), description.keys()};
}

// "/limits/per_address/max_requests" without its last step.
std::string_view object_of(std::string_view pointer) {
  return pointer.substr(0, pointer.rfind('/'));
}
std::string_view key_of(std::string_view pointer) { return pointer.substr(pointer.rfind('/') + 1); }

// "/models/*/measured/NAME" as "models[].measured.NAME".
std::string path_of(std::string_view pointer) {
  std::string path;
  for (std::size_t at = 0; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string_view step = pointer.substr(at + 1, end - at - 1);
    if (step == "*") {
      path += "[]";
    } else {
      if (!path.empty()) path += '.';
      path += step;
    }
    at = end;
  }
  return path;
}

// For a cell of a table: what Markdown or HTML would take for its own is escaped.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '|' || character == '<') escaped += '\\';
    escaped += character;
  }
  return escaped;
}

std::string otherwise_of(const KeyReference& key) {
  if (key.required) return "required";
  return key.otherwise.empty() ? std::string() : fmt::format("`{}`", key.otherwise);
}

std::string section_of(const FileReference& file) {
  std::string section = fmt::format("\n## {}\n\n{}\n", file.name, file.purpose);
  const std::string* before = nullptr;
  for (const KeyReference& key : file.keys) {
    const std::string_view object = object_of(key.pointer);
    if (before == nullptr || object_of(*before) != object) {
      if (!object.empty()) section += fmt::format("\n### {}: `{}`\n", file.name, path_of(object));
      section += "\n| key | value | default | meaning |\n|---|---|---|---|\n";
    }
    section += fmt::format("| `{}` | {} | {} | {} |\n", key_of(key.pointer), cell(key.value),
                           otherwise_of(key), cell(key.help));
    before = &key.pointer;
  }
  return section;
}

constexpr std::string_view kIntroduction = R"(# Configuration files

Every key of the files that people write. `gpulet config reference` prints this page, from the program's own readers.
`gpulet config check FILE` finds the mistakes in a file. Files are JSON; relative paths start at the folder of the file. Unknown
keys are errors. Where the default of a key is empty, its meaning says what holds without the key. `limits.per_address` is the
object `per_address` in the object `limits`, `devices[]` is each element of the list `devices`, and `NAME` stands for any name.
)";

}  // namespace

std::vector<FileReference> file_references() {
  return {
      describe("frontend.json",
               "How a frontend runs (docs/guide.md, docs/security.md). No two ports share an "
               "endpoint.",
               read_frontend),
      describe("backend.json", "How a backend runs (docs/guide.md, docs/deploy.md).", read_backend),
      describe("models.json",
               "The models and applications to serve (docs/guide.md, docs/applications.md).",
               read_serving),
      describe("cluster.json",
               "The devices that `gpulet schedule` and `gpulet simulate` plan with.", read_nodes),
      describe("demand.json", "The rates and objectives that `gpulet schedule` plans for.",
               read_demands),
      describe("workload.json", "The requests that `gpulet load` sends.", read_workload)};
}

std::string as_markdown(const std::vector<FileReference>& files) {
  std::string page(kIntroduction);
  for (const FileReference& file : files) page += section_of(file);
  return page;
}

}  // namespace gpulet::config
