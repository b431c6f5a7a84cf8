// The file of an AOTInductor package (.pt2) from outside: a zip archive with a shared library,
// which is the compiled network with its weights, and a description of it. Reads files; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "gpulet/archive/zip_directory.h"
#include "gpulet/base/status.h"

namespace gpulet::executor {

struct PackageFile {
  ZipMember library;
  std::string device;  // for which it was compiled: "cpu", "cuda"
};

// Whether the file is an archive with a compiled network. False where it cannot be read.
[[nodiscard]] bool is_package(const std::filesystem::path& file);

// Whether the file is a zip archive, as TorchScript is, and ONNX is not. False where it cannot be
// read.
[[nodiscard]] bool is_archive(const std::filesystem::path& file);

// Fails with invalid where no library can be taken from the package, for example because it has
// only the source.
[[nodiscard]] Result<PackageFile> read_package(int descriptor);

}  // namespace gpulet::executor
