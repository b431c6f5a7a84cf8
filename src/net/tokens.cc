#include "gpulet/net/tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <string>
#include <utility>

#include "net/secret_file.h"
#include "net/token_file.h"

namespace gpulet::net {
namespace {

constexpr std::string_view kSpaces = " \t\r";
constexpr std::size_t kLongestBasic = 8192;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// What follows the scheme, which ends with a blank; empty where the value has another.
std::string_view after_scheme(std::string_view scheme, std::string_view value) {
  const bool same =
      value.size() > scheme.size() &&
      std::equal(scheme.begin(), scheme.end(), value.begin(),
                 [](char expected, char letter) { return expected == lower(letter); });
  return same ? trimmed(value.substr(scheme.size())) : std::string_view();
}

// The password of "user:password" in base64; empty where it is something else.
std::string basic_password(std::string_view encoded) {
  if (encoded.empty() || encoded.size() % 4 != 0 || encoded.size() > kLongestBasic) return {};
  std::string plain(encoded.size() / 4 * 3, '\0');
  const int bytes = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(plain.data()),
                                    reinterpret_cast<const unsigned char*>(encoded.data()),
                                    static_cast<int>(encoded.size()));
  if (bytes < 0) return {};
  const std::size_t padding = encoded.size() - std::min(encoded.size(), encoded.find('='));
  plain.resize(static_cast<std::size_t>(bytes) - std::min<std::size_t>(padding, 2));
  const std::size_t colon = plain.find(':');
  return colon == std::string::npos ? std::string() : plain.substr(colon + 1);
}

Token::Digest digest_of(std::string_view token) {
  Token::Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

bool includes(Right held, Right needed) {
  return held == Right::admin || held == needed || needed == Right::nothing;
}

}  // namespace

std::string_view to_string(Right right) {
  switch (right) {
    case Right::nothing:
      return "nothing";
    case Right::observe:
      return "observe";
    case Right::inference:
      return "inference";
    case Right::admin:
      return "admin";
  }
  return "unknown";
}

std::string_view PeerIdentity::token_name() const {
  return token ? std::string_view(token->name) : std::string_view();
}

bool Token::may_use(std::string_view model) const {
  return models.empty() || std::any_of(models.begin(), models.end(), [model](const auto& pattern) {
           return matches(pattern, model);
         });
}

std::string token_of(std::string_view authorization) {
  const std::string_view value = trimmed(authorization);
  if (const std::string_view token = after_scheme("bearer ", value); !token.empty())
    return std::string(token);
  return basic_password(after_scheme("basic ", value));
}

Result<std::vector<Token>> parse_tokens(std::string_view text, const std::string& file,
                                        Right right) {
  Result<std::vector<TokenLine>> lines = read_token_lines(text, file, right);
  if (!lines.ok()) return lines.status();
  std::vector<Token> tokens;
  for (TokenLine& line : lines.value()) {
    line.token.digest = digest_of(line.text);
    tokens.push_back(std::move(line.token));
  }
  return tokens;
}

Result<std::string> read_token(const std::filesystem::path& file) {
  const Result<std::string> text = read_secret(file);
  if (!text.ok()) return text.status();
  Result<std::vector<TokenLine>> lines =
      read_token_lines(text.value(), file.string(), Right::nothing);
  if (!lines.ok()) return lines.status();
  return std::move(lines.value().front().text);
}

Status Tokens::take(const std::filesystem::path& file, Right right) {
  if (file.empty()) return {};
  const Result<std::string> text = read_secret(file);
  if (!text.ok()) return text.status();
  Result<std::vector<Token>> tokens = parse_tokens(text.value(), file.string(), right);
  if (!tokens.ok()) return tokens.status();
  for (Token& token : tokens.value()) {
    limit_any_ = limit_any_ || token.limits.any();
    tokens_.push_back(std::make_shared<const Token>(std::move(token)));
  }
  return {};
}

Result<Tokens> Tokens::read(const config::TokenFiles& files) {
  Tokens tokens;
  Status status = tokens.take(files.admin, Right::admin);
  if (status.ok()) status = tokens.take(files.inference, Right::inference);
  if (status.ok()) status = tokens.take(files.observe, Right::observe);
  if (!status.ok()) return status;
  return tokens;
}

bool operator==(const Tokens& one, const Tokens& other) {
  return std::equal(one.tokens_.begin(), one.tokens_.end(), other.tokens_.begin(),
                    other.tokens_.end(),
                    [](const TokenPointer& a, const TokenPointer& b) { return *a == *b; });
}

bool Tokens::has(Right right) const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [right](const TokenPointer& token) { return token->right == right; });
}

bool Tokens::guard(Right right) const {
  if (right == Right::admin) return has(Right::admin) || has(Right::inference);
  return right != Right::nothing && has(right);
}

bool Tokens::guard_any() const { return !tokens_.empty(); }

// The strongest right that it has: one token may stand in several files.
TokenPointer Tokens::find(const Token::Digest& digest) const {
  TokenPointer held;
  for (const TokenPointer& token : tokens_) {
    const bool same = CRYPTO_memcmp(token->digest.data(), digest.data(), digest.size()) == 0;
    if (same && (!held || token->right > held->right)) held = token;
  }
  return held;
}

// What the same token is good for as another file has it, where this entry lacks the right.
const Token* Tokens::entry_for(const Token& shown, Right needed) const {
  if (includes(shown.right, needed)) return &shown;
  const auto found =
      std::find_if(tokens_.begin(), tokens_.end(), [&shown, needed](const TokenPointer& one) {
        return one->digest == shown.digest && includes(one->right, needed);
      });
  return found == tokens_.end() ? nullptr : found->get();
}

TokenPointer Tokens::find(std::string_view token) const {
  if (token.empty() || tokens_.empty()) return nullptr;
  return find(digest_of(token));
}

TokenPointer Tokens::renewed(const TokenPointer& token) const {
  if (!token || std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end()) return token;
  return find(token->digest);
}

void Tokens::identify(std::string_view authorization, PeerIdentity& peer) const {
  const std::string token = token_of(authorization);
  peer.token_shown = !token.empty();
  peer.token = find(token);
}

Status Tokens::check(Right needed, const PeerIdentity& peer, std::string_view model) const {
  const bool about_admin = needed == Right::admin;
  if (about_admin && !has(Right::admin)) needed = Right::inference;
  if (!guard(needed)) return {};
  const std::string what = "a token that is good for " + std::string(to_string(needed));
  if (!peer.token_shown) {
    return {StatusCode::unauthenticated,
            "this call needs " + (needed == Right::admin ? "an admin token" : what) +
                ", and none was shown; send it as Authorization: Bearer, "
                "or give --token-file to gpulet's own commands"};
  }
  if (!peer.token)
    return {StatusCode::unauthenticated, "the token that was shown is not known here"};
  const Token* const good = entry_for(*peer.token, needed);
  if (good == nullptr) {
    return {StatusCode::unauthenticated, "this call needs " +
                                             (needed == Right::admin ? "an admin token" : what) +
                                             "; the one that was shown is good for " +
                                             std::string(to_string(peer.token->right)) + " only"};
  }
  const Token& token = *good;
  if (needed == Right::observe || token.models.empty()) return {};
  if (model.empty()) {
    if (!about_admin) return {};
    return {StatusCode::forbidden, "token " + token.name +
                                       " is good for some models only, and this call concerns "
                                       "others too; use one without models="};
  }
  if (token.may_use(model)) return {};
  return {StatusCode::forbidden, "token " + token.name + " is not good for model " +
                                     std::string(model) +
                                     "; use another, or add the model to its "
                                     "models= in the file of tokens"};
}

Status Tokens::check_header(Right needed, std::string_view authorization,
                            std::string_view model) const {
  if (!guard(needed)) return {};
  PeerIdentity peer;
  identify(authorization, peer);
  return check(needed, peer, model);
}

}  // namespace gpulet::net
