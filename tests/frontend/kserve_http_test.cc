// The Open Inference Protocol over HTTP: real requests over loopback to a fake host. Bodies are
// tested in tests/net/kserve.
#include "frontend/endpoints/kserve_http.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "frontend/endpoints/endpoint_router.h"
#include "frontend/endpoints/infer_http.h"
#include "frontend/endpoints/regions_http.h"
#include "gpulet/access/gate.h"
#include "tests/net/http/http_client.h"
#include "tests/support/names.h"
#include "tests/support/protocol_host.h"

namespace gpulet::frontend {
namespace {

using gpulet::testing::FakeHost;
using net::http::testing::Answer;
using net::http::testing::Client;
using net::http::testing::text_of;
using Json = nlohmann::json;

std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class KserveHttpTest : public ::testing::Test {
 protected:
  KserveHttpTest() { serve(true); }

  void serve(bool shared_memory) {
    server_.reset();
    regions_.emplace(shared_memory);
    handler_ = std::make_unique<EndpointRouter>(gate_, kserve_error);
    handler_->add(std::make_unique<RegionsHttp>(*regions_));
    handler_->add(std::make_unique<InferHttp>(host_, *regions_));
    handler_->add(std::make_unique<KserveHttp>(host_, *regions_, "1.2.3"));
    server_ =
        net::http::HttpServer::listen(loop_.executor(), "127.0.0.1", 0, {}, buffers_, *handler_)
            .value();
    client_ = std::make_unique<Client>(loop_, server_->port());
  }

  // All requests use one connection.
  Answer ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "") {
    client_->send(request(method, target, body, headers));
    std::optional<Answer> answer = client_->answer(method == "HEAD");
    return answer ? *std::move(answer) : Answer{};
  }
  static std::string request(const std::string& method, const std::string& target,
                             const std::string& body, const std::string& headers = "") {
    return method + " " + target +
           " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           headers + "\r\n" + body;
  }
  Json get(const std::string& target) {
    const Answer answer = ask("GET", target);
    EXPECT_EQ(answer.status, 200U) << answer.body;
    EXPECT_EQ(answer.header("Content-Type"), "application/json");
    return Json::parse(answer.body);
  }
  // Checks an error response and returns its message.
  std::string error(unsigned status, const Answer& answer) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(answer.header("Content-Type"), "application/json");
    return Json::parse(answer.body).at("error");
  }

  net::testing::Loop loop_;
  net::BufferPool buffers_{net::BufferPoolOptions{}};
  FakeHost host_{loop_.context()};
  std::optional<net::kserve::SharedMemory> regions_;
  access::Gate gate_;
  std::unique_ptr<EndpointRouter> handler_;
  std::unique_ptr<net::http::HttpServer> server_;
  std::unique_ptr<Client> client_;
};

const char* const kTwoRows =
    R"({"id":"mine","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]})";

TEST_F(KserveHttpTest, ReportsLivenessAndReadiness) {
  EXPECT_EQ(ask("GET", "/v2/health/live").status, 200U);
  EXPECT_EQ(ask("HEAD", "/v2/health/live").status, 200U);
  const Answer ready = ask("GET", "/v2/health/ready");
  EXPECT_EQ(ready.status, 200U);
  EXPECT_EQ(ready.body, "");
  EXPECT_EQ(ready.header("Content-Length"), "0");
  host_.is_ready = false;
  EXPECT_EQ(ask("GET", "/v2/health/live").status, 200U);
  EXPECT_EQ(ask("GET", "/v2/health/ready").status, 400U);
}

TEST_F(KserveHttpTest, IgnoresASmallBodyOfAGet) {
  for (const std::string target :
       {"/v2/health/ready", "/v2/health/live", "/v2", "/v2/models/echo/ready"}) {
    for (const std::string& body : {std::string("{}"), std::string(60'000, 'x')})
      EXPECT_EQ(ask("GET", target, body).status, 200U) << target;
    EXPECT_EQ(ask("HEAD", target, "body").status, 200U) << target;
  }
  client_->send(
      "GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2\r\n{}\r\n0\r\n\r\n");
  EXPECT_EQ(client_->answer()->status, 200U);
  EXPECT_EQ(ask("GET", "/v2/health/ready", std::string(70'000, 'x')).status, 413U);
}

TEST_F(KserveHttpTest, TellsTheBatchLimitForABodyWithTooManyRows) {
  const std::string target = "/v2/models/echo/infer";
  const std::string body(1'000'000, ' ');
  EXPECT_TRUE(support::names(error(413, ask("POST", target, body)), "4"));
}

TEST_F(KserveHttpTest, RefusesARepeatedMemberInEveryRequest) {
  struct Repeated {
    std::string target;
    std::string body;
    std::string member;
  };
  for (
      const auto& [target, body, member] : std::vector<Repeated>{
          {"/v2/models/echo/infer",
           R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2],"data":[3,4]}]})",
           "data"},
          {"/v2/repository/index", R"({"ready":true,"ready":true})", "ready"},
          {"/v2/repository/models/echo/load", R"({"parameters":{},"parameters":{}})", "parameters"},
          {"/v2/repository/models/echo/unload", R"({"parameters":{},"parameters":{}})",
           "parameters"},
          {"/v2/systemsharedmemory/region/r/register",
           R"({"key":"/none","byte_size":8,"byte_size":16})", "byte_size"},
          {"/v2/logging", R"({"log_info":true,"log_info":false})", "log_info"},
          {"/v2/trace/setting", R"({"trace_rate":"1","trace_rate":"2"})", "trace_rate"},
          {"/v2/models/echo/trace/setting", R"({"trace_rate":null,"trace_rate":null})",
           "trace_rate"}}) {
    SCOPED_TRACE(target + " " + body);
    EXPECT_TRUE(support::names(error(400, ask("POST", target, body)), member));
  }
}

TEST_F(KserveHttpTest, ReturnsServerMetadata) {
  const Json server = get("/v2");
  EXPECT_EQ(server.at("name"), "gpulet");
  EXPECT_EQ(server.at("version"), "1.2.3");
  const Json& extensions = server.at("extensions");
  EXPECT_NE(std::find(extensions.begin(), extensions.end(), "system_shared_memory"),
            extensions.end());
}

TEST_F(KserveHttpTest, DescribesItsModels) {
  const Json metadata = get("/v2/models/echo");
  EXPECT_EQ(metadata.at("versions"), Json({"3"}));
  EXPECT_EQ(metadata.at("inputs").at(0).at("shape"), Json({-1, 2}));
  EXPECT_EQ(get("/v2/models/echo/versions/3/config").at("max_batch_size"), 4);
  EXPECT_EQ(ask("GET", "/v2/models/echo/ready").status, 200U);
  EXPECT_EQ(error(400, ask("GET", "/v2/models/gone/ready")), "its file cannot be loaded");
  EXPECT_EQ(get("/v2/models/stats").at("model_stats").size(), 3U);
  const Json stats = get("/v2/models/echo/stats").at("model_stats");
  ASSERT_EQ(stats.size(), 1U);
  EXPECT_EQ(stats.at(0).at("inference_count"), 7);
  for (const std::string target :
       {"/v2/models/none", "/v2/models/none/config", "/v2/models/none/ready",
        "/v2/models/none/stats", "/v2/models/echo/versions/2"}) {
    EXPECT_NE(error(404, ask("GET", target)), "") << target;
  }
}

TEST_F(KserveHttpTest, RefusesUnknownTargetsAndMethodsWithProtocolErrors) {
  EXPECT_EQ(error(404, ask("GET", "/v3")), "Not Found");
  const Answer wrong = ask("GET", "/v2/models/echo/infer");
  EXPECT_EQ(error(405, wrong), "Method Not Allowed");
  EXPECT_EQ(wrong.header("Allow"), "POST");
  EXPECT_EQ(ask("POST", "/v2", "body").header("Allow"), "GET, HEAD");
  EXPECT_NE(error(501, ask("POST", "/v2/models/echo/infer", "x", "Content-Encoding: br\r\n")), "");
}

TEST_F(KserveHttpTest, ListsAllowedMethods) {
  const Answer wrong = ask("DELETE", "/v2/logging");
  EXPECT_EQ(wrong.status, 405U);
  EXPECT_EQ(wrong.header("Allow"), "GET, HEAD, POST");
}

TEST_F(KserveHttpTest, ReadsAndChangesTheLogLevel) {
  EXPECT_EQ(get("/v2/logging").at("log_verbose_level"), 0);
  const Answer changed = ask("POST", "/v2/logging", R"({"log_verbose_level":1})");
  ASSERT_EQ(changed.status, 200U) << changed.body;
  EXPECT_EQ(Json::parse(changed.body).at("log_verbose_level"), 1);
  EXPECT_EQ(host_.level, net::kserve::LogLevel::debug);
  error(400, ask("POST", "/v2/logging", R"({"log_file":"/tmp/other"})"));
  error(400, ask("POST", "/v2/logging", ""));
  EXPECT_EQ(host_.level, net::kserve::LogLevel::debug);
}

TEST_F(KserveHttpTest, ReadsAndChangesTraceSettings) {
  EXPECT_EQ(get("/v2/trace/setting").at("trace_level"), Json({"OFF"}));
  const Answer changed =
      ask("POST", "/v2/trace/setting", R"({"trace_level":["TIMESTAMPS"],"trace_rate":"50"})");
  ASSERT_EQ(changed.status, 200U) << changed.body;
  EXPECT_EQ(Json::parse(changed.body), get("/v2/trace/setting"));
  EXPECT_EQ(host_.sampling, (net::kserve::TraceSampling{.on = true, .every = 50}));
  EXPECT_EQ(get("/v2/models/echo/trace/setting").at("trace_rate"), "50");
  error(400, ask("POST", "/v2/models/echo/trace/setting", R"({"trace_rate":"60"})"));
  EXPECT_EQ(ask("POST", "/v2/models/echo/trace/setting", R"({"trace_rate":null})").status, 200U);
  error(404, ask("GET", "/v2/models/none/trace/setting"));
  error(400, ask("POST", "/v2/trace/setting", R"({"trace_mode":"opentelemetry"})"));
}

TEST_F(KserveHttpTest, AnswersAnInferenceInJson) {
  const Answer answer = ask("POST", "/v2/models/echo/infer", kTwoRows);
  ASSERT_EQ(answer.status, 200U) << answer.body;
  const Json json = Json::parse(answer.body);
  EXPECT_EQ(json.at("id"), "mine");
  EXPECT_EQ(json.at("model_version"), "3");
  const Json& output = json.at("outputs").at(0);
  EXPECT_EQ(output.at("name"), "y");
  EXPECT_EQ(output.at("shape"), Json({2, 2}));
  EXPECT_EQ(output.at("data"), Json({1.0, 2.0, 3.0, 4.0}));
}

TEST_F(KserveHttpTest, AnswersAnInferenceWithBinaryTensors) {
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}}],)"
      R"("parameters":{"binary_data_output":true,"timeout":5000}})";
  const std::string tensor = raw({1, 2, 3, 4});
  const Answer answer =
      ask("POST", "/v2/models/echo/versions/3/infer", json + tensor,
          "inference-header-content-length: " + std::to_string(json.size()) + "\r\n");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  const std::size_t head =
      std::stoul(std::string(answer.header("Inference-Header-Content-Length")));
  EXPECT_EQ(Json::parse(answer.body.substr(0, head)).at("model_name"), "echo");
  EXPECT_EQ(answer.body.substr(head), tensor);
  EXPECT_EQ(host_.timeouts, std::vector<Duration>{std::chrono::milliseconds(5)});
}

TEST_F(KserveHttpTest, ReportsTheErrorOfAnInference) {
  EXPECT_NE(error(404, ask("POST", "/v2/models/none/infer", kTwoRows)), "");
  EXPECT_NE(error(400, ask("POST", "/v2/models/echo/infer", "{")), "");
  host_.refuse = Status(StatusCode::overloaded, "the queue is full");
  EXPECT_TRUE(support::names(error(503, ask("POST", "/v2/models/echo/infer", kTwoRows)),
                             host_.refuse->message()));
  host_.refuse = Status(StatusCode::internal, "a bug");
  EXPECT_NE(error(500, ask("POST", "/v2/models/echo/infer", kTwoRows)), "");
}

TEST_F(KserveHttpTest, CancelsTheInferenceOfADisconnectedClient) {
  host_.holding = true;
  client_->send(request("POST", "/v2/models/echo/infer", kTwoRows));
  Client stays(loop_, server_->port());
  stays.send(request("POST", "/v2/models/echo/infer", kTwoRows));
  ASSERT_TRUE(loop_.run_until([&] { return host_.held() == 2; }));
  client_.reset();
  ASSERT_TRUE(loop_.run_until([&] { return host_.cancelled == 1; }));
  host_.release();
  EXPECT_EQ(stays.answer()->status, 200U);
}

TEST_F(KserveHttpTest, IgnoresAnswersAfterItsDestruction) {
  host_.holding = true;
  client_->send(request("POST", "/v2/models/echo/infer", kTwoRows));
  ASSERT_TRUE(loop_.run_until([&] { return host_.held() == 1; }));
  server_.reset();
  handler_.reset();
  regions_.reset();
  host_.release();
  loop_.run_ready();
  EXPECT_TRUE(client_->is_closed());
}

TEST_F(KserveHttpTest, ListsLoadsAndUnloadsModels) {
  const auto names = [](const Json& index) {
    std::vector<std::string> all;
    for (const Json& model : index) all.push_back(model.at("name"));
    return all;
  };
  EXPECT_EQ(names(Json::parse(ask("POST", "/v2/repository/index").body)),
            (std::vector<std::string>{"echo", "gone", "idle", "unloaded"}));
  EXPECT_EQ(Json::parse(ask("POST", "/v2/repository/index").body).at(3),
            (Json{{"name", "unloaded"}, {"state", "UNAVAILABLE"}, {"reason", "unloaded"}}));
  EXPECT_EQ(ask("GET", "/v2/models/unloaded/ready").status, 404U);
  EXPECT_EQ(names(Json::parse(ask("POST", "/v2/repository/index", R"({"ready":true})").body)),
            (std::vector<std::string>{"echo", "idle"}));
  EXPECT_EQ(ask("POST", "/v2/repository/models/echo/load").status, 200U);
  EXPECT_EQ(ask("POST", "/v2/repository/models/idle/unload").status, 200U);
  EXPECT_EQ(error(400, ask("POST", "/v2/repository/models/broken/load")),
            "failed to load 'broken': its file is broken");
  ASSERT_EQ(host_.changes.size(), 3U);
  EXPECT_EQ(host_.changes[0].kind, ModelsChange::Kind::load);
  EXPECT_EQ(host_.changes[0].name, "echo");
  EXPECT_TRUE(host_.changes[0].text.empty());
  EXPECT_EQ(host_.changes[1].kind, ModelsChange::Kind::unload);
  EXPECT_EQ(host_.changes[1].name, "idle");
}

TEST_F(KserveHttpTest, RefusesAConfigurationOfAnotherModel) {
  const std::string config = R"({"models":[{"name":"new","file":"new.pt","slo_ms":10,)"
                             R"("inputs":[{"name":"x","type":"FP32","shape":[2]}],)"
                             R"("outputs":[{"name":"y","type":"FP32","shape":[2]}]}]})";
  const std::string body = Json{{"parameters", {{"config", config}}}}.dump();
  EXPECT_EQ(ask("POST", "/v2/repository/models/new/load", body).status, 200U);
  ASSERT_EQ(host_.changes.size(), 1U);
  EXPECT_EQ(host_.changes[0].name, "");
  EXPECT_EQ(text_of(host_.changes[0].text), config);
  EXPECT_NE(error(400, ask("POST", "/v2/repository/models/other/load", body)).find("'other'"),
            std::string::npos);
  EXPECT_EQ(host_.changes.size(), 1U);
}

TEST_F(KserveHttpTest, LoadsWithAModelConfiguration) {
  const std::string body = Json{{"parameters", {{"config", R"({"max_batch_size":2})"}}}}.dump();
  EXPECT_EQ(ask("POST", "/v2/repository/models/echo/load", body).status, 200U);
  ASSERT_EQ(host_.changes.size(), 1U);
  EXPECT_EQ(host_.changes[0].name, "echo");
  EXPECT_EQ(host_.changes[0].configuration, R"({"max_batch_size":2})");
  for (const std::string unknown : {"file:1/model.pt", "max_batch_size"}) {
    const std::string other = Json{{"parameters", {{unknown, "x"}}}}.dump();
    EXPECT_NE(error(400, ask("POST", "/v2/repository/models/echo/load", other)).find(unknown),
              std::string::npos);
  }
  EXPECT_EQ(host_.changes.size(), 1U);
}

// Creates a region of shared memory and removes it.
class Region {
 public:
  explicit Region(const std::vector<float>& values)
      : key_("/gpulet_http_test_" + std::to_string(getpid())) {
    const int file = shm_open(key_.c_str(), O_CREAT | O_RDWR, 0600);
    const std::string bytes = raw(values);
    if (write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("shm_open or write failed");
    close(file);
  }
  ~Region() { shm_unlink(key_.c_str()); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  std::string key_;
};

TEST_F(KserveHttpTest, ReadsInputsFromSharedMemory) {
  const Region region({5, 6});
  const std::string where = "/v2/systemsharedmemory";
  const Json named = {{"key", region.key()}, {"offset", 0}, {"byte_size", 8}};
  ASSERT_EQ(ask("POST", where + "/region/mine/register", named.dump()).status, 200U);
  EXPECT_EQ(get(where + "/region/mine/status").at(0).at("key"), region.key());
  EXPECT_EQ(get(where + "/status").size(), 1U);
  const std::string inference =
      R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32",)"
      R"("parameters":{"shared_memory_region":"mine","shared_memory_byte_size":8}}]})";
  const Answer answer = ask("POST", "/v2/models/echo/infer", inference);
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_EQ(Json::parse(answer.body).at("outputs").at(0).at("data"), Json({5.0, 6.0}));
  EXPECT_EQ(ask("POST", where + "/unregister").status, 200U);
  EXPECT_EQ(error(404, ask("GET", where + "/region/mine/status")),
            "Unable to find system shared memory region: 'mine'");
}

TEST_F(KserveHttpTest, WritesOutputsToSharedMemory) {
  const Region region({0, 0});
  const Json named = {{"key", region.key()}, {"offset", 0}, {"byte_size", 8}};
  ASSERT_EQ(ask("POST", "/v2/systemsharedmemory/region/out/register", named.dump()).status, 200U);
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],)"
      R"("outputs":[{"name":"y","parameters":{"shared_memory_region":"out","shared_memory_byte_size":8}}]})";
  const Answer answer =
      ask("POST", "/v2/models/echo/infer", json + raw({5, 6}),
          "inference-header-content-length: " + std::to_string(json.size()) + "\r\n");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_EQ(Json::parse(answer.body).at("outputs").at(0),
            (Json{{"name", "y"}, {"datatype", "FP32"}, {"shape", {1, 2}}}));
  EXPECT_EQ(text_of(regions_->read({"out", 0, 8}).value()), raw({5, 6}));
}

TEST_F(KserveHttpTest, RefusesCudaSharedMemory) {
  const std::string where = "/v2/cudasharedmemory";
  EXPECT_EQ(get(where + "/status"), Json::array());
  EXPECT_NE(error(404, ask("GET", where + "/region/mine/status")), "");
  EXPECT_EQ(ask("POST", where + "/unregister").status, 200U);
  EXPECT_EQ(ask("POST", where + "/region/mine/unregister").status, 200U);
  const std::string handle = R"({"raw_handle":{"b64":"aGFuZGxl"},"device_id":0,"byte_size":8})";
  EXPECT_NE(error(501, ask("POST", where + "/region/mine/register", handle)), "");
}

TEST_F(KserveHttpTest, AcceptsAndReturnsNaNAndInfinities) {
  const Answer answer = ask(
      "POST", "/v2/models/echo/infer",
      R"({"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[NaN,Infinity,-Infinity,1]}]})");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_NE(answer.body.find(R"("data":[NaN,Infinity,-Infinity,1])"), std::string::npos)
      << answer.body;
}

TEST_F(KserveHttpTest, RefusesAnIdBeyondTheLimit) {
  const auto infer = [this](std::size_t length) {
    return ask("POST", "/v2/models/echo/infer",
               R"({"id":")" + std::string(length, 'a') +
                   R"(","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})");
  };
  EXPECT_EQ(infer(net::kserve::kMaxIdBytes).status, 200U);
  EXPECT_NE(error(400, infer(net::kserve::kMaxIdBytes + 1)), "");
}

TEST_F(KserveHttpTest, RefusesSharedMemoryWhereItIsDisabled) {
  serve(false);
  const std::string register_it = R"({"key":"/x","offset":0,"byte_size":8})";
  EXPECT_NE(error(400, ask("POST", "/v2/systemsharedmemory/region/mine/register", register_it)),
            "");
  EXPECT_EQ(ask("POST", "/v2/systemsharedmemory/unregister").status, 200U);
}

}  // namespace
}  // namespace gpulet::frontend
