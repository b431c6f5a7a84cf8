// Inferences over gRPC: unary calls and streams, cancellation, draining, shared memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "gpulet/net/kserve/infer_call.h"
#include "tests/net/grpc/grpc_fixture.h"

namespace gpulet::net::grpc_api {
namespace {

TEST_F(GrpcTest, RejectsRequestsWithLongLists) {
  inference::ModelInferResponse response;
  auto tensors = request_for("echo");
  for (int i = 0; i < 100'000; ++i) tensors.add_inputs();
  EXPECT_EQ(infer(tensors, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  auto dimensions = request_for("echo");
  for (int i = 0; i < 100'000; ++i) dimensions.mutable_inputs(0)->add_shape(1);
  EXPECT_EQ(infer(dimensions, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  auto parameters = request_for("echo");
  for (int i = 0; i < 1000; ++i)
    (*parameters.mutable_parameters())[std::to_string(i)].set_bool_param(true);
  EXPECT_EQ(infer(parameters, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(infer(raw_request({1, 2}), response).ok());
}

TEST_F(GrpcTest, ClassificationReturnsLabels) {
  auto request = raw_request({1, 2});
  auto& output = *request.add_outputs();
  output.set_name("y");
  (*output.mutable_parameters())["classification"].set_int64_param(1);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(request, response).ok());
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_EQ(response.raw_output_contents(0).substr(4), "2:1:right");
}

TEST_F(GrpcTest, ReturnsRowsInOrder) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  auto request = raw_request(values);
  (*request.mutable_parameters())["timeout"].set_int64_param(250000);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(request, response).ok());
  EXPECT_EQ(response.model_name(), "echo");
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.id(), "mine");
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "y");
  EXPECT_EQ(response.outputs(0).shape(0), 3);
  EXPECT_EQ(response.raw_output_contents(0), raw(values));
  EXPECT_EQ(on_io([this] { return host_.timeouts.front(); }), std::chrono::milliseconds(250));
}

TEST_F(GrpcTest, AcceptsTypedContents) {
  auto request = request_for("echo");
  auto& contents = *request.mutable_inputs(0)->mutable_contents();
  contents.add_fp32_contents(0.5F);
  contents.add_fp32_contents(-2);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(request, response).ok());
  EXPECT_EQ(response.raw_output_contents(0), raw({0.5F, -2}));
}

TEST_F(GrpcTest, InvalidRequestsHaveACodeAndAMessage) {
  const auto code = [this](const inference::ModelInferRequest& request) {
    inference::ModelInferResponse response;
    const auto status = infer(request, response);
    EXPECT_FALSE(status.error_message().empty());
    return status.error_code();
  };
  EXPECT_EQ(code(raw_request({1, 2}, "nobody")), ::grpc::StatusCode::NOT_FOUND);
  auto other_version = raw_request({1, 2});
  other_version.set_model_version("2");
  EXPECT_EQ(code(other_version), ::grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code(raw_request({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})),  // five rows
            ::grpc::StatusCode::INVALID_ARGUMENT);
  auto both = raw_request({1, 2});
  both.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(code(both), ::grpc::StatusCode::INVALID_ARGUMENT);
  auto too_many = raw_request({1, 2});
  too_many.add_raw_input_contents("more");
  EXPECT_EQ(code(too_many), ::grpc::StatusCode::INVALID_ARGUMENT);
  auto output = raw_request({1, 2});
  output.add_outputs()->set_name("z");
  EXPECT_EQ(code(output), ::grpc::StatusCode::INVALID_ARGUMENT);
  auto sequence = raw_request({1, 2});
  (*sequence.mutable_parameters())["sequence_id"].set_int64_param(1);
  EXPECT_EQ(code(sequence), ::grpc::StatusCode::INVALID_ARGUMENT);
  on_io([this] { host_.refuse = Status(StatusCode::overloaded, "its queue is full"); });
  EXPECT_EQ(code(raw_request({1, 2})), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  on_io([this] { host_.refuse = Status(StatusCode::too_late, "no longer in time"); });
  EXPECT_EQ(code(raw_request({1, 2})), ::grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(GrpcTest, EveryFailureHasAMessage) {
  on_io([this] { host_.refuse = Status(StatusCode::internal, ""); });
  inference::ModelInferResponse response;
  const auto status = infer(raw_request({1, 2}), response);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INTERNAL);
  EXPECT_NE(status.error_message(), "");
}

TEST_F(GrpcTest, LimitsTheIdAndAcceptsEmptySequences) {
  inference::ModelInferResponse response;
  auto request = raw_request({1, 2});
  request.set_id(std::string(kserve::kMaxIdBytes, 'i'));
  (*request.mutable_parameters())["sequence_id"].set_int64_param(0);
  (*request.mutable_parameters())["sequence_start"].set_bool_param(false);
  EXPECT_TRUE(infer(request, response).ok());
  EXPECT_EQ(response.id(), request.id());
  (*request.mutable_parameters())["sequence_id"].set_string_param("");
  EXPECT_TRUE(infer(request, response).ok());
  request.set_id(request.id() + 'i');
  EXPECT_EQ(infer(request, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcTest, AStreamRespondsInRequestOrder) {
  on_io([this] { host_.holding = true; });
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kCalls = 4;  // the limit of calls in flight
  for (int i = 0; i < kCalls; ++i) {
    // The second fails at once, while the first is in flight.
    auto request = raw_request({static_cast<float>(i), 0}, i == 1 ? "nobody" : "echo");
    request.set_id(std::to_string(i));
    ASSERT_TRUE(stream->Write(request));
  }
  auto too_long = raw_request({4, 0});
  too_long.set_id(std::string(kserve::kMaxIdBytes + 1, 'i'));
  ASSERT_TRUE(stream->Write(too_long));
  ASSERT_TRUE(stream->WritesDone());
  wait_for_held(3);
  for (int i = 0; i < 3; ++i) on_io([this] { host_.release_last(); });
  inference::ModelStreamInferResponse answer;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(stream->Read(&answer));
    const auto& response = answer.infer_response();
    EXPECT_EQ(response.id(), std::to_string(i));
    EXPECT_EQ(answer.error_message().empty(), i != 1) << answer.error_message();
    EXPECT_TRUE(response.parameters().at("triton_final_response").bool_param());
    if (i != 1) {
      EXPECT_EQ(response.raw_output_contents(0), raw({static_cast<float>(i), 0}));
    }
  }
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_NE(answer.error_message(), "");
  EXPECT_EQ(answer.infer_response().id(), "") << "a long id is not echoed";
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcTest, AStreamLimitsItsCallsInFlight) {
  on_io([this] { host_.holding = true; });
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kCalls = 12;
  std::jthread writer([&] {
    for (int i = 0; i < kCalls; ++i) {
      auto request = raw_request({static_cast<float>(i), 0});
      request.set_id(std::to_string(i));
      ASSERT_TRUE(stream->Write(request));
    }
    ASSERT_TRUE(stream->WritesDone());
  });
  wait_for_held(4);
  // All but the first are complete; their responses still count as in flight.
  for (int i = 0; i < 3; ++i) on_io([this] { host_.release_last(); });
  EXPECT_EQ(on_io([this] { return host_.timeouts.size(); }), 4U);
  on_io([this] { host_.release(); });
  inference::ModelStreamInferResponse answer;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_EQ(answer.infer_response().id(), std::to_string(i));
  }
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcTest, AStreamContinuesAfterAnError) {
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kCalls = 20;  // more than the limit
  for (int i = 0; i < kCalls; ++i) {
    auto request = raw_request({static_cast<float>(i), 0}, i == 3 ? "nobody" : "echo");
    request.set_id(std::to_string(i));
    ASSERT_TRUE(stream->Write(request));
  }
  ASSERT_TRUE(stream->WritesDone());
  std::map<std::string, std::string> answers;
  inference::ModelStreamInferResponse answer;
  while (stream->Read(&answer)) {
    const auto& response = answer.infer_response();
    answers[response.id()] =
        answer.error_message().empty() ? response.raw_output_contents(0) : answer.error_message();
  }
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(answers.size(), static_cast<std::size_t>(kCalls));
  EXPECT_EQ(answers.at("7"), raw({7, 0}));
  EXPECT_NE(answers.at("3").find("nobody"), std::string::npos);
}

TEST_F(GrpcTest, ClientCancellationCancelsTheInference) {
  on_io([this] { host_.holding = true; });
  ::grpc::ClientContext one;
  ::grpc::ClientContext streamed;
  auto unary = std::async(std::launch::async, [&] {
    inference::ModelInferResponse response;
    return stub_->ModelInfer(&one, raw_request({1, 2}), &response);
  });
  const auto stream = stub_->ModelStreamInfer(&streamed);
  ASSERT_TRUE(stream->Write(raw_request({1, 2})));
  wait_for_held(2);
  one.TryCancel();
  streamed.TryCancel();
  EXPECT_EQ(unary.get().error_code(), ::grpc::StatusCode::CANCELLED);
  EXPECT_EQ(stream->Finish().error_code(), ::grpc::StatusCode::CANCELLED);
  while (on_io([this] { return host_.cancelled; }) < 2) std::this_thread::yield();
}

TEST_F(GrpcTest, DrainingCompletesCallsInFlight) {
  on_io([this] { host_.holding = true; });
  auto in_flight = std::async(std::launch::async, [&] {
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  on_io([this] { server_->drain(std::chrono::seconds(30)); });
  on_io([this] { host_.release(); });
  EXPECT_TRUE(in_flight.get().ok());
  // Draining starts on another thread.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  inference::ServerLiveResponse live;
  bool taken = true;
  while (taken && std::chrono::steady_clock::now() < deadline)
    taken = call(&Stub::ServerLive, inference::ServerLiveRequest(), live).ok();
  EXPECT_FALSE(taken);
}

TEST_F(GrpcTest, StopsWithCallsInFlight) {
  on_io([this] { host_.holding = true; });
  auto in_flight = std::async(std::launch::async, [&] {
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  stop();
  server_.reset();
  EXPECT_FALSE(in_flight.get().ok());
}

TEST_F(GrpcTest, TheMessageLimitCanBeRaised) {
  auto held = std::async(std::launch::async, [&] {
    on_io([this] { host_.holding = true; });
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  // Also too long for its model, but the message limit is checked first.
  const auto long_request = [] {
    auto request = request_for("echo");
    request.add_raw_input_contents(std::string(65U << 20U, 'x'));
    return request;
  }();
  inference::ModelInferResponse response;
  EXPECT_EQ(infer(long_request, response).error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  on_io([this] { server_->take_messages_up_to(66U << 20U); });
  EXPECT_EQ(infer(long_request, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT)
      << "fails the model's check, on the same connection";
  on_io([this] { host_.release(); });
  EXPECT_TRUE(held.get().ok()) << "calls in flight complete";
  on_io([this] { server_->take_messages_up_to(1); });
  EXPECT_EQ(infer(long_request, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT)
      << "the limit never decreases";
}

TEST_F(GrpcTest, TensorsMayBeInSharedMemory) {
  const std::string key = "/gpulet-grpc-test-" + std::to_string(::getpid());
  const int file = ::shm_open(key.c_str(), O_CREAT | O_RDWR | O_EXCL, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, 64), 0);
  void* const mapped = ::mmap(nullptr, 64, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::vector<float> values{8, 9};
  std::memcpy(mapped, values.data(), 8);

  inference::SystemSharedMemoryRegisterRequest add;
  add.set_name("region");
  add.set_key(key);
  add.set_byte_size(64);
  inference::SystemSharedMemoryRegisterResponse added;
  ASSERT_TRUE(call(&Stub::SystemSharedMemoryRegister, add, added).ok());
  inference::SystemSharedMemoryStatusResponse status;
  ASSERT_TRUE(
      call(&Stub::SystemSharedMemoryStatus, inference::SystemSharedMemoryStatusRequest(), status)
          .ok());
  EXPECT_EQ(status.regions().at("region").byte_size(), 64U);

  auto request = request_for("echo");
  const auto place = [](auto& parameters, std::int64_t offset) {
    parameters["shared_memory_region"].set_string_param("region");
    parameters["shared_memory_byte_size"].set_int64_param(8);
    parameters["shared_memory_offset"].set_int64_param(offset);
  };
  place(*request.mutable_inputs(0)->mutable_parameters(), 0);
  auto& output = *request.add_outputs();
  output.set_name("y");
  place(*output.mutable_parameters(), 32);
  inference::ModelInferResponse response;
  const auto result = infer(request, response);
  ASSERT_TRUE(result.ok()) << result.error_message();
  EXPECT_EQ(std::memcmp(static_cast<const char*>(mapped) + 32, values.data(), 8), 0);
  EXPECT_EQ(response.outputs(0).parameters().at("shared_memory_region").string_param(), "region");

  inference::SystemSharedMemoryUnregisterResponse removed;
  ASSERT_TRUE(call(&Stub::SystemSharedMemoryUnregister,
                   inference::SystemSharedMemoryUnregisterRequest(), removed)
                  .ok());
  EXPECT_EQ(infer(request, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  ::munmap(mapped, 64);
  ::shm_unlink(key.c_str());
}

}  // namespace
}  // namespace gpulet::net::grpc_api
