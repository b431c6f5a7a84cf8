// A GrpcServer with a fake host, called over a real channel.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/net/grpc/server.h"
#include "kserve.grpc.pb.h"
#include "tests/support/protocol_host.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::net::grpc_api {

inline std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline inference::ModelInferRequest request_for(const std::string& model, std::int64_t rows = 1) {
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

inline inference::ModelInferRequest raw_request(const std::vector<float>& values,
                                                const std::string& model = "echo") {
  auto request = request_for(model, static_cast<std::int64_t>(values.size() / 2));
  request.add_raw_input_contents(raw(values));
  return request;
}

class GrpcTest : public ::testing::Test {
 protected:
  GrpcTest() : GrpcTest(std::make_shared<access::Gate>()) {}
  explicit GrpcTest(const std::shared_ptr<access::Gate>& gate) : host_(io_), regions_(true) {
    auto server = GrpcServer::listen(io_.get_executor(), "127.0.0.1", 0,
                                     {.version = "1.2.3", .max_calls_of_stream = 4, .gate = gate},
                                     buffers_, host_, regions_);
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

  // Runs a function on the thread of the server and the host.
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
  BufferPool buffers_{{}};
  testing::FakeHost host_;
  kserve::SharedMemory regions_;
  std::unique_ptr<GrpcServer> server_;
  std::jthread thread_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

inline constexpr const char* kAdmin = "admin-0123456789abcdef";
inline constexpr const char* kUser = "user-0123456789abcdef";
inline constexpr const char* kObserver = "observer-0123456789abcdef";

// A gate with one token of each right.
inline std::shared_ptr<access::Gate> gate_of_three() {
  const support::TemporaryFolder folder;
  const auto file = [&folder](const std::string& name, const std::string& token) {
    const std::filesystem::path path = folder.write(name, token + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  };
  return std::make_shared<access::Gate>(std::make_shared<const access::Tokens>(
      access::Tokens::read({.admin = file("admin", kAdmin),
                            .inference = file("inference", kUser),
                            .observe = file("observe", kObserver)})
          .value()));
}

class GuardedGrpcTest : public GrpcTest {
 protected:
  GuardedGrpcTest() : GuardedGrpcTest(gate_of_three()) {}
  explicit GuardedGrpcTest(const std::shared_ptr<access::Gate>& gate) : GrpcTest(gate) {
    gate->set_audit([this](const access::AuditRecord& record) { called_.push_back(record.action); },
                    {});
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

  std::vector<std::string> called_;  // io thread
};

}  // namespace gpulet::net::grpc_api
