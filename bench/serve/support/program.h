// What the main of every bench here does after it has named its own options.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

namespace gpulet::bench {

// Adds --programs (the directory of the daemons; where this program is, unless told), parses, runs.
// Returns the exit code; a failure is told on standard error, under the bench's name.
inline int run_program(const std::string& name, CLI::App& app, std::string& programs, int argc,
                       char** argv, const std::function<int()>& run) {
  programs = std::filesystem::absolute(argv[0]).parent_path().string();
  app.add_option("--programs", programs, "where the daemons are")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run();
  } catch (const std::exception& error) {
    std::cerr << "bench_serve_" << name << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace gpulet::bench
