// What a command line that cannot be understood is answered with, and checks of the values in it.
// One thread.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace gpulet::tools {

// Checks of what stands behind a flag. The message names the value as it was written, and what is
// accepted.
[[nodiscard]] CLI::Validator number_within(double least, double most);
[[nodiscard]] CLI::Validator number_above(double bound, double most);
[[nodiscard]] CLI::Validator whole_number_within(std::int64_t least, std::int64_t most);
// One that a number without a sign holds: without the check, the library takes -1 for the largest.
[[nodiscard]] CLI::Validator natural_number();
// In help, and for completion, they are "{a,b}".
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);

// What is wrong with the arguments that `app` was to parse, what may have been meant, and which
// help tells more. Lines of text. `error` is what parse() threw, and no call for help.
[[nodiscard]] std::string complaint(const CLI::App& app, const CLI::ParseError& error);

// The type name of options and positionals whose value is a model's name: what completes them asks
// a frontend.
inline constexpr const char* kModelName = "MODEL";

}  // namespace gpulet::tools
