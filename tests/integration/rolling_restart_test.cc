// Three frontends are restarted one after another, as an upgrade does it, while clients of all
// protocols send requests: none fails.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/load/client.h"
#include "tests/conformance/grpc_client.h"
#include "tests/conformance/http_client.h"
#include "tests/integration/cluster_of_processes.h"

namespace gpulet::testing::rolling_restart_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kFrontends = ClusterOfProcesses::kFrontends;
constexpr milliseconds kPause{5};

struct Tally {
  std::atomic<std::uint64_t> answered = 0;
  std::uint64_t resent = 0;  // the connection ended without a byte of an answer
  std::vector<std::string> failures;
};

// One request after another over kept connections. A client that finds its connection closed sends
// again, as RFC 9112 section 9.3.1 allows it for what may be repeated.
void ask_over_http(const ClusterOfProcesses& cluster, const std::atomic<bool>& stop, Tally& tally) {
  const std::string body =
      R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,1],"data":[7]}]})";
  std::unique_ptr<conformance::HttpConnection> connection;
  std::size_t turn = 0;
  while (!stop) {
    std::this_thread::sleep_for(kPause);
    try {
      if (connection == nullptr) {
        connection =
            std::make_unique<conformance::HttpConnection>(cluster.ports(turn++ % kFrontends).http);
      }
    } catch (const std::exception&) {
      continue;  // it does not listen: the next one
    }
    try {
      conformance::HttpAnswer answer = connection->ask("POST", "/v2/models/a/infer", body,
                                                       {{"Content-Type", "application/json"}});
      ++tally.answered;
      if (answer.status != 200) tally.failures.push_back(answer.body);
      if (answer.headers["connection"] == "close") connection.reset();
    } catch (const std::exception&) {
      ++tally.resent;
      connection.reset();
    }
  }
}

void ask_over_grpc(const ClusterOfProcesses& cluster, const std::atomic<bool>& stop, Tally& tally) {
  std::string target = "ipv4:";
  for (std::size_t i = 0; i < kFrontends; ++i)
    target += (i == 0 ? "" : ",") + ("127.0.0.1:" + std::to_string(cluster.ports(i).grpc));
  conformance::GrpcConnection connection(target);
  conformance::InferRequest request;
  request.set_model_name("a");
  auto* const input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("UINT8");
  input->add_shape(1);
  input->add_shape(1);
  request.add_raw_input_contents("\7");
  while (!stop) {
    std::this_thread::sleep_for(kPause);
    ::grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + seconds(15));
    const auto answer = connection.call<conformance::InferResponse>("ModelInfer", request, context);
    ++tally.answered;
    if (!answer.status.ok()) tally.failures.push_back(answer.status.error_message());
  }
}

// `gpulet load --also` over frames.
Result<load::LoadReport> ask_over_frames(const ClusterOfProcesses& cluster,
                                         const std::atomic<bool>& stop,
                                         std::atomic<std::uint64_t>& served_so_far) {
  config::WorkloadModel workload;
  workload.name = "a";
  workload.rate = 100;
  const load::Target target("127.0.0.1", cluster.ports(0).clients);
  const auto served = load::fetch_models(target);
  if (!served.ok()) return served.status();
  const auto prepared = load::prepare({workload}, served.value(), {}, 1);
  if (!prepared.ok()) return prepared.status();
  load::LoadOptions options;
  options.target = target;
  for (std::size_t i = 1; i < kFrontends; ++i)
    options.others.push_back({"127.0.0.1", cluster.ports(i).clients});
  options.connections = 6;
  options.generator.duration = seconds(90);
  options.on_progress = [&](const load::Progress& progress, Duration) {
    served_so_far = progress.served;
    return !stop;
  };
  return load::run_load(prepared.value(), options);
}

TEST(RollingRestart, NoRequestFails) {
  ClusterOfProcesses cluster;
  ASSERT_TRUE(cluster.all_serve());
  std::atomic<bool> stop = false;
  Tally http;
  Tally grpc;
  std::atomic<std::uint64_t> served_over_frames = 0;
  Result<load::LoadReport> frames = Status(StatusCode::internal, "not run");
  std::thread http_client([&] { ask_over_http(cluster, stop, http); });
  std::thread grpc_client([&] { ask_over_grpc(cluster, stop, grpc); });
  std::thread frames_client([&] { frames = ask_over_frames(cluster, stop, served_over_frames); });
  EXPECT_TRUE(
      comes_true([&] { return http.answered > 0 && grpc.answered > 0 && served_over_frames > 0; }));
  for (std::size_t i = 0; i < kFrontends; ++i) {
    cluster.end(i, SIGTERM);
    EXPECT_LT(cluster.leader(), kFrontends);
    cluster.start(i);
    EXPECT_TRUE(cluster.all_serve()) << "after the restart of frontend " << i;
  }
  stop = true;
  http_client.join();
  grpc_client.join();
  frames_client.join();

  EXPECT_GT(http.answered, 100U);
  EXPECT_EQ(http.failures, std::vector<std::string>());
  EXPECT_GT(grpc.answered, 100U);
  EXPECT_EQ(grpc.failures, std::vector<std::string>());
  ASSERT_TRUE(frames.ok()) << frames.status().to_string();
  const load::ModelRow& row = frames.value().models.at(0);
  EXPECT_GT(row.served, 100U);
  EXPECT_EQ(row.errors, 0U);
  EXPECT_EQ(row.dropped, 0U);
  for (const auto& [code, reason] : row.reasons)
    ADD_FAILURE() << to_string(code) << ": " << reason.count << " x " << reason.first_message;
  std::printf("http: %lu answered, %lu resent; grpc: %lu; frames: %lu served, %lu late\n",
              http.answered.load(), http.resent, grpc.answered.load(), row.served, row.late);
}

}  // namespace
}  // namespace gpulet::testing::rolling_restart_test
