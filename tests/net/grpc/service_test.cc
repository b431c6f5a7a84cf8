// Metadata, model repository, settings and administrative calls over gRPC.
#include <grpcpp/generic/generic_stub.h>

#include "health.grpc.pb.h"
#include "tests/net/grpc/grpc_fixture.h"
#include "tests/support/names.h"

namespace gpulet::net::grpc_api {
namespace {

TEST_F(GrpcTest, RejectsLongAdministrativeRequests) {
  inference::RepositoryIndexRequest query;
  query.set_repository_name(std::string(100'000, 'x'));
  inference::RepositoryIndexResponse index;
  EXPECT_EQ(call(&Stub::RepositoryIndex, query, index).error_code(),
            ::grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcTest, ReportsServerAndModelMetadata) {
  inference::ServerMetadataResponse server;
  ASSERT_TRUE(call(&Stub::ServerMetadata, inference::ServerMetadataRequest(), server).ok());
  EXPECT_EQ(server.name(), "gpulet");
  EXPECT_EQ(server.version(), "1.2.3");
  EXPECT_EQ(server.extensions_size(), 10);

  inference::ModelMetadataRequest query;
  query.set_name("echo");
  inference::ModelMetadataResponse model;
  ASSERT_TRUE(call(&Stub::ModelMetadata, query, model).ok());
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

TEST_F(GrpcTest, ReportsAnApplicationAsEnsemble) {
  on_io([this] {
    auto application = std::make_shared<serve::Application>();
    application->graph.inputs = {{"x", DataType::fp32, {2}}};
    application->graph.nodes = {
        {"first", config::ModelCall{"echo"}, {{{}, 0, {}}}, {{"y", DataType::fp32, {2}}}, {"x"}}};
    application->graph.answered = {{0, 0, {}}};
    application->graph.outputs = {{"answer", DataType::fp32, {2}}};
    host_.change("idle").application = application;
  });
  inference::ModelConfigRequest query;
  query.set_name("idle");
  inference::ModelConfigResponse config;
  ASSERT_TRUE(call(&Stub::ModelConfig, query, config).ok());
  EXPECT_EQ(config.config().platform(), "ensemble");
  EXPECT_FALSE(config.config().has_dynamic_batching());
  ASSERT_EQ(config.config().ensemble_scheduling().step_size(), 1);
  const auto& step = config.config().ensemble_scheduling().step(0);
  EXPECT_EQ(step.model_name(), "echo");
  EXPECT_EQ(step.model_version(), -1);
  EXPECT_EQ(step.input_map().at("x"), "x");
  EXPECT_EQ(step.output_map().at("y"), "answer");
}

TEST_F(GrpcTest, ReportsReadinessOfModelsAndServer) {
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
  EXPECT_FALSE(ready("nobody")) << "as with Triton, clients may wait for a model";

  inference::RepositoryIndexRequest query;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(call(&Stub::RepositoryIndex, query, index).ok());
  ASSERT_EQ(index.models_size(), 4);
  EXPECT_EQ(index.models(1).state(), "UNAVAILABLE");
  EXPECT_EQ(index.models(1).reason(), "its file cannot be loaded");
  EXPECT_EQ(index.models(3).name(), "unloaded");
  EXPECT_EQ(index.models(3).state(), "UNAVAILABLE");
  EXPECT_EQ(index.models(3).reason(), "unloaded");
  query.set_ready(true);
  ASSERT_TRUE(call(&Stub::RepositoryIndex, query, index).ok());
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

TEST_F(GrpcTest, UnknownMethodsHaveAMessage) {
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

TEST_F(GrpcTest, CudaSharedMemoryIsUnsupported) {
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
  EXPECT_TRUE(support::names(refused.error_message(), "SystemSharedMemoryRegister"));
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
  EXPECT_EQ(changes[0].kind, ModelsChange::Kind::load);
  EXPECT_EQ(changes[2].configuration, R"({"max_batch_size":2})");
  EXPECT_EQ(changes[3].kind, ModelsChange::Kind::unload);
}

TEST_F(GuardedGrpcTest, OnlyAdminsChangeSettingsAndChangesAreAudited) {
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

TEST_F(GrpcTest, ReportsAndChangesTheLogLevel) {
  inference::LogSettingsRequest query;
  inference::LogSettingsResponse current;
  ASSERT_TRUE(call(&Stub::LogSettings, query, current).ok());
  EXPECT_TRUE(current.settings().at("log_info").bool_param());
  EXPECT_EQ(current.settings().at("log_format").string_param(), "default");
  (*query.mutable_settings())["log_verbose_level"].set_uint32_param(2);
  ASSERT_TRUE(call(&Stub::LogSettings, query, current).ok());
  EXPECT_EQ(current.settings().at("log_verbose_level").uint32_param(), 2U);
  EXPECT_EQ(on_io([this] { return host_.level; }), kserve::LogLevel::trace);
  (*query.mutable_settings())["log_format"].set_string_param("ISO8601");
  EXPECT_EQ(call(&Stub::LogSettings, query, current).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcTest, ReportsAndChangesTraceSampling) {
  inference::TraceSettingRequest query;
  inference::TraceSettingResponse current;
  ASSERT_TRUE(call(&Stub::TraceSetting, query, current).ok());
  EXPECT_EQ(current.settings().at("trace_level").value(0), "OFF");
  (*query.mutable_settings())["trace_level"].add_value("TIMESTAMPS");
  (*query.mutable_settings())["trace_rate"].add_value("50");
  ASSERT_TRUE(call(&Stub::TraceSetting, query, current).ok());
  EXPECT_EQ(current.settings().at("trace_rate").value(0), "50");
  EXPECT_EQ(on_io([this] { return host_.sampling; }),
            (kserve::TraceSampling{.on = true, .every = 50}));
  query.set_model_name("echo");
  EXPECT_TRUE(call(&Stub::TraceSetting, query, current).ok());
  (*query.mutable_settings())["trace_rate"].set_value(0, "60");
  EXPECT_EQ(call(&Stub::TraceSetting, query, current).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  query.set_model_name("none");
  EXPECT_EQ(call(&Stub::TraceSetting, query, current).error_code(), ::grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace gpulet::net::grpc_api
