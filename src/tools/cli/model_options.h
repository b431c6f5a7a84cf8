// The options that describe model files and their measurement on this machine: what `gpulet serve`
// and `gpulet models add` share. One thread.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/profile/profile.h"
#include "tools/cli/command.h"
#include "tools/measure/machine.h"
#include "tools/serve/measured_models.h"
#include "tools/serve/model_arguments.h"

namespace gpulet::tools {

struct ModelFileOptions {
  ModelArguments models;
  std::string slo;
  std::string cache;
  double measure_seconds = 30;
  bool measure_again = false;
  bool native_models = false;
};

void add_model_file_options(CLI::App& command, ModelFileOptions& options);

// The models that the options name, with the objective of --slo if it is given. Prints what is left
// out, and what is not used. Fails as describe_models().
[[nodiscard]] Result<DescribedModels> find_models(const ModelFileOptions& options,
                                                  std::ostream& out);

// The devices of this machine on which the models are served, as choose_devices() with the formats
// of their files. Prints why, where the cores serve for want of a GPU.
[[nodiscard]] Result<MachineDevices> devices_for(const std::vector<config::ModelConfig>& models,
                                                 const ProxyPrograms& proxies,
                                                 const std::string& device, std::ostream& out);

// What to measure for them on `device`, which is a value of `gpulet profile run --device`. Fails
// with not_found without a proxy program.
[[nodiscard]] Result<QuickMeasurement> measurement_for(
    const ModelFileOptions& options, const std::vector<config::ModelConfig>& models,
    const std::string& device);

// Measures the models, and takes those out that cannot be measured and may be left out; prints
// which. Fails as measure_quickly(), with invalid for one that may not be left out, and where none
// remains.
[[nodiscard]] Result<profile::Profile> measure_models(const QuickMeasurement& request,
                                                      DescribedModels& described,
                                                      std::ostream& out);

// Proposes an objective for each model that has none, and says how it was chosen. Takes those out
// that no batch can serve within their objective, as measure_models() does.
[[nodiscard]] Status settle_objectives(const profile::Profile& measured, DescribedModels& described,
                                       std::ostream& out);

}  // namespace gpulet::tools
