#include "gpulet/net/stop_signals.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gpulet::net {
namespace {

void stop_at(int first) {
  {
    asio::io_context io;
    StopSignals signals(io);
    signals.wait([&](int signal) {
      if (signal != first) std::_Exit(2);
      std::raise(SIGTERM);
      io.stop();
    });
    std::raise(first);
    io.run();
  }
  std::raise(SIGTERM);
  std::raise(SIGINT);
  std::_Exit(0);
}

TEST(StopSignalsDeathTest, LaterOnesAreIgnoredToTheEndOfTheProcess) {
  EXPECT_EXIT(stop_at(SIGTERM), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(stop_at(SIGINT), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpulet::net
