// Runs the built `gpulet` program and collects what it prints. Tests only; blocking.
#pragma once

#include <string>
#include <vector>

namespace gpulet::tools {

struct ProgramResult {
  int exit_code = -1;  // -1: it did not end by itself
  std::string output;
  std::string errors;
};

[[nodiscard]] ProgramResult run_gpulet(const std::vector<std::string>& arguments);

}  // namespace gpulet::tools
