// The log of a daemon: one line per message on standard error. Text of others within a message is
// escaped (base/text.h), so that a peer can neither forge lines nor control a terminal.
#pragma once

#include <memory>
#include <string>

namespace spdlog {
class formatter;
}

namespace gpulet::observe {

// Makes this the default log of the process, under `name`. Call it once, before threads start.
void start_log(const std::string& name);

// The formatter of start_log(), for other sinks.
[[nodiscard]] std::unique_ptr<spdlog::formatter> escaping_formatter();

}  // namespace gpulet::observe
