// One line on standard error that is written over while a command works; nothing where standard
// error is not a terminal. Gone when this is. One thread.
#pragma once

#include <string_view>

namespace gpulet::tools {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view text) const;

 private:
  bool shown_;
};

}  // namespace gpulet::tools
