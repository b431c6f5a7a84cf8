#include "tools/progress_line.h"

#include <cstdio>
#include <iostream>

#include "tools/terminal.h"

namespace gpulet::tools {

ProgressLine::ProgressLine() : shown_(describe_terminal(stderr).interactive) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::cerr << "\r\033[K" << std::flush;
}

void ProgressLine::show(std::string_view text) const {
  if (shown_) std::cerr << "\r\033[K" << text << std::flush;
}

}  // namespace gpulet::tools
