// Inference requests in JSON and binary form, and their responses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "tests/net/kserve/kserve_case.h"
#include "tests/support/names.h"

namespace gpulet::net::kserve {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using support::holds;
using support::names;

std::string floats(const std::vector<float>& values) { return text_of(bytes_of(values)); }

// ---- reading

TEST(InferRequest, JsonMayBeNestedOrFlat) {
  for (const char* const data : {"[1,2,3,4]", "[[[1,2],[3,4]]]", "[1.0,2e0,[3],[[4]]]"}) {
    const auto call =
        read(small_model(), std::string(R"({"inputs":[{"name":"x","shape":[1,2,2],)") +
                                R"("datatype":"FP32","data":)" + data + "}]}");
    ASSERT_TRUE(call.ok()) << call.status().to_string();
    ASSERT_EQ(call.value().requests.size(), 1U);
    const InferRequest& request = call.value().requests[0];
    EXPECT_EQ(request.model, "small");
    EXPECT_EQ(request.tag, 0U);
    EXPECT_EQ(request.timeout, Duration::zero());
    EXPECT_EQ(request.inputs, small_model().inputs);
    EXPECT_EQ(text_of(request.payload), floats({1, 2, 3, 4}));
  }
}

// Two inputs with a dynamic dimension.
Model dynamic_model() {
  Model model = small_model();
  model.inputs = {{"x", DataType::fp32, {-1, 2}}, {"mask", DataType::boolean, {-1}}};
  model.outputs = {{"y", DataType::fp32, {-1}}};
  model.longest = 4;
  return model;
}

std::string dynamic_call(const std::string& x_shape, const std::string& x,
                         const std::string& mask_shape, const std::string& mask) {
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":)" + x_shape + R"(,"data":)" + x +
         R"(},{"name":"mask","datatype":"BOOL","shape":)" + mask_shape + R"(,"data":)" + mask +
         "}]}";
}

TEST(InferRequest, ADynamicDimensionHasTheSizeOfTheCall) {
  const auto call =
      read(dynamic_model(), dynamic_call("[2,3,2]", "[1,2,3,4,5,6,7,8,9,10,11,12]", "[2,3]",
                                         "[true,true,true,true,true,false]"));
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  ASSERT_EQ(call.value().requests.size(), 2U);
  for (const InferRequest& request : call.value().requests) {
    EXPECT_EQ(request.inputs[0].shape, (std::vector<std::int64_t>{3, 2}));
    EXPECT_EQ(request.inputs[1].shape, (std::vector<std::int64_t>{3}));
    EXPECT_EQ(request.payload.size(), 27U);
  }
  EXPECT_EQ(text_of(call.value().requests[1].payload).substr(0, 24), floats({7, 8, 9, 10, 11, 12}));
}

TEST(InferRequest, RefusesSizesThatADynamicDimensionCannotHave) {
  const std::string four = "[1,2,3,4]";
  EXPECT_EQ(read(dynamic_model(), dynamic_call("[1,5,2]", "[1,2,3,4,5,6,7,8,9,10]", "[1,5]",
                                               "[true,true,true,true,true]"))
                .status()
                .code(),
            StatusCode::invalid);
  for (const char* const shape : {"[1,0,2]", "[1,-1,2]", "[1,2,1]", "[2,2]"}) {
    EXPECT_EQ(
        read(dynamic_model(), dynamic_call(shape, four, "[1,2]", "[true,true]")).status().code(),
        StatusCode::invalid)
        << shape;
  }
  EXPECT_EQ(read(dynamic_model(), dynamic_call("[1,3,2]", four, "[1,3]", "[true,true,true]"))
                .status()
                .code(),
            StatusCode::invalid);
}

// A state and a scalar, which may be left out.
Model whole_model() {
  Model model = small_model();
  model.inputs = {{"state", DataType::fp32, {2, 1, 2}}, {"rate", DataType::int64, {}}};
  model.outputs = {{"next", DataType::fp32, {2, 1, 2}}, {"level", DataType::int64, {}}};
  for (TensorSpec& input : model.inputs) input.whole = true;
  for (TensorSpec& output : model.outputs) output.whole = true;
  model.max_batch = 1;
  auto description = std::make_shared<serve::ModelDescription>();
  const std::int64_t rate = 16000;
  const auto bytes = std::as_bytes(std::span(&rate, 1));
  description->defaults = {{}, {bytes.begin(), bytes.end()}};
  model.description = std::move(description);
  return model;
}

const std::string kState = R"({"name":"state","datatype":"FP32","shape":[2,1,2],"data":[1,2,3,4]})";

TEST(InferRequest, AModelWithoutABatchTakesWholeTensors) {
  const auto call = read(whole_model(), R"({"inputs":[)" + kState +
                                            R"(,{"name":"rate","datatype":"INT64","shape":[],)"
                                            R"("data":[8000]}]})");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  ASSERT_EQ(call.value().requests.size(), 1U);
  const InferRequest& request = call.value().requests[0];
  EXPECT_EQ(request.inputs, whole_model().inputs);
  EXPECT_EQ(text_of(request.payload),
            floats({1, 2, 3, 4}) + text_of(bytes_of(std::vector<std::int64_t>{8000})));
  for (const char* const wrong :
       {R"({"name":"rate","datatype":"INT64","shape":[1],"data":[1]})",
        R"({"name":"rate","datatype":"INT64","shape":[],"data":[]})",
        R"({"name":"rate","datatype":"INT64","shape":[],"data":[1,2]})"}) {
    EXPECT_EQ(read(whole_model(), R"({"inputs":[)" + kState + "," + wrong + "]}").status().code(),
              StatusCode::invalid)
        << wrong;
  }
  const std::string row =
      R"({"name":"state","datatype":"FP32","shape":[1,2,1,2],"data":[1,2,3,4]})";
  EXPECT_TRUE(
      names(read(whole_model(), R"({"inputs":[)" + row + "]}").status(), "without a batch"));
}

TEST(InferRequest, AnInputWithADefaultMayBeLeftOut) {
  const auto call = read(whole_model(), R"({"inputs":[)" + kState + "]}");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(text_of(call.value().requests[0].payload),
            floats({1, 2, 3, 4}) + text_of(bytes_of(std::vector<std::int64_t>{16000})));
  EXPECT_EQ(read(whole_model(), R"({"inputs":[{"name":"rate","datatype":"INT64","shape":[],)"
                                R"("data":[1]}]})")
                .status()
                .code(),
            StatusCode::invalid);
  // Each row gets it.
  Model rows = small_model();
  rows.inputs = {{"x", DataType::fp32, {1}}, {"scale", DataType::fp32, {1}}};
  auto description = std::make_shared<serve::ModelDescription>();
  const float scale = 7;
  const auto bytes = std::as_bytes(std::span(&scale, 1));
  description->defaults = {{}, {bytes.begin(), bytes.end()}};
  rows.description = std::move(description);
  const auto two =
      read(rows, R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2,1],"data":[1,2]}]})");
  ASSERT_TRUE(two.ok()) << two.status().to_string();
  ASSERT_EQ(two.value().requests.size(), 2U);
  EXPECT_EQ(text_of(two.value().requests[1].payload), floats({2, 7}));
}

TEST(InferAnswer, OfAModelWithoutABatchHasWholeTensors) {
  const Model model = whole_model();
  const auto call = read(model, R"({"inputs":[)" + kState + "]}");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  const Json answer =
      json_of(write(call.value(), model,
                    {reply(model, {bytes_of<float>({1, 2, 3, 4}), bytes_of<std::int64_t>({5})})}));
  EXPECT_EQ(answer["outputs"][0]["shape"], Json::array({2, 1, 2}));
  EXPECT_EQ(answer["outputs"][1]["shape"], Json::array());
  EXPECT_EQ(answer["outputs"][1]["data"], Json::array({5}));
}

TEST(InferRequest, TheOrderOfMembersDoesNotMatterAndUnknownOnesAreLeftAlone) {
  const auto call =
      read(small_model(), R"({"outputs":[{"parameters":{"binary_data":true,"a":1},"name":"y"}],
      "more":{"inputs":[1,{"name":[]}]},
      "inputs":[{"data":[1,2,3,4],"extra":[{"shape":2}],"parameters":null,"datatype":"FP32",
                 "shape":[1,2,2],"name":"x"}],
      "parameters":{"priority":2,"timeout":1500,"custom":"a","other":1.5,"triton_x":false},
      "id":"seven"})");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call.value().id, "seven");
  EXPECT_EQ(call.value().requests[0].timeout, 1500us);
  EXPECT_EQ(call.value().requests[0].priority, 2U);
  EXPECT_TRUE(call.value().outputs[0].binary);
}

TEST(InferRequest, TakesNaNAndInfinitiesAsTheReferenceServerDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto data_of = [](const std::string& data, const std::string& before = "") {
    const auto call =
        read(small_model(), R"({)" + before + R"("inputs":[{"name":"x","shape":[1,2,2],)" +
                                R"("datatype":"FP32","data":)" + data + "}]}");
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    std::vector<float> values(4);
    if (call.ok())
      std::memcpy(values.data(), call.value().requests[0].payload.view().data(), sizeof(float) * 4);
    return values;
  };
  EXPECT_EQ(data_of("[Infinity,-Infinity,Inf,-Inf]"),
            (std::vector<float>{kInfinity, -kInfinity, kInfinity, -kInfinity}));
  const std::vector<float> mixed =
      data_of("[ [NaN , 2.5],[[-1e3],[ -NaN]] ]", R"("id":"NaN \" Infinity\\","more":[NaN],)");
  EXPECT_TRUE(std::isnan(mixed[0]) && std::isnan(mixed[3]));
  EXPECT_EQ(mixed[1], 2.5F);
  EXPECT_EQ(mixed[2], -1e3F);

  const auto of_type = [](const char* type, DataType data_type) {
    Model model = small_model();
    model.inputs[0].type = data_type;
    return read(model, std::string(R"({"inputs":[{"name":"x","shape":[1,2,2],"datatype":")") +
                           type + R"(","data":[1,2,3,NaN]}]})")
        .status();
  };
  EXPECT_TRUE(of_type("FP64", DataType::fp64).ok());
  EXPECT_TRUE(names(of_type("INT32", DataType::int32), "NaN", "INT32"));
}

TEST(InferRequest, EveryBooleanButZeroIsTrue) {
  using namespace std::string_literals;
  const std::string head = R"({"parameters":{"binary_data_output":true},"inputs":[
      {"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},
      {"name":"mask","shape":[1,3],"datatype":"BOOL",)";
  const auto mask_of = [](const Result<InferCall>& call) {
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return call.ok() ? text_of(call.value().requests[0].payload).substr(8) : "";
  };
  EXPECT_EQ(mask_of(read(wide_model(), head + R"("data":[2,0,-1]}]})")), "\1\0\1"s);
  EXPECT_EQ(mask_of(read(wide_model(), head + R"("data":[0.5,0.0,true]}]})")), "\1\0\1"s);
  const std::string binary = head + R"("parameters":{"binary_data_size":3}}]})";
  EXPECT_EQ(mask_of(read(wide_model(), binary, "\x02\0\xff"s)), "\1\0\1"s);
}

TEST(InferRequest, NoSequenceIsAccepted) {
  const std::string input =
      R"("inputs":[{"name":"x","shape":[1,2,2],"datatype":"FP32","data":[1,2,3,4]}])";
  const auto with = [&input](const std::string& parameters) {
    return read(small_model(), R"({"parameters":{)" + parameters + "}," + input + "}").status();
  };
  for (const char* const none :
       {R"("sequence_id":0)", R"("sequence_id":"")", R"("sequence_id":false)",
        R"("sequence_id":0,"sequence_start":false,"sequence_end":false)"}) {
    EXPECT_TRUE(with(none).ok()) << none;
  }
  for (const char* const one :
       {R"("sequence_id":1)", R"("sequence_id":"a")", R"("sequence_id":true)",
        R"("sequence_id":-1)", R"("sequence_id":0,"sequence_start":true)"}) {
    EXPECT_EQ(with(one).code(), StatusCode::invalid) << one;
  }
}

TEST(InferRequest, AnIdHasALimit) {
  const auto with_id = [](std::size_t length) {
    return read(small_model(), R"({"id":")" + std::string(length, 'a') +
                                   R"(","inputs":[{"name":"x","shape":[1,2,2],)" +
                                   R"("datatype":"FP32","data":[1,2,3,4]}]})");
  };
  EXPECT_TRUE(with_id(kMaxIdBytes).ok());
  EXPECT_EQ(with_id(kMaxIdBytes + 1).status().code(), StatusCode::invalid);
}

TEST(InferRequest, RowsBecomeRequestsThatShareTheirMemory) {
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2,2,2],"datatype":"FP32","parameters":{"binary_data_size":32}}]})";
  const Bytes body = http::bytes_of(json + floats({1, 2, 3, 4, 5, 6, 7, 8}));
  const auto call = read_infer(json_length(json.size()), body, small_model(), SharedMemory(false));
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call.value().rows, 2U);
  ASSERT_EQ(call.value().requests.size(), 2U);
  EXPECT_EQ(call.value().requests[1].tag, 1U);
  EXPECT_EQ(text_of(call.value().requests[1].payload), floats({5, 6, 7, 8}));
  EXPECT_EQ(call.value().requests[0].payload.view().data(), body.view().data() + json.size());
}

TEST(InferRequest, BinaryAndJsonInputsMixAndComeInAnyOrder) {
  const auto call = read(wide_model(),
                         R"({"inputs":[
      {"name":"mask","shape":[2,3],"datatype":"BOOL","data":[true,false,1,[0,false,true]]},
      {"name":"x","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}}],
      "outputs":[{"name":"y"}]})",
                         floats({1, 2, 3, 4}));
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  using namespace std::string_literals;
  EXPECT_EQ(text_of(call.value().requests[0].payload), floats({1, 2}) + "\1\0\1"s);
  EXPECT_EQ(text_of(call.value().requests[1].payload), floats({3, 4}) + "\0\0\1"s);
}

TEST(InferRequest, ARawBodyIsOneRowOfTheOnlyInput) {
  const auto call =
      read_infer(json_length(0), bytes_of<float>({1, 2, 3, 4}), small_model(), SharedMemory(false));
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(text_of(call.value().requests[0].payload), floats({1, 2, 3, 4}));
  EXPECT_TRUE(call.value().outputs[0].binary);

  const SharedMemory none(false);
  EXPECT_TRUE(names(read_infer(json_length(0), bytes_of<float>({1}), small_model(), none).status(),
                    "16", "4"));
  EXPECT_TRUE(names(read_infer(json_length(0), {}, wide_model(), none).status(), "'wide'", "2"));
}

TEST(InferRequest, TheHeaderMustFitTheBody) {
  const Bytes body = http::bytes_of("{}");
  for (const char* const value : {"3", "-1", "1e1", "0x1", "99999999999999999999", " 1", "1 "}) {
    const auto call = read_infer({{"Inference-Header-Content-Length", value}}, body, small_model(),
                                 SharedMemory(false));
    EXPECT_EQ(call.status().code(), StatusCode::invalid) << value;
    EXPECT_TRUE(names(call.status(), "2 bytes")) << value;
  }
}

TEST(InferRequest, TheLongestBodyFollowsFromTheModel) {
  Model model = small_model();
  model.max_batch = 1;
  model.inputs[0].shape = {1'000'000};
  const std::size_t one_row = largest_infer_body(model);
  // A number of 24 characters on a line of its own, 8 further in at each of 5 levels.
  EXPECT_GT(one_row, 1'000'000U * (24 + 5 * 8));
  EXPECT_LT(one_row, 1'000'000U * 100);
  model.max_batch = 8;
  EXPECT_GT(largest_infer_body(model), 7 * one_row);
  model.inputs[0].shape = {1, 2};
  EXPECT_GE(largest_infer_body(model), 64U << 10U);
  model.inputs[0].shape = {1LL << 40, 1LL << 40};
  EXPECT_GT(largest_infer_body(model), 1ULL << 30U) << "no overflow";
}

// The nested arrays of `shape` from dimension `at` on.
Json nested(const std::vector<std::int64_t>& shape, std::size_t at, const Json& number) {
  if (at == shape.size()) return number;
  return Json(
      std::vector<Json>(static_cast<std::size_t>(shape[at]), nested(shape, at + 1, number)));
}

TEST(InferRequest, APrettyPrinterStaysWithinTheLongestBody) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
           {3000}, {}, {1, 1, 1, 1, 1, 300}, {300, 1, 1, 1}, {3, 40, 40}, {1, 2000, 1}, {1}}) {
    for (const DataType type : {DataType::fp64, DataType::int64, DataType::boolean}) {
      Model model = small_model();
      model.max_batch = 8;
      model.inputs = {{"x", type, shape}};
      std::vector<std::int64_t> with_batch{8};
      with_batch.insert(with_batch.end(), shape.begin(), shape.end());
      const Json number = type == DataType::fp64    ? Json(-2.2250738585072014e-308)
                          : type == DataType::int64 ? Json(std::numeric_limits<std::int64_t>::min())
                                                    : Json(false);
      const Json request{{"inputs",
                          {{{"name", "x"},
                            {"datatype", to_string(type)},
                            {"shape", with_batch},
                            {"data", nested(with_batch, 0, number)}}}}};
      for (const int indent : {4, 8}) {
        const std::string text = request.dump(indent);
        const std::size_t line_ends = static_cast<std::size_t>(
            std::count(text.begin(), text.end(), '\n'));  // a carriage return for each
        EXPECT_LE(text.size() + line_ends, largest_infer_body(model))
            << to_string(model.inputs[0]) << " by " << indent;
        EXPECT_TRUE(read(model, text).ok()) << read(model, text).status().to_string();
      }
    }
  }
}

TEST(InferRequest, TheLongestBodyStaysInProportionToTheModel) {
  Model image = small_model();
  image.max_batch = 8;
  image.inputs = {{"x", DataType::fp32, {3, 224, 224}}};
  EXPECT_LT(largest_infer_body(image), std::size_t{8} * 3 * 224 * 224 * 130);
  Model text = small_model();
  text.inputs = {{"x", DataType::bytes, {1}, 1U << 20U}};
  EXPECT_GE(largest_infer_body(text), 4 * (std::size_t{6} << 20U)) << "escapes of six characters";
  EXPECT_LT(largest_infer_body(text), 4 * (std::size_t{8} << 20U));
}

TEST(InferRequest, TheLongestMessageFollowsFromTheModel) {
  const std::vector<TensorSpec> numbers{{"x", DataType::fp64, {1'000'000}}};
  EXPECT_GE(largest_infer_message(numbers, 1), 8'000'000U);
  EXPECT_GE(largest_infer_message(numbers, 32), 32U * 8'000'000U);
  EXPECT_LT(largest_infer_message(numbers, 32), 32U * 11'000'000U);
  const std::vector<TensorSpec> small{{"x", DataType::int8, {1'000'000}}};
  EXPECT_GE(largest_infer_message(small, 1), 10'000'000U) << "-1 takes ten bytes in its field";
  const std::vector<TensorSpec> huge{{"x", DataType::int8, {1LL << 40, 1LL << 40}}};
  EXPECT_EQ(largest_infer_message(huge, 1), std::size_t{1} << 40U) << "no overflow";
}

TEST(InferRequest, OutputsAreAllOrThoseThatAreAskedFor) {
  Model model = wide_model();
  const std::string inputs =
      R"("inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},
                   {"name":"mask","shape":[1,3],"datatype":"BOOL","data":[1,1,1]}])";
  EXPECT_TRUE(names(read(model, "{" + inputs + "}").status(), "'half'", "FP16"));
  const auto all = read(model, "{" + inputs + R"(,"parameters":{"binary_data_output":true}})");
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all.value().outputs.size(), 3U);
  EXPECT_TRUE(all.value().outputs[2].binary);
  const auto some = read(model, "{" + inputs + R"(,"parameters":{"binary_data_output":true},
      "outputs":[{"name":"half"},{"name":"y","parameters":{"binary_data":false,"classification":2}}]})");
  ASSERT_TRUE(some.ok()) << some.status().to_string();
  ASSERT_EQ(some.value().outputs.size(), 2U);
  EXPECT_EQ(some.value().outputs[0].index, 2U);
  EXPECT_TRUE(some.value().outputs[0].binary);
  EXPECT_EQ(some.value().outputs[1].index, 0U);
  EXPECT_FALSE(some.value().outputs[1].binary);
  EXPECT_EQ(some.value().outputs[1].classification, 2U);
}

struct Refused {
  std::string json;
  std::vector<std::string> values;  // that the message names
};

void expect_refused(const Model& model, const std::vector<Refused>& cases) {
  for (const Refused& one : cases) {
    const auto call = read(model, one.json);
    EXPECT_EQ(call.status().code(), StatusCode::invalid) << one.json.substr(0, 200);
    for (const std::string& value : one.values)
      EXPECT_TRUE(names(call.status(), value)) << one.json.substr(0, 200);
  }
}

std::string with_input(const std::string& members) { return R"({"inputs":[{)" + members + "}]}"; }

TEST(InferRequest, RefusesWhatIsNotARequest) {
  expect_refused(small_model(), {{"", {}},
                                 {"nonsense", {}},
                                 {"{}x", {}},
                                 {"{\"a\":\"\xff\"}", {}},
                                 {"[]", {}},
                                 {"3", {"3"}},
                                 {"{}", {"1", "0", "'small'"}},
                                 {R"({"id":7})", {"'id'", "7"}},
                                 {R"({"id":")" + std::string(2000, 'a') + "\"}", {"1024"}},
                                 {R"({"inputs":{}})", {"'inputs'"}},
                                 {R"({"inputs":3})", {"'inputs'"}},
                                 {R"({"inputs":[3]})", {}},
                                 {R"({"inputs":[[]]})", {}},
                                 {R"({"inputs":[{},{},{}]})", {"1", "'small'"}},
                                 {R"({"outputs":[{"name":"y"},{}]})", {}},
                                 {R"({"a":)" + std::string(100, '['), {"100"}},
                                 {std::string(100'000, '['), {}},
                                 {R"({"inputs":[{"data":)" + std::string(100'000, '['), {"100"}}});
}

TEST(InferRequest, RefusesInputsThatDoNotFitNamingThem) {
  const std::string shape = R"("name":"x","datatype":"FP32","shape":)";
  const std::string fits = shape + R"([1,2,2],"data":)";
  expect_refused(
      small_model(),
      {{with_input(""), {"'name'"}},
       {with_input(R"("name":"x")"), {"'x'", "'datatype'"}},
       {with_input(R"("name":"x","datatype":"FP32")"), {"'x'", "'shape'"}},
       {with_input(R"("name":7)"), {"0", "'name'"}},
       {with_input(R"("name":"x","datatype":[])"), {"'x'", "'datatype'"}},
       {with_input(R"("name":"x","datatype":"BYTES","shape":[1],"data":["a"])"),
        {"'x'", "'BYTES'", "'small'", "'FP32'"}},
       {with_input(R"("name":"x","datatype":"STRING","shape":[1])"), {"'STRING'"}},
       {with_input(fits + R"(["a"])"), {"'x'", "'data'", "FP32"}},
       {with_input(fits + R"([1,2,3,4]},{"name":"z","datatype":"FP32","shape":[1],"data":[1])"),
        {"'z'", "'small'", "'x'"}},
       {with_input(fits + "[1,2,3,4]},{" + fits + "[1,2,3,4]"), {"'x'"}},
       {with_input(R"("name":"z","datatype":"FP32","shape":[1,2,2],"data":[1,2,3,4])"),
        {"'z'", "'small'", "'x'"}},
       {with_input(R"("name":"x","datatype":"INT32","shape":[1,2,2],"data":[1,2,3,4])"),
        {"'x'", "'INT32'", "'small'", "'FP32'"}},
       {with_input(shape + R"([2,2],"data":[1,2,3,4])"), {"'x'", "'small'", "[-1,2,2]"}},
       {with_input(shape + R"([],"data":[])"), {}},
       {with_input(shape + R"([0,2,2],"data":[])"), {"1", "4"}},
       {with_input(shape + R"([5,2,2],"data":[1])"), {"1", "4"}},
       {with_input(shape + R"([9223372036854775807,2,2],"data":[1])"), {"4"}},
       {with_input(shape + R"([-1,2,2],"data":[1])"), {"1", "-1"}},
       {with_input(shape + R"([1,2,18446744073709551615],"data":[1])"), {"1"}},
       {with_input(shape + R"([1,2,99999999999999999999],"data":[1])"), {"1"}},
       {with_input(shape + R"([1,2.5],"data":[1])"), {"2.5"}},
       {with_input(shape + R"([[1]])"), {"'shape'"}},
       {with_input(shape + "[" + std::string(130, '1') + "]"), {"1"}},
       {with_input(fits + "[1,2,3]"), {"'x'", "'small'", "16", "12"}},
       {with_input(fits + "[1,2,3,4,5]"), {"16", "20"}},
       {with_input(fits + "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"), {"16", "'small'"}},
       {with_input(fits + "[1,2,3,null]"), {"null"}},
       {with_input(fits + "[1,2,3,{}]"), {"'data'"}},
       {with_input(fits + "[1,2,3,true]"), {"true", "FP32"}},
       {with_input(fits + "[1,2,3,1e39]"), {"FP32"}},
       {with_input(fits + "[1,2,3,1e999]"), {}},
       {with_input(fits + "[1,2,3,Nan]"), {}},
       {with_input(fits + "[1,2,3,infinity]"), {}},
       {with_input(fits + "[1,2,NaNNaN,4]"), {}},
       {with_input(fits + "[1,2,3Inf]"), {}},
       {with_input(fits + "[1,2,3,--Infinity]"), {}},
       {with_input(fits + "[1,2,3,- Infinity]"), {}},
       {with_input(fits + "[1,2,3,Infinite]"), {}},
       {with_input(fits + "[1,2,3,NaN"), {}},
       {with_input(fits + "[1,2,3,NaN]") + "x", {}},
       {R"({NaN:1})", {}},
       {"NaN", {"NaN"}},
       {with_input(shape + "[1,2,NaN]"), {"1", "NaN"}},
       {with_input(fits + "[1,2,3,NaN,5,6,7,8,9,10,11,12,13,14,15,16,17]"), {"16", "'small'"}},
       {with_input(fits + "4"), {"'data'"}},
       {with_input(shape + "[1,2,2]"), {"'data'"}},
       {with_input(fits + R"([1],"parameters":{"binary_data_size":4})"), {"'data'"}},
       {with_input(shape + R"([1,2,2],"parameters":[])"), {"'parameters'"}},
       {with_input(shape + R"([1,2,2],"parameters":{"binary_data_size":16})"), {"0"}},
       {with_input(shape + R"([1,2,2],"parameters":{"binary_data_size":-16})"),
        {"'x'", "'binary_data_size'", "0", "-16"}},
       {with_input(shape + R"([1,2,2],"parameters":{"binary_data_size":18446744073709551615})"),
        {"0"}},
       {with_input(shape + R"([1,2,2],"parameters":{"binary_data_size":[16]})"),
        {"'binary_data_size'"}},
       {with_input(shape + R"([1,2,2],"parameters":{"shared_memory_region":"r"})"),
        {"'shared_memory_region'", "'shared_memory_byte_size'"}}});
}

TEST(InferRequest, IgnoresObjectsAndListsAmongUnknownParameters) {
  const auto call = read(small_model(), R"({
      "parameters":{"headers":{"host":"a","timeout":"never","list":[{"priority":[]}]},
                    "tags":["a",["b"]],"timeout":1500},
      "inputs":[{"name":"x","shape":[1,2,2],"datatype":"FP32","data":[1,2,3,4],
                 "parameters":{"content_type":null,"headers":{"data":[5]}}}],
      "outputs":[{"name":"y","parameters":{"headers":{"binary_data":false},"binary_data":true}}]})");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call.value().requests[0].timeout, 1500us);
  EXPECT_TRUE(call.value().outputs[0].binary);
}

TEST(InferRequest, RefusesRepeatedMembersOfEveryObject) {
  const std::string fits = R"("shape":[1,2,2],"datatype":"FP32","data":[1,2,3,4])";
  const auto one = [&](const std::string& of_input, const std::string& more = "") {
    return R"({"inputs":[{"name":"x",)" + fits + of_input + "}]" + more + "}";
  };
  ASSERT_TRUE(read(small_model(), one("")).ok());
  expect_refused(
      small_model(),
      {{one(R"(,"data":[5,6,7,8])"), {"'data'"}},
       {one(R"(,"shape":[1,2,2])"), {"'shape'"}},
       {one(R"(,"shape":null)"), {"'shape'"}},
       {one(R"(,"name":"y")"), {"'name'"}},
       {one(R"(,"datatype":"INT32")"), {"'datatype'"}},
       {one(R"(,"d\u0061ta":[])"), {"'data'"}},
       {one(R"(,"more":{"a":1,"b":{},"a":2})"), {"'a'"}},
       {one(R"(,"parameters":{"binary_data_size":16,"binary_data_size":16})"),
        {"'binary_data_size'"}},
       {one("", R"(,"id":"a","id":"b")"), {"'id'"}},
       {one("", R"(,"inputs":[])"), {"'inputs'"}},
       {one("", R"(,"outputs":[],"outputs":[{"name":"y"}])"), {"'outputs'"}},
       {one("", R"(,"outputs":[{"name":"y","name":"y"}])"), {"'name'"}},
       {one("", R"(,"parameters":{"timeout":1,"priority":1,"timeout":2})"), {"'timeout'"}},
       {one("", R"(,"parameters":{},"parameters":{"timeout":2})"), {"'parameters'"}},
       {one("", R"(,"parameters":{"headers":{"a":"1","a":"2"}})"), {"'a'"}},
       {one("", R"(,"more":[NaN,{"a":Infinity,"a":1}])"), {"'a'"}},
       {one("", R"(,"":1,"":2)"), {"''"}}});
  const std::string siblings = one(R"(,"more":[{"a":1,"b":{"a":2}},{"a":3},{"name":{"name":1}}])");
  EXPECT_TRUE(read(small_model(), siblings).ok()) << "in other objects";
  std::string many = R"(,"more":{)";
  for (int i = 0; i < 600; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  expect_refused(small_model(), {{one(many + "}"), {"512"}}});
}

TEST(InferRequest, TooManyRowsAreRefusedByTheirNumber) {
  const auto rows = [](const std::string& shape, const std::string& data) {
    return R"({"inputs":[{"name":"x","datatype":"FP32")" + shape + data + "}]}";
  };
  std::string five = R"(,"data":[0)";
  for (int i = 1; i < 5 * 4; ++i) five += ",0";
  five += "]";
  expect_refused(small_model(), {{rows(R"(,"shape":[5,2,2])", five), {"1", "4"}},
                                 {rows("", five + R"(,"shape":[5,2,2])"), {"4"}},
                                 {rows(R"(,"shape":[4,2,2])", five), {"4"}}});
  EXPECT_TRUE(names(largest_infer_rows(small_model()), "4"));
}

TEST(InferRequest, RefusesRowsAndInputsThatDoNotAgree) {
  const std::string mask = R"({"name":"mask","shape":[1,3],"datatype":"BOOL","data":[1,0,1]})";
  const auto x = [](const std::string& shape, const std::string& data) {
    return R"({"name":"x","datatype":"FP32","shape":)" + shape + R"(,"data":)" + data + "}";
  };
  const auto inputs = [](const std::string& one, const std::string& other) {
    return R"({"parameters":{"binary_data_output":true},"inputs":[)" + one + "," + other + "]}";
  };
  EXPECT_TRUE(read(wide_model(), inputs(mask, x("[1,2]", "[1,2]"))).ok());
  expect_refused(wide_model(),
                 {{inputs(mask, x("[2,2]", "[1,2,3,4]")), {"'mask'"}},
                  {inputs(mask, mask), {"'mask'"}},
                  {R"({"parameters":{"binary_data_output":true},"inputs":[)" + mask + "]}",
                   {"2", "1", "'wide'", "'x'"}}});
  const std::string binary = inputs(
      R"({"name":"mask","shape":[1,3],"datatype":"BOOL","parameters":{"binary_data_size":3}})",
      x("[1,2]", "[1,2]"));
  EXPECT_TRUE(read(wide_model(), binary, std::string("\1\0\1", 3)).ok());
  EXPECT_TRUE(
      names(read(wide_model(), binary, "\1\1").status(), "'binary_data_size'", "3", "2 bytes"));
  EXPECT_TRUE(names(read(wide_model(), binary, "\1\1\1\1").status(), "1 bytes"));
}

TEST(InferRequest, RefusesParametersAndOutputsThatItCannotServe) {
  const auto with = [](const std::string& members) {
    return R"({"inputs":[{"name":"x","shape":[1,2,2],"datatype":"FP32","data":[1,2,3,4]}],)" +
           members + "}";
  };
  const auto parameter = [&](const std::string& one) {
    return with(R"("parameters":{)" + one + "}");
  };
  const auto output = [&](const std::string& one) { return with(R"("outputs":[{)" + one + "}]"); };
  EXPECT_TRUE(read(small_model(), parameter(R"("priority":0,"timeout":0,"other":null)")).ok());
  EXPECT_TRUE(read(small_model(), with(R"("id":null,"outputs":null,"parameters":null)")).ok());
  EXPECT_TRUE(read(small_model(), with(R"("outputs":[])")).ok());
  EXPECT_EQ(read(small_model(), parameter(R"("timeout":18446744073709551615)"))
                .value()
                .requests[0]
                .timeout,
            24h);
  expect_refused(
      small_model(),
      {{parameter(R"("priority":-1)"), {"'priority'", "0", "-1"}},
       {parameter(R"("priority":"high")"), {"'high'"}},
       {parameter(R"("timeout":1.5)"), {"'timeout'", "0", "1.5"}},
       {parameter(R"("timeout":1e400)"), {}},
       {parameter(R"("binary_data_output":1)"), {}},
       {parameter(R"("sequence_id":7)"), {"'sequence_id'"}},
       {parameter(R"("sequence_start":true)"), {"'sequence_start'"}},
       {parameter(R"("sequence_end":true)"), {"'sequence_end'"}},
       {parameter(R"("timeout":{})"), {"'timeout'"}},
       {parameter(R"("sequence_id":[7])"), {"'sequence_id'"}},
       {with(R"("parameters":[])"), {"'parameters'"}},
       {with(R"("outputs":{})"), {"'outputs'"}},
       {with(R"("outputs":[3])"), {}},
       {output(R"("name":"z")"), {"'z'", "'small'"}},
       {output(""), {"''"}},
       {output(R"("name":"y","parameters":{"binary_data":"yes"})"),
        {"'y'", "'binary_data'", "'yes'"}},
       {output(R"("name":"y","parameters":{"classification":-1})"), {"'classification'"}},
       {output(R"("name":"y","parameters":{"shared_memory_byte_size":4})"), {"'y'"}}});
  Model two = small_model();
  two.outputs.push_back({"z", DataType::fp32, {1}});
  EXPECT_TRUE(names(read(two, with(R"("outputs":[{"name":"y"},{"name":"y"}])")).status(), "'y'"));
}

// ---- answering

InferCall call_for(std::uint32_t rows, std::vector<RequestedOutput> outputs) {
  InferCall call;
  call.model = "small";
  call.rows = rows;
  call.outputs = std::move(outputs);
  return call;
}

TEST(InferAnswer, IsJsonWithTheRowsOneAfterAnother) {
  InferCall call = call_for(2, {{.index = 0}});
  call.id = "a \"7\"";
  const auto response = write(call, small_model(),
                              {reply(small_model(), {bytes_of<float>({1, -2.5F, 1e-7F})}),
                               reply(small_model(), {bytes_of<float>({0.1F, 0, 3e38F})})});
  EXPECT_EQ(response.status, 200U);
  EXPECT_EQ(response.headers, (http::Headers{{"Content-Type", "application/json"}}));
  EXPECT_EQ(text_of(response),
            R"({"model_name":"small","model_version":"3","id":"a \"7\"","outputs":[)"
            R"({"name":"y","datatype":"FP32","shape":[2,3],"data":[1,-2.5,1e-07,0.1,0,3e+38]}]})");
}

TEST(InferAnswer, BinaryOutputsFollowTheJsonInTheOrderTheyWereAskedFor) {
  const Model model = wide_model();
  const InferCall call =
      call_for(1, {{.index = 2, .binary = true}, {.index = 1}, {.index = 0, .binary = true}});
  const auto response = write(call, model,
                              {reply(model, {bytes_of<float>({1, 2}), bytes_of<std::int64_t>({-5}),
                                             bytes_of<std::uint16_t>({0x3c00, 0x4000})})});
  EXPECT_EQ(http::find_header(response.headers, "Content-Type"), "application/octet-stream");
  const std::string all = text_of(response);
  const std::size_t length = std::stoul(
      std::string(http::find_header(response.headers, "Inference-Header-Content-Length")));
  EXPECT_EQ(Json::parse(all.substr(0, length)), Json::parse(R"({
      "model_name":"wide","model_version":"3","outputs":[
      {"name":"half","datatype":"FP16","shape":[1,2],"parameters":{"binary_data_size":4}},
      {"name":"count","datatype":"INT64","shape":[1],"data":[-5]},
      {"name":"y","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]})"));
  EXPECT_EQ(all.substr(length),
            text_of(bytes_of<std::uint16_t>({0x3c00, 0x4000})) + floats({1, 2}));
}

TEST(InferAnswer, ClassificationNamesTheHighestValuesOfEveryRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Model model = small_model();
  const std::vector<InferReply> replies{
      reply(model, {bytes_of<float>({0.5F, 2, 2})}),
      reply(model, {bytes_of<float>({nan, -1, std::numeric_limits<float>::infinity()})})};
  EXPECT_EQ(json_of(write(call_for(2, {{.index = 0, .classification = 2}}), model, replies)),
            Json::parse(R"({"model_name":"small","model_version":"3","outputs":[
              {"name":"y","datatype":"BYTES","shape":[2,2],
               "data":["2:1","2:2","inf:2","-1:1"]}]})"));
  const auto most = write(call_for(2, {{.index = 0, .classification = 99}}), model, replies);
  EXPECT_EQ(json_of(most)["outputs"][0]["shape"], Json({2, 3}));

  const auto raw =
      write(call_for(1, {{.index = 0, .binary = true, .classification = 1}}), model, {replies[0]});
  EXPECT_EQ(text_of(raw.body.at(1)), std::string("\3\0\0\0"
                                                 "2:1",
                                                 7));
  EXPECT_TRUE(holds(text_of(raw), R"("binary_data_size":7)"));
}

TEST(InferAnswer, ClassificationNamesTheLabelsThatTheModelHas) {
  Model model = small_model();
  serve::ModelDescription description;
  description.labels = {{"classes.txt", {"cat", "dog"}}};
  model.description = std::make_shared<const serve::ModelDescription>(description);
  const auto response = write(call_for(1, {{.index = 0, .classification = 3}}), model,
                              {reply(model, {bytes_of<float>({1, 3, 2})})});
  EXPECT_EQ(json_of(response)["outputs"][0]["data"], Json({"3:1:dog", "2:2", "1:0:cat"}));
}

TEST(InferAnswer, ClassificationKnowsEveryType) {
  const auto highest = [](DataType type, Bytes row) {
    Model model = small_model();
    model.outputs = {{"y", type, {2}}};
    const auto response = write(call_for(1, {{.index = 0, .classification = 1}}), model,
                                {reply(model, {std::move(row)})});
    return json_of(response)["outputs"][0]["data"][0].get<std::string>();
  };
  EXPECT_EQ(highest(DataType::boolean, bytes_of<std::uint8_t>({0, 1})), "1:1");
  EXPECT_EQ(highest(DataType::uint8, bytes_of<std::uint8_t>({200, 100})), "200:0");
  EXPECT_EQ(highest(DataType::int8, bytes_of<std::int8_t>({-100, 100})), "100:1");
  EXPECT_EQ(highest(DataType::int16, bytes_of<std::int16_t>({-1, -2})), "-1:0");
  EXPECT_EQ(highest(DataType::int32, bytes_of<std::int32_t>({1, 1 << 30})), "1073741824:1");
  EXPECT_EQ(highest(DataType::int64, bytes_of<std::int64_t>({(1LL << 53) + 1, 1LL << 53})),
            "9007199254740993:0");
  EXPECT_EQ(highest(DataType::fp64, bytes_of<double>({0.1, -0.1})), "0.1:0");
  EXPECT_EQ(highest(DataType::fp16, bytes_of<std::uint16_t>({0x3c00, 0x3e00})), "1.5:1");
  EXPECT_EQ(highest(DataType::fp16, bytes_of<std::uint16_t>({0x8001, 0x0001})), "5.9604645e-08:1");
  EXPECT_EQ(highest(DataType::fp16, bytes_of<std::uint16_t>({0x7c00, 0x7e00})), "inf:0");
  EXPECT_EQ(highest(DataType::bf16, bytes_of<std::uint16_t>({0x3fc0, 0xc000})), "1.5:0");
}

TEST(InferAnswer, TheFirstRowThatFailedIsTheAnswer) {
  InferReply late;
  late.status = {StatusCode::too_late, "late"};
  InferReply cancelled;
  cancelled.status = {StatusCode::cancelled, "gone"};
  const auto good = reply(small_model(), {bytes_of<float>({1, 2, 3})});
  const auto response = write(call_for(3, {{.index = 0}}), small_model(), {good, late, cancelled});
  EXPECT_EQ(response.status, 503U);
  EXPECT_EQ(text_of(response), R"({"error":"late"})");
}

TEST(InferAnswer, RepliesThatCannotBeAreAnInternalError) {
  const Model model = small_model();
  const auto good = reply(model, {bytes_of<float>({1, 2, 3})});
  const auto short_one = reply(model, {bytes_of<float>({1, 2})});
  auto other = reply(model, {bytes_of<float>({1, 2})});
  other.outputs[0].shape = {2};
  auto without = good;
  without.payload.clear();
  const InferCall call = call_for(2, {{.index = 0}});
  const std::vector<std::vector<InferReply>> cases{
      {good}, {}, {good, short_one}, {good, other}, {good, without}};
  for (const auto& replies : cases) EXPECT_EQ(write(call, model, replies).status, 500U);
}

TEST(InferAnswer, NaNAndInfinitiesAreWrittenAsTheReferenceServerDoes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Model model = small_model();
  model.outputs[0].type = DataType::fp64;
  const auto response =
      write(call_for(2, {{.index = 0}}), model,
            {reply(model, {bytes_of<double>({std::numeric_limits<double>::quiet_NaN(), 1.5, 0})}),
             reply(model, {bytes_of<double>({kInfinity, -kInfinity, -2})})});
  EXPECT_EQ(response.status, 200U);
  EXPECT_TRUE(holds(text_of(response), R"("data":[NaN,1.5,0,Infinity,-Infinity,-2])"));
}

}  // namespace
}  // namespace gpulet::net::kserve
