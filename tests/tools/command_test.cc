// The command line: the table of commands, checks of values, explanations of parse errors, and
// completion scripts.
#include "tools/cli/command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/names.h"
#include "tests/support/source_file.h"
#include "tools/cli/completion.h"

namespace gpulet::tools {
namespace {

using support::holds;
using support::names;

bool accepts(CLI::Validator validator, std::string value) { return validator(value).empty(); }

TEST(Validators, AcceptTheirRangeOnly) {
  EXPECT_TRUE(accepts(number_within(0.5, 2), "0.5"));
  EXPECT_TRUE(accepts(number_within(0.5, 2), "2"));
  for (const char* const value : {"0.49", "2.1", "nan", "inf", "1x", "", " 1"})
    EXPECT_FALSE(accepts(number_within(0.5, 2), value)) << value;
  EXPECT_FALSE(accepts(number_above(0, 1), "0"));
  EXPECT_TRUE(accepts(number_above(0, 1), "1e-9"));
  EXPECT_TRUE(accepts(whole_number_within(-1, 3), "-1"));
  for (const char* const value : {"-2", "4", "1.5", "99999999999999999999"})
    EXPECT_FALSE(accepts(whole_number_within(-1, 3), value)) << value;
  EXPECT_TRUE(accepts(natural_number(), "18446744073709551615"));
  EXPECT_FALSE(accepts(natural_number(), "-1"));
  EXPECT_TRUE(accepts(one_of({"mps", "green"}), "mps"));
  EXPECT_FALSE(accepts(one_of({"mps", "green"}), "MPS"));
}

// The explanation of what is wrong with a command line of a small program.
std::string explanation(std::vector<std::string> arguments) {
  CLI::App app("a tool", "tool");
  app.require_subcommand(1);
  CLI::App* const run = app.add_subcommand("run", "run it");
  std::uint32_t count = 0;
  run->add_option("--count", count, "how many")->check(natural_number());
  app.add_subcommand("rest", "do nothing");
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return explain_parse_error(app, error);
  }
  return "";
}

TEST(ParseErrors, NameTheWordAndASuggestion) {
  EXPECT_EQ(explanation({"run", "--count", "3"}), "");
  EXPECT_TRUE(names(explanation({}), "run", "rest"));
  EXPECT_TRUE(names(explanation({"rum"}), "rum", "run"));
  EXPECT_TRUE(names(explanation({"run", "--cuont", "3"}), "--cuont", "--count"));
  EXPECT_TRUE(names(explanation({"run", "--count", "-1"}), "--count", "-1"));
  EXPECT_FALSE(names(explanation({"run", "--xyz"}), "--count")) << "not near";
  EXPECT_TRUE(names(explanation({"run", "now"}), "now", "tool run --help"));
}

// ---- the commands of gpulet

void expect_help(const CLI::App& command) {
  SCOPED_TRACE(command.get_name());
  EXPECT_NE(command.get_description(), "");
  for (const CLI::Option* const option : command.get_options())
    EXPECT_NE(option->get_description(), "") << option->get_name();
  for (const CLI::App* const below : command.get_subcommands([](const CLI::App*) { return true; }))
    expect_help(*below);
}

TEST(Commands, EveryOneHasHelpAndStandsInTheOrderOfNames) {
  CLI::App app("gpulet", "gpulet");
  Action chosen;
  add_all_commands(app, chosen);
  expect_help(app);
  std::vector<std::string> commands;
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(one->get_name());
  EXPECT_EQ(commands.size(), kCommands.size());
  EXPECT_TRUE(std::is_sorted(commands.begin(), commands.end()));
}

TEST(Commands, EveryDeclaredOneIsARow) {
  const std::string header = support::source_file("src/tools/cli/command.h");
  const std::regex declared(R"(void (add_\w+_command)\(CLI::App& app, Action& chosen\);)");
  const std::string rows = header.substr(header.find("kCommands{"));
  std::size_t found = 0;
  for (std::sregex_iterator one(header.begin(), header.end(), declared), end; one != end; ++one) {
    EXPECT_TRUE(names(rows.substr(0, rows.find("};")), (*one)[1].str()));
    ++found;
  }
  EXPECT_EQ(found, kCommands.size());
}

const CompletedProgram kTool = {
    {"tool", "a tool", {{{"-h", "--help"}, "tell", false}}},
    {"tool run",
     "it's running",
     {{{"--how"}, "which way", true, {"fast", "slow"}}, {{"--to"}, "where", true}}},
    {"tool run far", "further", {}}};

TEST(Completion, FishAndZshNameCommandsOptionsAndChoices) {
  const std::string fish = fish_completion(kTool);
  EXPECT_TRUE(holds(fish, "-n '__tool_chain tool' -f -a 'run' -d 'it\\'s running'\n"));
  EXPECT_TRUE(holds(fish, "-n '__tool_chain tool run' -l how -r -f -a 'fast slow' -d"));
  EXPECT_TRUE(holds(fish, "-n '__tool_chain tool' -s h -l help -d 'tell'\n"));
  const std::string zsh = zsh_completion(kTool);
  EXPECT_TRUE(holds(zsh, "'tool run --how') compadd -- 'fast' 'slow'; return ;;"));
  EXPECT_TRUE(holds(zsh, "'tool run --to') _files; return ;;"));
  EXPECT_TRUE(holds(zsh, "words_here=('run:it'\\''s running')"));
  EXPECT_FALSE(holds(zsh, "'tool run --to') compadd"));
}

}  // namespace
}  // namespace gpulet::tools
