#include "tools/cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "gpulet/base/text.h"
#include "gpulet/executor/executor.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

int fail(const Status& status, int exit_code) {
  std::cerr << "gpulet: " << status.message() << '\n';
  return exit_code;
}

// "; did you mean x?"; empty if no known word is similar.
std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  const std::string_view meant = similar(word, {known.begin(), known.end()});
  return meant.empty() ? std::string() : "; did you mean " + std::string(meant) + "?";
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The program and the commands on the command line, outermost first.
std::vector<const CLI::App*> chosen_chain(const CLI::App& app) {
  std::vector<const CLI::App*> chain{&app};
  for (;;) {
    const auto below = chain.back()->get_subcommands();
    if (below.empty()) return chain;
    chain.push_back(below.back());
  }
}

std::string path_of(const std::vector<const CLI::App*>& chain) {
  std::vector<std::string> names;
  names.reserve(chain.size());
  for (const CLI::App* const one : chain) names.push_back(one->get_name());
  return joined(names, " ");
}

// Explains unexpected arguments; options first, because the value of an unknown one is among them.
std::string explain_unexpected(const CLI::App& app, const std::string& path,
                               const std::vector<std::string>& rest) {
  const auto flag = std::find_if(rest.begin(), rest.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  });
  if (flag != rest.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    return path + " has no option " + name + suggestion(name, option_names(app));
  }
  const std::vector<std::string> commands = command_names(app);
  if (commands.empty()) return path + " takes no argument " + rest.front();
  const std::string where = app.get_parent() == nullptr ? "there is" : path + " has";
  return where + " no command " + rest.front() + suggestion(rest.front(), commands);
}

// Explains a value that is not a number although the option needs one; empty if there is none.
std::string explain_not_a_number(const CLI::App& app) {
  for (const CLI::Option* const option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool real = type.starts_with("FLOAT");
    const bool natural = type.starts_with("UINT");
    if (!real && !natural && !type.starts_with("INT")) continue;
    for (const std::string& value : option->results()) {
      const bool valid = real      ? parse_number<double>(value).has_value()
                         : natural ? parse_number<std::uint64_t>(value).has_value()
                                   : parse_number<std::int64_t>(value).has_value();
      if (valid) continue;
      const char* const accepted = real      ? "a number"
                                   : natural ? "a whole number of at least 0"
                                             : "a whole number";
      return fmt::format("{}: takes {}; was {}", option->get_name(), accepted, value);
    }
  }
  return {};
}

std::string explain(const std::vector<const CLI::App*>& chain, const CLI::ParseError& error) {
  std::vector<const CLI::App*> outer;
  for (const CLI::App* const one : chain) {
    outer.push_back(one);
    const std::vector<std::string> rest = one->remaining();
    if (!rest.empty()) return explain_unexpected(*one, path_of(outer), rest);
  }
  const CLI::App& last = *chain.back();
  if (last.get_require_subcommand_min() > 0 && last.get_subcommands().empty())
    return "choose a command of " + path_of(chain) + ": " + joined(command_names(last));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    if (std::string value = explain_not_a_number(last); !value.empty()) return value;
  }
  return error.what();
}

CLI::Validator checked(std::string accepted, std::string description,
                       std::function<bool(const std::string&)> holds) {
  return CLI::Validator(
      [accepted = std::move(accepted), holds = std::move(holds)](const std::string& value) {
        return holds(value) ? std::string() : "takes " + accepted + "; was " + value;
      },
      std::move(description));
}

// False for NaN.
bool is_within(const std::string& value, double least, double most) {
  const std::optional<double> number = parse_number<double>(value);
  return number && *number >= least && *number <= most;
}

constexpr int kDecimals = 6;

}  // namespace

int run_failed(const Status& status) { return fail(status, kRunFailed); }
int bad_input(const Status& status) { return fail(status, kBadInput); }

CLI::Validator number_within(double least, double most) {
  const std::string range = shortest(least, kDecimals) + " to " + shortest(most, kDecimals);
  return checked("a number from " + range, range,
                 [least, most](const std::string& value) { return is_within(value, least, most); });
}

CLI::Validator number_above(double bound, double most) {
  const std::string range =
      "above " + shortest(bound, kDecimals) + ", at most " + shortest(most, kDecimals);
  return checked("a number " + range, range, [bound, most](const std::string& value) {
    return is_within(value, bound, most) && *parse_number<double>(value) > bound;
  });
}

CLI::Validator whole_number_within(std::int64_t least, std::int64_t most) {
  const std::string range = fmt::format("{} to {}", least, most);
  return checked("a whole number from " + range, range, [least, most](const std::string& value) {
    const std::optional<std::int64_t> number = parse_number<std::int64_t>(value);
    return number && *number >= least && *number <= most;
  });
}

CLI::Validator natural_number() {
  return checked("a whole number of at least 0", "0 or more", [](const std::string& value) {
    return parse_number<std::uint64_t>(value).has_value();
  });
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string braced = "{" + joined(words, ",") + "}";
  return CLI::Validator(
      [words = std::move(words)](const std::string& value) {
        if (std::find(words.begin(), words.end(), value) != words.end()) return std::string();
        return "takes one of " + joined(words) + "; was " + value + suggestion(value, words);
      },
      braced);
}

std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> chain = chosen_chain(app);
  return fmt::format("{}: {}\n`{} --help` lists the options.\n", app.get_name(),
                     explain(chain, error), path_of(chain));
}

Result<std::vector<config::ModelConfig>> choose_models(const std::string& models_file,
                                                       const std::vector<std::string>& only) {
  GPULET_TRY(auto loaded, config::load_models(models_file));
  std::set<std::string> missing(only.begin(), only.end());
  std::vector<config::ModelConfig> chosen;
  const std::set<std::string> names = missing;
  for (config::ModelConfig& model : config::with_buckets(loaded)) {
    const std::string listed(client_name(model.name));
    if (!only.empty() && !names.contains(model.name) && !names.contains(listed)) continue;
    missing.erase(model.name);
    missing.erase(listed);
    chosen.push_back(std::move(model));
  }
  if (!missing.empty()) {
    return Status(StatusCode::invalid, fmt::format(R"(--only: {} has no model called "{}")",
                                                   models_file, *missing.begin()));
  }
  for (const config::ModelConfig& model : chosen) {
    if (model.remote) {
      return Status(
          StatusCode::invalid,
          fmt::format("{}: {}: {} is in a store, from which only a frontend fetches; download it, "
                      "and name the copy in a models file of its own",
                      models_file, model.name, config::place_of(model)));
    }
    std::error_code error;
    if (!std::filesystem::is_regular_file(model.file, error)) {
      return Status(StatusCode::not_found,
                    fmt::format("{}: {}: {} does not exist; export it to that file, "
                                "correct the path, or leave the model out with --only",
                                models_file, model.name, model.file.string()));
    }
  }
  return chosen;
}

namespace {

std::filesystem::path beside_this_one(const std::string& name) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / name;
}

}  // namespace

Result<std::filesystem::path> find_program(const std::string& name) {
  std::error_code error;
  std::filesystem::path program = beside_this_one(name);
  if (std::filesystem::is_regular_file(program, error)) return program;
  return Status(StatusCode::not_found,
                fmt::format("no program {}; build {}, or install it beside this one",
                            program.string(), name));
}

Result<std::filesystem::path> find_program(const std::string& name, const std::string& given,
                                           const std::string& option) {
  std::error_code error;
  const std::filesystem::path program =
      given.empty() ? beside_this_one(name) : std::filesystem::absolute(given, error);
  if (!std::filesystem::is_regular_file(program, error)) {
    return Status(StatusCode::not_found,
                  fmt::format("no program {}; build {}, or give its path with {}", program.string(),
                              name, option));
  }
  return program;
}

Result<ProxyPrograms> find_proxies(const std::string& given) {
  auto proxy = find_program("gpulet-proxy", given, "--proxy");
  if (!given.empty()) {
    if (!proxy.ok()) return proxy.status();
    return ProxyPrograms{.proxy = std::move(proxy).value()};
  }
  auto onnx = find_program("gpulet-proxy-onnx");
  if (!onnx.ok() && !proxy.ok()) return proxy.status();
  if (!onnx.ok()) return ProxyPrograms{.proxy = std::move(proxy).value()};
  return ProxyPrograms{.proxy = proxy.ok() ? std::move(proxy).value() : onnx.value(),
                       .onnx = std::move(onnx).value()};
}

void add_proxy_options(CLI::App& command, bool& native_models) {
  command.add_flag(
      "--native-models", native_models,
      "run AOTInductor packages (.pt2), which are native code; only with files that you "
      "trust");
  const auto use = [](const std::string& file) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before other threads
    ::setenv(executor::kOnnxRuntimeVariable, std::filesystem::absolute(file).c_str(), 1);
  };
  command
      .add_option_function<std::string>(
          "--onnxruntime", use,
          "the libonnxruntime.so that runs ONNX models, such as that of onnxruntime-gpu")
      ->check(CLI::ExistingFile);
}

int run_main(CLI::App& app, const Action& chosen, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSucceeded : kBadInput;
  } catch (const std::exception& error) {
    return fail({StatusCode::internal, std::string("unexpected failure: ") + error.what()},
                kRunFailed);
  }
}

int run_program(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  return run_failed({StatusCode::unavailable,
                     fmt::format("cannot start {}: {}", arguments.front(), std::strerror(errno))});
}

}  // namespace gpulet::tools
