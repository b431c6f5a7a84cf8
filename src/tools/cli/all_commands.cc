// Apart from command.cc, which programs without these commands link.
#include "tools/cli/command.h"

namespace gpulet::tools {

void add_all_commands(CLI::App& app, Action& chosen) {
  for (const auto add : kCommands) add(app, chosen);
}

}  // namespace gpulet::tools
