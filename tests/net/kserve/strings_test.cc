// BYTES tensors in JSON and in binary form.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "gpulet/core/tensor.h"
#include "tests/net/kserve/kserve_case.h"
#include "tests/support/names.h"

namespace gpulet::net::kserve::strings_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using support::names;
using Strings = std::vector<std::string>;

// Two strings and a number, to strings.
Model string_model() {
  Model model = small_model();
  model.inputs = {{"text", DataType::bytes, {2}, 20}, {"n", DataType::int16, {1}}};
  model.outputs = {{"words", DataType::bytes, {2}, 20}};
  return model;
}

std::string elements(const Strings& strings) {
  std::string raw;
  for (const std::string& each : strings) append_element(raw, each);
  return raw;
}

std::string request(const Strings& strings, const Json& numbers) {
  const std::size_t rows = numbers.size();
  return Json{{"inputs",
               {{{"name", "text"}, {"datatype", "BYTES"}, {"shape", {rows, 2}}, {"data", strings}},
                {{"name", "n"}, {"datatype", "INT16"}, {"shape", {rows, 1}}, {"data", numbers}}}}}
      .dump();
}

InferReply reply_with(const std::string& raw) {
  InferReply one = reply(string_model(), {http::bytes_of(std::string(raw))});
  one.outputs[0].max_bytes = raw.size();
  return one;
}

TEST(KserveStrings, EveryRowHasItsElements) {
  const auto call = read(string_model(), request({"a", "", "bcd", "\xc3\xa9"}, {1, 2}));
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  ASSERT_EQ(call.value().requests.size(), 2U);
  EXPECT_EQ(text_of(call.value().requests[0].payload),
            elements({"a", ""}) + std::string("\1\0", 2));
  EXPECT_EQ(text_of(call.value().requests[1].payload),
            elements({"bcd", "\xc3\xa9"}) + std::string("\2\0", 2));
}

TEST(KserveStrings, RefusesWhatDoesNotFit) {
  const Model model = string_model();
  const auto refusal = [&](const std::string& json) {
    const auto call = read(model, json);
    EXPECT_EQ(call.status().code(), StatusCode::invalid) << json;
    return call.status();
  };
  EXPECT_TRUE(names(refusal(request({"a"}, {1})), "2 elements", "1 rows"));
  EXPECT_TRUE(names(refusal(request({"a", "b", "c"}, {1})), "'text'", "5 bytes"));
  EXPECT_TRUE(names(refusal(request({"123456789", "1234"}, {1})), "max_bytes"));
  EXPECT_TRUE(names(refusal(request({"123456789", "1234", "", ""}, {1, 2})), "max_bytes"));
  EXPECT_TRUE(names(refusal(request(Strings(100, ""), {1})), "input 0", "'small'"));
  const std::string head = R"({"inputs":[{"name":"text","datatype":"BYTES","shape":[1,2],"data":)";
  EXPECT_TRUE(names(refusal(head + "[1,2]}]}"), "'text'", "1"));
  EXPECT_TRUE(names(refusal(head + R"(["a",2]}]})"), "'text'", "'data'"));
  EXPECT_TRUE(names(refusal(head + R"([2,"a"]}]})"), "'text'", "'data'"));
  EXPECT_TRUE(names(refusal(head + "[]}]}"), "'text'", "'data'"));
}

TEST(KserveStrings, HostileBinaryDataAreRefused) {
  Model model = string_model();
  model.inputs.resize(1);
  for (const std::string& raw :
       {std::string(20, '\xff'), std::string("\4\0\0\0", 4), std::string(21, '\0'),
        elements({"a", "b"}) + "c", std::string()}) {
    const std::string json =
        R"({"inputs":[{"name":"text","datatype":"BYTES","shape":[1,2],"parameters":)"
        R"({"binary_data_size":)" +
        std::to_string(raw.size()) + "}}]}";
    EXPECT_EQ(read(model, json, raw).status().code(), StatusCode::invalid)
        << ::testing::PrintToString(raw);
  }
}

TEST(KserveStrings, ARawBodyIsTheOnlyString) {
  Model model = string_model();
  model.inputs = {{"text", DataType::bytes, {1}, 20}};
  const SharedMemory none(false);
  const auto call = read_infer(json_length(0), http::bytes_of("hello"), model, none);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(text_of(call.value().requests[0].payload), elements({"hello"}));
  model.inputs[0].shape = {2};
  EXPECT_TRUE(names(read_infer(json_length(0), http::bytes_of("hello"), model, none).status(),
                    "'text'", "2"));
}

TEST(KserveStrings, HaveNoClassification) {
  const Model model = string_model();
  std::string json = request({"a", "b"}, {1});
  json.pop_back();
  json += R"(,"outputs":[{"name":"words","parameters":{"classification":2}}]})";
  EXPECT_TRUE(names(read(model, json).status(), "classification"));
}

TEST(KserveStrings, AnswersAreJsonStringsOrBinary) {
  const Model model = string_model();
  InferCall call;
  call.rows = 2;
  call.outputs = {{.index = 0}};
  const std::vector<InferReply> replies{reply_with(elements({"a\"", ""})),
                                        reply_with(elements({"longer than that", "\xc3\xa9"}))};
  const Json output = json_of(write(call, model, replies))["outputs"][0];
  EXPECT_EQ(output["datatype"], "BYTES");
  EXPECT_EQ(output["shape"], Json({2, 2}));
  EXPECT_EQ(output["data"], Json({"a\"", "", "longer than that", "\xc3\xa9"}));
  call.outputs[0].binary = true;
  EXPECT_EQ(text_of(write(call, model, replies).body.at(1)),
            elements({"a\"", "", "longer than that", "\xc3\xa9"}));
}

TEST(KserveStrings, AnswersThatAreNoUtf8AreBinaryOnly) {
  const Model model = string_model();
  InferCall call;
  call.outputs = {{.index = 0}};
  for (const char* const text : {"\xff", "\xc3", "\xed\xa0\x80", "\xc0\x80"}) {
    const std::vector<InferReply> replies{reply_with(elements({text, ""}))};
    call.outputs[0].binary = false;
    EXPECT_EQ(write(call, model, replies).status, 400U);
    call.outputs[0].binary = true;
    EXPECT_EQ(write(call, model, replies).status, 200U);
  }
}

// A frontend that forwards trusts no other one.
TEST(KserveStrings, RepliesWithoutTheirElementsFail) {
  const Model model = string_model();
  InferCall call;
  call.outputs = {{.index = 0, .binary = true}};
  for (const std::string& raw :
       {std::string(12, '\xff'), elements({"a", "b"}) + "c", std::string("\0\0\0\0", 4)}) {
    EXPECT_EQ(write(call, model, {reply_with(raw)}).status, 500U);
  }
}

TEST(KserveStrings, TheConfigurationSaysString) {
  const Json config = json_of(model_config(string_model()));
  EXPECT_EQ(config["input"][0]["data_type"], "TYPE_STRING");
  EXPECT_EQ(config["output"][0]["dims"], Json({2}));
}

RC_GTEST_PROP(KserveStrings, JsonComesBack, (const Strings& given)) {
  Strings texts;
  for (const std::string& text : given) {
    std::string ascii;
    for (const char letter : text) ascii += static_cast<char>(letter & 0x7f);
    texts.push_back(std::move(ascii));
  }
  if (texts.size() % 2 != 0) texts.emplace_back();
  const std::size_t rows = texts.size() / 2;
  if (rows == 0) return;
  Model model = string_model();
  model.inputs = {{"text", DataType::bytes, {2}, 4096}};
  model.max_batch = 1024;
  const Json json = {
      {"inputs",
       Json::array(
           {{{"name", "text"}, {"datatype", "BYTES"}, {"shape", {rows, 2}}, {"data", texts}}})}};
  const auto call = read(model, json.dump());
  RC_ASSERT(call.ok());
  std::vector<InferReply> replies;
  for (const InferRequest& each : call.value().requests)
    replies.push_back(reply_with(text_of(each.payload)));
  RC_ASSERT(json_of(write(call.value(), model, replies))["outputs"][0]["data"] == Json(texts));
}

}  // namespace
}  // namespace gpulet::net::kserve::strings_test
