// The daemons' log: on standard error, a line for each message. Whatever a message holds of others'
// text is escaped (core/escape.h), so that nobody can write lines of their own or act on a
// terminal.
#pragma once

#include <memory>
#include <string>

namespace spdlog {
class formatter;
}

namespace gpulet::observe {

// Makes it this process's default log, under that name. Call it once, before threads start.
void start_log(const std::string& name);

// What start_log() formats messages with, for other sinks.
[[nodiscard]] std::unique_ptr<spdlog::formatter> escaping_formatter();

}  // namespace gpulet::observe
