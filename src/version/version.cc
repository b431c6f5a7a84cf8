#include "gpulet/version/version.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>
#include <vector>

#include "gpulet/executor/onnx/onnx_executor.h"
#include "version/build_info.h"

namespace gpulet::version {
namespace {

namespace fs = std::filesystem;

// The folder of what programs open at run time, as their run path has it: in a build and a bundle,
// or installed.
std::vector<fs::path> folders_of_libraries() {
  std::error_code error;
  const fs::path programs = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> folders;
  for (const char* const libraries : {"lib", GPULET_LIBRARIES})
    folders.push_back((programs / ".." / libraries / "gpulet").lexically_normal());
  return folders;
}

// The version of a library that this process has loaded, as its own function tells it; empty where
// it has not loaded it. A function that takes no argument ignores the one that it gets.
std::string loaded_version(const char* function, std::string_view before) {
  void* const found = ::dlsym(RTLD_DEFAULT, function);
  if (found == nullptr) return {};
  std::string_view text = reinterpret_cast<const char* (*)(int)>(found)(0);
  if (!text.starts_with(before)) return {};
  text.remove_prefix(before.size());
  return std::string(text.substr(0, text.find(' ')));
}

// The version of the build, and the one that is loaded where that is another one.
std::string with_loaded(const std::string& name, const std::string& built,
                        const std::string& loaded) {
  if (loaded.empty() || loaded == built) return name + ' ' + built;
  return fmt::format("{} {} ({} is loaded)", name, built, loaded);
}

std::string libraries() {
  return fmt::format(
      "Boost {}, protobuf {}, gRPC {}, {}, {}, nlohmann/json {}, spdlog {}", GPULET_BOOST,
      GPULET_PROTOBUF, GPULET_GRPC,
      with_loaded("OpenSSL", GPULET_OPENSSL, loaded_version("OpenSSL_version", "OpenSSL ")),
      with_loaded("libcurl", GPULET_CURL, loaded_version("curl_version", "libcurl/")), GPULET_JSON,
      GPULET_SPDLOG);
}

std::string onnx_runtime() {
  const auto found = executor::onnx_runtime_version(folders_of_libraries());
  return found.ok() ? found.value() : "not found";
}

std::string libtorch() {
  const std::string built = GPULET_TORCH;
  if (!built.empty()) return built;
  for (const fs::path& folder : folders_of_libraries()) {
    std::string version;
    std::ifstream(folder / "libgpulet-torch.version") >> version;
    if (!version.empty()) return fmt::format("{} (executor by gpulet torch-setup)", version);
  }
  return "not found";
}

}  // namespace

std::string number() { return GPULET_VERSION; }

std::string commit() { return kCommit; }

std::string text(std::string_view program) {
  return fmt::format("{} {}\ncommit: {}\nbuilt with: {}\nONNX Runtime: {}\nLibTorch: {}", program,
                     number(), commit(), libraries(), onnx_runtime(), libtorch());
}

bool print_if_asked(std::string_view program, std::span<const char* const> arguments) {
  const bool asked = std::any_of(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::string_view(argument) == "--version";
  });
  if (asked) std::cout << text(program) << '\n' << std::flush;
  return asked;
}

}  // namespace gpulet::version
