#include "tools/command_line.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "gpulet/core/similar.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

template <typename Number>
std::optional<Number> parsed(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "; did you mean x?"; empty where nothing is near.
std::string guess(std::string_view word, const std::vector<std::string>& known) {
  const std::string_view meant = similar(word, {known.begin(), known.end()});
  return meant.empty() ? std::string() : "; did you mean " + std::string(meant) + "?";
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The program and the commands below it that were named, outermost first.
std::vector<const CLI::App*> named_in(const CLI::App& app) {
  std::vector<const CLI::App*> chain{&app};
  for (;;) {
    const auto below = chain.back()->get_subcommands();
    if (below.empty()) return chain;
    chain.push_back(below.back());
  }
}

std::string path_of(const std::vector<const CLI::App*>& chain) {
  std::string path;
  for (const CLI::App* const one : chain) path += (path.empty() ? "" : " ") + one->get_name();
  return path;
}

// Of an argument that no option and no command took. A flag that is not known leaves its value
// behind as well, so the flag goes first.
std::string unexpected(const CLI::App& app, const std::string& path,
                       const std::vector<std::string>& rest) {
  const auto flag = std::find_if(rest.begin(), rest.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  });
  if (flag != rest.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    return path + " has no option " + name + guess(name, flags_of(app));
  }
  const std::vector<std::string> commands = commands_of(app);
  if (commands.empty()) return path + " takes no argument " + rest.front();
  const std::string where = app.get_parent() == nullptr ? "there is" : path + " has";
  return where + " no command " + rest.front() + guess(rest.front(), commands);
}

// Of a value that is no number where one is needed; empty where there is none.
std::string unreadable_value(const CLI::App& app) {
  for (const CLI::Option* const option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool real = type.starts_with("FLOAT");
    const bool natural = type.starts_with("UINT");
    if (!real && !natural && !type.starts_with("INT")) continue;
    for (const std::string& value : option->results()) {
      const bool reads = real      ? parsed<double>(value).has_value()
                         : natural ? parsed<std::uint64_t>(value).has_value()
                                   : parsed<std::int64_t>(value).has_value();
      if (reads) continue;
      return option->get_name() + ": takes " +
             (real      ? "a number"
              : natural ? "a whole number of at least 0"
                        : "a whole number") +
             "; was " + value;
    }
  }
  return {};
}

std::string what_is_wrong(const std::vector<const CLI::App*>& chain, const CLI::ParseError& error) {
  std::vector<const CLI::App*> outer;
  for (const CLI::App* const one : chain) {
    outer.push_back(one);
    const std::vector<std::string> rest = one->remaining();
    if (!rest.empty()) return unexpected(*one, path_of(outer), rest);
  }
  const CLI::App& last = *chain.back();
  if (last.get_require_subcommand_min() > 0 && last.get_subcommands().empty())
    return "name a command of " + path_of(chain) + ": " + listed(commands_of(last));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    if (std::string value = unreadable_value(last); !value.empty()) return value;
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

// Written so that NaN holds in no range.
bool is_within(const std::string& value, double least, double most) {
  const std::optional<double> number = parsed<double>(value);
  return number && *number >= least && *number <= most;
}

constexpr int kDecimals = 6;

}  // namespace

CLI::Validator number_within(double least, double most) {
  const std::string range = shortest(least, kDecimals) + " to " + shortest(most, kDecimals);
  return checked("a number from " + range, range,
                 [least, most](const std::string& value) { return is_within(value, least, most); });
}

CLI::Validator number_above(double bound, double most) {
  const std::string range =
      "above " + shortest(bound, kDecimals) + ", at most " + shortest(most, kDecimals);
  return checked("a number " + range, range, [bound, most](const std::string& value) {
    return is_within(value, bound, most) && *parsed<double>(value) > bound;
  });
}

CLI::Validator whole_number_within(std::int64_t least, std::int64_t most) {
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  return checked("a whole number from " + range, range, [least, most](const std::string& value) {
    const std::optional<std::int64_t> number = parsed<std::int64_t>(value);
    return number && *number >= least && *number <= most;
  });
}

CLI::Validator natural_number() {
  return checked("a whole number of at least 0", "0 or more",
                 [](const std::string& value) { return parsed<std::uint64_t>(value).has_value(); });
}

CLI::Validator one_of(std::vector<std::string> words) {
  std::string braced = "{";
  for (const std::string& word : words) braced += (braced.size() == 1 ? "" : ",") + word;
  return CLI::Validator(
      [words = std::move(words)](const std::string& value) {
        if (std::find(words.begin(), words.end(), value) != words.end()) return std::string();
        return "takes one of " + listed(words) + "; was " + value + guess(value, words);
      },
      braced + "}");
}

std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> chain = named_in(app);
  return app.get_name() + ": " + what_is_wrong(chain, error) + "\n`" + path_of(chain) +
         " --help` tells more.\n";
}

}  // namespace gpulet::tools
