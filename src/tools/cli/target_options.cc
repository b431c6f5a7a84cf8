#include "tools/cli/target_options.h"

#include <cstdlib>
#include <utility>

#include "gpulet/access/tokens.h"

namespace gpulet::tools {

void add_target_options(CLI::App& command, TargetOptions& options) {
  command
      .add_option("--target", options.address,
                  "the frontend's address for clients (\"listen\" in its file)")
      ->envname("GPULET_TARGET")
      ->capture_default_str();
  command
      .add_option("--tls-authority", options.authority,
                  "use TLS; file with the certificate of the authority that signed the frontend's "
                  "certificate")
      ->envname("GPULET_TLS_AUTHORITY");
  command.add_option("--token-file", options.token_file,
                     "file whose first line is the token (default: $GPULET_TOKEN)");
}

Result<load::Target> find_target(const TargetOptions& options) {
  const Result<config::Endpoint> endpoint = config::parse_endpoint(options.address);
  if (!endpoint.ok()) return endpoint.status().within("--target");
  load::Target target(endpoint.value());
  if (!options.authority.empty()) {
    Result<net::TlsContextPointer> tls = net::TlsContext::client({{}, {}, options.authority});
    if (!tls.ok()) return tls.status().within("--tls-authority");
    target.tls = std::move(tls).value();
  }
  if (!options.token_file.empty()) {
    Result<std::string> token = access::read_token(options.token_file);
    if (!token.ok()) return token.status().within("--token-file");
    target.token = std::move(token).value();
  } else if (const char* const token = std::getenv("GPULET_TOKEN"); token != nullptr) {
    target.token = token;
  }
  return target;
}

}  // namespace gpulet::tools
