// SHA-256 of model files: how frontend and backends know that they mean the same bytes. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"

namespace gpulet {

// Takes bytes piece by piece, as they arrive.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // Lower-case hex. The object is spent afterwards.
  [[nodiscard]] std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Of bytes in memory.
[[nodiscard]] std::string sha256_of(std::string_view bytes);
// Blocking file I/O. Fails with not_found or internal, naming the file.
[[nodiscard]] Result<std::string> sha256_of_file(const std::filesystem::path& file);

}  // namespace gpulet
