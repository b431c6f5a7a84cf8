// A full batch of a model with large tensors fits into one call, whatever the protocol.
#include "tests/conformance/conformance_test.h"
#include "tests/support/serve/world.h"

namespace gpulet::conformance {
namespace {

using nlohmann::json;

constexpr std::int64_t kRowBytes = 3 << 20;  // 24 rows are more than the 64 MiB of old
constexpr std::int64_t kRows = 24;

class Limits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto tensor = [](const char* name) {
      return json{{"name", name}, {"type", "UINT8"}, {"shape", {kRowBytes}}};
    };
    testing::ClusterFiles files;
    files.models = json{{"models",
                         {{{"name", "large"},
                           {"file", "large.pt"},
                           {"inputs", {tensor("x")}},
                           {"outputs", {tensor("y")}},
                           {"slo_ms", 20'000},
                           {"rate", 10},
                           {"max_batch", kRows}}}}}
                       .dump();
    files.beside["large.pt"] = "stands for a model";
    files.profile = serve::testing::card_profile({{"large", 1}});
    server_ = std::make_unique<testing::Cluster>(files);
    server_->add_arithmetic_backend("n0");
    server_->wait_until_serving();
  }
  static void TearDownTestSuite() { server_.reset(); }

  static std::string tensor() { return std::string(kRows * kRowBytes, 'x'); }
  inline static std::unique_ptr<testing::Cluster> server_;
};

TEST_F(Limits, AFullBatchFitsOverHttp) {
  HttpConnection http(server_->http_port());
  const json request = {{"inputs",
                         {{{"name", "x"},
                           {"shape", {kRows, kRowBytes}},
                           {"datatype", "UINT8"},
                           {"parameters", {{"binary_data_size", kRows * kRowBytes}}}}}},
                        {"outputs", {{{"name", "y"}, {"parameters", {{"binary_data", true}}}}}}};
  const std::string sent = tensor();
  const HttpAnswer answer = http.infer("large", request, sent);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(read_outputs(answer).at("y").bytes == sent);
}

TEST_F(Limits, AFullBatchFitsOverGrpc) {
  GrpcConnection grpc(server_->grpc_port());
  const std::string sent = tensor();
  InferRequest request = grpc_request("large", "UINT8", kRowBytes, sent);
  request.mutable_inputs(0)->set_shape(0, kRows);
  const auto answer = grpc.call<InferResponse>("ModelInfer", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.message.raw_output_contents(0) == sent);
}

}  // namespace
}  // namespace gpulet::conformance
