// Any tensors, written in any form, are read back as they were.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/net/kserve/kserve_case.h"

namespace gpulet::net::kserve {
namespace {

using namespace testing;

struct Tensors {
  Model model;
  std::uint32_t rows = 1;
  std::vector<std::string> data;  // of each input, all rows
};

std::size_t elements_of(const TensorSpec& spec) {
  return std::accumulate(
      spec.shape.begin(), spec.shape.end(), std::size_t{1},
      [](std::size_t a, std::int64_t b) { return a * static_cast<std::size_t>(b); });
}

// The values at the ends of what a type has, which any bits are rarely.
template <typename Real>
rc::Gen<Real> any_extreme() {
  using Limits = std::numeric_limits<Real>;
  return rc::gen::element(Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(),
                          Limits::max(), Limits::lowest(), Limits::min(), -Limits::min(),
                          Limits::denorm_min(), -Limits::denorm_min(),
                          Limits::min() - Limits::denorm_min(), Real{0}, -Real{0},
                          Limits::epsilon(), Real{1} - Limits::epsilon() / 2, Real(1 << 24),
                          Real(1e10), Real(1e22), std::nextafter(Limits::max(), Real{0}));
}

template <typename Integer>
rc::Gen<Integer> any_bound() {
  using Limits = std::numeric_limits<Integer>;
  return rc::gen::element(Limits::min(), Limits::max(), Integer{0}, Integer{1},
                          static_cast<Integer>(Limits::max() - 1),
                          static_cast<Integer>(Limits::min() + 1), static_cast<Integer>(-1));
}

template <typename Element>
std::string bytes_of_one(const rc::Gen<Element>& element) {
  return text_of(bytes_of(std::vector<Element>{*element}));
}

std::string any_bound_of(DataType type) {
  switch (type) {
    case DataType::uint8:
      return bytes_of_one(any_bound<std::uint8_t>());
    case DataType::int8:
      return bytes_of_one(any_bound<std::int8_t>());
    case DataType::int16:
      return bytes_of_one(any_bound<std::int16_t>());
    case DataType::int32:
      return bytes_of_one(any_bound<std::int32_t>());
    case DataType::int64:
      return bytes_of_one(any_bound<std::int64_t>());
    case DataType::fp32:
      return bytes_of_one(any_extreme<float>());
    case DataType::fp64:
      return bytes_of_one(any_extreme<double>());
    default:
      return {};
  }
}

// JSON has one NaN.
template <typename Real>
void make_nan_canonical(std::string& bytes) {
  Real value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  if (!std::isnan(value)) return;
  value = std::numeric_limits<Real>::quiet_NaN();
  std::memcpy(bytes.data(), &value, sizeof value);
}

// Half precision is any bits.
std::string any_element(DataType type) {
  if (type == DataType::boolean) return std::string(1, *rc::gen::arbitrary<bool>() ? '\1' : '\0');
  const auto bits = *rc::gen::arbitrary<std::uint64_t>();
  std::string bytes(byte_size(type), '\0');
  std::memcpy(bytes.data(), &bits, bytes.size());
  constexpr int kOneIn = 4;
  if (*rc::gen::inRange(0, kOneIn) == 0) {
    if (std::string bound = any_bound_of(type); !bound.empty()) bytes = std::move(bound);
  }
  if (type == DataType::fp32) make_nan_canonical<float>(bytes);
  if (type == DataType::fp64) make_nan_canonical<double>(bytes);
  return bytes;
}

Tensors any_tensors(bool json) {
  Tensors tensors;
  Model& model = tensors.model;
  model.name = "any";
  model.max_batch = 4;
  tensors.rows = *rc::gen::inRange<std::uint32_t>(1, 5);
  const int inputs = *rc::gen::inRange(1, 4);
  for (int i = 0; i < inputs; ++i) {
    TensorSpec spec;
    spec.name = "in\"put" + std::to_string(i);
    do {
      spec.type = static_cast<DataType>(*rc::gen::inRange(1, 11));
    } while (json && (spec.type == DataType::fp16 || spec.type == DataType::bf16));
    const int rank = *rc::gen::inRange(0, 4);
    for (int r = 0; r < rank; ++r) spec.shape.push_back(*rc::gen::inRange(1, 4));
    std::string data;
    for (std::size_t e = 0; e < elements_of(spec) * tensors.rows; ++e)
      data += any_element(spec.type);
    model.inputs.push_back(spec);
    tensors.data.push_back(std::move(data));
  }
  model.outputs = model.inputs;
  return tensors;
}

// As if the model answered its inputs: what the answer then holds are the request's tensors.
std::vector<InferReply> echo(const InferCall& call) {
  std::vector<InferReply> replies;
  for (const InferRequest& request : call.requests) {
    InferReply one;
    one.outputs = request.inputs;
    std::size_t at = 0;
    for (const TensorSpec& spec : request.inputs) {
      const std::size_t bytes = byte_size(spec).value();
      one.payload.push_back(request.payload.slice(at, bytes));
      at += bytes;
    }
    replies.push_back(std::move(one));
  }
  return replies;
}

Json head_of(const Tensors& tensors, std::size_t input) {
  const TensorSpec& spec = tensors.model.inputs[input];
  std::vector<std::int64_t> shape{tensors.rows};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return {{"name", spec.name}, {"datatype", to_string(spec.type)}, {"shape", shape}};
}

// A request in the binary form, which needs no number's text.
InferCall binary_call(const Tensors& tensors, bool binary_answer) {
  Json document{{"parameters", {{"binary_data_output", binary_answer}}}, {"inputs", Json::array()}};
  std::string blobs;
  for (std::size_t i = 0; i < tensors.data.size(); ++i) {
    Json input = head_of(tensors, i);
    input["parameters"] = {{"binary_data_size", tensors.data[i].size()}};
    document["inputs"].push_back(std::move(input));
    blobs += tensors.data[i];
  }
  const auto call = read(tensors.model, document.dump(), blobs);
  if (!call.ok()) RC_FAIL(call.status().to_string());
  return call.value();
}

RC_GTEST_PROP(AnyTensors, AreTheSameAfterRowsAreSplitAndGathered, ()) {
  const Tensors tensors = any_tensors(false);
  const InferCall call = binary_call(tensors, true);
  RC_ASSERT(call.rows == tensors.rows);
  const auto outputs = gather(call, tensors.model, echo(call));
  RC_ASSERT(outputs.ok());
  for (std::size_t i = 0; i < tensors.data.size(); ++i) {
    RC_ASSERT(text_of(outputs.value()[i].data) == tensors.data[i]);
    RC_ASSERT(Json(outputs.value()[i].spec.shape) == head_of(tensors, i)["shape"]);
  }
}

RC_GTEST_PROP(AnyTensors, AreReadBackFromABinaryAnswer, ()) {
  const Tensors tensors = any_tensors(false);
  const InferCall call = binary_call(tensors, true);
  const http::HttpResponse response = write(call, tensors.model, echo(call));
  RC_ASSERT(response.body.size() == 1 + tensors.data.size());
  for (std::size_t i = 0; i < tensors.data.size(); ++i)
    RC_ASSERT(text_of(response.body[i + 1]) == tensors.data[i]);
  const Json head = Json::parse(text_of(response.body[0]));
  RC_ASSERT(head["outputs"].size() == tensors.data.size());
}

// The answer's JSON, sent back as a request's.
RC_GTEST_PROP(AnyTensors, AreReadBackFromJson, ()) {
  const Tensors tensors = any_tensors(true);
  const InferCall call = binary_call(tensors, false);
  const http::HttpResponse response = write(call, tensors.model, echo(call));
  RC_ASSERT(response.status == 200U);
  std::string json = text_of(response);
  json.replace(json.find(R"("outputs":)"), 10, R"("inputs":)");
  const auto again = read(tensors.model, json);
  if (!again.ok()) RC_FAIL(again.status().to_string());
  RC_ASSERT(again.value().requests.size() == call.requests.size());
  for (std::size_t row = 0; row < call.requests.size(); ++row)
    RC_ASSERT(text_of(again.value().requests[row].payload) == text_of(call.requests[row].payload));
}

// The bytes of one element of that type, or the refusal, for a number in a request's JSON.
Result<std::string> element_of(DataType type, const std::string& number) {
  Model model = small_model();
  model.inputs = {{"x", type, {}}};
  const auto call =
      read(model, std::string(R"({"inputs":[{"name":"x","shape":[1],"datatype":")") +
                      std::string(to_string(type)) + R"(","data":[)" + number + "]}]}");
  if (!call.ok()) return call.status();
  return text_of(call.value().requests[0].payload);
}

template <typename Element>
void expect_reads(DataType type, const std::string& number, Element value) {
  const Result<std::string> read = element_of(type, number);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read.value(), text_of(bytes_of(std::vector<Element>{value}))) << number;
}

TEST(Numbers, EveryExtremeIsReadInTheFormInWhichItIsWritten) {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  expect_reads(DataType::fp32, "3.4028235e+38", Float::max());
  expect_reads(DataType::fp32, "-3.4028235e+38", Float::lowest());
  expect_reads(DataType::fp32, "340282346638528859811704183484516925440", Float::max());
  expect_reads(DataType::fp32, "3.40282356e38", Float::max());
  expect_reads(DataType::fp32, "1e-45", Float::denorm_min());
  expect_reads(DataType::fp32, "1.1754942e-38", std::nextafter(Float::min(), 0.0F));
  expect_reads(DataType::fp64, "1.7976931348623157e+308", Double::max());
  expect_reads(DataType::fp64, "5e-324", Double::denorm_min());
  expect_reads(DataType::fp64, "-1e-400", -0.0);
  expect_reads(DataType::fp32, "-1e-50", -0.0F);
  for (const char* const zero : {"-0", "-0.0", "-0e5", "-0.000"}) {
    expect_reads(DataType::fp32, zero, -0.0F);
    expect_reads(DataType::fp64, zero, -0.0);
    expect_reads(DataType::int32, zero, std::int32_t{0});
    expect_reads(DataType::boolean, zero, std::uint8_t{0});
  }
  for (const char* const beyond :
       {"3.4028236e38", "-3.4028236e38", "1e39", "340282366920938463463374607431768211456"})
    EXPECT_EQ(element_of(DataType::fp32, beyond).status().code(), StatusCode::invalid) << beyond;
}

TEST(Numbers, AnIntegerMayHaveTheFormOfARealNumber) {
  expect_reads(DataType::int32, "1.0", std::int32_t{1});
  expect_reads(DataType::int32, "1e3", std::int32_t{1000});
  expect_reads(DataType::int32, "-2.50e1", std::int32_t{-25});
  expect_reads(DataType::int32, "120e-1", std::int32_t{12});
  expect_reads(DataType::int8, "-1.28E+2", std::int8_t{-128});
  expect_reads(DataType::uint8, "2.55e2", std::uint8_t{255});
  expect_reads(DataType::int64, "9007199254740993.0", (std::int64_t{1} << 53) + 1);
  expect_reads(DataType::int64, "9.223372036854775807e18",
               std::numeric_limits<std::int64_t>::max());
  expect_reads(DataType::int64, "-9223372036854775808.00",
               std::numeric_limits<std::int64_t>::min());
  expect_reads(DataType::fp32, "1e3", 1000.0F);
  expect_reads(DataType::fp64, "1e22", 1e22);
  for (const char* const no :
       {"1.5", "1e-1", "-0.5", "1e19", "9223372036854775808.0", "NaN", "Infinity",
        "18446744073709551615", "-9.223372036854775809e18", "123456789012345678901234567890"})
    EXPECT_EQ(element_of(DataType::int64, no).status().code(), StatusCode::invalid) << no;
  for (const char* const no : {"128", "1.28e2", "-129.0"})
    EXPECT_EQ(element_of(DataType::int8, no).status().code(), StatusCode::invalid) << no;
}

RC_GTEST_PROP(AnyTensors, ATornBinaryBodyIsRefused, ()) {
  Tensors tensors = any_tensors(false);
  Json document{{"inputs", Json::array()}, {"parameters", {{"binary_data_output", true}}}};
  std::string blobs;
  for (std::size_t i = 0; i < tensors.data.size(); ++i) {
    Json input = head_of(tensors, i);
    input["parameters"] = {{"binary_data_size", tensors.data[i].size()}};
    document["inputs"].push_back(std::move(input));
    blobs += tensors.data[i];
  }
  const std::string json = document.dump();
  const std::string body = json + blobs;
  const auto kept = *rc::gen::inRange<std::size_t>(0, body.size());
  const auto call = read_infer(json_length(json.size()), http::bytes_of(body.substr(0, kept)),
                               tensors.model, SharedMemory(false));
  RC_ASSERT(call.status().code() == StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::net::kserve
