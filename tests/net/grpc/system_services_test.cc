// Health watches and reflection.
#include <google/protobuf/descriptor.pb.h>

#include <set>

#include "health.grpc.pb.h"
#include "reflection_v1.grpc.pb.h"
#include "reflection_v1alpha.grpc.pb.h"
#include "tests/net/grpc/grpc_fixture.h"

namespace gpulet::net::grpc_api {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

// A client's health watch.
class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<::grpc::Channel>& channel, const std::string& service)
      : stub_(::grpc::health::v1::Health::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub_->Watch(&context_, request);
  }
  // The next status; empty at the end of the stream.
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
  EXPECT_TRUE(stream->Write(request));  // the stream continues
  EXPECT_TRUE(stream->Read(&response));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  return response;
}

TEST_F(GrpcTest, AWatchGetsTheStatusAtOnceAndOnChange) {
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

TEST_F(GrpcTest, TheNumberOfWatchesIsLimited) {
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

TEST_F(GrpcTest, StopsWithAnOpenWatch) {
  HealthWatch watch(channel_, "");
  EXPECT_EQ(watch.next(), HealthCheckResponse::SERVING);
  stop();
  server_.reset();
  EXPECT_EQ(watch.next(), std::nullopt);
}

TEST_F(GrpcTest, ReflectionListsTheServices) {
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

TEST_F(GrpcTest, ReflectionReturnsTheFilesOfSymbols) {
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

TEST_F(GrpcTest, ReflectionHidesOtherSymbols) {
  using V1 = ::grpc::reflection::v1::ServerReflection;
  std::vector<ReflectionRequest> requests(5);
  requests[0].set_file_by_filename("google/protobuf/descriptor.proto");
  requests[1].set_file_containing_symbol("none.Such");
  requests[2].mutable_file_containing_extension()->set_containing_type("inference.DataType");
  requests[3].set_file_by_filename(std::string(100'000, 'x'));
  for (const ReflectionRequest& request : requests)
    EXPECT_NE(reflect<V1>(channel_, request).error_response().error_code(), 0);
}

TEST_F(GuardedGrpcTest, ReflectionNeedsTheInferenceRight) {
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

}  // namespace
}  // namespace gpulet::net::grpc_api
