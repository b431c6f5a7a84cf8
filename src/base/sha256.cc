#include "gpulet/base/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <vector>

#include "gpulet/base/files.h"

namespace gpulet {

struct Sha256::Context {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> digest{EVP_MD_CTX_new()};
};

namespace {

using Digest = std::array<unsigned char, 32>;

std::string_view text_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// OpenSSL fails here only without memory or the algorithm; no caller could fix that.
void require(int result) {
  if (result != 1) throw std::runtime_error("OpenSSL cannot compute SHA-256");
}

}  // namespace

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  require(EVP_DigestInit_ex(context_->digest.get(), EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_->digest.get(), bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  Digest digest{};
  unsigned int length = 0;
  require(EVP_DigestFinal_ex(context_->digest.get(), digest.data(), &length));
  return hex_of(text_of(digest));
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char one : bytes) {
    const auto byte = static_cast<unsigned char>(one);
    hex += kHex[byte >> 4U];
    hex += kHex[byte & 0xfU];
  }
  return hex;
}

bool is_sha256(std::string_view text) {
  return text.size() == 2 * Digest().size() && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  Digest digest{};
  unsigned int length = 0;
  const auto* const made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                reinterpret_cast<const unsigned char*>(message.data()),
                                message.size(), digest.data(), &length);
  require(made == nullptr ? 0 : 1);
  return std::string(text_of(digest));
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.finish();
}

Result<std::string> sha256_of_file(const std::filesystem::path& file,
                                   const std::function<void()>& progress) {
  // O_NONBLOCK: opening a pipe or a device must not block.
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.valid())
    return Status(StatusCode::not_found, file.string() + ": cannot be opened for reading");
  struct stat found {};
  if (::fstat(opened.get(), &found) != 0 || !S_ISREG(found.st_mode))
    return Status(StatusCode::invalid, file.string() + ": it is no regular file");
  Sha256 hash;
  std::vector<std::byte> block(1U << 20U);
  while (true) {
    const ssize_t got = ::read(opened.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status(StatusCode::internal, file.string() + ": reading failed halfway");
    if (got == 0) return hash.finish();
    hash.update(std::span(block.data(), static_cast<std::size_t>(got)));
    if (progress) progress();
  }
}

}  // namespace gpulet
