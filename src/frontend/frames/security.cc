#include "frontend/frames/security.h"

#include <optional>
#include <string_view>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::frontend {

namespace {

struct Port {
  std::string_view key;
  std::optional<config::Endpoint> endpoint;
};

// The ports that other machines can reach; empty: none.
std::string reachable(const std::vector<Port>& ports) {
  std::vector<std::string> found;
  for (const Port& port : ports) {
    if (!port.endpoint || config::is_loopback(*port.endpoint)) continue;
    found.push_back(std::string(port.key) + " (" + config::to_string(*port.endpoint) + ")");
  }
  return joined(found);
}

}  // namespace

Result<PortTls> read_port_tls(const config::TlsFiles& files) {
  GPULET_TRY(net::TlsContextPointer context, net::TlsContext::server(files));
  GPULET_TRY(net::TlsTexts texts, net::read_tls_texts(files));
  return PortTls{std::move(context), std::move(texts)};
}

Result<Security> read_security(const config::FrontendConfig& config) {
  Security security;
  if (config.tls) {
    Result<PortTls> clients = read_port_tls(*config.tls);
    if (!clients.ok()) return clients.status().within("tls");
    security.clients = std::move(clients).value();
  }
  if (config.backend_tls) {
    Result<PortTls> backends = read_port_tls(*config.backend_tls);
    if (!backends.ok()) return backends.status().within("backend_tls");
    security.backends = std::move(backends).value();
  }
  Result<access::Tokens> tokens = access::Tokens::read(config.tokens);
  if (!tokens.ok()) return tokens.status().within("tokens");
  security.gate = std::make_shared<access::Gate>(
      std::make_shared<const access::Tokens>(std::move(tokens).value()), config.per_address);
  return security;
}

std::vector<std::string> exposures(const config::FrontendConfig& config) {
  std::vector<std::string> found;
  const std::string served =
      reachable({{"listen", config.listen}, {"http", config.http}, {"grpc", config.grpc}});
  const std::string metrics = reachable({{"metrics", config.metrics}});
  const std::string both = served + (served.empty() || metrics.empty() ? "" : ", ") + metrics;
  const std::string backends = reachable({{"backend_listen", config.backend_listen}});
  if (!both.empty() && !config.tls)
    found.push_back("other machines can reach " + both + R"( without encryption; set "tls")");
  if (!served.empty() && config.tokens.admin.empty() && config.tokens.inference.empty()) {
    found.push_back(
        "any client that can reach " + served +
        R"( may load and unload models; set "tokens": {"admin": FILE} to prevent this)");
  }
  if (!served.empty() && config.tokens.inference.empty()) {
    found.push_back(
        "any client that can reach " + served +
        R"( may request inferences; set "tokens": {"inference": FILE} to prevent this)");
  }
  if (!backends.empty() && !config.backend_tls) {
    found.push_back(
        "any machine that can reach " + backends +
        R"( may pose as a backend and receive models and requests; set "backend_tls" to prevent this)");
  }
  if (config.cluster && !config.cluster->peer_tls &&
      !config::is_loopback(config.cluster->peer_listen)) {
    found.push_back("any machine that can reach cluster.peer_listen (" +
                    config::to_string(config.cluster->peer_listen) +
                    ") may pose as a frontend and send requests without a token; set "
                    "cluster.peer_tls to prevent this");
  }
  return found;
}

}  // namespace gpulet::frontend
