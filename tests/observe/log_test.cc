#include "gpulet/observe/sinks/log.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

namespace gpulet::observe {
namespace {

TEST(Log, WritesAMessageAsOneEscapedLine) {
  std::ostringstream text;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  sink->set_formatter(escaping_formatter());
  spdlog::logger log("test", sink);
  log.warn("a backend was refused: {}", "n0\n[2026-01-01] [info] all is well\x1b[1A\\");
  const std::string line = text.str();
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_NE(line.find(R"(n0\n[2026-01-01] [info] all is well\x1b[1A\\)"), std::string::npos);
}

}  // namespace
}  // namespace gpulet::observe
