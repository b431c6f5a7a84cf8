// Files of the repository that tests compare with the program: pages of the documentation, rules,
// dashboards. Tests only; any thread; blocks on file I/O.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gpulet::support {

// The content of that file, by its path from the root of the repository. A file that cannot be read
// fails the test.
[[nodiscard]] inline std::string source_file(const std::string& path) {
  std::ifstream stream(std::filesystem::path(GPULET_SOURCE_DIR) / path);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace gpulet::support
