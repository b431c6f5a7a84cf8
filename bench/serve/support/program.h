// The main function of every bench, called after its own options are declared.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

namespace gpulet::bench {

// Adds --programs (the directory of the daemons; default: this program's), parses and runs. Reports
// a failure on standard error, with the bench's name. Returns the exit code.
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
