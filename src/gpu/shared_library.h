// SharedLibrary: a library that may or may not be on this machine, opened by name; Symbols: its
// functions, by their C names.
//
// What was opened once stays mapped until the process ends: a driver's own threads may run in it
// after we are done. One thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gpulet/core/status.h"

namespace gpulet::gpu {

class SharedLibrary {
 public:
  // A name without a slash is looked for where the dynamic linker looks. Fails with unavailable and
  // the linker's own line.
  [[nodiscard]] static Result<SharedLibrary> open(const std::filesystem::path& file);

  [[nodiscard]] const std::string& name() const { return name_; }
  // nullptr where the library has no such symbol.
  [[nodiscard]] void* find(const char* symbol) const;

 private:
  struct Close {
    void operator()(void* handle) const noexcept;
  };
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  std::unique_ptr<void, Close> handle_;
};

// Errors are sticky: the first symbol that is missing is kept, and asked for once, at the end.
class Symbols {
 public:
  explicit Symbols(const SharedLibrary& library) : library_(library) {}

  template <typename Function>
  void require(const char* symbol, Function*& function) {
    find(symbol, function);
    if (function == nullptr && status_.ok()) missing(symbol);
  }
  // Leaves nullptr where it is missing.
  template <typename Function>
  void find(const char* symbol, Function*& function) {
    function = reinterpret_cast<Function*>(library_.find(symbol));
  }

  // unavailable: the library is too old, or no such library at all.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void missing(const char* symbol);

  const SharedLibrary& library_;
  Status status_;
};

}  // namespace gpulet::gpu
