// How good estimated latencies are: every model of a profile is left out in turn, probed at two
// cells of its own table, and estimated from the others.
//
//   bench_estimates --profile profiles/reference-gpu --profile profiles/h200
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/support/options.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/profile/store.h"

namespace {

using namespace gpulet;  // NOLINT(google-build-using-namespace)

constexpr double kPromised = 0.4;

// One cell that was not probed.
struct Cell {
  std::string model;
  std::string nearest;
  profile::LatencySample measured;
  double estimated_ms = 0;  // without the margin

  // Positive: the estimate is too high.
  [[nodiscard]] double error() const { return estimated_ms / measured.latency_ms - 1; }
};

std::vector<Share> sizes_of(const profile::LatencyTable& table) {
  std::set<Share> sizes;
  for (const profile::LatencySample& one : table.samples()) sizes.insert(one.share);
  return {sizes.begin(), sizes.end()};
}

std::vector<Cell> estimate(const profile::Profile& measured, const std::string& name, Share size,
                           std::uint32_t most) {
  const profile::LatencyTable& real = measured.find(name)->latency;
  profile::Profile others = measured;
  others.models.erase(name);
  const std::uint32_t largest = std::min(most, real.largest_batch(size));
  std::vector<profile::LatencySample> probes;
  for (const std::uint32_t batch : std::set<std::uint32_t>{1, largest}) {
    const std::optional<double> latency_ms = real.latency_ms(batch, size);
    if (latency_ms) probes.push_back({.batch = batch, .share = size, .latency_ms = *latency_ms});
  }
  if (probes.empty()) return {};
  const auto nearest = profile::nearest_model(others, probes);
  const profile::LatencyTable table = profile::estimated_latencies(
      nearest ? nearest->latency : nullptr, probes, {sizes_of(real), largest, 1});
  std::vector<Cell> cells;
  for (const profile::LatencySample& one : real.samples()) {
    const bool probed = one.share == size && (one.batch == 1 || one.batch == largest);
    if (probed || one.batch > largest) continue;
    cells.push_back({name, nearest ? nearest->name : "none", one,
                     table.latency_ms(one.batch, one.share).value()});
  }
  return cells;
}

void print_summary(Share size, std::vector<Cell> cells) {
  std::sort(cells.begin(), cells.end(),
            [](const Cell& a, const Cell& b) { return std::abs(a.error()) < std::abs(b.error()); });
  const auto part_of = [&cells](const auto& condition) {
    return 100.0 * static_cast<double>(std::count_if(cells.begin(), cells.end(), condition)) /
           static_cast<double>(cells.size());
  };
  const auto at = [&cells](double part) {
    const auto last = static_cast<double>(cells.size() - 1);
    return 100 * std::abs(cells[static_cast<std::size_t>(part * last)].error());
  };
  fmt::print("{:>5} % {:>6} {:>8.1f} {:>8.1f} {:>8.1f} {:>10.1f} {:>12.1f}\n", size.percent,
             cells.size(), at(0.5), at(0.9), at(1),
             part_of([](const Cell& one) { return std::abs(one.error()) <= kPromised; }),
             part_of([](const Cell& one) {
               return one.measured.latency_ms > profile::kEstimateMargin * one.estimated_ms;
             }));
}

void print_missed(std::vector<Cell> cells, std::size_t most) {
  std::erase_if(cells, [](const Cell& one) { return std::abs(one.error()) <= kPromised; });
  std::sort(cells.begin(), cells.end(),
            [](const Cell& a, const Cell& b) { return std::abs(a.error()) > std::abs(b.error()); });
  for (std::size_t i = 0; i < std::min(most, cells.size()); ++i) {
    const Cell& one = cells[i];
    fmt::print("    {} from {}, batch {} at {} %: {:.3g} ms, estimated {:.3g} ms ({:+.0f} %)\n",
               one.model, one.nearest, one.measured.batch, one.measured.share.percent,
               one.measured.latency_ms, one.estimated_ms, 100 * one.error());
  }
}

void report(const profile::Profile& measured, std::uint32_t most, std::size_t missed) {
  std::set<Share> sizes;
  for (const auto& [name, model] : measured.models) {
    for (const Share size : sizes_of(model.latency)) sizes.insert(size);
  }
  fmt::print("\n{}, {} models, probes of batches 1 and {}\n", measured.name, measured.models.size(),
             most);
  fmt::print("{:>7} {:>6} {:>8} {:>8} {:>8} {:>10} {:>12}\n", "probed", "cells", "p50 %", "p90 %",
             "worst %", "in 40 % %", "over margin %");
  for (const Share size : sizes) {
    std::vector<Cell> cells;
    for (const auto& [name, model] : measured.models) {
      std::vector<Cell> of_model = estimate(measured, name, size, most);
      cells.insert(cells.end(), of_model.begin(), of_model.end());
    }
    if (cells.empty()) continue;
    print_summary(size, cells);
    print_missed(std::move(cells), missed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> folders;
  std::uint32_t most = 32;
  std::uint32_t missed = 0;
  gpulet::bench::Options options("Errors of latencies that are estimated from two probes");
  options.add("--profile", folders, "its folder; several are allowed").required();
  options.add("--largest-batch", most, "the larger batch that is probed");
  options.add("--missed", missed, "so many of the cells with the largest errors, beyond 40 %");
  if (const auto code = options.parse(argc, argv)) return *code;
  for (const std::string& folder : folders) {
    const auto measured = gpulet::profile::read_profile(folder);
    if (!measured.ok()) {
      fmt::print(stderr, "{}\n", measured.status().message());
      return 1;
    }
    report(measured.value(), most, missed);
  }
  return 0;
}
