// What the terminal that a command prints to can show. Reads the environment; one thread.
#pragma once

#include <cstdio>
#include <string>

namespace gpulet::tools {

struct Terminal {
  bool interactive = false;  // a terminal, not a pipe or a file
  bool colour = false;       // interactive, and the user did not set NO_COLOR or TERM=dumb
  bool utf8 = false;         // interactive, in a UTF-8 locale
};

// Of standard output or standard error.
[[nodiscard]] Terminal describe_terminal(std::FILE* stream);

}  // namespace gpulet::tools
