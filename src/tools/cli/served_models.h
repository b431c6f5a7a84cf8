// The models that `gpulet serve` serves: found, measured and given objectives at the start, and
// again when a file of theirs changes. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/profile.h"
#include "tools/cli/model_options.h"
#include "tools/measure/machine.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

class ServedModels {
 public:
  // `device`: as --device; empty: the GPUs, or the cores if no model runs on a GPU. Prints what is
  // left out and how the objectives were chosen. Fails with cancelled after a signal, with invalid
  // for a wrong file or option, and with another code if the machine cannot serve the models.
  [[nodiscard]] static Result<ServedModels> prepare(const ModelFileOptions& options,
                                                    const std::string& device);

  [[nodiscard]] const std::vector<config::ModelConfig>& models() const { return found_.models; }
  [[nodiscard]] const std::vector<std::string>& applications() const { return found_.applications; }
  [[nodiscard]] const profile::Profile& profile() const { return profile_; }
  [[nodiscard]] const MachineDevices& machine() const { return machine_; }
  [[nodiscard]] const ProxyPrograms& proxies() const { return proxies_; }
  // Whether the other models are served without this one if it cannot be served.
  [[nodiscard]] bool may_be_left_out(const std::string& model) const {
    return found_.may_be_left_out.contains(model);
  }

  // Looks for changed files, at most once a second. Returns true, and prints which, if the models
  // or their measurements have changed. A model whose new version cannot be served stays as it is.
  // May take as long as a measurement.
  [[nodiscard]] bool refresh();

 private:
  // The size and the modification time of each file.
  using Fingerprint =
      std::map<std::filesystem::path, std::pair<std::uintmax_t, std::filesystem::file_time_type>>;

  explicit ServedModels(ModelFileOptions options) : options_(std::move(options)) {}
  [[nodiscard]] Fingerprint fingerprint() const;
  [[nodiscard]] Status measure(DescribedModels& found, profile::Profile& measured,
                               bool beside_others) const;
  [[nodiscard]] bool take(DescribedModels found, profile::Profile measured);

  ModelFileOptions options_;
  MachineDevices machine_{{}, {}, {}, {}, {}, Status(StatusCode::not_found, "not looked for")};
  ProxyPrograms proxies_;
  DescribedModels found_;
  profile::Profile profile_;
  Fingerprint seen_;     // of the files as they were described
  Fingerprint changed_;  // of the latest look that differed from seen_
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace gpulet::tools
