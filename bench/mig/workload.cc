// Writes the four generated workloads as files for the command line: the models' latencies as
// `gpulet profile import` reads them, a cluster, and a demand for each workload.
//
//   bench_mig_workload DIRECTORY [devices geometry seed]     600 a100-40 1
//
// A model has no latencies for instances with too little memory.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/support/mig/workloads.h"

namespace {

using namespace gpulet;  // NOLINT(google-build-using-namespace)
using schedule::mig::testing::Model;

struct Options {
  std::filesystem::path directory;
  std::string devices = "600";
  std::string geometry = "a100-40";
  std::uint64_t seed = 1;
};

void write_latencies(const std::vector<Model>& models, const partition::MigGeometry& geometry,
                     const std::filesystem::path& file) {
  std::ofstream out(file);
  out.precision(12);
  out << "model,batch,partition,latency_ms\n";
  for (const Model& model : models) {
    for (const partition::MigProfile& profile : geometry.profiles()) {
      if (profile.memory_mb < model.memory_mb) continue;
      for (const std::uint32_t batch : schedule::mig::testing::kBatches) {
        out << model.name << ',' << batch << ',' << partition::mig_profile_name(profile.slices)
            << ',' << schedule::mig::testing::latency_ms(model, batch, profile.slices) << '\n';
      }
    }
  }
}

void write_cluster(const Options& options, const std::filesystem::path& file) {
  std::ofstream(file) << R"({"nodes":[{"name":"n0","devices":[{"type":"generated","count":)"
                      << options.devices << R"(,"partitioning":"simulated","geometry":")"
                      << options.geometry << "\"}]}]}\n";
}

void write_demand(const schedule::mig::DeploymentTask& task, const std::filesystem::path& file) {
  std::ofstream out(file);
  out.precision(12);
  out << R"({"models":[)";
  const char* between = "";
  for (const schedule::mig::Service& service : task.services) {
    out << between << R"({"name":")" << service.name << R"(","rate":)" << service.need
        << R"(,"slo_ms":)" << schedule::mig::testing::kSloMs << R"(,"max_batch":)"
        << schedule::mig::testing::kBatches.back() << '}';
    between = ",\n";
  }
  out << "]}\n";
}

int write_all(const Options& options) {
  const auto geometry = partition::MigGeometry::of(options.geometry);
  if (!geometry.ok()) {
    std::cerr << geometry.status().message() << '\n';
    return 2;
  }
  std::filesystem::create_directories(options.directory);
  const std::vector<Model> models = schedule::mig::testing::generated_models(options.seed);
  write_latencies(models, geometry.value(), options.directory / "latency.csv");
  write_cluster(options, options.directory / "cluster.json");
  for (const auto& workload :
       schedule::mig::testing::generated_workloads(options.seed, models.size())) {
    write_demand(schedule::mig::testing::task_of(workload, models, geometry.value()),
                 options.directory / (workload.name + ".json"));
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::cerr << "usage: bench_mig_workload DIRECTORY [devices geometry seed]\n";
    return 2;
  }
  Options options{.directory = arguments[1]};
  if (count > 2) options.devices = arguments[2];
  if (count > 3) options.geometry = arguments[3];
  if (count > 4) options.seed = std::strtoull(arguments[4], nullptr, 10);
  return write_all(options);
}
