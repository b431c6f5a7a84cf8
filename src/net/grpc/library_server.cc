#include "library_server.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <limits>

namespace gpulet::net::grpc_api {
namespace {

int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

int as_int(std::size_t value) {
  return static_cast<int>(
      std::min<std::size_t>(value, static_cast<std::size_t>(std::numeric_limits<int>::max())));
}

}  // namespace

LibraryServer::LibraryServer(const SitePointer& site)
    : site_(site), inference_(site), health_(site), reflection_(site) {}

LibraryServer::~LibraryServer() {
  if (server_) end_by(std::chrono::system_clock::now());
}

Status LibraryServer::start(std::size_t max_message_bytes, const ::grpc::ResourceQuota& memory,
                            const std::shared_ptr<::grpc::ServerCredentials>& credentials) {
  const GrpcServerOptions& options = site_->options;
  ::grpc::ServerBuilder builder;
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      ::grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(&inference_);
  builder.RegisterService(&health_);
  builder.RegisterService(&reflection_v1_);
  builder.RegisterService(&reflection_v1alpha_);
  builder.RegisterCallbackGenericService(&unknown_);
  builder.SetMaxReceiveMessageSize(as_int(max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             as_int(options.max_calls_of_connection));
  builder.SetResourceQuota(memory);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             milliseconds(options.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(options.idle_timeout));
  server_ = builder.BuildAndStart();
  if (!server_) return {StatusCode::unavailable, "the gRPC library does not start a server"};
  return {};
}

void LibraryServer::take(int descriptor) {
  ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters one;
  one.fd = descriptor;
  connections_->HandleNewConnection(&one);
}

void LibraryServer::leave() {
  health_.end_watches();
  reflection_.drain();
  leaving_ = std::async(std::launch::async, [this] { server_->Shutdown(); });
}

void LibraryServer::end_lasting_calls() {
  health_.drain();
  reflection_.drain();
}

void LibraryServer::end_by(std::chrono::system_clock::time_point deadline) {
  if (!leaving_.valid()) {
    server_->Shutdown(deadline);
    return;
  }
  if (leaving_.wait_until(deadline) == std::future_status::ready) return;
  ::grpc_server_cancel_all_calls(server_->c_server());
  leaving_.wait();
}

}  // namespace gpulet::net::grpc_api
