// A frontend to connect to, and what it is shown. Values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gpulet/config/daemon_config.h"
#include "gpulet/net/tls.h"

namespace gpulet::load {

struct Target {
  Target() = default;
  Target(config::Endpoint place)  // NOLINT(google-explicit-constructor): a plain one
      : endpoint(std::move(place)) {}
  Target(std::string host, std::uint16_t port) : endpoint{std::move(host), port} {}

  config::Endpoint endpoint;
  net::TlsContextPointer tls{};  // a client's; null: plain
  std::string token{};           // empty: none
};

}  // namespace gpulet::load
