#include "gpulet/base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace gpulet {

struct Sha256::Context {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> digest{EVP_MD_CTX_new()};
};

namespace {

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
  std::array<unsigned char, 32> digest{};
  unsigned int length = 0;
  require(EVP_DigestFinal_ex(context_->digest.get(), digest.data(), &length));
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.size());
  for (const unsigned char byte : digest) {
    hex += kHex[byte >> 4U];
    hex += kHex[byte & 0xfU];
  }
  return hex;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.finish();
}

Result<std::string> sha256_of_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    return Status(StatusCode::not_found, file.string() + ": cannot be opened for reading");
  Sha256 hash;
  std::vector<char> block(1U << 20U);
  while (stream) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash.update(std::as_bytes(std::span(block.data(), static_cast<std::size_t>(stream.gcount()))));
  }
  if (!stream.eof())
    return Status(StatusCode::internal, file.string() + ": reading failed halfway");
  return hash.finish();
}

}  // namespace gpulet
