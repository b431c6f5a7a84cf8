#include "executor/torch/package_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/files.h"

namespace gpulet::executor {
namespace {

// The folder of the network of that name, the only one that export makes. PyTorch up to 2.6 puts it
// at the top of the archive, later versions into a folder.
constexpr std::string_view kFolder = "data/aotinductor/model/";
constexpr std::size_t kLargestDescription = 1U << 20U;

bool is_of_network(const ZipMember& member) {
  return member.name.find(kFolder) != std::string::npos;
}

Result<std::vector<ZipMember>> members_of(const std::filesystem::path& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.valid()) return Status(StatusCode::not_found, "cannot be opened");
  return read_zip_directory(opened.get());
}

Status no_library(const std::string& why) {
  return {StatusCode::invalid, "is an AOTInductor package that cannot be loaded: " + why +
                                   "; make it with `gpulet export`"};
}

Result<std::string> text_of(int descriptor, const ZipMember& member) {
  const auto begin = content_of(descriptor, member);
  if (!begin.ok()) return no_library(begin.status().message());
  if (member.compressed || member.bytes > kLargestDescription)
    return no_library("its description is compressed or too long");
  std::string text(static_cast<std::size_t>(member.bytes), '\0');
  const ssize_t got =
      ::pread(descriptor, text.data(), text.size(), static_cast<off_t>(begin.value()));
  if (got != static_cast<ssize_t>(text.size())) return no_library("it cannot be read");
  return text;
}

// The string value of a key in a flat JSON object; empty without it.
std::string value_of(std::string_view json, std::string_view key) {
  const std::size_t at = json.find('"' + std::string(key) + '"');
  if (at == std::string_view::npos) return {};
  json.remove_prefix(at + key.size() + 2);
  const std::size_t begin = json.find('"');
  if (begin == std::string_view::npos) return {};
  json.remove_prefix(begin + 1);
  return std::string(json.substr(0, json.find('"')));
}

}  // namespace

bool is_archive(const std::filesystem::path& file) { return members_of(file).ok(); }

bool is_package(const std::filesystem::path& file) {
  const auto members = members_of(file);
  return members.ok() && std::any_of(members.value().begin(), members.value().end(), is_of_network);
}

Result<PackageFile> read_package(int descriptor) {
  auto members = read_zip_directory(descriptor);
  if (!members.ok()) return no_library(members.status().message());
  PackageFile package;
  for (ZipMember& member : members.value()) {
    const std::string_view name = member.name;
    if (!is_of_network(member)) continue;
    if (name.ends_with("_metadata.json")) {
      const auto text = text_of(descriptor, member);
      if (!text.ok()) return text.status();
      package.device = value_of(text.value(), "AOTI_DEVICE_KEY");
    } else if (name.ends_with(".json") && !name.ends_with("_flags.json")) {
      return no_library("it calls operators that are not compiled into it");
    } else if (name.ends_with(".so")) {
      if (!package.library.name.empty()) return no_library("it has several libraries");
      package.library = std::move(member);
    }
  }
  if (package.library.name.empty()) return no_library("it has no library, only its source");
  if (package.library.compressed) return no_library("its library is compressed");
  return package;
}

}  // namespace gpulet::executor
