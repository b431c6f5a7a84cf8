// Tokens: which caller may make which call. A caller presents a bearer token; every call needs one
// of four rights. PeerIdentity: the known facts about a caller.
//
// A token file holds one token per line; "#" starts a comment. KEY=VALUE attributes, separated by
// blanks, may precede the token:
//
//   name=lab models=resnet*,bert requests_per_s=200 device_ms_per_s=500 max_requests=64 TOKEN
//
// `name` identifies the token in logs and metrics; tokens of the same name share their limits, so
// that one can replace another. `models` restricts the token to matching models; * and ? match as
// in a shell. The limits are those of config::ClientLimits. The right depends on the file.
//
// Only digests of tokens are stored. A presented token is compared with all of them, so that the
// duration reveals nothing. Tokens are immutable once read; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"

namespace gpulet::access {

enum class Right : std::uint8_t {
  nothing,    // health, metadata, configuration, index: no token needed
  observe,    // status, statistics, metrics, the dashboard
  inference,  // inference requests
  admin,      // changes to the served models, shared memory, traces; includes all other rights
};

// "observe", "inference", ...
[[nodiscard]] std::string_view to_string(Right right);

struct Token {
  using Digest = std::array<unsigned char, 32>;

  std::string name;  // "inference:3" for an unnamed token on line 3 of the inference file
  Right right = Right::nothing;
  std::vector<std::string> models{};  // patterns; empty: all models
  config::ClientLimits limits{};
  Digest digest{};

  [[nodiscard]] bool may_use(std::string_view model) const;

  friend bool operator==(const Token&, const Token&) = default;
};
using TokenPointer = std::shared_ptr<const Token>;

// The caller's address, token and certificate. One per connection for HTTP and the stream protocol,
// one per call for gRPC. Value; one thread at a time.
struct PeerIdentity {
  std::string address;                      // numeric, without the port; empty: unknown
  std::vector<std::string> certificates{};  // names of the peer's certificate; clients have none
  TokenPointer token{};                     // null: none presented, or unknown
  bool token_shown = false;
  std::string_view protocol{};  // "http", "grpc", "own"; a literal
  // Requests of the inference being received that Gate::announce() has already charged.
  std::uint32_t paid_requests = 0;

  // Empty without a known token.
  [[nodiscard]] std::string_view token_name() const {
    return token ? std::string_view(token->name) : std::string_view();
  }
};

class Tokens {
 public:
  static constexpr std::size_t kShortestToken = 16;

  // Without files all calls pass. Without admin tokens, admin calls need the inference right.
  Tokens() = default;
  // Fails with not_found or invalid (a file readable by others, no token, a short token, a
  // malformed line); names file, line and fix.
  [[nodiscard]] static Result<Tokens> read(const config::TokenFiles& files);

  // True if a call that needs `right` needs a token.
  [[nodiscard]] bool guard(Right right) const;
  [[nodiscard]] bool guard_any() const { return !tokens_.empty(); }
  // Compares tokens, rights and limits.
  friend bool operator==(const Tokens& one, const Tokens& other);

  // Null: unknown token.
  [[nodiscard]] TokenPointer find(std::string_view token) const;
  // The entry for a token of an earlier reading of the files; null: it was removed.
  [[nodiscard]] TokenPointer renewed(const TokenPointer& token) const;
  // Stores the token of an Authorization header in the identity: "Bearer TOKEN", or "Basic ..."
  // with the token as password. Empty: no header was sent.
  void identify(std::string_view authorization, PeerIdentity& peer) const;

  // Checks a call that needs `needed` and concerns `model` (empty: no single model). Fails with
  // unauthenticated, or with forbidden for a token that is restricted to other models.
  [[nodiscard]] Status check(Right needed, const PeerIdentity& peer,
                             std::string_view model = {}) const;

 private:
  [[nodiscard]] TokenPointer find(const Token::Digest& digest) const;
  [[nodiscard]] const Token* entry_for(const Token& shown, Right needed) const;
  [[nodiscard]] bool has(Right right) const;
  [[nodiscard]] Status add_file(const std::filesystem::path& file, Right right);

  std::vector<TokenPointer> tokens_;
};

// Parses a token file; `file` names it in errors. Fails (invalid) as Tokens::read.
[[nodiscard]] Result<std::vector<Token>> parse_tokens(std::string_view text,
                                                      const std::string& file, Right right);

// The first token of a file, for a client to present. Fails as Tokens::read.
[[nodiscard]] Result<std::string> read_token(const std::filesystem::path& file);

// Whether both are the same. Takes equally long wherever they differ.
[[nodiscard]] bool same_secret(std::string_view a, std::string_view b);

// The token of "Bearer TOKEN", or the password of "Basic ..."; empty for any other value.
[[nodiscard]] std::string token_of(std::string_view authorization);

}  // namespace gpulet::access
