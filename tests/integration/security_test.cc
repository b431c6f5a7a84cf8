// TLS, mutual TLS and tokens, with real daemons and clients of all three protocols.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <boost/asio/write.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gpulet/load/call.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"
#include "kserve.grpc.pb.h"
#include "tests/net/loop.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/http_answer.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using support::holds;
using support::http_body;
using support::http_header;
using support::http_status;
using support::names;
namespace asio = net::asio;

const std::string kAdmin = "admin-0123456789abcdef";
const std::string kUser = "user-0123456789abcdef";

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

InferRequest request_for(const std::string& model) {
  InferRequest request;
  request.tag = 1;
  request.model = model;
  request.inputs = {{"x", DataType::uint8, {3}}};
  request.payload = Bytes::own({std::byte{1}, std::byte{2}, std::byte{3}});
  return request;
}

// Sends an HTTP request over TLS and reads until the server closes.
std::string http(const load::Target& target, const std::string& head, const std::string& body) {
  net::testing::Loop loop;
  net::ConnectorOptions options;
  options.tls = target.tls;
  net::Connector connector(loop.executor(), target.endpoint.host, target.endpoint.port, options);
  std::optional<net::Stream> stream;
  connector.connect([&](Result<net::Stream> made) { stream.emplace(std::move(made).value()); });
  EXPECT_TRUE(loop.run_until([&] { return stream.has_value(); }));
  stream->prepare();
  std::string asked = head + "\r\nHost: here\r\nConnection: close\r\nContent-Length: " +
                      std::to_string(body.size()) + "\r\n\r\n" + body;
  std::function<void()> write = [&] {
    boost::system::error_code error;
    const std::array<asio::const_buffer, 1> pieces{asio::buffer(asked)};
    asked.erase(0, stream->write_some(pieces, error));
    if (!asked.empty()) stream->async_wait_writable([&](const auto&) { write(); });
  };
  std::string answer;
  std::array<char, 4096> block{};
  bool over = false;
  std::function<void()> read = [&] {
    stream->async_read_some(asio::mutable_buffer(block.data(), block.size()),
                            [&](const boost::system::error_code& error, std::size_t bytes) {
                              answer.append(block.data(), bytes);
                              over = error.failed();
                              if (!over) read();
                            });
  };
  write();
  read();
  EXPECT_TRUE(loop.run_until([&] { return over; }));
  return answer;
}

class SecurityTest : public ::testing::Test {
 protected:
  SecurityTest() {
    write_secret(folder_.path() / "admin", kAdmin);
    write_secret(folder_.path() / "user", kUser);
  }

  ClusterChanges secured() {
    ClusterChanges changes;
    changes.frontend = [this](config::FrontendConfig& config) {
      config.tls = {frontend_.certificate, frontend_.key, {}};
      config.backend_tls = frontend_;
      config.tokens = {folder_.path() / "admin", folder_.path() / "user"};
    };
    changes.backend = [this](config::BackendConfig& config) {
      config.tls = node_tls_.value_or(authority_.issue(config.node, {config.node}));
    };
    return changes;
  }
  [[nodiscard]] load::Target target(std::uint16_t port, const std::string& token = {}) const {
    load::Target target(config::Endpoint{"127.0.0.1", port});
    target.tls = net::TlsContext::client({{}, {}, authority_.file()}).value();
    target.token = token;
    return target;
  }

  [[nodiscard]] std::unique_ptr<inference::GRPCInferenceService::Stub> grpc_stub(
      const Cluster& cluster) const {
    ::grpc::SslCredentialsOptions trust;
    trust.pem_root_certs = text_of(authority_.file());
    return inference::GRPCInferenceService::NewStub(::grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(cluster.grpc_port()), ::grpc::SslCredentials(trust)));
  }

  support::TemporaryFolder folder_;
  Authority authority_{folder_.path(), "authority"};
  config::TlsFiles frontend_ = authority_.issue("frontend", {"127.0.0.1"});
  std::optional<config::TlsFiles> node_tls_;  // replaces the node's own certificate
};

Status infer_status(const Result<FrontendReply>& reply) {
  if (!reply.ok()) return reply.status();
  return std::get<InferReply>(reply.value()).status;
}

TEST_F(SecurityTest, ServesAllProtocolsOverTlsWithTokens) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();

  const auto own = [&](const std::string& token) {
    return infer_status(load::call(target(cluster.client_port(), token), request_for("a")));
  };
  EXPECT_EQ(own(kUser), Status());
  EXPECT_EQ(own(kAdmin), Status());
  EXPECT_EQ(own("").code(), StatusCode::unauthenticated);
  EXPECT_EQ(own("not-a-token-of-ours").code(), StatusCode::unauthenticated);
  const ModelsChange unload{ModelsChange::Kind::unload, "a", "", {}};
  EXPECT_EQ(load::change_models(target(cluster.client_port(), kUser), unload).status().code(),
            StatusCode::unauthenticated);
  EXPECT_TRUE(load::fetch_models(target(cluster.client_port())).ok());
  EXPECT_TRUE(load::fetch_status(target(cluster.client_port())).ok());
  EXPECT_FALSE(load::fetch_status(config::Endpoint{"127.0.0.1", cluster.client_port()}).ok());

  const auto web = target(cluster.http_port());
  const std::string body =
      R"({"inputs":[{"name":"x","shape":[1,3],"datatype":"UINT8","data":[1,2,3]}]})";
  const std::string infer = "POST /v2/models/a/infer HTTP/1.1";
  const std::string shows = "\r\nAuthorization: Bearer ";
  EXPECT_EQ(http_status(http(web, infer + shows + kUser, body)), 200U);
  const std::string refused = http(web, infer, body);
  EXPECT_EQ(http_status(refused), 401U);
  EXPECT_EQ(http_header(refused, "WWW-Authenticate"), "Bearer");
  EXPECT_TRUE(nlohmann::json::parse(http_body(refused)).contains("error"));
  const std::string load = "POST /v2/repository/models/a/load HTTP/1.1";
  EXPECT_EQ(http_status(http(web, load + shows + kUser, "")), 401U);
  EXPECT_EQ(http_status(http(web, load + shows + kAdmin, "")), 200U);
  EXPECT_EQ(http_status(http(web, "GET /gpulet/trace HTTP/1.1" + shows + kUser, "")), 401U);
  EXPECT_EQ(http_status(http(web, "GET /v2/health/live HTTP/1.1", "")), 200U);
  EXPECT_TRUE(
      holds(http(target(cluster.metrics_port()), "GET /metrics HTTP/1.1", ""), "\ngpulet_"));
}

TEST_F(SecurityTest, AcceptsTokensAsGrpcMetadata) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  ::grpc::SslCredentialsOptions trust;
  trust.pem_root_certs = text_of(authority_.file());
  const auto stub = inference::GRPCInferenceService::NewStub(::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(cluster.grpc_port()), ::grpc::SslCredentials(trust)));
  inference::ModelInferRequest request;
  request.set_model_name("a");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("UINT8");
  input.add_shape(1);
  input.add_shape(3);
  request.add_raw_input_contents("abc");
  const auto infer = [&](const std::string& token) {
    ::grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    inference::ModelInferResponse response;
    return stub->ModelInfer(&context, request, &response).error_code();
  };
  EXPECT_EQ(infer(kUser), ::grpc::StatusCode::OK);
  EXPECT_EQ(infer(""), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(infer("not-a-token-of-ours"), ::grpc::StatusCode::UNAUTHENTICATED);
  const auto unload = [&](const std::string& token) {
    ::grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    inference::RepositoryModelUnloadRequest asked;
    asked.set_model_name("a");
    inference::RepositoryModelUnloadResponse answer;
    return stub->RepositoryModelUnload(&context, asked, &answer).error_code();
  };
  EXPECT_EQ(unload(kUser), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(unload(kAdmin), ::grpc::StatusCode::OK);
  ::grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  EXPECT_EQ(stream->Finish().error_code(), ::grpc::StatusCode::UNAUTHENTICATED);
}

const std::string kLab = "lab-0123456789abcdef";
const std::string kEye = "eye-0123456789abcdef";
const std::string kInferBody =
    R"({"inputs":[{"name":"x","shape":[1,3],"datatype":"UINT8","data":[1,2,3]}]})";

std::string infer_head(const std::string& model, const std::string& token) {
  return "POST /v2/models/" + model + "/infer HTTP/1.1\r\nAuthorization: Bearer " + token;
}

inference::ModelInferRequest grpc_request(const std::string& model) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("UINT8");
  input.add_shape(1);
  input.add_shape(3);
  request.add_raw_input_contents("abc");
  return request;
}

TEST_F(SecurityTest, ATokenIsValidForItsModelsOnly) {
  write_secret(folder_.path() / "user", "name=lab models=a " + kLab + "\n" + kUser);
  Cluster cluster({{"a", 2, 500, 50, 3}, {"b", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();

  const auto own = [&](const std::string& model, const std::string& token) {
    return infer_status(load::call(target(cluster.client_port(), token), request_for(model)));
  };
  EXPECT_EQ(own("a", kLab), Status());
  EXPECT_EQ(own("b", kLab).code(), StatusCode::forbidden);
  EXPECT_EQ(own("nobody-knows-it", kLab).code(), StatusCode::forbidden);
  EXPECT_EQ(own("b", kUser), Status());
  EXPECT_EQ(own("b", kAdmin), Status());

  const auto web = target(cluster.http_port());
  EXPECT_EQ(http_status(http(web, infer_head("a", kLab), kInferBody)), 200U);
  EXPECT_EQ(http_status(http(web, infer_head("b", kLab), kInferBody)), 403U);
  EXPECT_EQ(http_status(http(web, infer_head("%62", kLab), kInferBody)), 403U);
  EXPECT_EQ(http_status(http(web, infer_head("b", kUser), kInferBody)), 200U);

  const auto stub = grpc_stub(cluster);
  const auto infer = [&](const std::string& model) {
    ::grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + kLab);
    inference::ModelInferResponse response;
    return stub->ModelInfer(&context, grpc_request(model), &response).error_code();
  };
  EXPECT_EQ(infer("a"), ::grpc::StatusCode::OK);
  EXPECT_EQ(infer("b"), ::grpc::StatusCode::PERMISSION_DENIED);

  // Each message of a stream is authorized separately.
  ::grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + kLab);
  const auto stream = stub->ModelStreamInfer(&context);
  const auto ask = [&](const std::string& model) {
    inference::ModelStreamInferResponse answer;
    EXPECT_TRUE(stream->Write(grpc_request(model)) && stream->Read(&answer));
    return answer.error_message();
  };
  EXPECT_EQ(ask("a"), "");
  EXPECT_NE(ask("b"), "");
  EXPECT_EQ(ask("a"), "");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(SecurityTest, ObservingNeedsATokenIfConfigured) {
  write_secret(folder_.path() / "eye", kEye);
  ClusterChanges changes = secured();
  changes.frontend = [this, others = changes.frontend](config::FrontendConfig& config) {
    others(config);
    config.tokens.observe = folder_.path() / "eye";
  };
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, changes);
  const auto status = [&](const std::string& token) {
    return load::fetch_status(target(cluster.client_port(), token)).status().code();
  };
  EXPECT_EQ(status(""), StatusCode::unauthenticated);
  EXPECT_EQ(status(kUser), StatusCode::unauthenticated);
  EXPECT_EQ(status(kEye), StatusCode::ok);
  EXPECT_EQ(status(kAdmin), StatusCode::ok);

  const std::string shows = " HTTP/1.1\r\nAuthorization: Bearer ";
  const auto metrics = target(cluster.metrics_port());
  for (const std::string page :
       {"/metrics", "/", "/gpulet/history", "/gpulet/events", "/gpulet/plans/1"}) {
    EXPECT_EQ(http_status(http(metrics, "GET " + page + " HTTP/1.1", "")), 401U);
    EXPECT_EQ(http_status(http(metrics, "GET " + page + shows + kUser, "")), 401U);
  }
  EXPECT_TRUE(holds(http(metrics, "GET /metrics" + shows + kEye, ""), "\ngpulet_"));

  const auto web = target(cluster.http_port());
  for (const std::string call :
       {"GET /v2/models/stats", "HEAD /v2/models/stats", "GET /v2/models/a/stats",
        "GET /v2/systemsharedmemory/status", "GET /v2/cudasharedmemory/status"}) {
    EXPECT_EQ(http_status(http(web, call + " HTTP/1.1", "")), 401U) << call;
    EXPECT_EQ(http_status(http(web, call + shows + kEye, "")), 200U) << call;
  }
  EXPECT_EQ(http_status(http(web, "GET /v2/models/a HTTP/1.1", "")), 200U);
  EXPECT_EQ(http_status(http(web, infer_head("a", kEye), kInferBody)), 401U);

  const auto stub = grpc_stub(cluster);
  const auto statistics = [&](const std::string& token) {
    ::grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    inference::ModelStatisticsResponse answer;
    return stub->ModelStatistics(&context, {}, &answer).error_code();
  };
  EXPECT_EQ(statistics(""), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(statistics(kEye), ::grpc::StatusCode::OK);

  EXPECT_EQ(http_status(http(web, "POST /v2/cudasharedmemory/unregister" + shows + kEye, "")),
            401U);
  const auto register_cuda = [&](const std::string& token) {
    ::grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    inference::CudaSharedMemoryRegisterResponse answer;
    return stub->CudaSharedMemoryRegister(&context, {}, &answer).error_code();
  };
  EXPECT_EQ(register_cuda(kEye), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(register_cuda(kAdmin), ::grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(SecurityTest, AClientBeyondItsLimitGetsRetryAfter) {
  // One request, then none for a long time.
  write_secret(folder_.path() / "user", "name=own requests_per_s=0.001 " + kLab +
                                            "\nname=web requests_per_s=0.001 " + kEye +
                                            "\nname=grpc requests_per_s=0.001 " + kUser);
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();

  const auto own = [&] {
    return std::get<InferReply>(
        load::call(target(cluster.client_port(), kLab), request_for("a")).value());
  };
  EXPECT_EQ(own().status, Status());
  const InferReply limited = own();
  EXPECT_EQ(limited.status.code(), StatusCode::limited);
  EXPECT_GT(limited.retry_after, std::chrono::seconds(900));

  const auto web = target(cluster.http_port());
  EXPECT_EQ(http_status(http(web, infer_head("a", kEye), kInferBody)), 200U);
  const std::string refused = http(web, infer_head("a", kEye), kInferBody);
  EXPECT_EQ(http_status(refused), 429U);
  EXPECT_EQ(http_header(refused, "Retry-After"), "1000");
  EXPECT_EQ(http_status(http(web, infer_head("a", kAdmin), kInferBody)), 200U);

  const auto stub = grpc_stub(cluster);
  const auto infer = [&](::grpc::ClientContext& context) {
    context.AddMetadata("authorization", "Bearer " + kUser);
    inference::ModelInferResponse response;
    return stub->ModelInfer(&context, grpc_request("a"), &response).error_code();
  };
  ::grpc::ClientContext first;
  EXPECT_EQ(infer(first), ::grpc::StatusCode::OK);
  ::grpc::ClientContext second;
  EXPECT_EQ(infer(second), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailing = second.GetServerTrailingMetadata();
  const auto pushback = trailing.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailing.end());
  EXPECT_GT(std::stol(std::string(pushback->second.data(), pushback->second.size())), 900'000);
}

TEST_F(SecurityTest, ATokenSpendsThePlannedDeviceTime) {
  // A request of "a" takes some milliseconds: the first is admitted and charged afterwards.
  write_secret(folder_.path() / "user", "name=lab device_ms_per_s=0.001 " + kLab);
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const auto web = target(cluster.http_port());
  EXPECT_EQ(http_status(http(web, infer_head("a", kLab), kInferBody)), 200U);
  const std::string refused = http(web, infer_head("a", kLab), kInferBody);
  EXPECT_EQ(http_status(refused), 429U);
  EXPECT_TRUE(names(refused, "device_ms_per_s"));
}

TEST_F(SecurityTest, TheLimitsOfAnAddressApplyToAllProtocols) {
  ClusterChanges changes = secured();
  changes.frontend = [others = changes.frontend](config::FrontendConfig& config) {
    others(config);
    config.per_address.requests_per_s = 0.001;
  };
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, changes);
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  EXPECT_EQ(http_status(http(target(cluster.http_port()), infer_head("a", kUser), kInferBody)),
            200U);
  EXPECT_EQ(http_status(http(target(cluster.http_port()), infer_head("a", kAdmin), kInferBody)),
            429U);
  EXPECT_EQ(infer_status(load::call(target(cluster.client_port(), kUser), request_for("a"))).code(),
            StatusCode::limited);
  ::grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + kUser);
  inference::ModelInferResponse response;
  EXPECT_EQ(grpc_stub(cluster)->ModelInfer(&context, grpc_request("a"), &response).error_code(),
            ::grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// A backend that claims to be node n0.
class Impostor final : public net::ConnectionHandler {
 public:
  // The reason for the end of its connection.
  Status knock(std::uint16_t port, const config::TlsFiles& files) {
    net::testing::Loop loop;
    net::ConnectorOptions options;
    options.tls = net::TlsContext::client(files).value();
    net::Connector connector(loop.executor(), "127.0.0.1", port, options);
    connector.connect([this](Result<net::Stream> stream) {
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
      Hello hello;
      hello.node = "n0";
      connection_->send(protocol::encode(BackendMessage(hello)));
    });
    EXPECT_TRUE(loop.run_until([this] { return closed_ || welcomed_; }));
    connection_.reset();
    return closed_.value_or(Status());
  }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader&,
                                      std::span<const std::byte>) override {
    return Status(StatusCode::invalid, "nothing is expected");
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    const auto command = protocol::decode<BackendCommand>(header, message, payload.freeze());
    const auto* const refused = command.ok() ? std::get_if<Refused>(&command.value()) : nullptr;
    if (refused != nullptr) {
      closed_ = refused->why;
    } else {
      welcomed_ = true;
    }
  }
  void on_closed(const Status& reason) override { closed_ = reason; }

  std::shared_ptr<net::Connection> connection_;
  std::optional<Status> closed_;
  bool welcomed_ = false;
};

// A persistent connection of gpulet's own protocol.
class OpenClient final : public net::ConnectionHandler {
 public:
  OpenClient(const load::Target& target, const std::string& token) {
    net::ConnectorOptions options;
    options.tls = target.tls;
    net::Connector connector(loop_.executor(), target.endpoint.host, target.endpoint.port, options);
    connector.connect([this](Result<net::Stream> stream) {
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
    });
    EXPECT_TRUE(loop_.run_until([this] { return connection_ != nullptr; }));
    connection_->send(protocol::encode(ClientMessage(Authenticate{token})));
  }

  InferReply ask(const InferRequest& request) {
    replies_.clear();
    connection_->send(protocol::encode(ClientMessage(request)));
    EXPECT_TRUE(loop_.run_until([this] { return !replies_.empty() || closed_; }));
    return replies_.empty() ? InferReply() : replies_.front();
  }
  // The last error before the end; empty if the connection is open.
  std::optional<InferReply> wait_for_end() {
    replies_.clear();
    if (!loop_.run_until([this] { return closed_; })) return std::nullopt;
    return replies_.empty() ? InferReply() : replies_.back();
  }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    const auto reply = protocol::decode<FrontendReply>(header, message, payload.freeze());
    if (reply.ok()) replies_.push_back(std::get<InferReply>(reply.value()));
  }
  void on_closed(const Status&) override { closed_ = true; }

  net::testing::Loop loop_;
  std::shared_ptr<net::Connection> connection_;
  std::vector<InferReply> replies_;
  bool closed_ = false;
};

// A persistent HTTP connection.
class OpenPage {
 public:
  explicit OpenPage(const load::Target& target) {
    net::ConnectorOptions options;
    options.tls = target.tls;
    net::Connector connector(loop_.executor(), target.endpoint.host, target.endpoint.port, options);
    connector.connect(
        [this](Result<net::Stream> made) { stream_.emplace(std::move(made).value()); });
    EXPECT_TRUE(loop_.run_until([this] { return stream_.has_value(); }));
    stream_->prepare();
    read();
  }
  // Reads the answer up to `end`.
  std::string ask(const std::string& head, const std::string& body, const std::string& end) {
    answer_.clear();
    asked_ = head + "\r\nHost: here\r\nContent-Length: " + std::to_string(body.size()) +
             "\r\n\r\n" + body;
    write();
    EXPECT_TRUE(
        loop_.run_until([this, &end] { return over_ || answer_.find(end) != std::string::npos; }));
    return answer_;
  }
  bool wait_for_end() {
    return loop_.run_until([this] { return over_; });
  }

 private:
  void write() {
    boost::system::error_code error;
    const std::array<asio::const_buffer, 1> pieces{asio::buffer(asked_)};
    asked_.erase(0, stream_->write_some(pieces, error));
    if (!asked_.empty()) stream_->async_wait_writable([this](const auto&) { write(); });
  }
  void read() {
    stream_->async_read_some(asio::mutable_buffer(block_.data(), block_.size()),
                             [this](const boost::system::error_code& error, std::size_t bytes) {
                               answer_.append(block_.data(), bytes);
                               over_ = error.failed();
                               if (!over_) read();
                             });
  }

  net::testing::Loop loop_;
  std::optional<net::Stream> stream_;
  std::string asked_;
  std::string answer_;
  std::array<char, 4096> block_{};
  bool over_ = false;
};

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

TEST_F(SecurityTest, ARevokedTokenEndsItsConnections) {
  write_secret(folder_.path() / "user", "name=stays " + kUser + "\nname=goes " + kLab);
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();

  OpenClient goes(target(cluster.client_port()), kLab);
  OpenClient stays(target(cluster.client_port()), kUser);
  ASSERT_EQ(goes.ask(request_for("a")).status, Status());
  ASSERT_EQ(stays.ask(request_for("a")).status, Status());
  OpenPage page(target(cluster.http_port()));
  ASSERT_EQ(http_status(page.ask(infer_head("a", kLab), kInferBody, "\"outputs\"")), 200U);
  OpenPage other_page(target(cluster.http_port()));
  ASSERT_EQ(http_status(other_page.ask(infer_head("a", kUser), kInferBody, "\"outputs\"")), 200U);
  const auto stub = grpc_stub(cluster);
  ::grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + kLab);
  const auto stream = stub->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse answer;
  ASSERT_TRUE(stream->Write(grpc_request("a")) && stream->Read(&answer));
  ASSERT_EQ(answer.error_message(), "");

  const std::string fresh = "fresh-0123456789abcdef";
  write_secret(folder_.path() / "user", "name=stays " + kUser + "\nname=fresh " + fresh);

  const std::optional<InferReply> farewell = goes.wait_for_end();
  ASSERT_TRUE(farewell.has_value());
  EXPECT_EQ(farewell->status.code(), StatusCode::unauthenticated);
  EXPECT_TRUE(page.wait_for_end());
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), ::grpc::StatusCode::UNAUTHENTICATED);

  EXPECT_EQ(stays.ask(request_for("a")).status, Status());
  EXPECT_EQ(http_status(other_page.ask(infer_head("a", kUser), kInferBody, "\"outputs\"")), 200U);
  const auto own = [&](const std::string& token) {
    return infer_status(load::call(target(cluster.client_port(), token), request_for("a"))).code();
  };
  EXPECT_EQ(own(kLab), StatusCode::unauthenticated);
  EXPECT_EQ(own(fresh), StatusCode::ok);
}

TEST_F(SecurityTest, AnInvalidFileKeepsThePreviousSettings) {
  ClusterChanges changes = secured();
  changes.frontend = [this, others = changes.frontend](config::FrontendConfig& config) {
    others(config);
    config.audit_log = folder_.path() / "audit";
  };
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, changes);
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  write_secret(folder_.path() / "user", "short\n");
  write_secret(frontend_.certificate, "garbage");
  EXPECT_TRUE(eventually([&] {
    const std::string log = text_of(folder_.path() / "audit");
    return log.find("/user:1: ") != std::string::npos && log.find("frontend") != std::string::npos;
  }));
  EXPECT_EQ(infer_status(load::call(target(cluster.client_port(), kUser), request_for("a"))),
            Status());
}

TEST_F(SecurityTest, NewConnectionsGetARenewedCertificate) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  OpenClient before(target(cluster.client_port()), kUser);
  ASSERT_EQ(before.ask(request_for("a")).status, Status());

  const Authority elsewhere(folder_.path(), "elsewhere");
  const config::TlsFiles renewed = elsewhere.issue("renewed", {"127.0.0.1"});
  std::filesystem::rename(renewed.certificate, frontend_.certificate);
  std::filesystem::rename(renewed.key, frontend_.key);

  const auto trusts = [&](std::uint16_t port) {
    load::Target now = target(port, kUser);
    now.tls = net::TlsContext::client({{}, {}, elsewhere.file()}).value();
    return now;
  };
  EXPECT_TRUE(
      eventually([&] { return load::call(trusts(cluster.client_port()), request_for("a")).ok(); }));
  EXPECT_FALSE(load::call(target(cluster.client_port(), kUser), request_for("a")).ok());
  EXPECT_EQ(http_status(http(trusts(cluster.http_port()), infer_head("a", kUser), kInferBody)),
            200U);
  EXPECT_TRUE(
      holds(http(trusts(cluster.metrics_port()), "GET /metrics HTTP/1.1", ""), "\ngpulet_"));
  ::grpc::SslCredentialsOptions trust;
  trust.pem_root_certs = text_of(elsewhere.file());
  const auto stub = inference::GRPCInferenceService::NewStub(::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(cluster.grpc_port()), ::grpc::SslCredentials(trust)));
  ::grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + kUser);
  inference::ModelInferResponse response;
  EXPECT_EQ(stub->ModelInfer(&context, grpc_request("a"), &response).error_code(),
            ::grpc::StatusCode::OK);
  EXPECT_EQ(before.ask(request_for("a")).status, Status()) << "existing connections stay";
}

TEST_F(SecurityTest, TheAuditLogHasActorActionAndResult) {
  write_secret(folder_.path() / "admin", "name=root " + kAdmin);
  write_secret(folder_.path() / "user", "name=lab models=a " + kLab);
  ClusterChanges changes = secured();
  changes.frontend = [this, others = changes.frontend](config::FrontendConfig& config) {
    others(config);
    config.audit_log = folder_.path() / "audit";
  };
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, changes);
  const auto web = target(cluster.http_port());
  const std::string shows = " HTTP/1.1\r\nAuthorization: Bearer ";
  (void)http(web, "POST /v2/repository/models/a/load" + shows + kAdmin, "");
  (void)http(web, "POST /v2/repository/models/a/unload" + shows + kLab, "");
  (void)http(web, "POST /v2/systemsharedmemory/region/r/register" + shows + kAdmin, "{}");
  (void)http(web, "POST /v2/cudasharedmemory/region/c/register" + shows + kAdmin, "{}");
  (void)http(web, "GET /gpulet/trace?seconds=0" + shows + kAdmin, "");
  const ModelsChange unload{ModelsChange::Kind::unload, "nobody", "", {}};
  (void)load::change_models(target(cluster.client_port(), kAdmin), unload);
  ::grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + kAdmin);
  inference::RepositoryModelLoadRequest asked;
  asked.set_model_name("a");
  inference::RepositoryModelLoadResponse answer;
  (void)grpc_stub(cluster)->RepositoryModelLoad(&context, asked, &answer);
  (void)http(web, infer_head("b", kLab), kInferBody);
  (void)http(web, infer_head("a", "not-a-token-of-ours"), kInferBody);

  const auto row = [](const std::string& event, const std::string& action,
                      const std::string& target, const std::string& result,
                      const std::string& protocol, const std::string& token) {
    return event + " " + action + " " + target + " " + result + " " + protocol + " " + token;
  };
  // A thread of its own writes it.
  EXPECT_TRUE(eventually([&] {
    const std::string written = text_of(folder_.path() / "audit");
    return written.find(R"("action":"infer","target":"a")") != std::string::npos;
  }));
  std::vector<std::string> rows;
  std::ifstream log(folder_.path() / "audit");
  for (std::string line; std::getline(log, line);) {
    const auto one = nlohmann::json::parse(line);
    EXPECT_FALSE(one.at("time").get<std::string>().empty());
    EXPECT_EQ(one.value("address", "127.0.0.1"), "127.0.0.1");
    rows.push_back(row(one.at("event"), one.at("action"), one.value("target", ""), one.at("result"),
                       one.value("protocol", ""), one.value("token", "")));
  }
  for (const std::string& wanted :
       {row("call", "model_load", "a", "unavailable", "http", "root"),  // no backend is here
        row("refused", "model_unload", "a", "unauthenticated", "http", "lab"),
        row("call", "shared_memory_register", "r", "invalid", "http", "root"),
        row("call", "shared_memory_register", "c", "invalid", "http", "root"),
        row("call", "trace", "", "ok", "http", "root"),
        row("call", "model_unload", "nobody", "not_found", "own", "root"),
        row("call", "model_load", "a", "unavailable", "grpc", "root"),
        row("refused", "infer", "b", "forbidden", "http", "lab"),
        row("refused", "infer", "a", "unauthenticated", "http", "")})
    EXPECT_THAT(rows, ::testing::Contains(wanted));
  struct stat found {};
  ASSERT_EQ(::stat((folder_.path() / "audit").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST_F(SecurityTest, RepeatedEventsOfAPeerAreRateLimitedInTheLog) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  const auto text = std::make_shared<std::ostringstream>();
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*text);
  cluster.on_daemons([&] { spdlog::default_logger()->sinks().push_back(sink); });
  const config::TlsFiles other_node = authority_.issue("other-node", {"n1"});
  for (int i = 0; i < 60; ++i) (void)Impostor().knock(cluster.backend_port(), other_node);
  std::string log;
  cluster.on_daemons([&] {
    log = text->str();
    std::erase(spdlog::default_logger()->sinks(), sink);
  });
  std::size_t lines = 0;
  for (std::size_t at = log.find("refused"); at != std::string::npos;
       at = log.find("refused", at + 1))
    ++lines;
  EXPECT_GE(lines, 1U);
  EXPECT_LE(lines, 40U);
}

TEST_F(SecurityTest, ABackendNeedsACertificateOfItsOwnName) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  const config::TlsFiles right = authority_.issue("right", {"n0"});
  EXPECT_EQ(Impostor().knock(cluster.backend_port(), right), Status());
  const config::TlsFiles other_node = authority_.issue("other-node", {"n1"});
  EXPECT_FALSE(Impostor().knock(cluster.backend_port(), other_node).ok());
  const Authority elsewhere(folder_.path(), "elsewhere");
  config::TlsFiles stranger = elsewhere.issue("stranger", {"n0"});
  stranger.authority = authority_.file();
  EXPECT_TRUE(names(Impostor().knock(cluster.backend_port(), stranger), "alert"));
}

TEST_F(SecurityTest, ABackendDoesNotStartWithAnotherNodesCertificate) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  node_tls_ = authority_.issue("other-node", {"n1"});
  try {
    cluster.add_backend("n0");
    FAIL() << "it started";
  } catch (const std::runtime_error& error) {
    EXPECT_TRUE(names(error.what(), "n1"));
  }
}

}  // namespace
}  // namespace gpulet::testing
