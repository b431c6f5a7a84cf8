// gpulet profile interference: what batches cost each other on a device of this machine.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpulet/profile/store.h"
#include "tools/measured_device.h"
#include "tools/pair_run.h"
#include "tools/profile_check.h"
#include "tools/profile_support.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct InterferenceOptions : MeasureFlags {
  std::string profile;
  std::vector<int> sizes;
  std::vector<std::uint32_t> batches;
  double seconds_per_run = 0.5;
  double minutes = 10;
  profile::FitOptions fit;
  bool keep = false;
};

// Those measured now, and with --keep the others that were there.
void set_pairs(profile::Profile& profile, std::vector<profile::PairSample> measured, bool keep) {
  const auto key = [](const profile::PairSample& pair) {
    return std::tuple(pair.model, pair.batch, pair.share, pair.other_model, pair.other_batch,
                      pair.other_share);
  };
  std::map<decltype(key(profile::PairSample())), profile::PairSample> pairs;
  if (keep) {
    for (profile::PairSample& pair : profile.pairs) pairs.insert_or_assign(key(pair), pair);
  }
  for (profile::PairSample& pair : measured) pairs.insert_or_assign(key(pair), pair);
  profile.pairs.clear();
  for (auto& [name, pair] : pairs) profile.pairs.push_back(std::move(pair));
}

PairChoice choice_of(const InterferenceOptions& options,
                     const std::vector<config::ModelConfig>& models) {
  PairChoice choice;
  for (const config::ModelConfig& model : models) choice.models.push_back(model.name);
  for (const int size : options.sizes) choice.sizes.insert(Share{size});
  choice.batches.insert(options.batches.begin(), options.batches.end());
  choice.seed = options.fit.seed;
  return choice;
}

void tell_source(const InterferenceOptions& options, const MeasuredDevice& device,
                 const PairRun& run, profile::Provenance& provenance) {
  std::string text = "gpulet profile interference, " + date_now() + ", " +
                     device.facts.find("partitioning")->second + ": " +
                     std::to_string(run.measured) + " of " + std::to_string(run.planned) +
                     " pairs, drawn with seed " + std::to_string(options.fit.seed);
  if (run.drift) text += "; alone now over the profile: " + fixed(*run.drift, 3);
  provenance["interference"] = text;
}

int run(const InterferenceOptions& options) {
  const auto named = parse_device(options.device);
  if (!named.ok()) return bad_input(named.status());
  auto models = choose_models(options.models, options.only);
  if (!models.ok()) return bad_input(models.status());
  const auto proxy = find_program("gpulet-proxy", options.proxy, "--proxy");
  if (!proxy.ok()) return bad_input(proxy.status());
  const auto place = std::filesystem::absolute(options.profile).lexically_normal();
  auto read = profile::read_profile(place);
  if (!read.ok()) return bad_input(read.status());
  profile::Profile& profile = read.value();
  auto groups = plan_pairs(profile, choice_of(options, models.value()));
  if (groups.empty()) {
    return bad_input({StatusCode::invalid,
                      options.profile + ": no two measured sizes of these models fit a device "
                                        "together; measure smaller ones with `gpulet profile run "
                                        "--sizes`, or choose others"});
  }
  auto device = open_device(named.value(), options.partitioning);
  if (!device.ok()) return measuring_failed(device.status());
  auto measured = measure_pairs({.profile = profile,
                                 .models = std::move(models).value(),
                                 .proxy = proxy.value(),
                                 .groups = std::move(groups),
                                 .per_run = from_seconds(options.seconds_per_run),
                                 .budget = from_seconds(60 * options.minutes)},
                                device.value(), std::cerr);
  device.value().driver.reset();  // with its daemon
  if (!measured.ok()) return measuring_failed(measured.status());
  int exit_code = kSucceeded;
  for (const Status& failure : measured.value().failures) exit_code = run_failed(failure);
  if (measured.value().pairs.empty()) return kRunFailed;

  tell_source(options, device.value(), measured.value(), profile.provenance);
  set_pairs(profile, std::move(measured.value().pairs), options.keep);
  if (Status fitted = keep_fit(profile, options.fit); !fitted.ok()) return bad_input(fitted);
  const auto folder =
      place.has_filename() ? place.parent_path() : place.parent_path().parent_path();
  if (Status written = profile::write_profile(profile, folder); !written.ok()) {
    return run_failed(written);
  }
  tell_written(profile, folder, measured.value().failures, options.json);
  return exit_code;
}

}  // namespace

void add_profile_interference(CLI::App& profile, Run& chosen) {
  CLI::App* const command = profile.add_subcommand(
      "interference", "measure what models cost each other side by side on one device");
  const auto options = std::make_shared<InterferenceOptions>();
  add_measure_flags(*command, *options);
  command
      ->add_option("--profile", options->profile,
                   "the folder of the device's profile, which gets the pairs and their fit")
      ->required();
  command->add_option("--sizes", options->sizes, "of those that the profile has (default: all)")
      ->delimiter(',')
      ->check(CLI::Range(1, 99));
  command->add_option("--batches", options->batches, "of those that the profile has (default: all)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--seconds-per-run", options->seconds_per_run,
                   "of one batch alone, of the other, and of both")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command->add_option("--minutes", options->minutes, "no new pair after that; those left are told")
      ->check(CLI::Range(0.001, 1e5))
      ->capture_default_str();
  command->add_flag("--keep", options->keep,
                    "keep what the profile says about pairs that are not measured now");
  add_fit_options(*command, options->fit);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace gpulet::tools
