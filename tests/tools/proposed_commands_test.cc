// The commands that messages propose: each is one that the command line accepts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "tools/cli/command.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = GPULET_SOURCES;

bool names_a_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    const auto below =
        at->get_subcommands([&word](const CLI::App* one) { return one->get_name() == word; });
    if (below.empty()) return false;
    at = below.front();
  }
  return true;
}

// The error of the command line; empty: none. A name of a command alone refers to it, and need not
// have the options that it requires.
std::string parse_error(const std::string& command) {
  std::istringstream words(command);
  std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
  arguments.erase(arguments.begin());  // gpulet
  CLI::App app("gpulet", "gpulet");
  app.require_subcommand(1);
  Action chosen;
  add_all_commands(app, chosen);
  const bool is_name = names_a_command(app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success&) {  // --help
    return {};
  } catch (const CLI::RequiredError& error) {
    return is_name ? std::string() : explain_parse_error(app, error);
  } catch (const CLI::ParseError& error) {
    return explain_parse_error(app, error);
  }
  return {};
}

// The file without comments, and with adjacent string literals joined.
std::string literals_of(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    line.resize(std::min(line.size(), line.find("  // ")));
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line.compare(begin, 2, "//") == 0) continue;
    const bool goes_on = line[begin] == '"' && text.ends_with('"');
    if (goes_on) text.pop_back();
    text += goes_on ? line.substr(begin + 1) : line;
    if (!text.ends_with('"')) text += '\n';
  }
  return text;
}

// "{}" and "{0}" of a format become a word.
std::string filled(std::string_view format) {
  std::string text;
  for (std::size_t at = 0; at < format.size(); ++at) {
    const std::size_t end = format[at] == '{' ? format.find('}', at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      text += format[at];
      continue;
    }
    text += "word";
    at = end;
  }
  return text;
}

template <typename Visit>
void for_each_source(const Visit& visit) {
  for (const char* const folder : {"src", "include"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".cc" || extension == ".h") visit(entry.path(), literals_of(entry.path()));
    }
  }
}

TEST(ProposedCommands, TheParserRefusesWhatItShould) {
  EXPECT_EQ(parse_error("gpulet models list"), "");
  EXPECT_EQ(parse_error("gpulet profile run"), "") << "a name";
  EXPECT_NE(parse_error("gpulet profile run --only a"), "") << "requires --device";
  EXPECT_NE(parse_error("gpulet profile walk"), "");
  EXPECT_NE(parse_error("gpulet status --jsn"), "");
}

TEST(ProposedCommands, ThoseWithOptionsAreWhole) {
  EXPECT_EQ(parse_error(measure_command("bert")), "");
  EXPECT_EQ(parse_error(measure_interference_command()), "");
}

TEST(ProposedCommands, EveryCommandInAMessageIsAccepted) {
  constexpr std::string_view kBegin = "`gpulet ";
  std::size_t found = 0;
  for_each_source([&](const fs::path& file, const std::string& text) {
    for (std::size_t at = text.find(kBegin); at != std::string::npos; at = text.find(kBegin, at)) {
      const std::size_t end = text.find_first_of("`\n", at + 1);
      if (end == std::string::npos || text[end] != '`') {
        at += kBegin.size();
        continue;
      }
      const std::string command = filled(std::string_view(text).substr(at + 1, end - at - 1));
      at = end;
      ++found;
      if (command.find("COMMAND") != std::string::npos) continue;  // any
      EXPECT_EQ(parse_error(command), "") << file << ": " << command;
    }
  });
  EXPECT_GE(found, 10U) << "the sources are not read as they are written";
}

TEST(ProposedCommands, EveryScriptInAMessageExists) {
  constexpr std::string_view kBegin = "scripts/";
  std::size_t found = 0;
  for_each_source([&](const fs::path& file, const std::string& text) {
    for (std::size_t at = text.find(kBegin); at != std::string::npos; at = text.find(kBegin, at)) {
      const std::size_t end = std::min(
          text.size(),
          text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_-.0123456789", at + kBegin.size()));
      std::string script = text.substr(at, end - at);
      while (script.ends_with('.')) script.pop_back();
      at = end;
      ++found;
      EXPECT_TRUE(fs::exists(kRoot / script)) << file << ": " << script;
    }
  });
  EXPECT_GE(found, 1U) << "the sources are not read as they are written";
}

}  // namespace
}  // namespace gpulet::tools
