#include "tools/command.h"

#include <iostream>

namespace gpulet::tools {
namespace {

int fail(const Status& status, int exit_code) {
  std::cerr << "gpulet: " << status.message() << '\n';
  return exit_code;
}

}  // namespace

int run_failed(const Status& status) { return fail(status, kRunFailed); }
int bad_input(const Status& status) { return fail(status, kBadInput); }

}  // namespace gpulet::tools
