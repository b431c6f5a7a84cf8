// Small ONNX models: one with strings, like a tokeniser, and one with a dynamic dimension. For
// tests only.
#pragma once

#include <string>

#include "tests/support/onnx_file.h"

namespace gpulet::support::onnx {

// text STRING[n,1] -> words STRING[n,4], its first words, filled up with empty ones; ids
// INT64[n,4]: "hello" is 7, "world" 8, others -1; loud STRING[n,1], the text with "!".
inline std::string tokeniser() {
  Model model{.inputs = {{"text", kString, {{"n", 1}}}},
              .outputs = {{"words", kString, {{"n", 4}}},
                          {"ids", kInt64, {{"n", 4}}},
                          {"loud", kString, {{"n", 1}}}},
              .nodes = {{"StringSplit", {"text"}, {"split", "counts"}},
                        {"Shape", {"text"}, {"rows"}},
                        {"Concat", {"rows", "four"}, {"wanted"}, {integer_attribute("axis", 0)}},
                        {"Expand", {"blank", "wanted"}, {"blanks"}},
                        {"Concat", {"split", "blanks"}, {"filled"}, {integer_attribute("axis", 2)}},
                        {"Slice", {"filled", "zero", "four", "two"}, {"first"}},
                        {"Squeeze", {"first", "one"}, {"words"}},
                        {"LabelEncoder",
                         {"words"},
                         {"ids"},
                         {strings_attribute("keys_strings", {"hello", "world"}),
                          integers_attribute("values_int64s", {7, 8}),
                          integer_attribute("default_int64", -1)},
                         "ai.onnx.ml"},
                        {"StringConcat", {"text", "mark"}, {"loud"}}},
              .operators = 20,
              .ml_operators = 2};
  model.constants = {strings_constant("blank", {1, 1, 1}, {""}),
                     strings_constant("mark", {1, 1}, {"!"}),
                     integers_constant("zero", {0}),
                     integers_constant("one", {1}),
                     integers_constant("two", {2}),
                     integers_constant("four", {4})};
  return encode(model);
}

// x FP32[n,length] -> twice FP32[n,length] = 2 x; sum FP32[n,1], to which zeros add nothing.
inline std::string twice_and_sum() {
  return encode(
      Model{.inputs = {{"x", kFloat, {{"n", "length"}}}},
            .outputs = {{"twice", kFloat, {{"n", "length"}}}, {"sum", kFloat, {{"n", 1}}}},
            .nodes = {{"Add", {"x", "x"}, {"twice"}},
                      {"ReduceSum", {"x"}, {"sum"}, {integers_attribute("axes", {1})}}},
            .operators = 11});
}

}  // namespace gpulet::support::onnx
