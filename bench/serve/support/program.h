// The main function of every bench, called after its own options are declared.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

#include "bench/support/options.h"

namespace gpulet::bench {

// Adds --programs (the directory of the daemons; default: this program's), parses and runs. Reports
// a failure on standard error, with the bench's name. Returns the exit code.
inline int run_program(const std::string& name, Options& options, std::string& programs, int argc,
                       char** argv, const std::function<int()>& run) {
  programs = std::filesystem::absolute(argv[0]).parent_path().string();
  options.add("--programs", programs, "where the daemons are");
  if (const auto code = options.parse(argc, argv)) return *code;
  try {
    return run();
  } catch (const std::exception& error) {
    std::cerr << "bench_serve_" << name << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace gpulet::bench
