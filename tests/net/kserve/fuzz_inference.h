// What the fuzz targets do with an inference's bytes: read them, and where they are one, answer it.
// For tests only.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "tests/net/kserve/kserve_case.h"

namespace gpulet::net::kserve::testing {

inline void require(bool condition) {
  if (!condition) std::abort();
}

// Every type that a tensor can have, and names that JSON must escape.
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

// The outputs are the inputs' bytes over and over.
inline InferReply fuzz_reply(const InferRequest& request) {
  InferReply one;
  one.outputs = fuzz_model().outputs;
  const auto given = request.payload.view();
  for (const TensorSpec& spec : one.outputs) {
    std::vector<std::byte> bytes(byte_size(spec).value());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = given[i % given.size()];
    one.payload.push_back(Bytes::own(std::move(bytes)));
  }
  return one;
}

inline void answer(const InferCall& call) {
  const Model& model = fuzz_model();
  require(call.rows >= 1 && call.rows <= model.max_batch && call.rows == call.requests.size());
  std::vector<InferReply> replies;
  for (const InferRequest& request : call.requests) {
    require(request.timeout >= Duration::zero() && request.inputs == model.inputs);
    require(request.payload.size() == byte_size(model.inputs).value());
    replies.push_back(fuzz_reply(request));
  }
  const http::HttpResponse response = write(call, model, replies);
  require(response.status == 200 || response.status == 400 || response.status == 503);
  const Json head = parse_answer(text_of(response.body.at(0)));
  if (response.status != 200) return require(!head.at("error").get<std::string>().empty());
  require(head.at("outputs").size() == call.outputs.size());
}

inline void read_and_answer(const http::Headers& headers, std::string_view body) {
  const auto call =
      read_infer(headers, http::bytes_of(std::string(body)), fuzz_model(), SharedMemory(false));
  if (call.ok()) return answer(call.value());
  require(!call.status().message().empty());
  require(!json_of(error(call.status())).at("error").get<std::string>().empty());
}

}  // namespace gpulet::net::kserve::testing
