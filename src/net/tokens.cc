#include "gpulet/net/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <string>
#include <utility>

#include "net/secret_file.h"

namespace gpulet::net {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

std::array<unsigned char, 32> digest_of(std::string_view token) {
  std::array<unsigned char, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

// The tokens of a file, one at least.
Result<std::vector<std::string>> read_lines(const std::filesystem::path& file) {
  const Result<std::string> text = read_secret(file);
  if (!text.ok()) return text.status();
  std::vector<std::string> tokens;
  std::string_view rest = text.value();
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view whole = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), whole.size() + 1));
    const std::string_view token = trimmed(whole.substr(0, whole.find('#')));
    if (token.empty()) continue;
    const std::string place = file.string() + ":" + std::to_string(number) + ": ";
    if (token.size() < Tokens::kShortestToken) {
      return Status(StatusCode::invalid,
                    place + "a token of " + std::to_string(token.size()) +
                        " characters is easy to guess; make one of 16 or more, as `openssl rand "
                        "-hex 32` does");
    }
    if (token.find_first_of(kBlank) != std::string_view::npos)
      return Status(StatusCode::invalid, place + "a token has no blanks; write one a line");
    tokens.emplace_back(token);
  }
  if (tokens.empty()) {
    return Status(StatusCode::invalid,
                  file.string() +
                      ": holds no token; write one a line, as `openssl rand -hex 32` "
                      "makes them");
  }
  return tokens;
}

}  // namespace

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view value = trimmed(authorization);
  const bool bearer =
      value.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                 [](char expected, char letter) { return expected == lower(letter); });
  return bearer ? trimmed(value.substr(kScheme.size())) : std::string_view();
}

Result<std::vector<Tokens::Digest>> Tokens::read_digests(const std::filesystem::path& file) {
  std::vector<Digest> digests;
  if (file.empty()) return digests;
  const Result<std::vector<std::string>> tokens = read_lines(file);
  if (!tokens.ok()) return tokens.status();
  for (const std::string& token : tokens.value()) digests.push_back(digest_of(token));
  return digests;
}

Result<std::string> read_token(const std::filesystem::path& file) {
  Result<std::vector<std::string>> tokens = read_lines(file);
  if (!tokens.ok()) return tokens.status();
  return std::move(tokens.value().front());
}

Result<Tokens> Tokens::read(const config::TokenFiles& files) {
  Result<std::vector<Digest>> admin = read_digests(files.admin);
  if (!admin.ok()) return admin.status();
  Result<std::vector<Digest>> inference = read_digests(files.inference);
  if (!inference.ok()) return inference.status();
  Tokens tokens;
  tokens.admin_ = std::move(admin).value();
  tokens.inference_ = std::move(inference).value();
  return tokens;
}

bool Tokens::guard(Right right) const {
  if (right == Right::admin) return !admin_.empty() || !inference_.empty();
  return right == Right::inference && !inference_.empty();
}

bool Tokens::holds(const std::vector<Digest>& digests, const Digest& one) {
  bool held = false;
  for (const Digest& digest : digests)
    held = (CRYPTO_memcmp(digest.data(), one.data(), one.size()) == 0) || held;
  return held;
}

Right Tokens::right_of(std::string_view token) const {
  if (token.empty() || !guard_any()) return Right::nothing;
  const Digest digest = digest_of(token);
  const bool admin = holds(admin_, digest);
  const bool inference = holds(inference_, digest);
  return admin ? Right::admin : inference ? Right::inference : Right::nothing;
}

Status Tokens::check(Right needed, bool shown, Right held) const {
  if (needed == Right::admin && admin_.empty()) needed = Right::inference;
  if (!guard(needed) || held >= needed) return {};
  const std::string what = needed == Right::admin ? "an admin token" : "a token";
  if (!shown) {
    return {StatusCode::unauthenticated,
            "this call needs " + what +
                ", and none was shown; send it as Authorization: Bearer, "
                "or give --token-file to gpulet's own commands"};
  }
  if (held == Right::nothing)
    return {StatusCode::unauthenticated, "the token that was shown is not known here"};
  return {StatusCode::unauthenticated,
          "this call needs an admin token; the one that was shown is good for inference only"};
}

Status Tokens::check_header(Right needed, std::string_view authorization) const {
  if (!guard(needed)) return {};
  const std::string_view token = bearer_token(authorization);
  return check(needed, !token.empty(), right_of(token));
}

}  // namespace gpulet::net
