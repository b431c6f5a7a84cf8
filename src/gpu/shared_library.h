// SharedLibrary: an optional library, opened by name. Symbols: its functions, by C name.
//
// A library stays mapped until the process exits, because threads of a driver may still run in it.
// One thread at a time.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gpulet/base/status.h"

namespace gpulet::gpu {

class SharedLibrary {
 public:
  // Searches a name without a slash like the dynamic linker. Fails with unavailable and the
  // linker's message.
  [[nodiscard]] static Result<SharedLibrary> open(const std::filesystem::path& file) {
    if (void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
      return SharedLibrary(file.string(), handle);
    const char* const reason = ::dlerror();
    return Status(StatusCode::unavailable, reason != nullptr ? reason : file.string());
  }

  // The same for a library of NVIDIA's driver; `failed` begins the message of a failure: "cannot
  // load LIBRARY (".
  [[nodiscard]] static Result<SharedLibrary> open_driver(const std::filesystem::path& file,
                                                         std::string_view failed) {
    Result<SharedLibrary> opened = open(file);
    if (opened.ok()) return opened;
    return Status(StatusCode::unavailable,
                  std::string(failed) + opened.status().message() +
                      "); install NVIDIA's driver, or give the container access to its GPUs");
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  // nullptr where the library has no such symbol.
  [[nodiscard]] void* find(const char* symbol) const { return ::dlsym(handle_.get(), symbol); }

 private:
  SharedLibrary(std::string name, void* handle)
      : name_(std::move(name)), handle_(handle, [](void* opened) { ::dlclose(opened); }) {}

  std::string name_;
  std::shared_ptr<void> handle_;
};

// Looks up functions. status() reports the first missing one.
class Symbols {
 public:
  explicit Symbols(const SharedLibrary& library) : library_(library) {}

  template <typename Function>
  void require(const char* symbol, Function*& function) {
    find(symbol, function);
    if (function != nullptr || !status_.ok()) return;
    status_ = Status(StatusCode::unavailable, library_.name() + " has no " + symbol +
                                                  "; install a newer driver from NVIDIA");
  }
  // Sets nullptr where the symbol is missing.
  template <typename Function>
  void find(const char* symbol, Function*& function) {
    function = reinterpret_cast<Function*>(library_.find(symbol));
  }

  // unavailable: the library is too old, or another library.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const SharedLibrary& library_;
  Status status_;
};

}  // namespace gpulet::gpu
