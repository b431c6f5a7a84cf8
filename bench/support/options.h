// The command line of a bench. CLI11, which takes ten seconds in every source that includes it,
// stays in options.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gpulet::bench {

// One option, to say more about it. Lives as long as its Options.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option required();
  // What its value, or each of its values, may be; anything else is refused.
  Option in_range(double least, double most);
  Option positive();
  Option not_negative();
  Option one_of(std::vector<std::string> names);
  // Refused without the other.
  Option needs(const Option& other);

 private:
  CLI::Option* option_;
};

// Options write to variables, which outlive them. The values before parse() are the defaults, which
// --help prints.
class Options {
 public:
  // What an option can set.
  using Variable =
      std::variant<double*, std::int64_t*, std::uint16_t*, std::uint32_t*, std::uint64_t*,
                   std::string*, std::optional<double>*, std::optional<std::uint32_t>*,
                   std::vector<double>*, std::vector<std::uint32_t>*, std::vector<std::string>*>;

  // `name`: of the program; else the command line has it.
  explicit Options(const std::string& description, const std::string& name = "");
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // `name` begins with "--". T: one of Variable.
  template <typename T>
  Option add(const std::string& name, T& variable, const std::string& help = "") {
    return add_variable(name, &variable, help);
  }
  // Sets `variable`; a name that begins with "!" clears it.
  Option add_flag(const std::string& name, bool& variable, const std::string& help = "");

  // The code to exit with at once: after --help (0) and after a refusal, both of which are printed.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

 private:
  Option add_variable(const std::string& name, Variable variable, const std::string& help);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace gpulet::bench
