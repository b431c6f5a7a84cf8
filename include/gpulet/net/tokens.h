// Tokens: who may ask for what. A caller shows a token (a bearer token over HTTP and gRPC); what a
// call needs is one of four rights.
//
// A file of tokens holds one a line; "#" begins a comment. Before the token may stand what is known
// of it, each as KEY=VALUE, separated by blanks:
//
//   name=lab models=resnet*,bert requests_per_s=200 device_ms_per_s=500 max_requests=64 TOKEN
//
// `name` is what logs and metrics call it; tokens of one name share its limits, so that one can
// replace another. `models`: it is good for these alone; * and ? match as in a shell. The limits
// are those of config::ClientLimits. The right follows from the file.
//
// Only digests of the tokens are kept, and all of them are compared with what is shown, so that the
// time it takes says nothing about them. Immutable once read; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/config/security_config.h"
#include "gpulet/core/status.h"
#include "gpulet/net/peer_identity.h"

namespace gpulet::net {

enum class Right : std::uint8_t {
  nothing,    // health, metadata, configuration, index: everybody
  observe,    // status, statistics, metrics, the dashboard
  inference,  // to ask models
  admin,      // to change what is served, shared memory, traces; good for all else
};

// "observe", "inference", ...
[[nodiscard]] std::string_view to_string(Right right);

struct Token {
  using Digest = std::array<unsigned char, 32>;

  std::string name;  // "inference:3" for one without a name on that line of its file
  Right right = Right::nothing;
  std::vector<std::string> models{};  // patterns; empty: all
  config::ClientLimits limits{};
  Digest digest{};

  [[nodiscard]] bool may_use(std::string_view model) const;

  friend bool operator==(const Token&, const Token&) = default;
};
using TokenPointer = std::shared_ptr<const Token>;

class Tokens {
 public:
  static constexpr std::size_t kShortestToken = 16;

  // Without files everybody may everything. Without admin tokens, admin calls need what inference
  // needs.
  Tokens() = default;
  // Fails with not_found or invalid (others may read the file, it holds no token, one that is too
  // short, or a line that is not as above), naming file and line and how to correct it.
  [[nodiscard]] static Result<Tokens> read(const config::TokenFiles& files);

  // Whether a call that needs `right` needs a token.
  [[nodiscard]] bool guard(Right right) const;
  [[nodiscard]] bool guard_any() const;
  // Some token has a limit.
  [[nodiscard]] bool limit_any() const { return limit_any_; }
  // Of the same tokens with the same rights and limits.
  friend bool operator==(const Tokens& one, const Tokens& other);

  // Null: not known.
  [[nodiscard]] TokenPointer find(std::string_view token) const;
  // The entry for a token that another reading of the files knew; null: it is gone.
  [[nodiscard]] TokenPointer renewed(const TokenPointer& token) const;
  // Takes what an Authorization header holds into the identity: "Bearer TOKEN", or "Basic ..."
  // whose password is the token. Empty: none was sent.
  void identify(std::string_view authorization, PeerIdentity& peer) const;

  // Whether the peer may make a call that needs `right` and is about `model` (empty: about no one
  // model). Fails with unauthenticated, or with forbidden where the token is good for other models.
  [[nodiscard]] Status check(Right needed, const PeerIdentity& peer,
                             std::string_view model = {}) const;
  // The same for the value of an Authorization header.
  [[nodiscard]] Status check_header(Right needed, std::string_view authorization,
                                    std::string_view model = {}) const;

 private:
  [[nodiscard]] TokenPointer find(const Token::Digest& digest) const;
  [[nodiscard]] const Token* entry_for(const Token& shown, Right needed) const;
  [[nodiscard]] bool has(Right right) const;
  [[nodiscard]] Status take(const std::filesystem::path& file, Right right);

  std::vector<TokenPointer> tokens_;
  bool limit_any_ = false;
};

// The lines of a file of tokens; `file` names it in errors. Fails (invalid) as Tokens::read.
[[nodiscard]] Result<std::vector<Token>> parse_tokens(std::string_view text,
                                                      const std::string& file, Right right);

// The first token of a file, to show it. Fails as Tokens::read.
[[nodiscard]] Result<std::string> read_token(const std::filesystem::path& file);

// The token of "Bearer TOKEN", or the password of "Basic ..."; empty where it is something else.
[[nodiscard]] std::string token_of(std::string_view authorization);

}  // namespace gpulet::net
