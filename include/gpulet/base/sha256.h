// SHA-256, by which frontend and backends identify model files. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"

namespace gpulet {

// An incremental hash.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // Lower-case hex. Do not use the object afterwards.
  [[nodiscard]] std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The lower-case hex digits of bytes.
[[nodiscard]] std::string hex_of(std::string_view bytes);

// 64 lower-case hex digits.
[[nodiscard]] bool is_sha256(std::string_view text);

// HMAC with SHA-256 (RFC 2104), as 32 raw bytes.
[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view message);

// The hash of bytes in memory, as lower-case hex.
[[nodiscard]] std::string sha256_of(std::string_view bytes);
// Blocking file I/O. `progress` is called after each block. Fails, naming the file, with not_found,
// with internal, or with invalid if it is no regular file: a pipe or a device may never end.
[[nodiscard]] Result<std::string> sha256_of_file(const std::filesystem::path& file,
                                                 const std::function<void()>& progress = {});

}  // namespace gpulet
