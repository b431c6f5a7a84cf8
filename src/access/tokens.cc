#include "gpulet/access/tokens.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/net/tls.h"

namespace gpulet::access {
namespace {

// ---- token files

constexpr std::string_view kBlank = " \t\r";
constexpr std::size_t kLongestName = 64;
constexpr double kLargestRate = 1e9;
constexpr std::string_view kFormat =
    "write [name=NAME] [models=PATTERN,...] [requests_per_s=N] [device_ms_per_s=N] "
    "[max_requests=N] TOKEN";

struct TokenLine {
  Token token;       // without its digest
  std::string text;  // the token itself
};

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlank)));
    if (line.empty()) return words;
    words.push_back(line.substr(0, line.find_first_of(kBlank)));
    line.remove_prefix(words.back().size());
  }
}

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool made_of(std::string_view text, std::string_view marks) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [marks](char letter) {
    return is_letter_or_digit(letter) || marks.find(letter) != std::string_view::npos;
  });
}

// The take_ functions return the error of the value; empty: none.
std::string take_name(std::string_view value, Token& token) {
  token.name = value;
  if (value.size() <= kLongestName && made_of(value, "._-@:")) return {};
  return "a name must have 1 to 64 letters, digits or ._-@:";
}

std::string take_models(std::string_view value, Token& token) {
  token.models.clear();
  while (true) {
    const std::string_view one = value.substr(0, value.find(','));
    if (!made_of(one, "._-*?")) {
      return "models must be names or patterns with * and ?, separated by commas without blanks";
    }
    token.models.emplace_back(one);
    if (one.size() == value.size()) return {};
    value.remove_prefix(one.size() + 1);
  }
}

std::string take_rate(std::string_view value, double& rate) {
  rate = parse_number<double>(value).value_or(0);
  if (std::isfinite(rate) && rate > 0 && rate <= kLargestRate) return {};
  return "a rate must be a number above 0; omit it for no limit";
}

std::string take_count(std::string_view value, std::uint32_t& count) {
  count = parse_number<std::uint32_t>(value).value_or(0);
  return count > 0 ? "" : "max_requests must be an integer above 0; omit it for no limit";
}

struct Key {
  std::string_view name;
  std::string (*take)(std::string_view value, Token& token);
};

constexpr std::array kKeys{
    Key{"name", take_name},
    Key{"models", take_models},
    Key{"requests_per_s",
        [](std::string_view value, Token& token) {
          return take_rate(value, token.limits.requests_per_s);
        }},
    Key{"device_ms_per_s",
        [](std::string_view value, Token& token) {
          return take_rate(value, token.limits.device_ms_per_s);
        }},
    Key{"max_requests", [](std::string_view value,
                           Token& token) { return take_count(value, token.limits.max_requests); }},
};

const Key* key_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return nullptr;
  const auto* const found =
      std::find_if(kKeys.begin(), kKeys.end(),
                   [name = word.substr(0, equals)](const Key& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : found;
}

std::string take_attributes(const std::vector<std::string_view>& words, Token& token) {
  std::array<bool, kKeys.size()> seen{};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const Key* const key = key_of(words[i]);
    if (key == nullptr) {
      const bool blank = words[i].find('=') == std::string_view::npos;
      return fmt::format("{}; {}",
                         blank ? "a token must not contain blanks" : "unknown key before the token",
                         kFormat);
    }
    bool& again = seen[static_cast<std::size_t>(key - kKeys.data())];
    if (std::exchange(again, true)) return std::string(key->name) + " occurs twice";
    if (std::string wrong = key->take(words[i].substr(key->name.size() + 1), token); !wrong.empty())
      return wrong;
  }
  return {};
}

// REQUIRES: at least one word.
std::string take_line(const std::vector<std::string_view>& words, Right right, TokenLine& line) {
  if (std::string wrong = take_attributes(words, line.token); !wrong.empty()) return wrong;
  line.text = words.back();
  if (key_of(line.text) != nullptr) return "the token is missing; write it at the end of the line";
  if (line.text.size() < Tokens::kShortestToken) {
    return fmt::format(
        "a token of {} characters is easy to guess; use 16 or more, as from "
        "`openssl rand -hex 32`",
        line.text.size());
  }
  if (right == Right::observe && !line.token.models.empty())
    return "an observe token sees all models; remove models=";
  return {};
}

// Fails (invalid) naming file and line. The result has at least one element.
Result<std::vector<TokenLine>> read_token_lines(std::string_view text, const std::string& file,
                                                Right right) {
  std::vector<TokenLine> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::vector<std::string_view> words = words_of(whole.substr(0, whole.find('#')));
    if (words.empty()) continue;
    TokenLine line;
    line.token.right = right;
    line.token.name = fmt::format("{}:{}", to_string(right), number);
    if (const std::string wrong = take_line(words, right, line); !wrong.empty())
      return Status(StatusCode::invalid, fmt::format("{}:{}: {}", file, number, wrong));
    lines.push_back(std::move(line));
  }
  if (!lines.empty()) return lines;
  return Status(StatusCode::invalid,
                file + ": no token found; write one per line, as from `openssl rand -hex 32`");
}

// * stands for any characters, ? for one. Takes time in proportion to both lengths at most.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t letter = 0;
  std::optional<std::size_t> star;    // the last *, which takes one more letter on a mismatch
  std::size_t after_star_letter = 0;  // where the pattern behind it was last tried
  while (letter < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star_letter = letter;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[letter])) {
      ++at;
      ++letter;
    } else if (star) {
      at = *star + 1;
      letter = ++after_star_letter;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

// ---- Authorization headers

constexpr std::size_t kLongestBasic = 8192;

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// The rest of `value` behind the scheme, which ends with a blank; empty for another scheme.
std::string_view after_scheme(std::string_view scheme, std::string_view value) {
  const bool same =
      value.size() > scheme.size() &&
      std::equal(scheme.begin(), scheme.end(), value.begin(),
                 [](char expected, char letter) { return expected == lower(letter); });
  return same ? trimmed(value.substr(scheme.size()), kBlank) : std::string_view();
}

// The password of base64 "user:password"; empty for any other text.
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

bool Token::may_use(std::string_view model) const {
  return models.empty() || std::any_of(models.begin(), models.end(), [model](const auto& pattern) {
           return matches(pattern, model);
         });
}

std::string token_of(std::string_view authorization) {
  const std::string_view value = trimmed(authorization, kBlank);
  if (const std::string_view token = after_scheme("bearer ", value); !token.empty())
    return std::string(token);
  return basic_password(after_scheme("basic ", value));
}

Result<std::vector<Token>> parse_tokens(std::string_view text, const std::string& file,
                                        Right right) {
  GPULET_TRY(std::vector<TokenLine> lines, read_token_lines(text, file, right));
  std::vector<Token> tokens;
  for (TokenLine& line : lines) {
    line.token.digest = digest_of(line.text);
    tokens.push_back(std::move(line.token));
  }
  return tokens;
}

Result<std::string> read_token(const std::filesystem::path& file) {
  const Result<std::string> text = net::read_secret(file);
  if (!text.ok()) return text.status();
  Result<std::vector<TokenLine>> lines =
      read_token_lines(text.value(), file.string(), Right::nothing);
  if (!lines.ok()) return lines.status();
  return std::move(lines.value().front().text);
}

Status Tokens::add_file(const std::filesystem::path& file, Right right) {
  if (file.empty()) return {};
  const Result<std::string> text = net::read_secret(file);
  if (!text.ok()) return text.status();
  Result<std::vector<Token>> tokens = parse_tokens(text.value(), file.string(), right);
  if (!tokens.ok()) return tokens.status();
  for (Token& token : tokens.value())
    tokens_.push_back(std::make_shared<const Token>(std::move(token)));
  return {};
}

Result<Tokens> Tokens::read(const config::TokenFiles& files) {
  Tokens tokens;
  Status status = tokens.add_file(files.admin, Right::admin);
  if (status.ok()) status = tokens.add_file(files.inference, Right::inference);
  if (status.ok()) status = tokens.add_file(files.observe, Right::observe);
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

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The entry with the strongest right: a token may occur in several files.
TokenPointer Tokens::find(const Token::Digest& digest) const {
  TokenPointer held;
  for (const TokenPointer& token : tokens_) {
    const bool same = CRYPTO_memcmp(token->digest.data(), digest.data(), digest.size()) == 0;
    if (same && (!held || token->right > held->right)) held = token;
  }
  return held;
}

// `shown`, or an entry of another file for the same token that has the right.
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
  const std::string kind = needed == Right::admin
                               ? "an admin token"
                               : fmt::format("a token with the right {}", to_string(needed));
  if (!peer.token_shown) {
    return {StatusCode::unauthenticated,
            fmt::format("this call needs {}; send it as Authorization: Bearer, or pass "
                        "--token-file to gpulet's commands",
                        kind)};
  }
  if (!peer.token) return {StatusCode::unauthenticated, "unknown token"};
  const Token* const good = entry_for(*peer.token, needed);
  if (good == nullptr) {
    return {StatusCode::unauthenticated,
            fmt::format("this call needs {}; the presented token has the right {}", kind,
                        to_string(peer.token->right))};
  }
  const Token& token = *good;
  if (needed == Right::observe || token.models.empty()) return {};
  if (model.empty()) {
    if (!about_admin) return {};
    return {StatusCode::forbidden,
            fmt::format("token {} is restricted to some models and this call concerns others; use "
                        "a token without models=",
                        token.name)};
  }
  if (token.may_use(model)) return {};
  return {StatusCode::forbidden,
          fmt::format("token {} is not valid for model {}; add the model to its models= in the "
                      "token file",
                      token.name, model)};
}

}  // namespace gpulet::access
