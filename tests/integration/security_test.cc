// TLS, mutual TLS and tokens through real daemons and clients of all three protocols.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <boost/asio/write.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include "gpulet/load/call.h"
#include "gpulet/net/codec/codec.h"
#include "gpulet/net/connector.h"
#include "kserve.grpc.pb.h"
#include "tests/net/loop.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using ::testing::HasSubstr;
namespace asio = net::asio;

const std::string kAdmin = "admin-0123456789abcdef";
const std::string kUser = "user-0123456789abcdef";

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

serve::InferRequest request_for(const std::string& model) {
  serve::InferRequest request;
  request.tag = 1;
  request.model = model;
  request.inputs = {{"x", DataType::uint8, {3}}};
  request.payload = Bytes::own({std::byte{1}, std::byte{2}, std::byte{3}});
  return request;
}

// One HTTP request over TLS; what came until the server closed.
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

  support::TemporaryFolder folder_;
  Authority authority_{folder_.path(), "authority"};
  config::TlsFiles frontend_ = authority_.issue("frontend", {"127.0.0.1"});
  std::optional<config::TlsFiles> node_tls_;  // in place of one of the node's own
};

Status infer_status(const Result<serve::FrontendReply>& reply) {
  if (!reply.ok()) return reply.status();
  return std::get<serve::InferReply>(reply.value()).status;
}

TEST_F(SecurityTest, clients_of_all_protocols_are_served_under_tls_with_their_tokens) {
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
  const serve::ModelsChange unload{serve::ModelsChange::Kind::unload, "a", "", {}};
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
  EXPECT_THAT(http(web, infer + shows + kUser, body), HasSubstr("200 OK"));
  const std::string refused = http(web, infer, body);
  EXPECT_THAT(refused, HasSubstr("401 Unauthorized"));
  EXPECT_THAT(refused, HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_THAT(refused, HasSubstr(R"({"error":")"));
  const std::string load = "POST /v2/repository/models/a/load HTTP/1.1";
  EXPECT_THAT(http(web, load + shows + kUser, ""), HasSubstr("401 Unauthorized"));
  EXPECT_THAT(http(web, load + shows + kAdmin, ""), HasSubstr("200 OK"));
  EXPECT_THAT(http(web, "GET /gpulet/trace HTTP/1.1" + shows + kUser, ""), HasSubstr("401 "));
  EXPECT_THAT(http(web, "GET /v2/health/live HTTP/1.1", ""), HasSubstr("200 OK"));
  EXPECT_THAT(http(target(cluster.metrics_port()), "GET /metrics HTTP/1.1", ""),
              HasSubstr("gpulet_"));
}

TEST_F(SecurityTest, grpc_clients_show_their_tokens_as_metadata) {
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

// A backend that says that it is node n0.
class Impostor final : public net::ConnectionHandler {
 public:
  // Why its connection ended.
  Status knock(std::uint16_t port, const config::TlsFiles& files) {
    net::testing::Loop loop;
    net::ConnectorOptions options;
    options.tls = net::TlsContext::client(files).value();
    net::Connector connector(loop.executor(), "127.0.0.1", port, options);
    connector.connect([this](Result<net::Stream> stream) {
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
      serve::Hello hello;
      hello.node = "n0";
      connection_->send(net::encode(serve::BackendMessage(hello)));
    });
    EXPECT_TRUE(loop.run_until([this] { return closed_ || welcomed_; }));
    connection_.reset();
    return closed_.value_or(Status());
  }

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader&,
                                      std::span<const std::byte>) override {
    return Status(StatusCode::invalid, "nothing is expected");
  }
  void on_frame(const net::FrameHeader&, std::span<const std::byte>, MutableBytes) override {
    welcomed_ = true;
  }
  void on_closed(const Status& reason) override { closed_ = reason; }

  std::shared_ptr<net::Connection> connection_;
  std::optional<Status> closed_;
  bool welcomed_ = false;
};

TEST_F(SecurityTest, a_backend_is_let_in_only_with_a_certificate_of_its_own_name) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  const config::TlsFiles right = authority_.issue("right", {"n0"});
  EXPECT_EQ(Impostor().knock(cluster.backend_port(), right), Status());
  const config::TlsFiles other_node = authority_.issue("other-node", {"n1"});
  EXPECT_FALSE(Impostor().knock(cluster.backend_port(), other_node).ok());
  const Authority elsewhere(folder_.path(), "elsewhere");
  config::TlsFiles stranger = elsewhere.issue("stranger", {"n0"});
  stranger.authority = authority_.file();
  EXPECT_THAT(Impostor().knock(cluster.backend_port(), stranger).message(),
              HasSubstr("refuses this side"));
}

TEST_F(SecurityTest, a_backend_does_not_start_with_a_certificate_of_another_node) {
  Cluster cluster({{"a", 2, 500, 50, 3}}, {}, secured());
  node_tls_ = authority_.issue("other-node", {"n1"});
  try {
    cluster.add_backend("n0");
    FAIL() << "it started";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not for the node n0 but for n1"));
  }
}

}  // namespace
}  // namespace gpulet::testing
