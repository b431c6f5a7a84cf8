// Inferences over HTTP as Triton's C++ and Python clients send and read them.
#include <gmock/gmock.h>
#include <zlib.h>

#include <stdexcept>

#include "tests/conformance/conformance_test.h"

namespace gpulet::conformance {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kGzip = 16 + MAX_WBITS;  // zlib's window bits for the formats
constexpr int kDeflate = MAX_WBITS;

std::string compressed(const std::string& text, int format) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, format, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::runtime_error("zlib");
  std::string into(deflateBound(&stream, text.size()), '\0');
  std::string from = text;
  stream.next_in = reinterpret_cast<Bytef*>(from.data());
  stream.avail_in = static_cast<uInt>(from.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  deflate(&stream, Z_FINISH);
  into.resize(stream.total_out);
  deflateEnd(&stream);
  return into;
}

std::string decompressed(const std::string& text, int format) {
  z_stream stream{};
  if (inflateInit2(&stream, format) != Z_OK) throw std::runtime_error("zlib");
  std::string into(1 << 20, '\0');
  std::string from = text;
  stream.next_in = reinterpret_cast<Bytef*>(from.data());
  stream.avail_in = static_cast<uInt>(from.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  const int result = inflate(&stream, Z_FINISH);
  into.resize(stream.total_out);
  inflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("the answer is not compressed as it says");
  return into;
}

class HttpInfer : public ConformanceTest {
 protected:
  static std::string simple_tensors() {
    return bytes_of(simple_input0()) + bytes_of(simple_input1());
  }
  static json simple_request(bool binary) {
    json request = {{"id", ""}, {"inputs", simple_http_inputs()}};
    for (const char* name : {"OUTPUT0", "OUTPUT1"})
      request["outputs"].push_back({{"name", name}, {"parameters", {{"binary_data", binary}}}});
    return request;
  }
  // One row of model "values" or another with the input "x", all in JSON.
  HttpAnswer ask_one(const std::string& model, const std::string& datatype, const json& data,
                     json more = json::object()) {
    more["inputs"] = {
        {{"name", "x"}, {"datatype", datatype}, {"shape", {1, data.size()}}, {"data", data}}};
    return http().post("/v2/models/" + model + "/infer", more.dump());
  }
  static void expect_sum_and_difference(const HttpAnswer& answer) {
    const auto outputs = read_outputs(answer);
    EXPECT_THAT(outputs.at("OUTPUT0").shape, ElementsAre(1, 16));
    EXPECT_EQ(outputs.at("OUTPUT0").datatype, "INT32");
    EXPECT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT0").bytes), simple_sum());
    EXPECT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT1").bytes), simple_difference());
  }
};

TEST_F(HttpInfer, ReturnsABinaryRequestInBinary) {
  json request = simple_request(true);
  request["id"] = "my_request_id";
  const HttpAnswer answer = http().infer("simple", request, simple_tensors());
  expect_sum_and_difference(answer);
  EXPECT_TRUE(answer.headers.contains("inference-header-content-length"));
  EXPECT_EQ(answer.headers.at("content-type"), "application/octet-stream");
  const json header = read_header(answer);
  EXPECT_EQ(header.at("model_name"), "simple");
  EXPECT_TRUE(header.at("model_version").is_string());
  EXPECT_EQ(header.at("id"), "my_request_id");
}

TEST_F(HttpInfer, ReturnsARequestWithAnEmptyId) {
  const HttpAnswer answer = http().infer("simple", simple_request(true), simple_tensors());
  expect_sum_and_difference(answer);
}

TEST_F(HttpInfer, ReturnsAllOutputsInBinaryIfTheClientNamesNone) {
  const json request = {
      {"id", ""}, {"parameters", {{"binary_data_output", true}}}, {"inputs", simple_http_inputs()}};
  const HttpAnswer answer = http().infer("simple", request, simple_tensors());
  expect_sum_and_difference(answer);
  EXPECT_EQ(read_outputs(answer).size(), 2U);
}

TEST_F(HttpInfer, ReturnsFlatDataIfTheClientRequestsJson) {
  const HttpAnswer answer = http().infer("simple", simple_request(false), simple_tensors());
  const auto outputs = read_outputs(answer);
  EXPECT_EQ(outputs.at("OUTPUT0").data, json(simple_sum()));
  EXPECT_EQ(outputs.at("OUTPUT1").data, json(simple_difference()));
  EXPECT_FALSE(answer.headers.contains("inference-header-content-length"));
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
}

TEST_F(HttpInfer, AcceptsDataInJsonUnderAHeaderLength) {
  json request = simple_request(true);
  for (json& input : request["inputs"]) input.erase("parameters");
  request["inputs"][0]["data"] = simple_input0();
  request["inputs"][1]["data"] = simple_input1();
  expect_sum_and_difference(http().infer("simple", request));
}

TEST_F(HttpInfer, ReturnsOneOutputInBinaryAndOneInJson) {
  json request = simple_request(true);
  request["outputs"][0]["parameters"]["binary_data"] = false;
  const auto outputs = read_outputs(http().infer("simple", request, simple_tensors()));
  EXPECT_EQ(outputs.at("OUTPUT0").data, json(simple_sum()));
  EXPECT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT1").bytes), simple_difference());
}

TEST_F(HttpInfer, ReturnsOnlyTheOutputsThatAreNamed) {
  json request = simple_request(true);
  request["outputs"].erase(0);
  const auto outputs = read_outputs(http().infer("simple", request, simple_tensors()));
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT1").bytes), simple_difference());
}

// The Python client sends header names in lower case and no content type.
TEST_F(HttpInfer, AcceptsThePythonClientsHeaders) {
  const std::string text = simple_request(true).dump();
  expect_sum_and_difference(
      http().ask("POST", "/v2/models/simple/infer", text + simple_tensors(),
                 {{"inference-header-content-length", std::to_string(text.size())}}));
}

TEST_F(HttpInfer, AcceptsARequestOfTwoRows) {
  json request = simple_request(true);
  request["inputs"] = simple_http_inputs(2);
  std::vector<std::int32_t> first = simple_input0();
  first.insert(first.end(), 16, 100);
  const std::vector<std::int32_t> second(32, 1);
  const auto outputs =
      read_outputs(http().infer("simple", request, bytes_of(first) + bytes_of(second)));
  std::vector<std::int32_t> expected = simple_sum();
  expected.insert(expected.end(), 16, 101);
  EXPECT_THAT(outputs.at("OUTPUT0").shape, ElementsAre(2, 16));
  EXPECT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT0").bytes), expected);
}

TEST_F(HttpInfer, AcceptsTheVersionInThePath) {
  const std::string text = simple_request(true).dump();
  const HttpHeaders headers = {{"Inference-Header-Content-Length", std::to_string(text.size())}};
  const std::string version = version_of("simple");
  expect_sum_and_difference(http().ask("POST", "/v2/models/simple/versions/" + version + "/infer",
                                       text + simple_tensors(), headers));
  check_error(http().ask("POST", "/v2/models/simple/versions/4711/infer", text + simple_tensors(),
                         headers));
}

TEST_F(HttpInfer, KeepsTheConnectionForTheNextRequest) {
  for (int i = 0; i < 20; ++i)
    expect_sum_and_difference(http().infer("simple", simple_request(true), simple_tensors()));
}

TEST_F(HttpInfer, AcceptsCompressedRequests) {
  const std::string text = simple_request(true).dump();
  for (const auto& [name, format] : {std::pair{"gzip", kGzip}, std::pair{"deflate", kDeflate}}) {
    expect_sum_and_difference(
        http().ask("POST", "/v2/models/simple/infer", compressed(text + simple_tensors(), format),
                   {{"Inference-Header-Content-Length", std::to_string(text.size())},
                    {"Content-Encoding", name}}));
  }
}

TEST_F(HttpInfer, CompressesItsAnswerOnlyAsTheClientAccepts) {
  for (const auto& [name, format] : {std::pair{"gzip", kGzip}, std::pair{"deflate", kDeflate}}) {
    HttpAnswer answer =
        http().infer("simple", simple_request(true), simple_tensors(), {{"Accept-Encoding", name}});
    if (const auto found = answer.headers.find("content-encoding"); found != answer.headers.end()) {
      ASSERT_EQ(found->second, name);
      answer.body = decompressed(answer.body, format);
    }
    expect_sum_and_difference(answer);
  }
  const HttpAnswer plain = http().infer("simple", simple_request(true), simple_tensors());
  EXPECT_FALSE(plain.headers.contains("content-encoding"));
}

TEST_F(HttpInfer, AcceptsARawRequest) {
  const std::vector<float> values = {1, 2, 3, 4};
  const HttpAnswer answer = http().ask("POST", "/v2/models/values/infer", bytes_of(values),
                                       {{"Inference-Header-Content-Length", "0"}});
  EXPECT_EQ(elements_of<float>(read_outputs(answer).at("y").bytes), values);
}

TEST_F(HttpInfer, AcceptsSequenceIdZeroAsNoSequence) {
  json request = simple_request(true);
  request["parameters"] = {{"sequence_id", 0}, {"sequence_start", false}, {"sequence_end", false}};
  expect_sum_and_difference(http().infer("simple", request, simple_tensors()));
  request["parameters"]["sequence_id"] = 7;
  request["parameters"]["sequence_start"] = true;
  check_error(http().infer("simple", request, simple_tensors()));
}

TEST_F(HttpInfer, AcceptsPriorityTimeoutAndUnknownParameters) {
  json request = simple_request(true);
  request["parameters"] = {{"priority", 0},   {"timeout", 2'000'000}, {"my_string", "text"},
                           {"my_number", 17}, {"my_flag", true},      {"my_real", 0.5}};
  expect_sum_and_difference(http().infer("simple", request, simple_tensors()));
}

TEST_F(HttpInfer, AcceptsIdsOf1024Bytes) {
  json request = simple_request(true);
  request["id"] = std::string(1024, 'i');
  const HttpAnswer answer = http().infer("simple", request, simple_tensors());
  expect_sum_and_difference(answer);
  EXPECT_EQ(read_header(answer).at("id"), std::string(1024, 'i'));
  request["id"] = std::string(1025, 'i');
  EXPECT_EQ(http().infer("simple", request, simple_tensors()).status, 400);
}

TEST_F(HttpInfer, RejectsInvalidJson) {
  json request = simple_request(true);
  request["inputs"][0]["shape"] = {1, 15};
  const HttpAnswer shape = http().infer("simple", request, simple_tensors());
  EXPECT_EQ(shape.status, 400);
  check_error(shape);
  const HttpAnswer model = http().infer("wrong_model_name", request, simple_tensors());
  EXPECT_EQ(model.status, 404);
  check_error(model);
  const HttpAnswer text = http().post("/v2/models/simple/infer", "{\"inputs\":");
  EXPECT_EQ(text.status, 400);
  check_error(text);
  const HttpAnswer path = http().get("/v2/nothing");
  EXPECT_EQ(path.status, 404);
  check_error(path);
}

TEST_F(HttpInfer, ReadsAndWritesNanAndInfinityInJson) {
  const std::string request =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[NaN,Infinity,-Infinity,1.5]}]})";
  const HttpAnswer answer = http().post("/v2/models/values/infer", request);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::size_t data = answer.body.find("\"data\":[");
  ASSERT_NE(data, std::string::npos);
  EXPECT_THAT(answer.body.substr(data + 8), StartsWith("NaN,Infinity,-Infinity,1.5"));
}

TEST_F(HttpInfer, AcceptsAnyNonzeroByteAsTrue) {
  const json request = {{"inputs",
                         {{{"name", "x"},
                           {"datatype", "BOOL"},
                           {"shape", {1, 4}},
                           {"parameters", {{"binary_data_size", 4}}}}}}};
  const auto outputs = read_outputs(http().infer("flags", request, std::string("\0\1\2\xff", 4)));
  EXPECT_EQ(outputs.at("y").data, json({false, true, true, true}));
}

TEST_F(HttpInfer, ClassifiesIntoValueIndexAndLabel) {
  json request = {
      {"inputs",
       {{{"name", "x"},
         {"datatype", "FP32"},
         {"shape", {1, 4}},
         {"parameters", {{"binary_data_size", 16}}}}}},
      {"outputs",
       {{{"name", "y"}, {"parameters", {{"classification", 3}, {"binary_data", true}}}}}}};
  const std::string tensor = bytes_of(std::vector<float>{1, 4, 2, 3});
  const HttpOutput binary = read_outputs(http().infer("scores", request, tensor)).at("y");
  EXPECT_EQ(binary.datatype, "BYTES");
  EXPECT_THAT(binary.shape, ElementsAre(1, 3));
  const auto strings = strings_of(binary.bytes);
  ASSERT_EQ(strings.size(), 3U);
  EXPECT_THAT(strings[0], ::testing::MatchesRegex("4[.]?0*:1:dog"));
  EXPECT_THAT(strings[1], ::testing::MatchesRegex("3[.]?0*:3:fish"));
  EXPECT_THAT(strings[2], ::testing::MatchesRegex("2[.]?0*:2:bird"));
  request["outputs"][0]["parameters"]["binary_data"] = false;
  EXPECT_EQ(read_outputs(http().infer("scores", request, tensor)).at("y").data, json(strings));
}

TEST_F(HttpInfer, ClassifiesWithoutLabelsIntoValueAndIndex) {
  const json more = {{"outputs", {{{"name", "y"}, {"parameters", {{"classification", 1}}}}}}};
  const auto outputs = read_outputs(ask_one("values", "FP32", {1, 4, 2, 3}, more));
  ASSERT_EQ(outputs.at("y").data.size(), 1U);
  EXPECT_THAT(outputs.at("y").data[0].get<std::string>(), ::testing::MatchesRegex("4[.]?0*:1"));
}

TEST_F(HttpInfer, RunsAnApplicationAsAModel) {
  const auto outputs = read_outputs(ask_one("chain", "FP32", {1.5, 2.5, 3.5, 4.5}));
  EXPECT_EQ(outputs.at("y").data, json({1.5, 2.5, 3.5, 4.5}));
}

}  // namespace
}  // namespace gpulet::conformance
