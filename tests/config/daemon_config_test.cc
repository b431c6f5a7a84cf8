#include "gpulet/config/daemon_config.h"

#include <gtest/gtest.h>

#include <string>

#include "gpulet/config/check_file.h"
#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

std::string frontend(const std::string& members) {
  return R"({"models":"m.json","profiles":"p")" + members + "}";
}
std::string backend(const std::string& members) {
  return R"({"node":"n0","model_store":"s")" + members + "}";
}

TEST(FrontendConfig, TakesModelsOfBothFormatsUnlessItSaysOtherwise) {
  const auto format = [](const std::string& members) {
    return parse_frontend(frontend(members), "f.json").value().model_format;
  };
  EXPECT_EQ(format(""), ModelFormat::known);
  EXPECT_EQ(format(R"(,"model_format":"known")"), ModelFormat::known);
  EXPECT_EQ(format(R"(,"model_format":"torchscript")"), ModelFormat::torchscript);
  EXPECT_EQ(format(R"(,"model_format":"any")"), ModelFormat::any);
}

TEST(Endpoint, ReadsAddressesAndNames) {
  const auto parsed = [](const std::string& text) { return parse_endpoint(text).value(); };
  EXPECT_EQ(parsed("127.0.0.1:7000"), (Endpoint{"127.0.0.1", 7000}));
  EXPECT_EQ(parsed("[::1]:0"), (Endpoint{"::1", 0}));
  EXPECT_EQ(parsed("node7:65535"), (Endpoint{"node7", 65535}));
  for (const std::string text : {"127.0.0.1:7000", "[fe80::1]:7000", "node7:1"}) {
    EXPECT_EQ(to_string(parsed(text)), text);
  }
}

TEST(Endpoint, RefusesEverythingElse) {
  for (const std::string text : {"", ":", "host", "host:", ":7000", "::1:7000", "host:65536",
                                 "host:-1", "host:7000x", "[]:1", "a b:1", "host: 7"}) {
    const auto parsed = parse_endpoint(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(
        parsed.status().message(),
        '"' + text +
            "\" is not an endpoint; write host:port, for example 127.0.0.1:7000 or [::1]:7000");
  }
}

TEST(FrontendConfig, ReadsTlsAndTokens) {
  const auto config = parse_frontend(frontend(R"(,"tls":{"certificate":"f.pem","key":"f.key"},
                   "backend_tls":{"certificate":"b.pem","key":"/k","authority":"../a.pem"},
                   "tokens":{"inference":"t","observe":"o"},"audit_log":"audit.jsonl")"),
                                     "/etc/gpulet/frontend.json");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().tls, (TlsFiles{"/etc/gpulet/f.pem", "/etc/gpulet/f.key", {}}));
  EXPECT_EQ(config.value().backend_tls, (TlsFiles{"/etc/gpulet/b.pem", "/k", "/etc/a.pem"}));
  EXPECT_EQ(config.value().tokens, (TokenFiles{{}, "/etc/gpulet/t", "/etc/gpulet/o"}));
  EXPECT_EQ(config.value().audit_log, "/etc/gpulet/audit.jsonl");
  const auto node = parse_backend(backend(R"(,"tls":{"certificate":"n","key":"k","authority":"a"},
                  "devices":[{"type":"t","partitioning":"cpu_quota","sizes":[100]}])"),
                                  "/b.json");
  ASSERT_TRUE(node.ok()) << node.status().to_string();
  EXPECT_EQ(node.value().tls, (TlsFiles{"/n", "/k", "/a"}));
}

TEST(FrontendConfig, ReadsTheLimitsOfAnAddress) {
  const auto config = parse_frontend(
      frontend(R"(,"limits":{"per_address":{"requests_per_s":2.5,"max_requests":8}})"), "f.json");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().per_address, (ClientLimits{2.5, 0, 8}));
  EXPECT_FALSE(parse_frontend(frontend(""), "f.json").value().per_address.any());
  for (const std::string wrong :
       {"{}", R"({"requests_per_s":0})", R"({"requests_per_s":-1})", R"({"device_ms_per_s":"1"})",
        R"({"max_requests":0})", R"({"requests":1})"}) {
    const std::string members = R"(,"limits":{"per_address":)" + wrong + "}";
    EXPECT_EQ(parse_frontend(frontend(members), "f.json").status().code(), StatusCode::invalid)
        << wrong;
  }
}

TEST(FrontendConfig, ReadsTheThreadsOfConnections) {
  EXPECT_EQ(parse_frontend(frontend(""), "f.json").value().io_threads, std::nullopt);
  EXPECT_EQ(parse_frontend(frontend(R"(,"io_threads":0)"), "f.json").value().io_threads, 0U);
  EXPECT_EQ(parse_frontend(frontend(R"(,"io_threads":16)"), "f.json").value().io_threads, 16U);
  for (const std::string wrong : {"17", "-1", "\"all\""}) {
    EXPECT_EQ(parse_frontend(frontend(R"(,"io_threads":)" + wrong), "f.json").status().code(),
              StatusCode::invalid)
        << wrong;
  }
}

TEST(FrontendConfig, RefusesIncompleteTlsAndTokens) {
  for (const std::string members :
       {R"(,"tls":{"certificate":"f.pem"})",
        R"(,"tls":{"certificate":"f","key":"k","authority":"a"})",
        R"(,"backend_tls":{"certificate":"f","key":"k"})", R"(,"tokens":{})"}) {
    EXPECT_EQ(parse_frontend(frontend(members), "f.json").status().code(), StatusCode::invalid)
        << members;
  }
}

TEST(Endpoint, RecognisesLoopback) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"})
    EXPECT_TRUE(is_loopback({host, 1})) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "frontend"})
    EXPECT_FALSE(is_loopback({host, 1})) << host;
}

// What passes the check starts: a daemon listens on addresses only.
TEST(FrontendConfig, EveryListenAddressIsNumericOrLocalhost) {
  for (const std::string key : {"listen", "backend_listen", "http", "grpc", "metrics"}) {
    const auto with = [&key](const std::string& host) {
      std::string entry = ",\"";
      entry.append(key).append("\":\"").append(host).append(":1\"");
      return parse_frontend(frontend(entry), "f.json");
    };
    for (const char* const host :
         {"127.0.0.1", "0.0.0.0", "255.255.255.255", "[::]", "[::1]", "localhost", "[fe80::1%lo]",
          "[1:2:3:4:5:6:7:8]", "[1::8]", "[::ffff:10.0.0.1]", "[1:2:3:4:5:6:7::]"})
      EXPECT_TRUE(with(host).ok()) << key << ' ' << with(host).status().to_string();
    for (const char* const host :
         {"frontend", "example.com", "127.1", "*", "1.2.3", "1.2.3.256", "1.2.3.04", "1.2.3.4.5",
          "1.2.3.", "[1:2]", "[1::2::3]", "[:::]", "[1:2:3:4:5:6:7:8:9]", "[12345::]", "[::1.2.3]",
          "[g::]", "[::1%]", "[:1]", "[1:2:3:4:5:6:7:8::]"})
      EXPECT_EQ(with(host).status().code(), StatusCode::invalid) << key << ' ' << host;
  }
  const auto peers = [](const std::string& host) {
    return parse_frontend(
        frontend(
            R"(,"cluster":{"etcd":["etcd:2379"],"peer_address":"frontend:7003","peer_listen":")" +
            host + R"(:7003"})"),
        "f.json");
  };
  EXPECT_EQ(peers("localhost").value().cluster->peer_listen, (Endpoint{"127.0.0.1", 7003}));
  EXPECT_EQ(peers("frontend").status().code(), StatusCode::invalid);
}

TEST(FrontendConfig, ResolvesThePathOfAPolicyFile) {
  const auto config = parse_frontend(
      R"({"models":"models.json","profiles":"profiles","policy":"inss:../six.policy"})",
      "/etc/gpulet/frontend.json");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().policy, "inss:/etc/six.policy");
}

TEST(FrontendConfig, ReadsEveryMember) {
  const auto config = parse_frontend(
      R"({"listen":"0.0.0.0:1","backend_listen":"[::]:2","http":"localhost:3","grpc":"off",
          "metrics":"[fe80::1%lo]:5",
          "shared_memory":"on","local_socket":"off","summary_latencies":"on","models":"models.json","profiles":"../profiles",
          "model_root":"../models","model_format":"any",
          "policy":"sbp","margin":1.2,"interference":"linear",
          "headroom":"none","estimates":"off","use_spare":false,"synthetic_inputs":true,"verify":false,"period_s":0.5,"drain_timeout_s":3,"drain_grace_s":0,"late_grace_ms":5,
          "limits":{"max_queue":1,"max_requests":4,"max_buffered_mb":5,"max_connections":2,
                    "max_connections_per_address":6,"max_payload_bytes":3,
                    "min_bytes_per_second":7,"receive_grace_s":8,"max_receive_s":9,
                    "first_message_s":0.5},
          "exclusions":{"first_s":2,"longest_s":60}})",
      "/etc/gpulet/frontend.json");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().listen, (Endpoint{"0.0.0.0", 1}));
  EXPECT_EQ(config.value().backend_listen, (Endpoint{"::", 2}));
  EXPECT_EQ(config.value().http, (Endpoint{"127.0.0.1", 3}));
  EXPECT_EQ(config.value().grpc, std::nullopt);
  EXPECT_EQ(config.value().metrics, (Endpoint{"fe80::1%lo", 5}));
  EXPECT_TRUE(config.value().shared_memory);
  EXPECT_FALSE(config.value().local_socket);
  EXPECT_TRUE(config.value().summary_latencies);
  EXPECT_EQ(config.value().models, "/etc/gpulet/models.json");
  EXPECT_EQ(config.value().profiles, "/etc/profiles");
  EXPECT_EQ(config.value().model_root, std::filesystem::path("/etc/models"));
  EXPECT_EQ(config.value().model_format, ModelFormat::any);
  EXPECT_EQ(config.value().policy, "sbp");
  EXPECT_EQ(config.value().margin, 1.2);
  EXPECT_EQ(config.value().interference, "linear");
  EXPECT_EQ(config.value().headroom, "none");
  EXPECT_FALSE(config.value().estimates);
  EXPECT_FALSE(config.value().use_spare);
  EXPECT_TRUE(config.value().synthetic_inputs);
  EXPECT_FALSE(config.value().verify);
  EXPECT_EQ(config.value().period, std::chrono::milliseconds(500));
  EXPECT_EQ(config.value().drain_timeout, std::chrono::seconds(3));
  EXPECT_EQ(config.value().drain_grace, Duration::zero());
  EXPECT_EQ(config.value().late_grace, std::chrono::milliseconds(5));
  EXPECT_EQ(config.value().max_queue, 1U);
  EXPECT_EQ(config.value().max_requests, 4U);
  EXPECT_EQ(config.value().max_buffered_mb, 5U);
  EXPECT_EQ(config.value().max_connections, 2U);
  EXPECT_EQ(config.value().max_connections_per_address, 6U);
  EXPECT_EQ(config.value().max_payload_bytes, 3U);
  EXPECT_EQ(config.value().exclusions.first, std::chrono::seconds(2));
  EXPECT_EQ(config.value().exclusions.longest, std::chrono::seconds(60));
  EXPECT_EQ(config.value().min_bytes_per_second, 7U);
  EXPECT_EQ(config.value().receive_grace, std::chrono::seconds(8));
  EXPECT_EQ(config.value().max_receive, std::chrono::seconds(9));
  EXPECT_EQ(config.value().first_message, std::chrono::milliseconds(500));
}

TEST(FrontendConfig, WarnsOfFullBatchesThatExceedALimit) {
  const auto serving = parse_serving(
      R"({"models":[{"name":"small","file":"a.pt","slo_ms":5,"max_batch":8,
            "inputs":[{"name":"i","type":"FP32","shape":[3,224,224]}],
            "outputs":[{"name":"o","type":"FP32","shape":[1]}]},
          {"name":"large","file":"a.pt","slo_ms":5,"max_batch":128,
            "inputs":[{"name":"i","type":"FP32","shape":[3,224,224]}],
            "outputs":[{"name":"o","type":"FP32","shape":[1]}]}]})",
      "m.json");
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  FrontendConfig config;
  EXPECT_TRUE(full_batches_too_long(config, serving.value()).empty()) << "the limit follows them";
  config.max_payload_bytes = 64U << 20U;
  const auto warnings = full_batches_too_long(config, serving.value());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("\"large\""), std::string::npos);
  EXPECT_NE(warnings[0].find("77070336"), std::string::npos) << "what it needs";
  config.max_payload_bytes = 77070336;
  EXPECT_TRUE(full_batches_too_long(config, serving.value()).empty());
  config.max_payload_bytes.reset();
  config.max_buffered_mb = 1;
  EXPECT_EQ(full_batches_too_long(config, serving.value()).size(), 2U);
}

TEST(FrontendConfig, ErrorsNamePlaceAndValue) {
  expect_errors(
      {
          {"{}", "/models: "},
          {frontend(R"(,"listen":"7000")"), "/listen: ", R"("7000")"},
          {frontend(R"(,"listen":"10.0.0.1:1","backend_listen":"10.0.0.1:1")"),
           "(top level): ", R"("listen")"},
          {frontend(R"(,"listen":"127.0.0.1:1","grpc":"localhost:1")"),
           "(top level): ", R"("listen")"},
          {frontend(R"(,"listen":"127.0.0.1:1","grpc":"0.0.0.0:1")"),
           "(top level): ", R"("listen")"},
          {frontend(R"(,"listen":"[::]:1","metrics":"127.0.0.1:1")"),
           "(top level): ", R"("listen")"},
          {frontend(
               R"(,"http":"10.0.0.1:1","cluster":{"etcd":["e:2379"],"peer_listen":"10.0.0.1:1"})"),
           "(top level): ", R"("cluster.peer_listen")"},
          {frontend(R"(,"interference":"lerned")"), "/interference: ", R"("lerned")"},
          {frontend(R"(,"exclusions":{"first_s":60,"longest_s":5})"), "/exclusions: "},
          {frontend(R"(,"headroom":"som")"), "/headroom: ", R"("som")"},
          {frontend(R"(,"margin":0.9)"), "/margin: "},
          {frontend(R"(,"period_s":0)"), "/period_s: "},
          {frontend(R"(,"limits":{"max_queues":1})"), "/limits/max_queues: ", R"("max_queues")"},
          {frontend(R"(,"limits":{"max_buffered_mb":1,"max_payload_bytes":67108864})"),
           "/limits: "},
      },
      parse_frontend);
}

TEST(ControlConfig, ReadsEveryMember) {
  const auto read = parse_control(
      R"({"gpu":"round-robin","cores":"steps","set_point":0.7,"queued_weight":0.25,"surplus":1,
          "gpu_cores":1.5,"least_cores":0.2,"pole":0.9,"period_s":0.5,"window_s":10,
          "overhead_s":0.12,"gains":{"cores_per_s":0.15,"zero":0.11},"steps_period_s":10,
          "percentile":0.95,"patience_s":5,"seed":9,"spill":true,"requests_at_once":4})",
      "f.json");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const control::Options expected{.gpu = control::GpuRule::round_robin,
                                  .cores = control::CoreRule::steps,
                                  .set_point = 0.7,
                                  .queued_weight = 0.25,
                                  .surplus = 1,
                                  .gpu_cores = 1.5,
                                  .least_cores = 0.2,
                                  .pole = 0.9,
                                  .period = std::chrono::milliseconds(500),
                                  .window = std::chrono::seconds(10),
                                  .overhead = std::chrono::milliseconds(120),
                                  .gains = control::PiGains{0.15, 0.11},
                                  .steps_period = std::chrono::seconds(10),
                                  .percentile = 0.95,
                                  .patience = std::chrono::seconds(5),
                                  .seed = 9,
                                  .spill = true,
                                  .requests_at_once = 4};
  EXPECT_EQ(read.value(), expected);
  EXPECT_EQ(parse_control("{}", "f.json").value(), control::Options{});
  const auto frontends = parse_frontend(frontend(R"(,"control":{"cores":"all"})"), "f.json");
  ASSERT_TRUE(frontends.ok()) << frontends.status().to_string();
  EXPECT_EQ(frontends.value().control, control::Options{.cores = control::CoreRule::all});
}

TEST(ControlConfig, ErrorsNamePlaceAndValue) {
  expect_errors(
      {
          {R"({"gpu":"needs"})", "/gpu: ", R"("needs")"},
          {R"({"set_point":0})", "/set_point: "},
          {R"({"pole":1})", "/pole: "},
          {R"({"least_cores":0})", "/least_cores: "},
          {R"({"period_s":2,"window_s":1})", "(top level): ", "window_s"},
          {R"({"overhead_s":-1})", "/overhead_s: "},
          {R"({"gains":{"cores_per_s":0.15}})", "/gains/zero: "},
      },
      parse_control);
  expect_errors({{frontend(R"(,"control":{"surplus":2})"), "/control/surplus: "}}, parse_frontend);
}

TEST(FrontendConfig, ReadsItsCluster) {
  const auto with = [](const std::string& cluster) {
    return parse_frontend(R"({"models":"m.json","profiles":"p","cluster":)" + cluster + "}",
                          "/etc/f.json");
  };
  const auto whole = with(
      R"({"name":"prod","member":"f0","address":"f0:7000","etcd":["a:2379","b:2379"],"prefix":"/x/",
          "lease_s":3,"user":"gpulet","password_file":"etcd.password",
          "tls":{"authority":"ca.pem","certificate":"c.pem","key":"k.pem"}})");
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  const ClusterConfig& cluster = *whole.value().cluster;
  EXPECT_EQ(cluster.name, "prod");
  EXPECT_EQ(cluster.member, "f0");
  EXPECT_EQ(cluster.address, "f0:7000");
  EXPECT_EQ(cluster.etcd, (std::vector<Endpoint>{{"a", 2379}, {"b", 2379}}));
  EXPECT_EQ(cluster.prefix, "/x/");
  EXPECT_EQ(cluster.lease, std::chrono::seconds(3));
  EXPECT_EQ(cluster.user, "gpulet");
  EXPECT_EQ(cluster.password_file, "/etc/etcd.password");
  EXPECT_EQ(cluster.tls, (TlsFiles{"/etc/c.pem", "/etc/k.pem", "/etc/ca.pem"}));
  EXPECT_FALSE(parse_frontend(R"({"models":"m.json","profiles":"p"})", "f.json").value().cluster);
  for (const char* const wrong :
       {R"({})", R"({"etcd":[]})", R"({"etcd":["a"]})", R"({"etcd":["a:1"],"lease_s":1})",
        R"({"etcd":["a:1"],"prefix":"/x"})", R"({"etcd":["a:1"],"user":"u"})",
        R"({"etcd":["a:1"],"password_file":"p"})",
        R"({"etcd":["a:1"],"tls":{"authority":"ca","key":"k"}})", R"({"etcd":["a:1"],"x":1})"})
    EXPECT_EQ(with(wrong).status().code(), StatusCode::invalid) << wrong;
}

TEST(FrontendConfig, ReadsHowModelFilesAreFetched) {
  const auto with = [](const std::string& stores) {
    return parse_frontend(R"({"models":"m.json","profiles":"p","remote_stores":)" + stores + "}",
                          "/etc/f.json");
  };
  const auto whole = with(
      R"({"cache":"c","cache_mb":100,"largest_file_mb":50,"poll_s":5,"connect_s":1,"stall_s":2,
          "min_bytes_per_second":10,"fetch_s":60,"retry_s":0.5,"longest_retry_s":8,"redirects":0,
          "authority":"ca.pem"})");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  RemoteStoresConfig expected;
  expected.cache = "/etc/c";
  expected.cache_mb = 100;
  expected.largest_file_mb = 50;
  expected.poll = std::chrono::seconds(5);
  expected.connect = std::chrono::seconds(1);
  expected.stall = std::chrono::seconds(2);
  expected.min_bytes_per_second = 10;
  expected.fetch = std::chrono::seconds(60);
  expected.first_retry = std::chrono::milliseconds(500);
  expected.longest_retry = std::chrono::seconds(8);
  expected.redirects = 0;
  expected.authority = "/etc/ca.pem";
  EXPECT_EQ(whole.value().remote_stores, expected);
  EXPECT_EQ(with("{}").value().remote_stores, RemoteStoresConfig());
  for (const std::string wrong : {R"({"poll_s":0})", R"({"redirects":21})", R"({"polls":1})",
                                  R"({"retry_s":5,"longest_retry_s":4})"})
    EXPECT_FALSE(with(wrong).ok()) << wrong;
}

TEST(BackendConfig, ReadsEveryMember) {
  const auto config = parse_backend(
      R"({"node":"n0","frontend":"f:7001","model_store":"store","profiles":"../profiles","proxy":"bin/gpulet-proxy",
          "warm_proxies":0,"model_store_mb":2048,"proxy_sandbox":"off","native_models":"on","local_socket":"off","onnxruntime":"ort.so",
          "proxy_environment":["A","B"],"proxy_memory":{"factor":2,"floor_mb":512},
          "parking":{"memory_mb":4096,"load_ahead":"on"},"load_timeout_s":90,"hang_timeout_s":2,"hang_factor":4.5,
          "devices":[{"type":"cpu-core","count":2,"partitioning":"cpu_quota","cores":[0,1]},
                     {"type":"v100","partitioning":"simulated"}]})",
      "/etc/backend.json");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().node, "n0");
  EXPECT_EQ(config.value().frontends, (std::vector<Endpoint>{{"f", 7001}}));
  EXPECT_EQ(config.value().model_store, "/etc/store");
  EXPECT_EQ(config.value().profiles, "/profiles");
  EXPECT_EQ(config.value().proxy, "/etc/bin/gpulet-proxy");
  EXPECT_EQ(config.value().warm_proxies, 0U);
  EXPECT_EQ(config.value().model_store_mb, 2048U);
  EXPECT_FALSE(config.value().proxy_sandbox);
  EXPECT_TRUE(config.value().native_models);
  EXPECT_FALSE(config.value().local_socket);
  EXPECT_EQ(config.value().onnxruntime.filename(), "ort.so");
  EXPECT_EQ(config.value().proxy_environment, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(config.value().proxy_memory, (ProxyMemory{2, 512}));
  EXPECT_EQ(config.value().parking, (Parking{4096, true}));
  EXPECT_EQ(config.value().load_timeout, std::chrono::seconds(90));
  EXPECT_EQ(config.value().hang_timeout, std::chrono::seconds(2));
  EXPECT_EQ(config.value().hang_factor, 4.5);
  ASSERT_EQ(config.value().devices.size(), 2U);
  EXPECT_EQ(config.value().devices[0].cores, (std::vector<std::uint32_t>{0, 1}));
}

TEST(BackendConfig, NamesSeveralFrontendsOrOne) {
  const auto with = [](const std::string& frontends) {
    return parse_backend(R"({"node":"n","model_store":"s",)" + frontends +
                             R"("devices":[{"type":"c","partitioning":"cpu_quota"}]})",
                         "f.json");
  };
  const auto several = with(R"("frontends":["a:1","[::1]:2"],)");
  ASSERT_TRUE(several.ok()) << several.status().to_string();
  EXPECT_EQ(several.value().frontends, (std::vector<Endpoint>{{"a", 1}, {"::1", 2}}));
  EXPECT_EQ(with("").value().frontends, (std::vector<Endpoint>{{"127.0.0.1", 7001}}));
  for (const char* const wrong :
       {R"("frontends":[],)", R"("frontends":["a:1","a:1"],)", R"("frontends":["a"],)",
        R"("frontends":"a:1",)", R"("frontend":"a:1","frontends":["b:1"],)"})
    EXPECT_EQ(with(wrong).status().code(), StatusCode::invalid) << wrong;
}

TEST(BackendConfig, SandboxesProxiesByDefault) {
  const std::string device = R"(,"devices":[{"type":"c","partitioning":"cpu_quota"}])";
  const auto usual = parse_backend(backend(device), "f.json");
  ASSERT_TRUE(usual.ok()) << usual.status().to_string();
  EXPECT_TRUE(usual.value().proxy_sandbox);
  EXPECT_FALSE(usual.value().native_models);
  EXPECT_TRUE(usual.value().onnxruntime.empty());
  EXPECT_TRUE(usual.value().proxy_environment.empty());
  EXPECT_EQ(usual.value().proxy_memory, ProxyMemory());
  EXPECT_EQ(usual.value().parking, Parking());
  const auto without_size =
      parse_backend(backend(device + R"(,"parking":{"load_ahead":"on"})"), "f");
  EXPECT_EQ(without_size.status().code(), StatusCode::invalid);
  const auto off = parse_backend(backend(device + R"(,"proxy_memory":"off")"), "f.json");
  ASSERT_TRUE(off.ok()) << off.status().to_string();
  EXPECT_FALSE(off.value().proxy_memory.has_value());
}

TEST(BackendConfig, ASingleGpuEntryNeedsNoGpuKey) {
  const auto config =
      parse_backend(backend(R"(,"devices":[{"type":"cpu","partitioning":"cpu_quota","cores":[0]},
                             {"type":"h200","count":4,"partitioning":"mps"}])"),
                    "f.json");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().devices[1].gpu, "");
}

TEST(BackendConfig, ErrorsNamePlaceAndValue) {
  expect_errors(
      {
          {backend(""), "/devices: "},
          {backend(R"(,"warm_proxies":65)"), "/warm_proxies: "},
          {backend(R"(,"proxy_environment":["A=1"])"), "/proxy_environment/0: ", R"("A=1")"},
          {backend(R"(,"model_store_mb":0)"), "/model_store_mb: "},
          {backend(
               R"(,"devices":[{"type":"c","partitioning":"cpu_quota","cores":[0]},{"type":"d","partitioning":"cpu_quota"}])"),
           "/devices/1: ", R"("cores")"},
          {backend(
               R"(,"devices":[{"type":"a","partitioning":"mps","gpu":0},{"type":"b","partitioning":"green"}])"),
           "/devices/1: ", R"("gpu")"},
          {backend(R"(,"devices":[{"type":"v100","partitioning":"simulated"}])"),
           "/devices/0: ", R"("v100")"},
          {backend(R"(,"devices":[{"type":"a","partitioning":"cpu_quota","cores":[0]},
                                  {"type":"b","partitioning":"cpu_quota","cores":[0]}])"),
           "/devices/1/cores: "},
      },
      parse_backend);
}

}  // namespace
}  // namespace gpulet::config
