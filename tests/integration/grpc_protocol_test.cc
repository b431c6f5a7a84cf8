// The Open Inference Protocol over gRPC through real daemons. A program of its own: gRPC's library
// is not built under ThreadSanitizer, which then sees half of what happens.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>

#include "kserve.grpc.pb.h"
#include "tests/support/cluster/cluster.h"

namespace gpulet::testing {
namespace {

TEST(GrpcProtocolTest, IsAnsweredByTheProxies) {
  Cluster cluster({{"a", 2, 500, 50, 3}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const auto stub = inference::GRPCInferenceService::NewStub(::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(cluster.grpc_port()), ::grpc::InsecureChannelCredentials()));
  inference::ModelInferRequest request;
  request.set_model_name("a");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("UINT8");
  input.add_shape(2);
  input.add_shape(3);
  request.add_raw_input_contents("abcdef");
  inference::ModelInferResponse response;
  ::grpc::ClientContext context;
  const auto status = stub->ModelInfer(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.raw_output_contents(0), "abcdef");
}

}  // namespace
}  // namespace gpulet::testing
