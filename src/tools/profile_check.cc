// gpulet profile check: cells in doubt, and the errors of the models of interference on held-out
// pairs.
#include "tools/profile_check.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "gpulet/profile/inss_errors.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/store.h"
#include "tools/profile_support.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct CheckOptions {
  std::string profiles;
  std::string name;
  profile::FitOptions fit;
  bool json = false;
};

struct Checked {
  std::string name;
  profile::InterferenceFit fit;
  profile::InssErrors inss;
  std::string inss_note;
  const profile::Profile* profile = nullptr;
};

std::string percent(double fraction) { return fixed(100 * fraction, 1) + " %"; }

nlohmann::ordered_json errors_json(const profile::HeldOutErrors& errors) {
  nlohmann::ordered_json row;
  row["model"] = to_string(errors.kind);
  row["p50"] = errors.p50;
  row["p90"] = errors.p90;
  row["p95"] = errors.p95;
  row["unseen_model_p90"] = errors.unseen_model_p90;
  return row;
}

nlohmann::ordered_json summary_json(const profile::ErrorSummary& errors) {
  nlohmann::ordered_json row;
  row["count"] = errors.count;
  row["p50"] = errors.p50;
  row["p90"] = errors.p90;
  row["worst"] = errors.worst;
  return row;
}

nlohmann::ordered_json inss_json(const Checked& profile) {
  const profile::InssErrors& errors = profile.inss;
  nlohmann::ordered_json json;
  if (!profile.inss_note.empty()) json["note"] = profile.inss_note;
  json["alone"] = summary_json(errors.alone);
  json["batches"] = summary_json(errors.batches);
  json["shares"] = summary_json(errors.shares);
  json["both"] = summary_json(errors.both);
  json["beside"] = summary_json(errors.beside);
  json["models"] = nlohmann::ordered_json::object();
  for (const auto& [name, model] : errors.models) json["models"][name] = summary_json(model);
  return json;
}

void print_json(const std::vector<Checked>& checked) {
  nlohmann::ordered_json document;
  document["profiles"] = nlohmann::ordered_json::array();
  for (const Checked& profile : checked) {
    nlohmann::ordered_json& entry = document["profiles"].emplace_back();
    entry["name"] = profile.name;
    entry["pairs"] = profile.fit.pairs;
    entry["seed"] = profile.fit.seed;
    entry["train_fraction"] = profile.fit.train_fraction;
    if (!profile.fit.note.empty()) entry["note"] = profile.fit.note;
    entry["models"] = nlohmann::ordered_json::array();
    for (const auto& errors : profile.fit.errors) entry["models"].push_back(errors_json(errors));
    entry["inss"] = inss_json(profile);
    entry["in_doubt"] = doubts_json(*profile.profile);
  }
  std::cout << document.dump(2) << '\n';
}

void print_held_out(const profile::InterferenceFit& fit) {
  Table table({{"model", Table::Align::left}, {"p50"}, {"p90"}, {"p95"}});
  for (const auto& errors : fit.errors) {
    table.add_row({std::string(to_string(errors.kind)), percent(errors.p50), percent(errors.p90),
                   percent(errors.p95)});
  }
  std::cout << table.to_string();
}

// A row per served model, a column per model of interference.
void print_unseen(const profile::InterferenceFit& fit) {
  const auto& some = fit.errors.front().unseen_model_p90;
  if (some.empty()) return;
  std::cout << "\np90 where all pairs of a model are held out:\n";
  std::vector<Table::Column> columns{{"", Table::Align::left}};
  for (const auto& errors : fit.errors) columns.push_back({std::string(to_string(errors.kind))});
  Table table(std::move(columns));
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

// What the analytical model predicts without the tables.
void print_inss(const Checked& checked) {
  const profile::InssErrors& errors = checked.inss;
  std::cout << "\nerror of the latency that inss predicts without the tables, where it was not "
               "fitted:\n";
  Table table({{"", Table::Align::left}, {"cells"}, {"p50"}, {"p90"}, {"worst"}});
  const auto add = [&table](const std::string& name, const profile::ErrorSummary& summary) {
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
  if (!checked.inss_note.empty()) std::cout << checked.inss_note << '\n';
}

void print_doubts(const profile::Profile& profile) {
  bool any = false;
  for (const auto& [name, model] : profile.models) {
    const std::string doubts = doubts_of(model);
    if (doubts.empty()) continue;
    if (!any) std::cout << "cells in doubt, by batch:\n";
    any = true;
    std::cout << "  " << name << ": " << doubts << '\n';
  }
}

void print_text(const std::vector<Checked>& checked) {
  bool first = true;
  for (const Checked& profile : checked) {
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
    print_inss(profile);
  }
}

// All of the folder, or the one that is named.
Result<profile::ProfileSet> read(const CheckOptions& options) {
  if (options.name.empty()) return profile::read_profiles(options.profiles);
  auto profile = profile::read_profile(std::filesystem::path(options.profiles) / options.name);
  if (!profile.ok()) return profile.status();
  profile::ProfileSet set;
  set.emplace(options.name, std::move(profile).value());
  return set;
}

int check(const CheckOptions& options) {
  const auto profiles = read(options);
  if (!profiles.ok()) return bad_input(profiles.status());
  std::vector<Checked> checked;
  for (const auto& [name, profile] : profiles.value()) {
    auto fit = profile::fit_interference(profile, options.fit);
    if (!fit.ok()) return bad_input(fit.status().within("profile " + name));
    const profile::InssModel inss = profile::fit_inss(profile, options.fit.seed);
    checked.push_back({.name = name,
                       .fit = std::move(fit).value(),
                       .inss = profile::held_out_errors(inss, profile),
                       .inss_note = inss.note(),
                       .profile = &profile});
  }
  if (options.json) {
    print_json(checked);
  } else {
    print_text(checked);
  }
  return kSucceeded;
}

}  // namespace

void add_fit_options(CLI::App& command, profile::FitOptions& options) {
  command.add_option("--seed", options.seed, "draws the pairs that are fitted")
      ->capture_default_str();
  command
      .add_option("--train-fraction", options.train_fraction,
                  "of the measured pairs; the errors are told on the others")
      ->capture_default_str();
}

void add_profile_check(CLI::App& profile, Run& chosen) {
  CLI::App* const command = profile.add_subcommand(
      "check",
      "which measured cells are in doubt, and how far each model of interference is from measured "
      "pairs that it did not see");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("--profiles", options->profiles, "the folder of profiles")->required();
  command->add_option("--name", options->name, "check this profile only");
  add_fit_options(*command, options->fit);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return check(*options); }; });
}

Status keep_fit(profile::Profile& profile, const profile::FitOptions& options) {
  if (profile.pairs.empty()) return {};
  auto fit = profile::fit_interference(profile, options);
  if (!fit.ok()) return fit.status().within("profile " + profile.name);
  profile.interference = std::move(fit).value();
  return {};
}

std::string fit_line(const profile::Profile& profile) {
  if (!profile.interference) return "";
  const profile::InterferenceFit& fit = *profile.interference;
  std::string line = "interference:";
  for (const profile::HeldOutErrors& errors : fit.errors) {
    line += (line.back() == ':' ? " error at p90 of held-out pairs " : ", ") +
            std::string(to_string(errors.kind)) + ' ' + percent(errors.p90);
  }
  if (!fit.note.empty()) line += (line.back() == ':' ? " " : "; ") + fit.note;
  return line;
}

}  // namespace gpulet::tools
