// Calls of operators' tools: health over gRPC, reflection, log and trace settings.
#include <gmock/gmock.h>

#include "tests/conformance/conformance_test.h"

namespace gpulet::conformance {
namespace {

using ::grpc::StatusCode;
using nlohmann::json;
using ::testing::Contains;

constexpr int kServing = 1;  // of the health protocol
constexpr int kServiceUnknown = 3;

class Service : public ConformanceTest {
 protected:
  HttpAnswer post_json(const std::string& target, const json& body) {
    return http().post(target, body.dump());
  }
};

// Triton's C++ client takes an empty message for success.
TEST_F(Service, AnUnknownMethodFailsWithAMessage) {
  const auto answer = grpc().call<Empty>("NoSuchMethod", Empty());
  EXPECT_EQ(answer.status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_NE(answer.status.error_message(), "");
}

TEST_F(Service, ChecksHealth) {
  for (const char* service : {"", "inference.GRPCInferenceService"}) {
    HealthRequest request;
    request.set_service(service);
    ::grpc::ClientContext context;
    const auto answer =
        grpc().call_path<HealthResponse>(std::string(kHealth) + "Check", request, context);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.message.status(), kServing);
  }
}

TEST_F(Service, WatchesHealth) {
  GrpcStream<HealthRequest, HealthResponse> stream(grpc(), std::string(kHealth) + "Watch");
  stream.write(HealthRequest());
  stream.end_writing();
  const auto first = stream.read();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->status(), kServing);
}

TEST_F(Service, WatchesAnUnknownService) {
  GrpcStream<HealthRequest, HealthResponse> stream(grpc(), std::string(kHealth) + "Watch");
  HealthRequest request;
  request.set_service("no.such.Service");
  stream.write(request);
  stream.end_writing();
  const auto first = stream.read();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->status(), kServiceUnknown);
}

TEST_F(Service, ListsItsServicesByReflection) {
  GrpcStream<ReflectionRequest, ReflectionResponse> stream(
      grpc(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  ReflectionRequest request;
  request.set_list_services("*");
  stream.write(request);
  const auto listed = stream.read();
  ASSERT_TRUE(listed.has_value());
  std::vector<std::string> names;
  for (const ReflectionService& service : listed->list_services_response().service())
    names.push_back(service.name());
  EXPECT_THAT(names, Contains("inference.GRPCInferenceService"));
  EXPECT_THAT(names, Contains("grpc.health.v1.Health"));
  request.set_file_containing_symbol("inference.GRPCInferenceService");
  stream.write(request);
  const auto files = stream.read();
  ASSERT_TRUE(files.has_value());
  EXPECT_GE(files->file_descriptor_response().file_descriptor_proto_size(), 1);
}

TEST_F(Service, ReportsAndChangesLogSettingsOverHttp) {
  const json before = get_json("/v2/logging");
  for (const char* name : {"log_info", "log_warning", "log_error"})
    EXPECT_TRUE(before.at(name).is_boolean()) << name;
  EXPECT_TRUE(before.at("log_verbose_level").is_number_unsigned());
  EXPECT_TRUE(before.at("log_file").is_string());
  EXPECT_TRUE(before.at("log_format").is_string());
  const HttpAnswer changed =
      post_json("/v2/logging", {{"log_info", true}, {"log_verbose_level", 1}});
  ASSERT_EQ(changed.status, 200) << changed.body;
  EXPECT_EQ(json::parse(changed.body).at("log_verbose_level"), 1);
  EXPECT_EQ(get_json("/v2/logging").at("log_verbose_level"), 1);
  ASSERT_EQ(post_json("/v2/logging", before).status, 200);
  EXPECT_EQ(get_json("/v2/logging"), before);
  check_error(post_json("/v2/logging", {{"no_such_setting", true}}));
}

TEST_F(Service, ReportsAndChangesLogSettingsOverGrpc) {
  const auto before = grpc().call<LogSettings>("LogSettings", LogSettings());
  ASSERT_TRUE(before.status.ok()) << before.status.error_message();
  EXPECT_EQ(before.message.settings().at("log_verbose_level").uint32_param(), 0U);
  LogSettings change;
  (*change.mutable_settings())["log_info"].set_bool_param(true);
  (*change.mutable_settings())["log_verbose_level"].set_uint32_param(1);
  const auto changed = grpc().call<LogSettings>("LogSettings", change);
  ASSERT_TRUE(changed.status.ok()) << changed.status.error_message();
  EXPECT_EQ(changed.message.settings().at("log_verbose_level").uint32_param(), 1U);
  const auto restored = grpc().call<LogSettings>("LogSettings", before.message);
  ASSERT_TRUE(restored.status.ok()) << restored.status.error_message();
  EXPECT_EQ(restored.message.settings().at("log_verbose_level").uint32_param(), 0U);
  LogSettings unknown;
  (*unknown.mutable_settings())["no_such_setting"].set_bool_param(true);
  const auto refused = grpc().call<LogSettings>("LogSettings", unknown);
  EXPECT_FALSE(refused.status.ok());
  EXPECT_NE(refused.status.error_message(), "");
}

TEST_F(Service, ReportsAndChangesTraceSettingsOverHttp) {
  const json before = get_json("/v2/trace/setting");
  EXPECT_TRUE(before.at("trace_level").is_array());
  for (const char* name : {"trace_rate", "trace_count", "log_frequency", "trace_file"})
    EXPECT_TRUE(before.at(name).is_string()) << name;
  const HttpAnswer changed =
      post_json("/v2/trace/setting", {{"trace_level", {"TIMESTAMPS"}}, {"trace_rate", "500"}});
  ASSERT_EQ(changed.status, 200) << changed.body;
  EXPECT_EQ(json::parse(changed.body).at("trace_rate"), "500");
  EXPECT_EQ(get_json("/v2/trace/setting").at("trace_level"), json::array({"TIMESTAMPS"}));
  ASSERT_EQ(post_json("/v2/trace/setting", {{"trace_level", before.at("trace_level")},
                                            {"trace_rate", before.at("trace_rate")}})
                .status,
            200);
  EXPECT_EQ(get_json("/v2/trace/setting"), before);
  check_error(post_json("/v2/trace/setting", {{"no_such_setting", "1"}}));
}

TEST_F(Service, ReportsTraceSettingsOfOneModel) {
  EXPECT_TRUE(get_json("/v2/models/simple/trace/setting").at("trace_level").is_array());
  check_error(http().get("/v2/models/wrong_model_name/trace/setting"));
  TraceSettings request;
  request.set_model_name("simple");
  const auto answer = grpc().call<TraceSettings>("TraceSetting", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.message.settings().contains("trace_rate"));
}

TEST_F(Service, ReportsAndChangesTraceSettingsOverGrpc) {
  TraceSettings change;
  (*change.mutable_settings())["trace_rate"].add_value("500");
  const auto changed = grpc().call<TraceSettings>("TraceSetting", change);
  ASSERT_TRUE(changed.status.ok()) << changed.status.error_message();
  ASSERT_EQ(changed.message.settings().at("trace_rate").value_size(), 1);
  EXPECT_EQ(changed.message.settings().at("trace_rate").value(0), "500");
  TraceSettings clear;  // a setting without a value goes back to what it was
  (*clear.mutable_settings())["trace_rate"];
  EXPECT_TRUE(grpc().call<TraceSettings>("TraceSetting", clear).status.ok());
}

}  // namespace
}  // namespace gpulet::conformance
