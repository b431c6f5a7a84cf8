// The gRPC endpoint as its clients see it: a real channel over loopback, a fake host behind.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "gpulet/net/grpc/server.h"
#include "health.grpc.pb.h"
#include "kserve.grpc.pb.h"
#include "tests/support/protocol_host.h"

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
  GrpcTest() : host_(io_), regions_(true) {
    auto server =
        GrpcServer::listen(io_.get_executor(), "127.0.0.1", 0,
                           {.version = "1.2.3", .max_calls_of_stream = 4}, host_, regions_);
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
  EXPECT_EQ(server.extensions_size(), 7);

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

  inference::ModelStatisticsResponse statistics;
  ASSERT_TRUE(call(&Stub::ModelStatistics, inference::ModelStatisticsRequest(), statistics).ok());
  ASSERT_EQ(statistics.model_stats_size(), 3);
  const auto& one = statistics.model_stats(0);
  EXPECT_EQ(one.inference_count(), 7U);
  EXPECT_EQ(one.inference_stats().success().ns(), 700U);
  EXPECT_TRUE(one.inference_stats().has_cache_miss());
  EXPECT_EQ(one.batch_stats(0).batch_size(), 4U);
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

  inference::RepositoryIndexRequest asked;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(call(&Stub::RepositoryIndex, asked, index).ok());
  ASSERT_EQ(index.models_size(), 3);
  EXPECT_EQ(index.models(1).state(), "UNAVAILABLE");
  EXPECT_EQ(index.models(1).reason(), "its file cannot be loaded");
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

TEST_F(GrpcTest, LoadsAndUnloadsModels) {
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("echo");
  inference::RepositoryModelLoadResponse loaded;
  EXPECT_TRUE(call(&Stub::RepositoryModelLoad, load, loaded).ok());
  load.set_model_name("broken");
  EXPECT_EQ(call(&Stub::RepositoryModelLoad, load, loaded).error_message(), "its file is broken");
  load.set_model_name("echo");
  (*load.mutable_parameters())["config"].set_string_param(R"({"models":[]})");
  EXPECT_EQ(call(&Stub::RepositoryModelLoad, load, loaded).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("echo");
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_TRUE(call(&Stub::RepositoryModelUnload, unload, unloaded).ok());
  const auto changes = on_io([this] { return host_.changes; });
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].kind, serve::ModelsChange::Kind::load);
  EXPECT_EQ(changes[2].kind, serve::ModelsChange::Kind::unload);
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
