// Inferences over gRPC as Triton's C++ and Python clients send and read them.
#include <gmock/gmock.h>

#include "tests/conformance/conformance_test.h"

namespace gpulet::conformance {
namespace {

using ::grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;

using InferStream = GrpcStream<InferRequest, StreamResponse>;

class GrpcInfer : public ConformanceTest {
 protected:
  GrpcAnswer<InferResponse> infer(const InferRequest& request) {
    return grpc().call<InferResponse>("ModelInfer", request);
  }
  // The C++ client reads one raw content per output without checking their number.
  static void expect_sum_and_difference(const InferResponse& response) {
    ASSERT_EQ(response.outputs_size(), 2);
    ASSERT_EQ(response.raw_output_contents_size(), 2);
    EXPECT_EQ(response.outputs(0).name(), "OUTPUT0");
    EXPECT_EQ(response.outputs(0).datatype(), "INT32");
    EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1, 16));
    EXPECT_EQ(elements_of<std::int32_t>(response.raw_output_contents(0)), simple_sum());
    EXPECT_EQ(response.outputs(1).name(), "OUTPUT1");
    EXPECT_EQ(elements_of<std::int32_t>(response.raw_output_contents(1)), simple_difference());
  }
  void expect_refused(const InferRequest& request, StatusCode code) {
    const auto answer = infer(request);
    EXPECT_EQ(answer.status.error_code(), code) << answer.status.error_message();
    EXPECT_NE(answer.status.error_message(), "");  // the clients show nothing else
  }
};

TEST_F(GrpcInfer, ReturnsARawRequest) {
  InferRequest request = simple_grpc_request();
  request.set_id("my_request_id");
  const auto answer = infer(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  expect_sum_and_difference(answer.message);
  EXPECT_EQ(answer.message.model_name(), "simple");
  EXPECT_NE(answer.message.model_version(), "");
  EXPECT_EQ(answer.message.id(), "my_request_id");
}

TEST_F(GrpcInfer, ReturnsAllOutputsIfTheClientNamesNone) {
  InferRequest request = simple_grpc_request();
  request.clear_outputs();
  const auto answer = infer(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  expect_sum_and_difference(answer.message);
}

TEST_F(GrpcInfer, ReturnsTypedContentsInRawContents) {
  InferRequest request = simple_grpc_request();
  request.clear_raw_input_contents();
  for (const std::int32_t value : simple_input0())
    request.mutable_inputs(0)->mutable_contents()->add_int_contents(value);
  for (const std::int32_t value : simple_input1())
    request.mutable_inputs(1)->mutable_contents()->add_int_contents(value);
  const auto answer = infer(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  expect_sum_and_difference(answer.message);
}

TEST_F(GrpcInfer, RejectsTypedBesideRawContents) {
  InferRequest request = simple_grpc_request();
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  expect_refused(request, StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcInfer, AcceptsTheVersionOfTheModel) {
  InferRequest request = simple_grpc_request();
  request.set_model_version(version_of("simple"));
  EXPECT_TRUE(infer(request).status.ok());
  request.set_model_version("4711");
  expect_refused(request, StatusCode::NOT_FOUND);
}

TEST_F(GrpcInfer, InvalidRequestsFailWithAMessage) {
  InferRequest request = simple_grpc_request();
  request.set_model_name("wrong_model_name");
  expect_refused(request, StatusCode::NOT_FOUND);
  request = simple_grpc_request();
  request.mutable_inputs(0)->set_shape(1, 15);
  expect_refused(request, StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcInfer, AcceptsCompressedRequests) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    ::grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    const auto answer = grpc().call<InferResponse>("ModelInfer", simple_grpc_request(), context);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    expect_sum_and_difference(answer.message);
  }
}

TEST_F(GrpcInfer, AcceptsSequenceIdZeroAsNoSequence) {
  InferRequest request = simple_grpc_request();
  auto& parameters = *request.mutable_parameters();
  parameters["sequence_id"].set_int64_param(0);
  parameters["sequence_start"].set_bool_param(false);
  parameters["sequence_end"].set_bool_param(false);
  EXPECT_TRUE(infer(request).status.ok());
  parameters["sequence_id"].set_int64_param(7);
  parameters["sequence_start"].set_bool_param(true);
  const auto answer = infer(request);
  EXPECT_FALSE(answer.status.ok());
  EXPECT_NE(answer.status.error_message(), "");
}

TEST_F(GrpcInfer, AcceptsPriorityTimeoutAndUnknownParameters) {
  InferRequest request = simple_grpc_request();
  auto& parameters = *request.mutable_parameters();
  parameters["priority"].set_uint64_param(0);
  parameters["timeout"].set_int64_param(2'000'000);
  parameters["my_string"].set_string_param("text");
  parameters["my_flag"].set_bool_param(true);
  parameters["my_number"].set_int64_param(17);
  const auto answer = infer(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  expect_sum_and_difference(answer.message);
}

TEST_F(GrpcInfer, AcceptsIdsOf1024Bytes) {
  InferRequest request = simple_grpc_request();
  request.set_id(std::string(1024, 'i'));
  const auto answer = infer(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.message.id(), std::string(1024, 'i'));
  request.set_id(std::string(1025, 'i'));
  expect_refused(request, StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcInfer, AcceptsAnyNonzeroByteAsTrue) {
  const auto answer = infer(grpc_request("flags", "BOOL", 4, std::string("\0\1\2\xff", 4)));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.message.raw_output_contents(0), std::string("\0\1\1\1", 4));
}

TEST_F(GrpcInfer, ClassifiesIntoValueIndexAndLabel) {
  InferRequest request =
      grpc_request("scores", "FP32", 4, bytes_of(std::vector<float>{1, 4, 2, 3}));
  RequestedOutput& output = *request.add_outputs();
  output.set_name("y");
  (*output.mutable_parameters())["classification"].set_int64_param(2);
  const auto answer = infer(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.message.outputs(0).datatype(), "BYTES");
  EXPECT_THAT(answer.message.outputs(0).shape(), ElementsAre(1, 2));
  EXPECT_THAT(strings_of(answer.message.raw_output_contents(0)),
              ElementsAre(MatchesRegex("4[.]?0*:1:dog"), MatchesRegex("3[.]?0*:3:fish")));
}

TEST_F(GrpcInfer, ReturnsAStreamInTheOrderOfItsRequests) {
  constexpr int kRequests = 60;
  InferStream stream(grpc(), std::string(kInference) + "ModelStreamInfer");
  for (int i = 0; i < kRequests; ++i) {
    InferRequest request =
        grpc_request("ordered", "UINT8", 4, std::string(4, static_cast<char>(i)));
    request.set_id(std::to_string(i));
    stream.write(request);
  }
  stream.end_writing();
  for (int i = 0; i < kRequests; ++i) {
    const auto response = stream.read();
    ASSERT_TRUE(response.has_value()) << i;
    ASSERT_EQ(response->error_message(), "");
    EXPECT_EQ(response->infer_response().id(), std::to_string(i));
    EXPECT_EQ(response->infer_response().raw_output_contents(0),
              std::string(4, static_cast<char>(i)));
  }
  EXPECT_FALSE(stream.read().has_value());
  EXPECT_TRUE(stream.finish().ok());
}

TEST_F(GrpcInfer, MarksEachAnswerOfAStreamAsFinal) {
  InferStream stream(grpc(), std::string(kInference) + "ModelStreamInfer");
  stream.write(simple_grpc_request());
  const auto response = stream.read();
  ASSERT_TRUE(response.has_value());
  expect_sum_and_difference(response->infer_response());
  const auto& parameters = response->infer_response().parameters();
  const auto last = parameters.find("triton_final_response");
  ASSERT_NE(last, parameters.end());
  EXPECT_TRUE(last->second.bool_param());
}

TEST_F(GrpcInfer, KeepsAStreamOpenAfterAnError) {
  InferStream stream(grpc(), std::string(kInference) + "ModelStreamInfer");
  InferRequest wrong = simple_grpc_request();
  wrong.set_model_name("wrong_model_name");
  wrong.set_id("wrong");
  stream.write(wrong);
  stream.write(simple_grpc_request());
  const auto refused = stream.read();
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->error_message(), "");
  EXPECT_EQ(refused->infer_response().id(), "wrong");  // or the client cannot tell which it was
  const auto answered = stream.read();
  ASSERT_TRUE(answered.has_value());
  EXPECT_EQ(answered->error_message(), "");
  expect_sum_and_difference(answered->infer_response());
}

}  // namespace
}  // namespace gpulet::conformance
