#include "gpulet/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

constexpr const char* kInputs = R"("inputs":[{"name":"image","type":"FP32","shape":[1,28,28]}])";
constexpr const char* kOutputs = R"("outputs":[{"name":"logits","type":"FP32","shape":[10]}])";

// One model with those members after its name and file.
std::string models(const std::string& members) {
  return R"({"models":[{"name":"lenet","file":"m/lenet.pt",)" + members + "}]}";
}
std::string tensors(const std::string& inputs) {
  return models(R"("slo_ms":50,"inputs":)" + inputs + ',' + kOutputs);
}
std::string numbers(const std::string& members) {
  return models(members + ',' + kInputs + ',' + kOutputs);
}

TEST(ModelConfig, ReadsEveryMember) {
  const auto loaded = parse_models(
      numbers(R"("slo_ms":50,"rate":100.5,"max_batch":16,"memory_mb":200)"), "/conf/f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_EQ(loaded.value().size(), 1U);
  const ModelConfig& model = loaded.value()[0];
  EXPECT_EQ(model.name, "lenet");
  EXPECT_EQ(model.file, "/conf/m/lenet.pt");
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"image", DataType::fp32, {1, 28, 28}}}));
  EXPECT_EQ(model.outputs, (std::vector<TensorSpec>{{"logits", DataType::fp32, {10}}}));
  EXPECT_EQ(model.slo_ms, 50);
  EXPECT_EQ(model.rate, 100.5);
  EXPECT_EQ(model.max_batch, 16U);
  EXPECT_EQ(model.memory_mb, 200);
}

TEST(ModelConfig, ReadsInWhatNumbersAModelComputes) {
  const auto loaded = parse_models(
      numbers(
          R"("slo_ms":5,"precision":"bfloat16","memory_format":"channels_last","largest_error":0.1)"),
      "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].numerics, (Numerics{Precision::bfloat16, true, 0.1}));
}

TEST(ModelConfig, ReadsWhereTheLabelsOfAnOutputAre) {
  const auto loaded =
      parse_models(numbers(R"("slo_ms":5,"labels":{"logits":"../digits.txt"})"), "/conf/f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].labels,
            (std::map<std::string, std::filesystem::path>{{"logits", "/digits.txt"}}));
}

TEST(ModelConfig, FillsInTheDefaults) {
  const auto loaded = parse_models(numbers(R"("slo_ms":50)"), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].rate, 0);
  EXPECT_EQ(loaded.value()[0].max_batch, 32U);
  EXPECT_EQ(loaded.value()[0].memory_mb, std::nullopt);
  EXPECT_EQ(loaded.value()[0].numerics, Numerics{});
  EXPECT_TRUE(loaded.value()[0].file.is_absolute());
}

TEST(ModelConfig, ReadsPrioritiesAndQueuePolicies) {
  const auto loaded = parse_models(numbers(R"("slo_ms":50,"queue":{
      "priority_levels":3,"default_priority_level":2,
      "default_policy":{"timeout_action":"reject","default_timeout_ms":20.5,
                        "allow_timeout_override":true,"max_queue_size":100},
      "level_policies":{"1":{"timeout_action":"delay"},"3":{"max_queue_size":10}}})"),
                                   "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const QueueRules wanted{.priority_levels = 3,
                          .default_priority_level = 2,
                          .default_policy = {.default_timeout = from_ms(20.5),
                                             .allow_timeout_override = true,
                                             .max_queue_size = 100},
                          .level_policies = {{1, {.timeout_action = TimeoutAction::delay}},
                                             {3, {.max_queue_size = 10}}}};
  EXPECT_EQ(loaded.value()[0].queue, wanted);
}

TEST(ModelConfig, AQueueThatSaysNothingIsNone) {
  const auto loaded =
      parse_models(numbers(R"("slo_ms":50,"queue":{"priority_levels":0})"), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value()[0].queue, std::nullopt);
}

std::string queue(const std::string& members) {
  return numbers(R"("slo_ms":50,"queue":{)" + members + '}');
}

TEST(ModelConfig, ErrorsOfAQueueNamePlaceValueAndFix) {
  expect_errors(
      {
          {queue(R"("priority_levels":2)"),
           "/models/0/queue/default_priority_level: is missing; write a whole number from 1 to 2"},
          {queue(R"("priority_levels":2,"default_priority_level":3)"),
           "/models/0/queue/default_priority_level: 3 is not allowed here; write a whole number "
           "from 1 to 2"},
          {queue(R"("default_priority_level":1)"),
           "/models/0/queue/default_priority_level: there are no levels without priority_levels; "
           R"(write "priority_levels" beside it, or take it out)"},
          {queue(R"("level_policies":{"1":{}})"),
           "/models/0/queue/level_policies: there are no levels without priority_levels; "
           R"(write "priority_levels" beside it, or take it out)"},
          {queue(R"("priority_levels":2,"default_priority_level":1,"level_policies":{"3":{}})"),
           R"(/models/0/queue/level_policies/3: "3" is none of its levels; write a level from 1 to 2)"},
          {queue(R"("priority_levels":2,"default_priority_level":1,"level_policies":{"01":{}})"),
           R"(/models/0/queue/level_policies/01: "01" is none of its levels; write a level from 1 to 2)"},
          {queue(R"("priority_levels":101)"),
           "/models/0/queue/priority_levels: 101 is not allowed here; write a whole number from 0 "
           "to 100"},
          {queue(R"("default_policy":{"timeout_action":"rejct"})"),
           R"(/models/0/queue/default_policy/timeout_action: "rejct" is not known here; )"
           R"(write "reject" (known here: reject, delay))"},
          {queue(R"("default_policy":{"default_timeout_ms":-1})"),
           "/models/0/queue/default_policy/default_timeout_ms: -1 is not allowed here; write a "
           "number from 0 to 86400000"},
          {queue(R"("default_policy":{"default_timeout_us":5})"),
           R"(/models/0/queue/default_policy/default_timeout_us: unknown key "default_timeout_us"; )"
           R"(write "default_timeout_ms" or take it out (known here: timeout_action, )"
           "default_timeout_ms, allow_timeout_override, max_queue_size)"},
          {queue(R"("level_policy":{})"),
           R"(/models/0/queue/level_policy: unknown key "level_policy"; write "level_policies" or )"
           "take it out (known here: priority_levels, default_priority_level, default_policy, "
           "level_policies)"},
      },
      parse_models);
}

TEST(ModelConfig, ErrorsNamePlaceValueAndMend) {
  const std::string one =
      R"({"name":"a","file":"a","slo_ms":1,)" + std::string(kInputs) + ',' + kOutputs + "}";
  expect_errors(
      {
          {"{}", "/models: is missing; write a list of models"},
          {R"({"models":[]})", "/models: a list of 0 is not allowed here; write a list of models"},
          {R"({"modles":[]})",
           R"(/modles: unknown key "modles"; write "models" or take it out (known here: models, applications))"},
          {numbers(R"("slo":50)"),
           R"(/models/0/slo: unknown key "slo"; write "slo_ms" or take it out )"
           "(known here: name, file, inputs, outputs, slo_ms, rate, max_batch, memory_mb, "
           "precision, "
           "memory_format, largest_error, labels, queue)"},
          {numbers(R"("slo_ms":5,"precison":"half")"),
           R"(/models/0/precison: unknown key "precison"; write "precision" or take it out )"
           "(known here: name, file, inputs, outputs, slo_ms, rate, max_batch, memory_mb, "
           "precision, "
           "memory_format, largest_error, labels, queue)"},
          {numbers(R"("slo_ms":5,"precision":"halves")"),
           R"(/models/0/precision: "halves" is not known here; write "half" )"
           "(known here: full, half, bfloat16)"},
          {numbers(R"("slo_ms":5,"memory_format":"nhwc")"),
           R"(/models/0/memory_format: "nhwc" is not known here; write one of )"
           "contiguous, channels_last"},
          {numbers(R"("slo_ms":5,"largest_error":2)"),
           "/models/0/largest_error: 2 is not allowed here; write a number from 0 to 1"},
          {numbers(R"("slo_ms":5,"labels":{"logit":"l.txt"})"),
           R"(/models/0/labels/logit: the model has no output "logit"; write one of these: logits)"},
          {numbers(R"("slo_ms":5,"labels":{"logits":3})"),
           "/models/0/labels/logits: 3 is not allowed here; write the path of a text file with one "
           "label a line"},
          {numbers(R"("slo_ms":5,"labels":"l.txt")"),
           R"(/models/0/labels: "l.txt" is not allowed here; write an object)"},
          {numbers(R"("rate":1)"), "/models/0/slo_ms: is missing; write a number above 0"},
          {numbers(R"("slo_ms":0)"),
           "/models/0/slo_ms: 0 is not allowed here; write a number above 0"},
          {numbers(R"("slo_ms":"50")"),
           R"(/models/0/slo_ms: "50" is not allowed here; write a number above 0)"},
          {numbers(R"("slo_ms":5,"rate":-0.5)"),
           "/models/0/rate: -0.5 is not allowed here; write a number of at least 0"},
          {numbers(R"("slo_ms":5,"max_batch":1025)"),
           "/models/0/max_batch: 1025 is not allowed here; write a whole number from 1 to 1024"},
          {numbers(R"("slo_ms":5,"max_batch":1.5)"),
           "/models/0/max_batch: 1.5 is not allowed here; write a whole number from 1 to 1024"},
          {R"({"models":[{"name":"a b","file":"x"}]})",
           R"(/models/0/name: "a b" is not allowed here; write a name of letters, digits, '.', '_' and '-')"},
          {R"({"models":[)" + one + ',' + one + "]}",
           R"(/models/1/name: a model called "a" stands above already; give every model a name of its own)"},
          {tensors(R"([{"name":"x","type":"FP33","shape":[1]}])"),
           R"(/models/0/inputs/0/type: "FP33" is not known here; write "FP32" )"
           "(known here: BOOL, UINT8, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64)"},
          {tensors(R"([{"name":"x","type":"BYTES","shape":[1]}])"),
           R"(/models/0/inputs/0/type: "BYTES" is not known here; write one of )"
           "BOOL, UINT8, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64"},
          {tensors(R"([{"name":"x","type":"FP32","shape":[3,-1]}])"),
           "/models/0/inputs/0/shape/1: -1: a dimension of any size is not supported; write the "
           "largest size that occurs, and pad smaller inputs to it"},
          {tensors(R"([{"name":"x","type":"FP32","shape":[3,0]}])"),
           "/models/0/inputs/0/shape/1: 0 is not allowed here; write a whole number from 1 to "
           "1073741824"},
          {tensors(R"([{"name":"x","type":"FP32","shape":[1073741824,1073741824,1073741824]}])"),
           "/models/0/inputs/0/shape: FP32[1073741824,1073741824,1073741824] has more bytes than "
           "can be "
           "counted; write smaller dimensions"},
          {tensors("[]"),
           "/models/0/inputs: a list of 0 is not allowed here; write a list like "
           R"([{"name":"image","type":"FP32","shape":[3,224,224]}])"},
      },
      parse_models);
}

}  // namespace
}  // namespace gpulet::config
