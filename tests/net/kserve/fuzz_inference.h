// What the fuzz targets do with an inference's bytes: read them, and where they are one, answer it.
// For tests only.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "gpulet/core/tensor.h"
#include "tests/net/kserve/kserve_case.h"

namespace gpulet::net::kserve::testing {

inline void require(bool condition) {
  if (!condition) std::abort();
}

// Every type of numbers that a tensor can have, and names that JSON must escape.
inline const Model& fuzz_model() {
  static const Model model = [] {
    Model one = wide_model();
    one.inputs = {{"x", DataType::fp32, {2}}, {"mask", DataType::boolean, {3}}};
    one.outputs = {{"y", DataType::fp32, {2}},    {"n\"o", DataType::int64, {}},
                   {"half", DataType::fp16, {2}}, {"small", DataType::int8, {1, 3}},
                   {"wide", DataType::fp64, {2}}, {"flag", DataType::boolean, {1}}};
    return one;
  }();
  return model;
}

inline const Model& fuzz_strings_model() {
  static const Model model = [] {
    Model one = wide_model();
    one.inputs = {{"text", DataType::bytes, {2}, 24}, {"x", DataType::fp32, {1}}};
    one.outputs = {{"words", DataType::bytes, {2}, 24}, {"id", DataType::int64, {1}}};
    return one;
  }();
  return model;
}

// The outputs are the inputs' bytes over and over. Strings are the first ones of the inputs, or, if
// a row has none, bytes that are no strings.
inline InferReply fuzz_reply(const Model& model, const InferRequest& request) {
  InferReply one;
  one.outputs = model.outputs;
  const auto given = request.payload.view();
  for (TensorSpec& spec : one.outputs) {
    std::vector<std::byte> bytes(byte_size(spec).value());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = given[i % given.size()];
    if (spec.type == DataType::bytes) {
      if (const auto end = elements_end(bytes, element_count(spec))) bytes.resize(*end);
      spec.max_bytes = bytes.size();
    }
    one.payload.push_back(Bytes::own(std::move(bytes)));
  }
  return one;
}

inline void check_call(const InferCall& call, const Model& model) {
  require(call.rows >= 1 && call.rows <= model.max_batch && call.rows == call.requests.size());
  for (const InferRequest& request : call.requests) {
    require(request.timeout >= Duration::zero() && request.inputs == model.inputs);
    const auto slots = to_slots(model.inputs, request.payload);
    require(slots.ok() && slots.value().size() == byte_size(model.inputs).value());
  }
}

inline std::vector<InferReply> fuzz_replies(const InferCall& call, const Model& model) {
  std::vector<InferReply> replies;
  for (const InferRequest& request : call.requests) replies.push_back(fuzz_reply(model, request));
  return replies;
}

inline void answer(const InferCall& call, const Model& model) {
  check_call(call, model);
  const http::HttpResponse response = write(call, model, fuzz_replies(call, model));
  require(response.status == 200 || response.status == 400 || response.status == 500 ||
          response.status == 503);
  const Json head = parse_answer(text_of(response.body.at(0)));
  if (response.status != 200) return require(!head.at("error").get<std::string>().empty());
  require(head.at("outputs").size() == call.outputs.size());
}

inline void read_and_answer(const http::Headers& headers, std::string_view body) {
  for (const Model* const model : {&fuzz_model(), &fuzz_strings_model()}) {
    const auto call =
        read_infer(headers, http::bytes_of(std::string(body)), *model, SharedMemory(false));
    if (call.ok()) {
      answer(call.value(), *model);
      continue;
    }
    require(!call.status().message().empty());
    require(!json_of(error(call.status())).at("error").get<std::string>().empty());
  }
}

}  // namespace gpulet::net::kserve::testing
