// The gRPC endpoint as its clients see it: a real channel over loopback, a fake host behind.
#include <fcntl.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/net/grpc/server.h"
#include "gpulet/net/kserve/infer_call.h"
#include "health.grpc.pb.h"
#include "kserve.grpc.pb.h"
#include "reflection_v1.grpc.pb.h"
#include "reflection_v1alpha.grpc.pb.h"
#include "tests/support/protocol_host.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::net::grpc_api {
namespace {

using testing::FakeHost;

std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inference::ModelInferRequest request_for(const std::string& model, std::int64_t rows = 1) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  request.set_id("mine");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(rows);
  input.add_shape(2);
  return request;
}

inference::ModelInferRequest raw_request(const std::vector<float>& values,
                                         const std::string& model = "echo") {
  auto request = request_for(model, static_cast<std::int64_t>(values.size() / 2));
  request.add_raw_input_contents(raw(values));
  return request;
}

class GrpcTest : public ::testing::Test {
 protected:
  GrpcTest() : GrpcTest(std::make_shared<Gate>()) {}
  explicit GrpcTest(const std::shared_ptr<Gate>& gate) : host_(io_), regions_(true) {
    auto server = GrpcServer::listen(io_.get_executor(), "127.0.0.1", 0,
                                     {.version = "1.2.3", .max_calls_of_stream = 4, .gate = gate},
                                     host_, regions_);
    if (!server.ok()) throw std::runtime_error(server.status().to_string());
    server_ = std::move(server).value();
    thread_ = std::jthread([this] { io_.run(); });
    channel_ = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     ::grpc::InsecureChannelCredentials());
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
  }
  ~GrpcTest() override {
    stop();
    server_.reset();
  }

  void stop() {
    work_.reset();
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Runs on the thread that the server and the host live on.
  template <typename Function>
  auto on_io(Function function) {
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto result = task.get_future();
    asio::post(io_, [&task] { task(); });
    return result.get();
  }
  void wait_for_held(std::size_t calls) {
    while (on_io([this] { return host_.held(); }) < calls) std::this_thread::yield();
  }

  using Stub = inference::GRPCInferenceService::Stub;
  template <typename Request, typename Response>
  ::grpc::Status call(::grpc::Status (Stub::*method)(::grpc::ClientContext*, const Request&,
                                                     Response*),
                      const Request& request, Response& response) {
    ::grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return (stub_.get()->*method)(&context, request, &response);
  }
  ::grpc::Status infer(const inference::ModelInferRequest& request,
                       inference::ModelInferResponse& response) {
    return call(&Stub::ModelInfer, request, response);
  }

  asio::io_context io_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_{
      asio::make_work_guard(io_)};
  FakeHost host_;
  kserve::SharedMemory regions_;
  std::unique_ptr<GrpcServer> server_;
  std::jthread thread_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

TEST_F(GrpcTest, RefusesLongListsBeforeAnybodyGoesThroughThem) {
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

TEST_F(GrpcTest, RefusesLongCallsThatAreNoInference) {
  inference::RepositoryIndexRequest asked;
  asked.set_repository_name(std::string(100'000, 'x'));
  inference::RepositoryIndexResponse index;
  EXPECT_EQ(call(&Stub::RepositoryIndex, asked, index).error_code(),
            ::grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcTest, TellsWhatItIsAndWhatItServes) {
  inference::ServerMetadataResponse server;
  ASSERT_TRUE(call(&Stub::ServerMetadata, inference::ServerMetadataRequest(), server).ok());
  EXPECT_EQ(server.name(), "gpulet");
  EXPECT_EQ(server.version(), "1.2.3");
  EXPECT_EQ(server.extensions_size(), 10);

  inference::ModelMetadataRequest asked;
  asked.set_name("echo");
  inference::ModelMetadataResponse model;
  ASSERT_TRUE(call(&Stub::ModelMetadata, asked, model).ok());
  EXPECT_EQ(model.name(), "echo");
  ASSERT_EQ(model.versions_size(), 1);
  EXPECT_EQ(model.versions(0), "3");
  EXPECT_EQ(model.platform(), "pytorch_libtorch");
  ASSERT_EQ(model.inputs_size(), 1);
  EXPECT_EQ(model.inputs(0).datatype(), "FP32");
  EXPECT_EQ(
      std::vector<std::int64_t>(model.inputs(0).shape().begin(), model.inputs(0).shape().end()),
      (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(model.outputs(0).name(), "y");

  inference::ModelConfigRequest config_of;
  config_of.set_name("echo");
  inference::ModelConfigResponse config;
  ASSERT_TRUE(call(&Stub::ModelConfig, config_of, config).ok());
  EXPECT_EQ(config.config().max_batch_size(), 4);
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_FP32);
  EXPECT_EQ(config.config().input(0).dims_size(), 1);
  EXPECT_TRUE(config.config().has_dynamic_batching());
  EXPECT_EQ(config.config().version_policy().latest().num_versions(), 1U);
  EXPECT_TRUE(config.config().optimization().input_pinned_memory().enable());
  EXPECT_EQ(config.config().instance_group(0).count(), 1);
  EXPECT_EQ(config.config().default_model_filename(), "echo.pt");
  EXPECT_EQ(config.config().output(0).label_filename(), "pair.txt");
  EXPECT_FALSE(config.config().has_ensemble_scheduling());

  inference::ModelStatisticsResponse statistics;
  ASSERT_TRUE(call(&Stub::ModelStatistics, inference::ModelStatisticsRequest(), statistics).ok());
  ASSERT_EQ(statistics.model_stats_size(), 3);
  const auto& one = statistics.model_stats(0);
  EXPECT_EQ(one.inference_count(), 7U);
  EXPECT_EQ(one.inference_stats().success().ns(), 700U);
  EXPECT_TRUE(one.inference_stats().has_cache_miss());
  EXPECT_EQ(one.batch_stats(0).batch_size(), 4U);
}

TEST_F(GrpcTest, TellsWhatAnApplicationIsMadeOf) {
  on_io([this] {
    auto application = std::make_shared<serve::Application>();
    application->graph.inputs = {{"x", DataType::fp32, {2}}};
    application->graph.nodes = {
        {"first", config::ModelCall{"echo"}, {{{}, 0, {}}}, {{"y", DataType::fp32, {2}}}, {"x"}}};
    application->graph.answered = {{0, 0, {}}};
    application->graph.outputs = {{"answer", DataType::fp32, {2}}};
    host_.change("idle").application = application;
  });
  inference::ModelConfigRequest asked;
  asked.set_name("idle");
  inference::ModelConfigResponse config;
  ASSERT_TRUE(call(&Stub::ModelConfig, asked, config).ok());
  EXPECT_EQ(config.config().platform(), "ensemble");
  EXPECT_FALSE(config.config().has_dynamic_batching());
  ASSERT_EQ(config.config().ensemble_scheduling().step_size(), 1);
  const auto& step = config.config().ensemble_scheduling().step(0);
  EXPECT_EQ(step.model_name(), "echo");
  EXPECT_EQ(step.model_version(), -1);
  EXPECT_EQ(step.input_map().at("x"), "x");
  EXPECT_EQ(step.output_map().at("y"), "answer");
}

TEST_F(GrpcTest, ClassificationAnswersWithLabels) {
  auto request = raw_request({1, 2});
  auto& output = *request.add_outputs();
  output.set_name("y");
  (*output.mutable_parameters())["classification"].set_int64_param(1);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(request, response).ok());
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_EQ(response.raw_output_contents(0).substr(4), "2:1:right");
}

TEST_F(GrpcTest, TellsWhoIsReady) {
  const auto ready = [this](const std::string& name) {
    inference::ModelReadyRequest request;
    request.set_name(name);
    inference::ModelReadyResponse response;
    EXPECT_TRUE(call(&Stub::ModelReady, request, response).ok());
    return response.ready();
  };
  EXPECT_TRUE(ready("echo"));
  EXPECT_TRUE(ready("idle"));
  EXPECT_FALSE(ready("gone"));
  EXPECT_FALSE(ready("unloaded"));
  inference::ModelReadyRequest nobody;
  nobody.set_name("nobody");
  inference::ModelReadyResponse unknown;
  EXPECT_EQ(call(&Stub::ModelReady, nobody, unknown).error_code(), ::grpc::StatusCode::NOT_FOUND);

  inference::RepositoryIndexRequest asked;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(call(&Stub::RepositoryIndex, asked, index).ok());
  ASSERT_EQ(index.models_size(), 4);
  EXPECT_EQ(index.models(1).state(), "UNAVAILABLE");
  EXPECT_EQ(index.models(1).reason(), "its file cannot be loaded");
  EXPECT_EQ(index.models(3).name(), "unloaded");
  EXPECT_EQ(index.models(3).state(), "UNAVAILABLE");
  EXPECT_EQ(index.models(3).reason(), "unloaded");
  asked.set_ready(true);
  ASSERT_TRUE(call(&Stub::RepositoryIndex, asked, index).ok());
  EXPECT_EQ(index.models_size(), 2);

  const auto health = ::grpc::health::v1::Health::NewStub(channel_);
  const auto checked = [&](const std::string& service) {
    ::grpc::ClientContext context;
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    ::grpc::health::v1::HealthCheckResponse response;
    const auto status = health->Check(&context, request, &response);
    return status.ok() ? static_cast<int>(response.status())
                       : -static_cast<int>(status.error_code());
  };
  EXPECT_EQ(checked(""), ::grpc::health::v1::HealthCheckResponse::SERVING);
  EXPECT_EQ(checked("inference.GRPCInferenceService"),
            ::grpc::health::v1::HealthCheckResponse::SERVING);
  EXPECT_EQ(checked("another"), -static_cast<int>(::grpc::StatusCode::NOT_FOUND));
  on_io([this] { host_.is_ready = false; });
  EXPECT_EQ(checked(""), ::grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  inference::ServerReadyResponse server;
  ASSERT_TRUE(call(&Stub::ServerReady, inference::ServerReadyRequest(), server).ok());
  EXPECT_FALSE(server.ready());
  inference::ServerLiveResponse live;
  ASSERT_TRUE(call(&Stub::ServerLive, inference::ServerLiveRequest(), live).ok());
  EXPECT_TRUE(live.live());
}

TEST_F(GrpcTest, AnswersRowsInTheirOrder) {
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

TEST_F(GrpcTest, TakesTypedContents) {
  auto request = request_for("echo");
  auto& contents = *request.mutable_inputs(0)->mutable_contents();
  contents.add_fp32_contents(0.5F);
  contents.add_fp32_contents(-2);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(request, response).ok());
  EXPECT_EQ(response.raw_output_contents(0), raw({0.5F, -2}));
}

TEST_F(GrpcTest, SaysWhatIsWrongWithACall) {
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

TEST_F(GrpcTest, EveryMethodThatIsNotThereIsRefusedInWords) {
  ::grpc::GenericStub stub(channel_);
  for (const std::string method :
       {"/inference.GRPCInferenceService/Nothing", "/another.Service/Method"}) {
    ::grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const ::grpc::Slice bytes("anything");
    ::grpc::ByteBuffer request(&bytes, 1);
    ::grpc::ByteBuffer response;
    std::promise<::grpc::Status> answered;
    stub.UnaryCall(&context, method, {}, &request, &response,
                   [&answered](const ::grpc::Status& status) { answered.set_value(status); });
    const ::grpc::Status status = answered.get_future().get();
    EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNIMPLEMENTED) << method;
    EXPECT_NE(status.error_message(), "") << method;
  }
}

TEST_F(GrpcTest, EveryFailureHasAText) {
  on_io([this] { host_.refuse = Status(StatusCode::internal, ""); });
  inference::ModelInferResponse response;
  const auto status = infer(raw_request({1, 2}), response);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INTERNAL);
  EXPECT_NE(status.error_message(), "");
}

TEST_F(GrpcTest, ThereIsNoCudaSharedMemoryAndNothingToUnregister) {
  inference::CudaSharedMemoryStatusResponse status;
  EXPECT_TRUE(
      call(&Stub::CudaSharedMemoryStatus, inference::CudaSharedMemoryStatusRequest(), status).ok());
  EXPECT_EQ(status.regions_size(), 0);
  inference::CudaSharedMemoryStatusRequest one;
  one.set_name("region");
  EXPECT_EQ(call(&Stub::CudaSharedMemoryStatus, one, status).error_code(),
            ::grpc::StatusCode::NOT_FOUND);
  inference::CudaSharedMemoryUnregisterRequest remove;
  inference::CudaSharedMemoryUnregisterResponse removed;
  EXPECT_TRUE(call(&Stub::CudaSharedMemoryUnregister, remove, removed).ok());
  remove.set_name("region");
  EXPECT_TRUE(call(&Stub::CudaSharedMemoryUnregister, remove, removed).ok());
  inference::CudaSharedMemoryRegisterRequest add;
  add.set_name("region");
  add.set_raw_handle(std::string(64, 'h'));
  add.set_byte_size(64);
  inference::CudaSharedMemoryRegisterResponse added;
  const auto refused = call(&Stub::CudaSharedMemoryRegister, add, added);
  EXPECT_EQ(refused.error_code(), ::grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_NE(refused.error_message().find("system shared memory"), std::string::npos);
}

TEST_F(GrpcTest, AnIdHasALimitAndNoSequenceIsAccepted) {
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

TEST_F(GrpcTest, AStreamAnswersInTheOrderOfItsRequests) {
  on_io([this] { host_.holding = true; });
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kCalls = 4;  // so many may be under way
  for (int i = 0; i < kCalls; ++i) {
    // The second fails at once, while the first is under way.
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
  EXPECT_EQ(answer.infer_response().id(), "") << "what is too long does not come back";
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcTest, AStreamHoldsABoundedNumberOfCalls) {
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
  // All but the first are answered: their answers take up the places of the stream.
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

TEST_F(GrpcTest, AStreamGoesOnAfterAnError) {
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kCalls = 20;  // more than may be under way at once
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

TEST_F(GrpcTest, AClientThatTakesItsCallBackCancelsIt) {
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

TEST_F(GrpcTest, DrainingAnswersWhatIsUnderWay) {
  on_io([this] { host_.holding = true; });
  auto under_way = std::async(std::launch::async, [&] {
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  on_io([this] { server_->drain(std::chrono::seconds(30)); });
  on_io([this] { host_.release(); });
  EXPECT_TRUE(under_way.get().ok());
  // It begins on a thread of its own.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  inference::ServerLiveResponse live;
  bool taken = true;
  while (taken && std::chrono::steady_clock::now() < deadline)
    taken = call(&Stub::ServerLive, inference::ServerLiveRequest(), live).ok();
  EXPECT_FALSE(taken);
}

TEST_F(GrpcTest, EndsWithCallsUnderWay) {
  on_io([this] { host_.holding = true; });
  auto under_way = std::async(std::launch::async, [&] {
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  stop();
  server_.reset();
  EXPECT_FALSE(under_way.get().ok());
}

TEST_F(GrpcTest, TakesLongerMessagesOnceItIsToldTo) {
  auto held = std::async(std::launch::async, [&] {
    on_io([this] { host_.holding = true; });
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  // Too long for its model in any case: the limit of messages is seen before.
  const auto long_request = [] {
    auto request = request_for("echo");
    request.add_raw_input_contents(std::string(65U << 20U, 'x'));
    return request;
  }();
  inference::ModelInferResponse response;
  EXPECT_EQ(infer(long_request, response).error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(on_io([this] { return server_->take_messages_up_to(66U << 20U); }).ok());
  // The channel is asked to connect again; a call that meets the old connection fails.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  ::grpc::StatusCode code = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  while (code != ::grpc::StatusCode::INVALID_ARGUMENT &&
         std::chrono::steady_clock::now() < deadline)
    code = infer(long_request, response).error_code();
  EXPECT_EQ(code, ::grpc::StatusCode::INVALID_ARGUMENT) << "its model judges it";
  on_io([this] { host_.release(); });
  EXPECT_TRUE(held.get().ok()) << "what was under way is answered";
  EXPECT_TRUE(on_io([this] { return server_->take_messages_up_to(1); }).ok());
  EXPECT_EQ(infer(long_request, response).error_code(), ::grpc::StatusCode::INVALID_ARGUMENT)
      << "never less";
}

TEST_F(GrpcTest, EndsWithCallsUnderWayOnOldConnections) {
  on_io([this] { host_.holding = true; });
  auto under_way = std::async(std::launch::async, [&] {
    inference::ModelInferResponse response;
    return infer(raw_request({1, 2}), response);
  });
  wait_for_held(1);
  EXPECT_TRUE(on_io([this] { return server_->take_messages_up_to(100U << 20U); }).ok());
  stop();
  server_.reset();
  EXPECT_FALSE(under_way.get().ok());
}

TEST_F(GrpcTest, LoadsAndUnloadsModels) {
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("echo");
  inference::RepositoryModelLoadResponse loaded;
  EXPECT_TRUE(call(&Stub::RepositoryModelLoad, load, loaded).ok());
  load.set_model_name("broken");
  EXPECT_EQ(call(&Stub::RepositoryModelLoad, load, loaded).error_message(),
            "failed to load 'broken': its file is broken");
  load.set_model_name("echo");
  (*load.mutable_parameters())["config"].set_string_param(R"({"models":[]})");
  EXPECT_EQ(call(&Stub::RepositoryModelLoad, load, loaded).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  auto other = load;
  (*other.mutable_parameters())["colour"].set_string_param("red");
  EXPECT_EQ(call(&Stub::RepositoryModelLoad, other, loaded).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  (*load.mutable_parameters())["config"].set_int64_param(3);
  EXPECT_EQ(call(&Stub::RepositoryModelLoad, load, loaded).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  (*load.mutable_parameters())["config"].set_string_param(R"({"max_batch_size":2})");
  EXPECT_TRUE(call(&Stub::RepositoryModelLoad, load, loaded).ok());
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("echo");
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_TRUE(call(&Stub::RepositoryModelUnload, unload, unloaded).ok());
  const auto changes = on_io([this] { return host_.changes; });
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[0].kind, serve::ModelsChange::Kind::load);
  EXPECT_EQ(changes[2].configuration, R"({"max_batch_size":2})");
  EXPECT_EQ(changes[3].kind, serve::ModelsChange::Kind::unload);
}

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

// A watch of the server's health, from outside.
class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<::grpc::Channel>& channel, const std::string& service)
      : stub_(::grpc::health::v1::Health::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub_->Watch(&context_, request);
  }
  // The next status; nothing where the stream has ended.
  std::optional<HealthCheckResponse::ServingStatus> next() {
    HealthCheckResponse response;
    if (!reader_->Read(&response)) return std::nullopt;
    return response.status();
  }
  ::grpc::StatusCode end() { return reader_->Finish().error_code(); }
  void cancel() { context_.TryCancel(); }

 private:
  std::unique_ptr<::grpc::health::v1::Health::Stub> stub_;
  ::grpc::ClientContext context_;
  std::unique_ptr<::grpc::ClientReader<HealthCheckResponse>> reader_;
};

TEST_F(GrpcTest, WatchTellsTheStatusAtOnceAndOnChange) {
  HealthWatch server(channel_, "");
  HealthWatch service(channel_, "inference.GRPCInferenceService");
  HealthWatch another(channel_, "another");
  EXPECT_EQ(server.next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(service.next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(another.next(), HealthCheckResponse::SERVICE_UNKNOWN);
  on_io([this] { host_.is_ready = false; });
  EXPECT_EQ(server.next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(service.next(), HealthCheckResponse::NOT_SERVING);
  on_io([this] { host_.is_ready = true; });
  EXPECT_EQ(server.next(), HealthCheckResponse::SERVING);
  server.cancel();
  EXPECT_EQ(server.next(), std::nullopt);
  EXPECT_EQ(server.end(), ::grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcTest, WatchesEndWhenTheServerDrains) {
  HealthWatch watch(channel_, "");
  EXPECT_EQ(watch.next(), HealthCheckResponse::SERVING);
  on_io([this] { server_->drain(std::chrono::seconds(30)); });
  EXPECT_EQ(watch.next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watch.next(), std::nullopt);
  EXPECT_EQ(watch.end(), ::grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcTest, TheNumberOfWatchesIsBounded) {
  std::vector<std::unique_ptr<HealthWatch>> watches;
  for (int i = 0; i < 128; ++i) {
    watches.push_back(std::make_unique<HealthWatch>(channel_, ""));
    ASSERT_EQ(watches.back()->next(), HealthCheckResponse::SERVING);
  }
  HealthWatch one_more(channel_, "");
  EXPECT_EQ(one_more.next(), std::nullopt);
  EXPECT_EQ(one_more.end(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& watch : watches) watch->cancel();
}

TEST_F(GrpcTest, EndsWithAWatchUnderWay) {
  HealthWatch watch(channel_, "");
  EXPECT_EQ(watch.next(), HealthCheckResponse::SERVING);
  stop();
  server_.reset();
  EXPECT_EQ(watch.next(), std::nullopt);
}

using ReflectionRequest = ::grpc::reflection::v1alpha::ServerReflectionRequest;
using ReflectionResponse = ::grpc::reflection::v1alpha::ServerReflectionResponse;

template <typename Service>
ReflectionResponse reflect(const std::shared_ptr<::grpc::Channel>& channel,
                           const ReflectionRequest& request) {
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stub = Service::NewStub(channel);
  const auto stream = stub->ServerReflectionInfo(&context);
  ReflectionResponse response;
  EXPECT_TRUE(stream->Write(request));
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_TRUE(stream->Write(request));  // the stream goes on
  EXPECT_TRUE(stream->Read(&response));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  return response;
}

TEST_F(GrpcTest, TellsWhichServicesItHas) {
  using V1 = ::grpc::reflection::v1::ServerReflection;
  using V1Alpha = ::grpc::reflection::v1alpha::ServerReflection;
  ReflectionRequest request;
  request.set_list_services("");
  for (const ReflectionResponse& response :
       {reflect<V1>(channel_, request), reflect<V1Alpha>(channel_, request)}) {
    std::set<std::string> names;
    for (const auto& service : response.list_services_response().service())
      names.insert(service.name());
    EXPECT_EQ(names,
              (std::set<std::string>{"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                     "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection"}));
  }
}

TEST_F(GrpcTest, GivesTheFilesOfItsSymbols) {
  using V1 = ::grpc::reflection::v1::ServerReflection;
  ReflectionRequest request;
  request.set_file_containing_symbol("inference.ModelInferRequest");
  const ReflectionResponse found = reflect<V1>(channel_, request);
  ASSERT_EQ(found.file_descriptor_response().file_descriptor_proto_size(), 1);
  google::protobuf::FileDescriptorProto file;
  ASSERT_TRUE(file.ParseFromString(found.file_descriptor_response().file_descriptor_proto(0)));
  EXPECT_EQ(file.name(), "kserve.proto");
  request.set_file_by_filename("reflection_v1.proto");
  EXPECT_EQ(reflect<V1>(channel_, request).file_descriptor_response().file_descriptor_proto_size(),
            2);
  request.set_all_extension_numbers_of_type("inference.ModelInferRequest");
  EXPECT_EQ(reflect<V1>(channel_, request).all_extension_numbers_response().base_type_name(),
            "inference.ModelInferRequest");
}

TEST_F(GrpcTest, TellsNothingOfWhatItDoesNotServe) {
  using V1 = ::grpc::reflection::v1::ServerReflection;
  std::vector<ReflectionRequest> requests(5);
  requests[0].set_file_by_filename("google/protobuf/descriptor.proto");
  requests[1].set_file_containing_symbol("none.Such");
  requests[2].mutable_file_containing_extension()->set_containing_type("inference.DataType");
  requests[3].set_file_by_filename(std::string(100'000, 'x'));
  for (const ReflectionRequest& request : requests)
    EXPECT_NE(reflect<V1>(channel_, request).error_response().error_code(), 0);
}

// ---- with tokens

constexpr const char* kAdmin = "admin-0123456789abcdef";
constexpr const char* kUser = "user-0123456789abcdef";
constexpr const char* kObserver = "observer-0123456789abcdef";

std::shared_ptr<Gate> gate_of_three() {
  const support::TemporaryFolder folder;
  const auto file = [&folder](const std::string& name, const std::string& token) {
    const std::filesystem::path path = folder.write(name, token + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  };
  return std::make_shared<Gate>(
      std::make_shared<const Tokens>(Tokens::read({.admin = file("admin", kAdmin),
                                                   .inference = file("inference", kUser),
                                                   .observe = file("observe", kObserver)})
                                         .value()));
}

class GuardedGrpcTest : public GrpcTest {
 protected:
  GuardedGrpcTest() : GuardedGrpcTest(gate_of_three()) {}
  explicit GuardedGrpcTest(const std::shared_ptr<Gate>& gate) : GrpcTest(gate) {
    gate->set_audit([this](const AuditRecord& record) { called_.push_back(record.action); }, {});
  }

  static void show(::grpc::ClientContext& context, const std::string& token) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }
  template <typename Request, typename Response>
  ::grpc::StatusCode ask(::grpc::Status (Stub::*method)(::grpc::ClientContext*, const Request&,
                                                        Response*),
                         const Request& request, const std::string& token) {
    ::grpc::ClientContext context;
    show(context, token);
    Response response;
    return (stub_.get()->*method)(&context, request, &response).error_code();
  }

  std::vector<std::string> called_;  // of the io thread
};

TEST_F(GuardedGrpcTest, OnlyAnAdministratorChangesSettingsAndThatIsAudited) {
  using Code = ::grpc::StatusCode;
  inference::LogSettingsRequest log;
  EXPECT_EQ(ask(&Stub::LogSettings, log, ""), Code::UNAUTHENTICATED);
  EXPECT_EQ(ask(&Stub::LogSettings, log, kObserver), Code::OK);
  (*log.mutable_settings())["log_info"].set_bool_param(false);
  EXPECT_EQ(ask(&Stub::LogSettings, log, kObserver), Code::UNAUTHENTICATED);
  EXPECT_EQ(ask(&Stub::LogSettings, log, kUser), Code::UNAUTHENTICATED);
  EXPECT_EQ(on_io([this] { return host_.level; }), kserve::LogLevel::info);
  EXPECT_EQ(ask(&Stub::LogSettings, log, kAdmin), Code::OK);
  EXPECT_EQ(on_io([this] { return host_.level; }), kserve::LogLevel::warning);
  inference::TraceSettingRequest trace;
  EXPECT_EQ(ask(&Stub::TraceSetting, trace, kObserver), Code::OK);
  (*trace.mutable_settings())["trace_level"].add_value("TIMESTAMPS");
  EXPECT_EQ(ask(&Stub::TraceSetting, trace, kObserver), Code::UNAUTHENTICATED);
  EXPECT_EQ(ask(&Stub::TraceSetting, trace, kAdmin), Code::OK);
  EXPECT_EQ(on_io([this] { return called_; }),
            (std::vector<std::string>{"log_settings", "trace_setting"}));
}

TEST_F(GuardedGrpcTest, ReflectionIsForThoseWhoMayInfer) {
  const auto code = [this](const std::string& token) {
    ::grpc::ClientContext context;
    show(context, token);
    const auto stub = ::grpc::reflection::v1::ServerReflection::NewStub(channel_);
    const auto stream = stub->ServerReflectionInfo(&context);
    ReflectionRequest request;
    request.set_list_services("");
    ReflectionResponse response;
    stream->Write(request);
    stream->Read(&response);
    stream->WritesDone();
    return stream->Finish().error_code();
  };
  EXPECT_EQ(code(""), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code(kUser), ::grpc::StatusCode::OK);
}

TEST_F(GrpcTest, TellsAndChangesTheLogsLevel) {
  inference::LogSettingsRequest asked;
  inference::LogSettingsResponse told;
  ASSERT_TRUE(call(&Stub::LogSettings, asked, told).ok());
  EXPECT_TRUE(told.settings().at("log_info").bool_param());
  EXPECT_EQ(told.settings().at("log_format").string_param(), "default");
  (*asked.mutable_settings())["log_verbose_level"].set_uint32_param(2);
  ASSERT_TRUE(call(&Stub::LogSettings, asked, told).ok());
  EXPECT_EQ(told.settings().at("log_verbose_level").uint32_param(), 2U);
  EXPECT_EQ(on_io([this] { return host_.level; }), kserve::LogLevel::trace);
  (*asked.mutable_settings())["log_format"].set_string_param("ISO8601");
  EXPECT_EQ(call(&Stub::LogSettings, asked, told).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcTest, TellsAndChangesWhatIsTraced) {
  inference::TraceSettingRequest asked;
  inference::TraceSettingResponse told;
  ASSERT_TRUE(call(&Stub::TraceSetting, asked, told).ok());
  EXPECT_EQ(told.settings().at("trace_level").value(0), "OFF");
  (*asked.mutable_settings())["trace_level"].add_value("TIMESTAMPS");
  (*asked.mutable_settings())["trace_rate"].add_value("50");
  ASSERT_TRUE(call(&Stub::TraceSetting, asked, told).ok());
  EXPECT_EQ(told.settings().at("trace_rate").value(0), "50");
  EXPECT_EQ(on_io([this] { return host_.sampling; }),
            (kserve::TraceSampling{.on = true, .every = 50}));
  asked.set_model_name("echo");
  EXPECT_TRUE(call(&Stub::TraceSetting, asked, told).ok());
  (*asked.mutable_settings())["trace_rate"].set_value(0, "60");
  EXPECT_EQ(call(&Stub::TraceSetting, asked, told).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  asked.set_model_name("none");
  EXPECT_EQ(call(&Stub::TraceSetting, asked, told).error_code(), ::grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcTest, TensorsMayLieInSharedMemory) {
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
  const auto answered = infer(request, response);
  ASSERT_TRUE(answered.ok()) << answered.error_message();
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
