// A model to ask, and what its answers look like from outside. For tests only.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::kserve::testing {

using Json = nlohmann::json;

// One input of four numbers, one output of three.
inline Model small_model() {
  Model model;
  model.name = "small";
  model.version = "3";
  model.inputs = {{"x", DataType::fp32, {2, 2}}};
  model.outputs = {{"y", DataType::fp32, {3}}};
  model.max_batch = 4;
  model.state = ModelState::ready;
  return model;
}

// Two inputs of different type, three outputs, one of them without a form in JSON.
inline Model wide_model() {
  Model model = small_model();
  model.name = "wide";
  model.inputs = {{"x", DataType::fp32, {2}}, {"mask", DataType::boolean, {3}}};
  model.outputs = {
      {"y", DataType::fp32, {2}}, {"count", DataType::int64, {}}, {"half", DataType::fp16, {2}}};
  return model;
}

template <typename Element>
Bytes bytes_of(const std::vector<Element>& elements) {
  std::vector<std::byte> bytes(elements.size() * sizeof(Element));
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return Bytes::own(std::move(bytes));
}

inline std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.view().data()), bytes.size()};
}

inline std::string text_of(const http::HttpResponse& response) {
  std::string text;
  for (const Bytes& part : response.body) text += text_of(part);
  return text;
}

// An answer may hold NaN, Infinity and -Infinity outside of its strings, which this parser does not
// know: null stands for them.
inline Json parse_answer(std::string_view text) {
  std::string json;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    std::size_t literal = 0;
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_string && text.substr(at).starts_with(name)) literal = name.size();
    }
    if (literal > 0) {
      json += "null";
      at += literal - 1;
      continue;
    }
    json += text[at];
    if (in_string && text[at] == '\\' && at + 1 < text.size()) json += text[++at];
  }
  return Json::parse(json);
}

inline Json json_of(const http::HttpResponse& response) { return parse_answer(text_of(response)); }

inline http::Headers json_length(std::size_t length) {
  return {{"inference-header-content-length", std::to_string(length)}};
}

// `json` alone, without a header.
inline Result<InferCall> read(const Model& model, std::string_view json) {
  return read_infer({}, http::bytes_of(std::string(json)), model, SharedMemory(false));
}

// `json`, then `blobs`, with the header that says so.
inline Result<InferCall> read(const Model& model, const std::string& json,
                              const std::string& blobs) {
  return read_infer(json_length(json.size()), http::bytes_of(json + blobs), model,
                    SharedMemory(false));
}

inline InferReply reply(const Model& model, std::vector<Bytes> payload) {
  InferReply one;
  one.outputs = model.outputs;
  one.payload = std::move(payload);
  return one;
}

inline http::HttpResponse write(const InferCall& call, const Model& model,
                                const std::vector<InferReply>& replies) {
  SharedMemory none(false);
  return write_infer(call, model, replies, none);
}

}  // namespace gpulet::net::kserve::testing
