// What the frontends of a large cluster do besides serving: 10,000 devices, 20,000 gpulets, 1,000
// models and 100 frontends (docs/scale.md).
#include <benchmark/benchmark.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "serve/cluster/owners.h"

namespace {

using namespace gpulet;
using namespace std::chrono_literals;

constexpr std::size_t kGpulets = 20'000;
constexpr std::size_t kNodes = 1'250;
constexpr std::size_t kModels = 1'000;
constexpr std::size_t kMembers = 100;

std::string node(std::size_t number) { return "node-" + std::to_string(number % kNodes); }
std::string model(std::size_t number) { return "model-" + std::to_string(number % kModels); }
std::string member(std::size_t number) { return "frontend-" + std::to_string(number); }

// Each model has twenty gpulets; every tenth gpulet has a second model.
std::vector<serve::OwnedPart> parts() {
  std::vector<serve::OwnedPart> made;
  for (std::size_t i = 0; i < kGpulets; ++i) {
    serve::OwnedPart part{{i + 1}, node(i), {model(i)}};
    if (i % 10 == 0 && i % kModels != 0) part.models.push_back(model(i % kModels - 1));
    part.rate = 100 + static_cast<double>(i % 7);
    made.push_back(std::move(part));
  }
  return made;
}

std::vector<serve::OwnerCandidate> candidates() {
  std::vector<serve::OwnerCandidate> made(1);
  for (std::size_t i = 1; i < kMembers; ++i) {
    made.push_back({member(i), {}, true});
    for (std::size_t one = 0; one < kNodes; ++one) made.back().nodes.insert(node(one));
  }
  return made;
}

void choose_owners(benchmark::State& state) {
  const auto all = parts();
  const auto members = candidates();
  while (state.KeepRunning())
    benchmark::DoNotOptimize(serve::assign_owners(serve::group_parts(all), members, 8));
}
BENCHMARK(choose_owners)->Unit(benchmark::kMillisecond);

// Of one owner: a hundredth of the gpulets.
void encode_routes(benchmark::State& state) {
  SetRoutes routes{{1}, {}};
  for (std::size_t i = 0; i < kGpulets / kMembers; ++i) {
    const std::vector<Duration> execution(16, 4ms);
    routes.nodes.push_back(
        {node(i), {{{i + 1}, 20ms, {{model(i), std::string(64, 'a'), execution, 100}}}}});
  }
  const PeerRequest message = routes;
  while (state.KeepRunning()) benchmark::DoNotOptimize(protocol::encode(message));
}
BENCHMARK(encode_routes)->Unit(benchmark::kMicrosecond);

// Of half a second at 100,000 requests per second: ten models, batches of 16.
void decode_report(benchmark::State& state) {
  OwnerReport report;
  for (std::size_t i = 0; i < kNodes; ++i) report.nodes.push_back(node(i));
  for (std::size_t i = 0; i < kModels / kMembers; ++i)
    report.models.push_back({model(i), 5000, 5000, 0, 0, 0, 10, std::vector<Duration>(1024, 9ms)});
  for (std::size_t i = 0; i < kGpulets / kMembers; ++i)
    report.gpulets.push_back({{i + 1}, 100, 1600, 400ms, 1600, 2});
  for (std::size_t i = 0; i < 50'000 / 16; ++i)
    report.batches.push_back({{i % 200 + 1}, model(i % 10), 16, 4ms});
  const protocol::OutgoingFrame frame = protocol::encode(PeerRequest(report));
  const auto head = std::as_bytes(std::span(frame.head));
  const auto header =
      protocol::decode_frame_header(head.first<protocol::kFrameHeaderBytes>(), {}).value();
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(
        protocol::decode<PeerRequest>(header, head.subspan(protocol::kFrameHeaderBytes), {}));
  }
  state.counters["bytes"] = static_cast<double>(frame.head.size());
}
BENCHMARK(decode_report)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
