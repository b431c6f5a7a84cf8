#include "tools/cli/profile_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/profile/store.h"
#include "gpulet/research/research.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

std::size_t count_cells(const profile::Profile& profile) {
  std::size_t cells = 0;
  for (const auto& [name, model] : profile.models) {
    cells += model.latency.samples().size();
    for (const auto& [processes, table] : model.shared_latency) cells += table.samples().size();
  }
  return cells;
}

std::string percent(double fraction) { return fixed(100 * fraction, 1) + " %"; }

nlohmann::ordered_json doubts_json(const profile::Profile& profile) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [name, model] : profile.models) {
    for (const profile::LatencySample& sample : model.latency.samples()) {
      if (sample.doubt == profile::Doubt::none) continue;
      list.push_back({{"model", name},
                      {"batch", sample.batch},
                      {"partition", sample.share.percent},
                      {"latency_ms", sample.latency_ms},
                      {"doubt", profile::to_string(sample.doubt)}});
    }
  }
  return list;
}

std::string fit_line(const profile::Profile& profile) {
  if (!profile.interference) return "";
  const profile::InterferenceFit& fit = *profile.interference;
  std::string line = "interference:";
  for (const profile::HeldOutErrors& errors : fit.errors) {
    line += fmt::format("{}{} {}", line.back() == ':' ? " error at p90 of held-out pairs " : ", ",
                        to_string(errors.kind), percent(errors.p90));
  }
  if (!fit.note.empty()) line += (line.back() == ':' ? " " : "; ") + fit.note;
  return line;
}

// ---- import

struct ImportOptions {
  std::string name;
  std::string latency;
  std::string utilization;
  std::string interference;
  std::string mig;
  std::string out;
  profile::FitOptions fit;
  bool json = false;
};

std::optional<std::filesystem::path> path_or_none(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return std::filesystem::path(text);
}

int run_import(const ImportOptions& options) {
  profile::CsvSources sources{.latency = options.latency,
                              .utilization = path_or_none(options.utilization),
                              .interference = path_or_none(options.interference)};
  if (!options.mig.empty()) {
    const auto geometry = partition::MigGeometry::of(options.mig);
    if (!geometry.ok()) return bad_input(geometry.status().within("--mig"));
    sources.mig = geometry.value();
  }
  auto imported = profile::import_csv(options.name, sources);
  if (!imported.ok()) return bad_input(imported.status());
  if (Status fitted = keep_fit(imported.value(), options.fit); !fitted.ok())
    return bad_input(fitted);
  if (Status written = profile::write_profile(imported.value(), options.out); !written.ok())
    return run_failed(written);
  const auto left_out = imported.value().provenance.find("left_out");
  if (left_out != imported.value().provenance.end())
    std::cerr << "gpulet: left out " << left_out->second << '\n';
  print_written(imported.value(), options.out, {}, options.json);
  return kSucceeded;
}

void add_import(CLI::App& profile, Action& chosen) {
  const auto [command, options] =
      add_command(profile, chosen, "import",
                  "make a profile from CSV files (columns: profiles/FORMAT.md)", run_import);
  command->add_option("--name", options->name, "name of the profile: the device type")->required();
  command
      ->add_option("--latency", options->latency,
                   "CSV of latencies: model,batch,partition,latency_ms")
      ->required();
  command->add_option("--utilization", options->utilization,
                      "CSV of the utilisation: model,batch,partition,l2_util,dram_util");
  command->add_option("--interference", options->interference,
                      "CSV of pairs of batches: "
                      "model,batch,partition,other_model,other_batch,other_partition,latency_ms");
  command->add_option("--mig", options->mig,
                      "GPU, such as a30, to which partitions named 1g, 2g, ... belong (default: a "
                      "GPU with seven slices)");
  command->add_option("--out", options->out, "folder of profiles to write to")->required();
  add_fit_options(*command, options->fit);
  command->add_flag("--json", options->json, "print one JSON document");
}

// ---- check: cells in doubt, and the errors of the models of interference on held-out pairs

struct ProfileCheckOptions {
  std::string profiles;
  std::string name;
  profile::FitOptions fit;
  std::string inss_cells;
  bool json = false;
};

struct CheckedProfile {
  std::string name;
  profile::InterferenceFit fit;
  std::optional<research::InssReport> inss;  // empty: this program lacks the model
  const profile::Profile* profile = nullptr;
};

nlohmann::ordered_json errors_json(const profile::HeldOutErrors& errors) {
  return {{"model", to_string(errors.kind)},
          {"p50", errors.p50},
          {"p90", errors.p90},
          {"p95", errors.p95},
          {"unseen_model_p90", errors.unseen_model_p90}};
}

nlohmann::ordered_json summary_json(const research::ErrorSummary& errors) {
  return {
      {"count", errors.count}, {"p50", errors.p50}, {"p90", errors.p90}, {"worst", errors.worst}};
}

nlohmann::ordered_json inss_json(const research::InssReport& report) {
  const research::InssErrors& errors = report.errors;
  nlohmann::ordered_json json;
  if (!report.note.empty()) json["note"] = report.note;
  json["alone"] = summary_json(errors.alone);
  json["batches"] = summary_json(errors.batches);
  json["shares"] = summary_json(errors.shares);
  json["both"] = summary_json(errors.both);
  json["beside"] = summary_json(errors.beside);
  json["models"] = nlohmann::ordered_json::object();
  for (const auto& [name, model] : errors.models) json["models"][name] = summary_json(model);
  return json;
}

void print_json(const std::vector<CheckedProfile>& checked) {
  nlohmann::ordered_json document;
  document["profiles"] = nlohmann::ordered_json::array();
  for (const CheckedProfile& profile : checked) {
    nlohmann::ordered_json& entry = document["profiles"].emplace_back();
    entry["name"] = profile.name;
    entry["pairs"] = profile.fit.pairs;
    entry["seed"] = profile.fit.seed;
    entry["train_fraction"] = profile.fit.train_fraction;
    if (!profile.fit.note.empty()) entry["note"] = profile.fit.note;
    entry["models"] = nlohmann::ordered_json::array();
    for (const auto& errors : profile.fit.errors) entry["models"].push_back(errors_json(errors));
    if (profile.inss) entry["inss"] = inss_json(*profile.inss);
    entry["in_doubt"] = doubts_json(*profile.profile);
  }
  std::cout << json_page(document);
}

void print_held_out(const profile::InterferenceFit& fit) {
  Table table = Table::of({"model"}, {"p50", "p90", "p95"});
  for (const auto& errors : fit.errors) {
    table.add_row({std::string(to_string(errors.kind)), percent(errors.p50), percent(errors.p90),
                   percent(errors.p95)});
  }
  std::cout << table.to_string();
}

// A row for each served model, a column for each model of interference.
void print_unseen(const profile::InterferenceFit& fit) {
  const auto& some = fit.errors.front().unseen_model_p90;
  if (some.empty()) return;
  std::cout << "\np90 with all pairs of a model held out:\n";
  std::vector<std::string> kinds;
  for (const auto& errors : fit.errors) kinds.emplace_back(to_string(errors.kind));
  Table table = Table::of({""}, kinds);
  for (const auto& [name, first] : some) {
    std::vector<std::string> row{name};
    for (const auto& errors : fit.errors) {
      const auto found = errors.unseen_model_p90.find(name);
      row.push_back(found == errors.unseen_model_p90.end() ? "-" : percent(found->second));
    }
    table.add_row(std::move(row));
  }
  std::cout << table.to_string();
}

// The errors of the analytical model inss.
void print_inss(const research::InssReport& report) {
  const research::InssErrors& errors = report.errors;
  std::cout << "\nerror of the latency that inss predicts without tables, on cells that were not "
               "fitted:\n";
  Table table = Table::of({""}, {"cells", "p50", "p90", "worst"});
  const auto add = [&table](const std::string& name, const research::ErrorSummary& summary) {
    if (summary.count == 0) return;
    table.add_row({name, std::to_string(summary.count), percent(summary.p50), percent(summary.p90),
                   percent(summary.worst)});
  };
  add("alone, other batches", errors.batches);
  add("alone, other sizes", errors.shares);
  add("alone, both other", errors.both);
  add("alone", errors.alone);
  for (const auto& [name, model] : errors.models) add("  " + name, model);
  add("beside one other", errors.beside);
  std::cout << table.to_string();
  if (!report.note.empty()) std::cout << report.note << '\n';
}

void print_doubts(const profile::Profile& profile) {
  bool any = false;
  for (const auto& [name, model] : profile.models) {
    const std::string doubts = doubts_text(model);
    if (doubts.empty()) continue;
    if (!any) std::cout << "cells in doubt, by batch:\n";
    any = true;
    std::cout << "  " << name << ": " << doubts << '\n';
  }
}

void print_text(const std::vector<CheckedProfile>& checked) {
  bool first = true;
  for (const CheckedProfile& profile : checked) {
    const profile::InterferenceFit& fit = profile.fit;
    std::cout << (first ? "" : "\n") << profile.name << ": " << fit.pairs << " pairs";
    first = false;
    if (!fit.note.empty()) std::cout << " (" << fit.note << ")";
    std::cout << '\n';
    print_doubts(*profile.profile);
    if (fit.errors.empty()) continue;
    std::cout << "error of the latency, " << shortest(100 * fit.train_fraction, 1)
              << " % of the pairs fitted, the others held out (seed " << fit.seed << "):\n";
    print_held_out(fit);
    print_unseen(fit);
    if (profile.inss) print_inss(*profile.inss);
  }
}

profile::FitOptions with_inss(profile::FitOptions options) {
  options.fit_inss = research::fit_pair_model();
  return options;
}

// Reads all profiles of the folder, or the one that is named.
Result<profile::ProfileSet> read_profiles_of(const ProfileCheckOptions& options) {
  if (options.name.empty()) return profile::read_profiles(options.profiles);
  auto profile = profile::read_profile(std::filesystem::path(options.profiles) / options.name);
  if (!profile.ok()) return profile.status();
  profile::ProfileSet set;
  set.emplace(options.name, std::move(profile).value());
  return set;
}

int run_profile_check(const ProfileCheckOptions& options) {
  const auto profiles = read_profiles_of(options);
  if (!profiles.ok()) return bad_input(profiles.status());
  if (!options.inss_cells.empty() && profiles.value().size() != 1) {
    return bad_input(
        {StatusCode::invalid, "--inss-cells writes the cells of one profile: name it with --name"});
  }
  std::vector<CheckedProfile> checked;
  for (const auto& [name, profile] : profiles.value()) {
    auto fit = profile::fit_interference(profile, with_inss(options.fit));
    if (!fit.ok()) return bad_input(fit.status().within("profile " + name));
    CheckedProfile& entry = checked.emplace_back();
    entry.name = name;
    entry.fit = std::move(fit).value();
    entry.profile = &profile;
    Result<research::InssReport> inss = research::inss_report(profile, options.fit.seed);
    if (inss.ok()) entry.inss = std::move(inss).value();
    if (options.inss_cells.empty()) continue;
    if (!entry.inss) return bad_input(inss.status().within("--inss-cells"));
    std::ofstream file(options.inss_cells, std::ios::trunc);
    file << entry.inss->cells;
    if (!file.flush())
      return run_failed({StatusCode::unavailable, options.inss_cells + ": cannot be written"});
  }
  options.json ? print_json(checked) : print_text(checked);
  return kSucceeded;
}

void add_profile_check(CLI::App& profile, Action& chosen) {
  const auto [command, options] = add_command(
      profile, chosen, "check",
      "list the cells in doubt, and the error of each model of interference on pairs that it was "
      "not fitted to",
      run_profile_check);
  command->add_option("--profiles", options->profiles, "folder of profiles")->required();
  command->add_option("--name", options->name, "check this profile only");
  add_fit_options(*command, options->fit);
  command->add_option("--inss-cells", options->inss_cells,
                      "write a CSV with each measured latency and the one that the model inss "
                      "predicts");
  command->add_flag("--json", options->json, "print one JSON document");
}

}  // namespace

void add_measure_options(CLI::App& command, MeasureOptions& options) {
  command
      .add_option("--device", options.device,
                  "cpu:CORE[,CORE...] for CPU cores that form one device; cuda:NUMBER or "
                  "cuda:UUID for a GPU; simulated:FOLDER for a device that takes the times of a "
                  "profile, with --proxy gpulet-proxy-simulated")
      ->required();
  command
      .add_option("--partitioning", options.partitioning,
                  "how backends divide the GPU: mps or green")
      ->capture_default_str();
  command.add_option("--models", options.models, "the models file")->required();
  command.add_option("--only", options.only, "measure only these models of the file")
      ->delimiter(',');
  command.add_option("--proxy", options.proxy,
                     "path of the proxy program (default: beside this program)");
  add_proxy_options(command, options.native_models);
  command.add_flag("--json", options.json, "print one JSON document");
}

Result<ProxyPrograms> choose_proxies(const MeasureOptions& options) {
  auto programs = find_proxies(options.proxy);
  if (programs.ok()) programs.value().native_models = options.native_models;
  return programs;
}

int measuring_failed(const Status& status) {
  return status.code() == StatusCode::invalid ? bad_input(status) : run_failed(status);
}

void add_fit_options(CLI::App& command, profile::FitOptions& options) {
  command.add_option("--seed", options.seed, "random seed for the choice of the fitted pairs")
      ->capture_default_str();
  command
      .add_option("--train-fraction", options.train_fraction,
                  "fraction of the measured pairs to fit to; the other pairs show the error")
      ->capture_default_str();
}

Status keep_fit(profile::Profile& profile, const profile::FitOptions& options) {
  if (profile.pairs.empty()) return {};
  auto fit = profile::fit_interference(profile, with_inss(options));
  if (!fit.ok()) return fit.status().within("profile " + profile.name);
  profile.interference = std::move(fit).value();
  return {};
}

std::string doubts_text(const profile::ModelProfile& model) {
  std::string text;
  for (const profile::LatencySample& sample : model.latency.samples()) {
    if (sample.doubt == profile::Doubt::none) continue;
    text += fmt::format("{}{} at {} % ({})", text.empty() ? "" : ", ", sample.batch,
                        sample.share.percent, profile::to_string(sample.doubt));
  }
  return text;
}

void print_written(const profile::Profile& profile, const std::filesystem::path& out,
                   const std::vector<Status>& failures, bool json,
                   const std::filesystem::path& backup) {
  const std::string place = (out / profile.name).string();
  if (!json) {
    std::cout << place << ": " << profile.models.size() << " models, " << count_cells(profile)
              << " latency cells, " << profile.pairs.size() << " pairs\n";
    if (const std::string fit = fit_line(profile); !fit.empty()) std::cout << fit << '\n';
    if (!backup.empty()) std::cout << "the previous profile is kept as " << backup.string() << '\n';
    return;
  }
  nlohmann::ordered_json document = {{"profile", profile.name},
                                     {"directory", place},
                                     {"cells", count_cells(profile)},
                                     {"pairs", profile.pairs.size()}};
  if (const std::string fit = fit_line(profile); !fit.empty()) document["fit"] = fit;
  document["provenance"] = profile.provenance;
  document["models"] = nlohmann::ordered_json::array();
  for (const auto& [name, model] : profile.models) {
    document["models"].push_back({{"name", name}, {"cells", model.latency.samples().size()}});
    if (model.memory_mb) document["models"].back()["memory_mb"] = *model.memory_mb;
  }
  document["in_doubt"] = doubts_json(profile);
  if (!backup.empty()) document["backup"] = backup.string();
  document["failures"] = nlohmann::ordered_json::array();
  for (const Status& failure : failures) document["failures"].push_back(failure.message());
  std::cout << json_page(document);
}

void add_profile_command(CLI::App& app, Action& chosen) {
  CLI::App* const profile = app.add_subcommand(
      "profile", "measure or import the latencies of batches on a type of device");
  profile->require_subcommand(1);
  add_import(*profile, chosen);
  add_profile_run(*profile, chosen);
  add_profile_counters(*profile, chosen);
  add_profile_interference(*profile, chosen);
  add_profile_check(*profile, chosen);
}

}  // namespace gpulet::tools
