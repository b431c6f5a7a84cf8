// What all commands share: the form of a command, exit codes, checks of option values, messages for
// wrong command lines, and the programs and models that options name. One thread.
//
// add_X_command declares a command and its options. When the user chooses that command, its
// callback sets `chosen`, which main calls after parsing; the result is the exit code:
//   0  success
//   1  the run failed (no response from the target, a file could not be written, ...)
//   2  wrong arguments or input; the message names the file, the place in it and the fix
// With --json a command prints exactly one JSON document on standard output; messages go to
// standard error.
#pragma once

// CLI/App.hpp uses functions that the other two define.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

using Action = std::function<int()>;

inline constexpr int kSucceeded = 0;
inline constexpr int kRunFailed = 1;
inline constexpr int kBadInput = 2;

// Print "gpulet: <message>" on standard error and return the exit code of the failure.
[[nodiscard]] int run_failed(const Status& status);
[[nodiscard]] int bad_input(const Status& status);

// Adds a command with its own options. When the user chooses it, `run` becomes the action.
template <typename Options>
std::pair<CLI::App*, Options*> add_command(CLI::App& parent, Action& chosen,
                                           const std::string& name, const std::string& description,
                                           int (*run)(const Options&)) {
  CLI::App* const command = parent.add_subcommand(name, description);
  const auto options = std::make_shared<Options>();
  command->callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
  return {command, options.get()};
}

// A command of gpulet is a function below and a row of kCommands. The functions add the command,
// its commands and their options to `app`, which must outlive the chosen action, as `chosen` must.
void add_completion_command(CLI::App& app, Action& chosen);
void add_config_command(CLI::App& app, Action& chosen);
void add_devices_command(CLI::App& app, Action& chosen);
void add_export_command(CLI::App& app, Action& chosen);
void add_infer_command(CLI::App& app, Action& chosen);
void add_load_command(CLI::App& app, Action& chosen);
void add_logs_command(CLI::App& app, Action& chosen);
void add_models_command(CLI::App& app, Action& chosen);
void add_optimize_command(CLI::App& app, Action& chosen);
void add_profile_command(CLI::App& app, Action& chosen);
void add_schedule_command(CLI::App& app, Action& chosen);
void add_serve_command(CLI::App& app, Action& chosen);
void add_simulate_command(CLI::App& app, Action& chosen);
void add_status_command(CLI::App& app, Action& chosen);
void add_top_command(CLI::App& app, Action& chosen);
void add_torch_setup_command(CLI::App& app, Action& chosen);
void add_trace_command(CLI::App& app, Action& chosen);
void add_train_command(CLI::App& app, Action& chosen);
void add_transition_command(CLI::App& app, Action& chosen);
void add_try_command(CLI::App& app, Action& chosen);
void add_wait_command(CLI::App& app, Action& chosen);

// In the order of --help, which is that of the names.
inline constexpr std::array kCommands{
    add_completion_command, add_config_command,  add_devices_command,    add_export_command,
    add_infer_command,      add_load_command,    add_logs_command,       add_models_command,
    add_optimize_command,   add_profile_command, add_schedule_command,   add_serve_command,
    add_simulate_command,   add_status_command,  add_top_command,        add_torch_setup_command,
    add_trace_command,      add_train_command,   add_transition_command, add_try_command,
    add_wait_command,
};

// Adds the rows of kCommands.
void add_all_commands(CLI::App& app, Action& chosen);

// `gpulet models add`.
void add_models_add_command(CLI::App& models, Action& chosen);

// Adds an option whose value is checked; --help shows its default.
template <typename Value>
CLI::Option* add_checked(CLI::App& command, const std::string& name, Value& value,
                         const std::string& description, const CLI::Validator& check) {
  return command.add_option(name, value, description)->check(check)->capture_default_str();
}

// Checks of an option's value. The message quotes the value and names what is accepted.
[[nodiscard]] CLI::Validator number_within(double least, double most);
[[nodiscard]] CLI::Validator number_above(double bound, double most);
[[nodiscard]] CLI::Validator whole_number_within(std::int64_t least, std::int64_t most);
// For unsigned options: without this check CLI11 reads -1 as the largest number.
[[nodiscard]] CLI::Validator natural_number();
// The help text and completion show the words as "{a,b}".
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);

// The type name of options whose value is a model's name. Completion asks a frontend for the names.
inline constexpr const char* kModelName = "MODEL";

// Explains an error of app.parse(): what is wrong, a suggestion, and which --help has more.
[[nodiscard]] std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error);

// `given`, or else the program beside this one. Fails with not_found, naming the option.
[[nodiscard]] Result<std::filesystem::path> find_program(const std::string& name,
                                                         const std::string& given,
                                                         const std::string& option);
// The program beside this one. Fails with not_found.
[[nodiscard]] Result<std::filesystem::path> find_program(const std::string& name);

// The proxy programs: `given`, which is the value of --proxy, for all models, or else those beside
// this one. Without gpulet-proxy, gpulet-proxy-onnx stands for both. Fails with not_found where
// there is none.
[[nodiscard]] Result<ProxyPrograms> find_proxies(const std::string& given = {});

// The options of commands that start proxies: --native-models, and --onnxruntime, which the proxies
// inherit in the environment.
void add_proxy_options(CLI::App& command, bool& native_models);

// main() of a program with one action: parses the arguments and runs `chosen`. The exit code.
[[nodiscard]] int run_main(CLI::App& app, const Action& chosen, int argc, char** argv);

// Replaces this process with that program. Returns only on failure, with the exit code.
[[nodiscard]] int run_program(std::vector<std::string> arguments);

// The models named by `only`, or all models, in the order of the models file. Those with dynamic
// dimensions are their buckets, which `only` may name as well. Fails with invalid or not_found for
// an unknown model or a missing model file.
[[nodiscard]] Result<std::vector<config::ModelConfig>> choose_models(
    const std::string& models_file, const std::vector<std::string>& only);

}  // namespace gpulet::tools
