// gpulet profile interference: pairs of batches beside each other on a device of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpulet/profile/store.h"
#include "tools/cli/profile_commands.h"
#include "tools/measure/machine.h"
#include "tools/measure/pair_run.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

struct InterferenceOptions : MeasureOptions {
  std::string profile;
  std::vector<int> sizes;
  std::vector<std::uint32_t> batches;
  double seconds_per_run = 0.5;
  double minutes = 10;
  profile::FitOptions fit;
  bool keep = false;
  bool replace = false;
};

using PairKey = std::tuple<std::string, std::uint32_t, Share, std::string, std::uint32_t, Share>;
using PairTable = std::map<PairKey, profile::PairSample>;

void add_pairs(PairTable& pairs, const std::vector<profile::PairSample>& more) {
  for (const profile::PairSample& pair : more) {
    pairs.insert_or_assign(
        {pair.model, pair.batch, pair.share, pair.other_model, pair.other_batch, pair.other_share},
        pair);
  }
}

std::vector<profile::PairSample> list_of(const PairTable& pairs) {
  std::vector<profile::PairSample> list;
  for (const auto& [key, pair] : pairs) list.push_back(pair);
  return list;
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

// Stores the pairs of the profile with those that a run has measured so far.
class PairStore {
 public:
  PairStore(const InterferenceOptions& options, profile::Profile profile,
            const std::filesystem::path& place)
      : options_(options),
        folder_(place.has_filename() ? place.parent_path() : place.parent_path().parent_path()),
        profile_(std::move(profile)) {
    if (options.replace) profile_.pairs.clear();
    add_pairs(pairs_, profile_.pairs);
  }

  // `planned`: pairs of batches of the whole choice, of which `known` were measured before.
  [[nodiscard]] Status store(const PairRun& run, const std::string& partitioning,
                             std::size_t planned, std::size_t known) {
    PairTable all = pairs_;
    add_pairs(all, run.pairs);
    profile_.pairs = list_of(all);
    std::string source =
        fmt::format("gpulet profile interference, {}, {}: {} of {} pairs, drawn with seed {}",
                    utc_date_now(), partitioning, known + run.measured, planned, options_.fit.seed);
    if (run.drift) source += "; alone now over the profile: " + fixed(*run.drift, 3);
    profile_.provenance["interference"] = source;
    if (Status fitted = keep_fit(profile_, options_.fit); !fitted.ok()) return fitted;
    return profile::write_profile(profile_, folder_);
  }

  [[nodiscard]] const profile::Profile& profile() const { return profile_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  const InterferenceOptions& options_;
  const std::filesystem::path folder_;
  profile::Profile profile_;
  PairTable pairs_;  // of earlier runs
};

int run_interference(const InterferenceOptions& options) {
  const auto named = parse_measured_device(options.device);
  if (!named.ok()) return bad_input(named.status());
  auto models = choose_models(options.models, options.only);
  if (!models.ok()) return bad_input(models.status());
  const auto proxies = choose_proxies(options);
  if (!proxies.ok()) return bad_input(proxies.status());
  const auto place = std::filesystem::absolute(options.profile).lexically_normal();
  const auto read = profile::read_profile(place);
  if (!read.ok()) return bad_input(read.status());
  auto groups = plan_pairs(read.value(), choice_of(options, models.value()));
  if (groups.empty()) {
    return bad_input({StatusCode::invalid,
                      fmt::format("{}: no two measured sizes of these models fit on one device; "
                                  "measure smaller sizes with `gpulet profile run` and --sizes, or "
                                  "choose other models",
                                  options.profile)});
  }
  PairStore store(options, read.value(), place);
  const std::size_t planned = count_pairs(groups);
  if (!options.keep) groups = without_measured(std::move(groups), store.profile().pairs);
  const std::size_t known = planned - count_pairs(groups);
  if (groups.empty()) {
    std::cerr << "gpulet: the profile has all " << planned
              << " pairs; --keep or --replace measures them again\n";
    print_written(store.profile(), store.folder(), {}, options.json);
    return kSucceeded;
  }
  auto device = open_device(named.value(), options.partitioning);
  if (!device.ok()) return measuring_failed(device.status());
  const std::string partitioning = device.value().facts.find("partitioning")->second;
  const auto measured = measure_pairs(
      {.profile = read.value(),
       .models = std::move(models).value(),
       .proxies = proxies.value(),
       .groups = std::move(groups),
       .seed = options.fit.seed,
       .per_run = from_seconds(options.seconds_per_run),
       .budget = from_seconds(60 * options.minutes),
       .loads_at_once = std::max<std::size_t>(1, find_machine_devices().cores.size() / 2)},
      device.value(), std::cerr, [&](const PairRun& so_far) {
        const Status stored = store.store(so_far, partitioning, planned, known);
        if (!stored.ok()) std::cerr << "gpulet: not stored yet: " << stored.message() << '\n';
      });
  device.value().driver.reset();  // stops its daemon
  if (!measured.ok()) {
    std::cerr << "gpulet: " << place.string()
              << " has the pairs that were measured; the same command measures the others\n";
    return measuring_failed(measured.status());
  }
  int exit_code = kSucceeded;
  for (const Status& failure : measured.value().failures) exit_code = run_failed(failure);
  if (measured.value().pairs.empty()) return kRunFailed;
  if (Status stored = store.store(measured.value(), partitioning, planned, known); !stored.ok())
    return measuring_failed(stored);
  print_written(store.profile(), store.folder(), measured.value().failures, options.json);
  return exit_code;
}

}  // namespace

void add_profile_interference(CLI::App& profile, Action& chosen) {
  const auto [command, options] =
      add_command(profile, chosen, "interference",
                  "measure the interference between models on one device", run_interference);
  add_measure_options(*command, *options);
  command
      ->add_option("--profile", options->profile,
                   "folder of the device's profile, which receives the pairs and their fit")
      ->required();
  command->add_option("--sizes", options->sizes, "sizes of the profile to measure (default: all)")
      ->delimiter(',')
      ->check(CLI::Range(1, 99));
  command
      ->add_option("--batches", options->batches,
                   "batches of the profile to measure (default: all)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  add_checked(*command, "--seconds-per-run", options->seconds_per_run,
              "seconds for each run of a pair: each batch alone, then both together",
              CLI::Range(0.001, 3600.0));
  add_checked(*command, "--minutes", options->minutes,
              "minutes after which no further pair is measured", CLI::Range(0.001, 1e5));
  CLI::Option* const replace = command->add_flag(
      "--replace", options->replace,
      "discard the pairs of the profile (default: measure only those that it lacks)");
  command
      ->add_flag("--keep", options->keep,
                 "measure also those that the profile has, and keep its others")
      ->excludes(replace);
  add_fit_options(*command, options->fit);
}

}  // namespace gpulet::tools
