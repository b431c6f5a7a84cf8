// Writes the four generated workloads as files for the command line: the models' latencies as
// `gpulet profile import` reads them, a cluster, and a demand for each workload.
//
//   bench_mig_workload --out FOLDER [--batch-ms MS] [--largest-batch B] [--sub-linear PART]
//                      [--devices N] [--geometry NAME] [--seed N]
//
// The planner allows a batch half of the objective. So the objective of a demand is twice
// --batch-ms. A model has no latencies for instances with too little memory.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/mig/tasks.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;  // NOLINT(google-build-using-namespace)
using schedule::mig::testing::Model;

struct Settings {
  std::string out;
  schedule::mig::testing::BatchLimit limit;
  double sub_linear = 0.5;
  std::uint32_t devices = 600;
  std::string geometry = "a100-40-strict";
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

void write_cluster(const partition::MigGeometry& geometry, std::uint32_t devices,
                   const std::filesystem::path& file) {
  std::ofstream(file) << R"({"nodes":[{"name":"n0","devices":[{"type":"generated","count":)"
                      << devices << R"(,"partitioning":"simulated","geometry":")" << geometry.name()
                      << R"(","allow_3g_beside_4g":)"
                      << (geometry.allows_3g_beside_4g() ? "true" : "false") << "}]}]}\n";
}

void write_demand(const schedule::mig::DeploymentTask& task,
                  const schedule::mig::testing::BatchLimit& limit,
                  const std::filesystem::path& file) {
  std::ofstream out(file);
  out.precision(12);
  out << R"({"models":[)";
  const char* between = "";
  for (const schedule::mig::Service& service : task.services) {
    out << between << R"({"name":")" << service.name << R"(","rate":)" << service.need
        << R"(,"slo_ms":)" << 2 * limit.ms << R"(,"max_batch":)" << limit.largest << '}';
    between = ",\n";
  }
  out << "]}\n";
}

void write_all(const Settings& settings) {
  const partition::MigGeometry geometry = bench::geometry_of(settings.geometry);
  const std::filesystem::path folder = settings.out;
  std::filesystem::create_directories(folder);
  const std::vector<Model> models =
      schedule::mig::testing::generated_models(settings.seed, 24, settings.sub_linear);
  write_latencies(models, geometry, folder / "latency.csv");
  write_cluster(geometry, settings.devices, folder / "cluster.json");
  for (const auto& workload :
       schedule::mig::testing::generated_workloads(settings.seed, models.size())) {
    write_demand(schedule::mig::testing::task_of(workload, models, geometry, 1, settings.limit),
                 settings.limit, folder / (workload.name + ".json"));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  bench::Options command_line("Writes MIG-serving's generated workloads as files");
  command_line.add("--out", settings.out, "folder").required();
  command_line.add("--batch-ms", settings.limit.ms, "that a batch may take").positive();
  command_line.add("--largest-batch", settings.limit.largest).positive();
  command_line.add("--sub-linear", settings.sub_linear, "part of the models at batch 8")
      .in_range(0, 1);
  command_line.add("--devices", settings.devices).positive();
  command_line.add("--geometry", settings.geometry, "-strict at the end: no 3g beside a 4g");
  command_line.add("--seed", settings.seed, "of models and needs");
  if (const auto code = command_line.parse(argc, argv)) return *code;
  write_all(settings);
}
