#include "bench/support/options.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace gpulet::bench {

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::in_range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Option Option::one_of(std::vector<std::string> names) {
  option_->check(CLI::IsMember(std::move(names)));
  return *this;
}

Option Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Options::Options(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->option_defaults()->always_capture_default();
}

Options::~Options() = default;

Option Options::add_variable(const std::string& name, Variable variable, const std::string& help) {
  return Option(
      *std::visit([&](auto* one) { return app_->add_option(name, *one, help); }, variable));
}

Option Options::add_flag(const std::string& name, bool& variable, const std::string& help) {
  return Option(*app_->add_flag(name, variable, help));
}

std::optional<int> Options::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error);
  }
  return std::nullopt;
}

}  // namespace gpulet::bench
