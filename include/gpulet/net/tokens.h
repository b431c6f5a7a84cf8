// Tokens: who may ask for what. A caller shows a token (a bearer token over HTTP and gRPC); what a
// call needs is one of three rights, each of which includes those before it.
//
// Only digests of the tokens are kept, and all of them are compared with what is shown, so that the
// time it takes says nothing about them. Immutable once read; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/config/security_config.h"
#include "gpulet/core/status.h"

namespace gpulet::net {

enum class Right : std::uint8_t {
  nothing,    // health, metadata, index, statistics, status: everybody
  inference,  // to ask models
  admin,      // to change what is served, shared memory, traces
};

class Tokens {
 public:
  static constexpr std::size_t kShortestToken = 16;

  // Without files everybody may everything. Without admin tokens, admin calls need what inference
  // needs.
  Tokens() = default;
  // A token a line, "#" begins a comment. Fails with not_found or invalid (others may read the
  // file, it holds no token or one that is too short), naming file, line and mend.
  [[nodiscard]] static Result<Tokens> read(const config::TokenFiles& files);

  // Whether a call that needs `right` needs a token.
  [[nodiscard]] bool guard(Right right) const;
  [[nodiscard]] bool guard_any() const { return guard(Right::inference) || guard(Right::admin); }

  // What whoever shows this token may do.
  [[nodiscard]] Right right_of(std::string_view token) const;
  // Fails with unauthenticated. `shown`: a token was; `held`: what it is good for.
  [[nodiscard]] Status check(Right needed, bool shown, Right held) const;
  // The same for the value of an Authorization header; empty: none was sent.
  [[nodiscard]] Status check_header(Right needed, std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;

  [[nodiscard]] static bool holds(const std::vector<Digest>& digests, const Digest& one);
  [[nodiscard]] static Result<std::vector<Digest>> read_digests(const std::filesystem::path& file);

  std::vector<Digest> admin_;
  std::vector<Digest> inference_;
};

// The first token of a file, to show it. Fails as Tokens::read.
[[nodiscard]] Result<std::string> read_token(const std::filesystem::path& file);

// The token of "Bearer TOKEN"; empty where it is something else.
[[nodiscard]] std::string_view bearer_token(std::string_view authorization);

}  // namespace gpulet::net
