// GrpcConnection: calls gRPC methods by their full names with the messages of triton.proto, without
// the stubs that the server is built from. Blocking.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "triton.pb.h"

namespace gpulet::conformance {

inline constexpr const char* kInference = "/inference.GRPCInferenceService/";
inline constexpr const char* kHealth = "/grpc.health.v1.Health/";

template <class Response>
struct GrpcAnswer {
  ::grpc::Status status;
  Response message;
};

class GrpcConnection {
 public:
  explicit GrpcConnection(std::uint16_t port);
  // To several servers, by turns over those that are healthy (grpc.health.v1). `target`: as gRPC
  // names it.
  explicit GrpcConnection(const std::string& target);

  // A method of the inference service.
  template <class Response, class Request>
  GrpcAnswer<Response> call(const std::string& method, const Request& request,
                            ::grpc::ClientContext& context) {
    return call_path<Response>(kInference + method, request, context);
  }
  template <class Response, class Request>
  GrpcAnswer<Response> call(const std::string& method, const Request& request) {
    ::grpc::ClientContext context;
    return call<Response>(method, request, context);
  }
  template <class Response, class Request>
  GrpcAnswer<Response> call_path(const std::string& path, const Request& request,
                                 ::grpc::ClientContext& context) {
    ::grpc::TemplatedGenericStub<Request, Response> stub(channel_);
    ::grpc::CompletionQueue queue;
    GrpcAnswer<Response> answer;
    const auto reader = stub.PrepareUnaryCall(&context, path, request, &queue);
    reader->StartCall();
    reader->Finish(&answer.message, &answer.status, this);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return answer;
  }

  [[nodiscard]] const std::shared_ptr<::grpc::Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<::grpc::Channel> channel_;
};

// A call with a stream both ways, or one way.
template <class Request, class Response>
class GrpcStream {
 public:
  GrpcStream(const GrpcConnection& connection, const std::string& path)
      : stub_(connection.channel()), stream_(stub_.PrepareCall(&context_, path, &queue_)) {
    stream_->StartCall(this);
    wait();
  }
  ~GrpcStream() {
    context_.TryCancel();
    if (!finished_) finish();
  }
  GrpcStream(const GrpcStream&) = delete;
  GrpcStream& operator=(const GrpcStream&) = delete;

  void write(const Request& request) {
    stream_->Write(request, this);
    wait();
  }
  void end_writing() {
    stream_->WritesDone(this);
    wait();
  }
  // Nothing at the stream's end.
  std::optional<Response> read() {
    Response response;
    stream_->Read(&response, this);
    if (!wait()) return std::nullopt;
    return response;
  }
  // Once, after read() returned nothing.
  ::grpc::Status finish() {
    finished_ = true;
    ::grpc::Status status;
    stream_->Finish(&status, this);
    wait();
    return status;
  }

 private:
  bool wait() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  ::grpc::ClientContext context_;
  ::grpc::CompletionQueue queue_;
  ::grpc::TemplatedGenericStub<Request, Response> stub_;
  std::unique_ptr<::grpc::ClientAsyncReaderWriter<Request, Response>> stream_;
  bool finished_ = false;
};

}  // namespace gpulet::conformance
