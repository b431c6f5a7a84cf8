// The Open Inference Protocol over gRPC with real daemons. A separate program, because gRPC's
// library is not built with ThreadSanitizer, which would report false races.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "kserve.grpc.pb.h"
#include "tests/support/cluster/cluster.h"

namespace gpulet::testing {
namespace {

using Stub = inference::GRPCInferenceService::Stub;

std::unique_ptr<Stub> stub_of(Cluster& cluster) {
  return inference::GRPCInferenceService::NewStub(::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(cluster.grpc_port()), ::grpc::InsecureChannelCredentials()));
}

inference::ModelInferRequest request_for(const std::string& model, const std::string& bytes,
                                         std::int64_t rows) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("UINT8");
  input.add_shape(rows);
  input.add_shape(static_cast<std::int64_t>(bytes.size()) / rows);
  request.add_raw_input_contents(bytes);
  return request;
}

template <typename Request, typename Response>
::grpc::Status call(Stub& stub,
                    ::grpc::Status (Stub::*method)(::grpc::ClientContext*, const Request&,
                                                   Response*),
                    const Request& request, Response& response) {
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  return (stub.*method)(&context, request, &response);
}

bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(GrpcProtocolTest, IsAnsweredByTheProxies) {
  Cluster cluster({{"a", 2, 500, 50, 3}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  inference::ModelInferResponse response;
  const auto status =
      call(*stub_of(cluster), &Stub::ModelInfer, request_for("a", "abcdef", 2), response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.raw_output_contents(0), "abcdef");
}

// The batches of two gpulets end in any order.
TEST(GrpcProtocolTest, AStreamIsAnsweredInOrderByTwoGpulets) {
  Cluster cluster({{"a", 4, 500, 600}});
  cluster.add_backend("n0", 2);
  cluster.wait_until_serving();
  ASSERT_GE(cluster.status().gpulets.size(), 2U);
  const std::unique_ptr<Stub> stub = stub_of(cluster);
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub->ModelStreamInfer(&context);
  constexpr int kCalls = 100;
  std::jthread writer([&stream] {
    for (int i = 0; i < kCalls; ++i) {
      auto request = request_for("a", "z", 1);
      request.set_id(std::to_string(i));
      (*request.mutable_parameters())["timeout"].set_int64_param(20'000'000);
      if (!stream->Write(request)) return;
    }
    stream->WritesDone();
  });
  inference::ModelStreamInferResponse answer;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(stream->Read(&answer)) << i;
    EXPECT_EQ(answer.error_message(), "");
    EXPECT_EQ(answer.infer_response().id(), std::to_string(i));
    EXPECT_TRUE(answer.infer_response().parameters().at("triton_final_response").bool_param());
  }
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(GrpcProtocolTest, AnUnloadedModelStaysInTheIndex) {
  Cluster cluster({{"a", 2, 500, 10}, {"b", 2, 500, 10}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::unique_ptr<Stub> stub = stub_of(cluster);
  const auto state_of = [&](const std::string& name, bool only_ready) {
    inference::RepositoryIndexRequest request;
    request.set_ready(only_ready);
    inference::RepositoryIndexResponse index;
    EXPECT_TRUE(call(*stub, &Stub::RepositoryIndex, request, index).ok());
    const auto found = std::find_if(index.models().begin(), index.models().end(),
                                    [&name](const auto& model) { return model.name() == name; });
    return found == index.models().end() ? std::string("not listed")
                                         : found->state() + " " + found->reason();
  };
  const auto ready = [&](const std::string& name) {
    inference::ModelReadyRequest request;
    request.set_name(name);
    inference::ModelReadyResponse response;
    EXPECT_TRUE(call(*stub, &Stub::ModelReady, request, response).ok());
    return response.ready();
  };
  EXPECT_TRUE(ready("b"));
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("b");
  inference::RepositoryModelUnloadResponse unloaded;
  ASSERT_TRUE(call(*stub, &Stub::RepositoryModelUnload, unload, unloaded).ok());
  EXPECT_FALSE(ready("b"));
  EXPECT_TRUE(becomes_true([&] { return state_of("b", false) == "UNAVAILABLE unloaded"; }))
      << state_of("b", false);
  EXPECT_EQ(state_of("b", true), "not listed");
  EXPECT_EQ(state_of("a", false), "READY ");

  inference::RepositoryModelLoadRequest load;
  load.set_model_name("b");
  inference::RepositoryModelLoadResponse loaded;
  ASSERT_TRUE(call(*stub, &Stub::RepositoryModelLoad, load, loaded).ok());
  EXPECT_TRUE(becomes_true([&] { return ready("b"); }));
  EXPECT_TRUE(becomes_true([&] { return state_of("b", true) == "READY "; })) << state_of("b", true);
}

}  // namespace
}  // namespace gpulet::testing
