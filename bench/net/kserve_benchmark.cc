// The cost of parsing a request and writing a response of an HTTP inference, in binary form (784
// numbers, 3 KB) and in JSON, and of finding its endpoint.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpulet/net/kserve/http_api.h"

namespace {

using namespace gpulet;
using namespace gpulet::net;

const kserve::Model& lenet() {
  static const kserve::Model model = [] {
    kserve::Model one;
    one.name = "lenet";
    one.inputs = {{"image", DataType::fp32, {1, 28, 28}}};
    one.outputs = {{"logits", DataType::fp32, {10}}};
    one.max_batch = 32;
    return one;
  }();
  return model;
}

struct Request {
  http::Headers headers;
  Bytes body;
};

Request binary_request(int rows) {
  const std::string json =
      R"({"id":"","inputs":[{"name":"image","shape":[)" + std::to_string(rows) +
      R"(,1,28,28],"datatype":"FP32","parameters":{"binary_data_size":)" +
      std::to_string(rows * 3136) +
      R"(}}],"outputs":[{"name":"logits","parameters":{"binary_data":true}}]})";
  return {{{"Host", "localhost:8000"},
           {"Content-Type", "application/octet-stream"},
           {"Content-Length", "4000"},
           {"Inference-Header-Content-Length", std::to_string(json.size())}},
          http::bytes_of(json + std::string(static_cast<std::size_t>(rows) * 3136, '\0'))};
}

Request json_request() {
  std::string json = R"({"inputs":[{"name":"image","shape":[1,1,28,28],"datatype":"FP32","data":[)";
  for (int i = 0; i < 784; ++i) json += (i > 0 ? ",0." : "0.") + std::to_string(i * 1237 + 1);
  return {{}, http::bytes_of(json + "]}]}")};
}

std::vector<InferReply> replies_of(std::size_t rows) {
  InferReply reply;
  reply.outputs = lenet().outputs;
  const std::vector<float> logits{0.1F, -1.25F, 3.5F, 4, 5.75F, 6, 7, 8, 9, 1e-3F};
  std::vector<std::byte> bytes(40);
  std::memcpy(bytes.data(), logits.data(), bytes.size());
  reply.payload = {Bytes::own(std::move(bytes))};
  return std::vector(rows, reply);
}

void read_and_write(benchmark::State& state, const Request& request) {
  kserve::SharedMemory regions(false);
  const auto first = kserve::read_infer(request.headers, request.body, lenet(), regions);
  const auto replies = replies_of(first.value().rows);
  for (auto _ : state) {
    const auto call = kserve::read_infer(request.headers, request.body, lenet(), regions);
    auto response = kserve::write_infer(call.value(), lenet(), replies, regions);
    benchmark::DoNotOptimize(response);
  }
}

void binary(benchmark::State& state) {
  read_and_write(state, binary_request(static_cast<int>(state.range(0))));
}
BENCHMARK(binary)->Arg(1)->Arg(8);

void json(benchmark::State& state) { read_and_write(state, json_request()); }
BENCHMARK(json);

void only_read(benchmark::State& state) {
  const Request request = binary_request(1);
  const kserve::SharedMemory regions(false);
  for (auto _ : state) {
    auto call = kserve::read_infer(request.headers, request.body, lenet(), regions);
    benchmark::DoNotOptimize(call);
  }
}
BENCHMARK(only_read);

void route(benchmark::State& state) {
  for (auto _ : state) {
    const auto path = kserve::TargetPath::of("/v2/models/lenet/infer");
    auto found = path->match("v2/models/{M}/infer");
    benchmark::DoNotOptimize(found);
  }
}
BENCHMARK(route);

}  // namespace

BENCHMARK_MAIN();
