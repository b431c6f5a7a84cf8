// ConformanceTest: the cases of a suite ask one server, a frontend and a backend with the models
// that Triton's examples use. Its proxies compute: "simple" answers sums and differences.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/grpc_client.h"
#include "tests/conformance/http_client.h"
#include "tests/support/cluster/cluster.h"

namespace gpulet::conformance {

// The server's models by name. All take a first dimension of rows.
//   simple    INPUT0, INPUT1 INT32[16] -> OUTPUT0 their sum, OUTPUT1 their difference; max_batch 8
//   values    x FP32[4] -> y, the same
//   flags     x BOOL[4] -> y, the same
//   scores    x FP32[4] -> y, the same, with the labels "cat", "dog", "bird", "fish"
//   ordered   x UINT8[4] -> y, the same; its rate takes two gpulets
//   spare     x UINT8[2] -> y, the same; for loads and unloads
//   chain     an application: values, then scores
[[nodiscard]] testing::ClusterFiles conformance_files();

class ConformanceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  [[nodiscard]] static testing::Cluster& server() { return *server_; }
  HttpConnection& http() {
    if (!http_) http_ = std::make_unique<HttpConnection>(server().http_port());
    return *http_;
  }
  GrpcConnection& grpc() {
    if (!grpc_) grpc_ = std::make_unique<GrpcConnection>(server().grpc_port());
    return *grpc_;
  }
  // The status of the answer to a GET, and its JSON.
  nlohmann::json get_json(const std::string& target);
  // Of the first version of `model` that the server names.
  std::string version_of(const std::string& model);

 private:
  inline static std::unique_ptr<testing::Cluster> server_;
  std::unique_ptr<HttpConnection> http_;
  std::unique_ptr<GrpcConnection> grpc_;
};

template <class Element>
std::string bytes_of(const std::vector<Element>& elements) {
  std::string bytes(elements.size() * sizeof(Element), '\0');
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

template <class Element>
std::vector<Element> elements_of(const std::string& bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(Element));
  return elements;
}

// The strings of a BYTES tensor: each its length in four bytes, little-endian, then itself.
[[nodiscard]] std::vector<std::string> strings_of(const std::string& bytes);

inline constexpr std::size_t kSimpleBytes = 64;  // of a tensor of "simple", one row

// What Triton's examples send to "simple": 0 to 15, and ones; and what they expect.
[[nodiscard]] std::vector<std::int32_t> simple_input0();
[[nodiscard]] std::vector<std::int32_t> simple_input1();
[[nodiscard]] std::vector<std::int32_t> simple_sum();
[[nodiscard]] std::vector<std::int32_t> simple_difference();

// The two inputs of "simple", for so many rows, as JSON with binary tensors behind it.
[[nodiscard]] nlohmann::json simple_http_inputs(std::size_t rows = 1);
[[nodiscard]] InferRequest simple_grpc_request();
// One input "x" of one row.
[[nodiscard]] InferRequest grpc_request(const std::string& model, const std::string& datatype,
                                        std::int64_t elements, const std::string& bytes);

}  // namespace gpulet::conformance
