// Where the frontend finds model files, and what each looked like when it was hashed. Values.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace gpulet::frontend {

// What a file looks like from outside; another look, another content.
struct FileLook {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed_ns = 0;
  friend auto operator<=>(const FileLook&, const FileLook&) = default;
};

struct ModelFile {
  std::filesystem::path path;
  FileLook look{};  // when its hash was computed
};
using ModelFiles = std::map<std::string, ModelFile, std::less<>>;  // by SHA-256

}  // namespace gpulet::frontend
