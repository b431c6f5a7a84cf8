// Who makes a call: the address that it comes from, the token that it showed, and the names of the
// certificate that the peer proved. Of HTTP and of the own protocol there is one for each
// connection, of gRPC one for each call. Value; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::net {

struct Token;

struct PeerIdentity {
  std::string address;                      // numeric, without the port; empty: not known
  std::vector<std::string> certificates{};  // names of the peer's certificate; clients show none
  // Null: none was shown, or one that is not known.
  std::shared_ptr<const Token> token{};
  bool token_shown = false;
  std::string_view protocol{};  // "http", "grpc", "own"; a literal
  // Of the inference that is being received: what Gate::announce() has counted already.
  std::uint32_t paid_requests = 0;

  // Empty without a known token.
  [[nodiscard]] std::string_view token_name() const;
};

}  // namespace gpulet::net
