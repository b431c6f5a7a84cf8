#include "tools/terminal.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <string_view>

namespace gpulet::tools {
namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// The variables that decide the locale's encoding, the strongest first.
bool locale_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    std::string lower;
    for (const char c : value)
      lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Terminal describe_terminal(std::FILE* stream) {
  Terminal terminal;
  terminal.interactive = isatty(fileno(stream)) == 1;
  terminal.colour =
      terminal.interactive && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  terminal.utf8 = terminal.interactive && locale_is_utf8();
  return terminal;
}

}  // namespace gpulet::tools
