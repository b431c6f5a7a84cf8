#include "tests/conformance/grpc_client.h"

#include <limits>

namespace gpulet::conformance {
namespace {

// As Triton's clients set them.
::grpc::ChannelArguments channel_arguments() {
  ::grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(std::numeric_limits<int>::max());
  arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

GrpcConnection::GrpcConnection(std::uint16_t port)
    : channel_(::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                           ::grpc::InsecureChannelCredentials(),
                                           channel_arguments())) {}

GrpcConnection::GrpcConnection(const std::string& target) {
  ::grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetServiceConfigJSON(
      R"({"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""}})");
  channel_ = ::grpc::CreateCustomChannel(target, ::grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace gpulet::conformance
