#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gpulet/net/event_loop.h"

namespace gpulet::net::signals_test {
namespace {

// Raises the next signal each time one was reported; returns the reports.
std::string reports_of(const std::vector<int>& raised) {
  asio::io_context io;
  DaemonSignals signals;
  std::string reports;
  std::size_t next = 0;
  const auto raise_next = [&](const char* report) {
    reports += report;
    if (next < raised.size()) {
      std::raise(raised[next++]);
    } else {
      signals.finish();
    }
  };
  signals.wait(io, {.stop = [&](int) { raise_next("stop "); },
                    .hurry = [&] { raise_next("hurry "); },
                    .reload = [&] { raise_next("reload "); }});
  raise_next("");
  io.run();
  return reports;
}

TEST(DaemonSignals, TheSecondRequestToStopIsForHaste) {
  EXPECT_EQ(reports_of({SIGTERM}), "stop ");
  EXPECT_EQ(reports_of({SIGTERM, SIGINT}), "stop hurry ");
  EXPECT_EQ(reports_of({SIGINT, SIGTERM}), "stop hurry ");
}

TEST(DaemonSignals, AHangupReloadsAsOftenAsItComes) {
  EXPECT_EQ(reports_of({SIGHUP, SIGHUP, SIGTERM}), "reload reload stop ");
}

void stop_at(int first) {
  {
    asio::io_context io;
    DaemonSignals signals;
    std::raise(SIGHUP);
    int seen = 0;
    signals.wait(io, {.stop =
                          [&](int signal) {
                            if (signal != first) std::_Exit(2);
                            std::raise(SIGHUP);
                            std::raise(SIGTERM);
                          },
                      .hurry =
                          [&] {
                            ++seen;
                            std::raise(SIGINT);
                            signals.finish();
                          },
                      .reload = [] { std::_Exit(3); }});
    std::raise(first);
    io.run();
    if (seen != 1) std::_Exit(4);
  }
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) std::raise(number);
  std::_Exit(0);
}

TEST(DaemonSignalsDeathTest, LaterOnesAreIgnoredToTheEndOfTheProcess) {
  EXPECT_EXIT(stop_at(SIGTERM), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(stop_at(SIGINT), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpulet::net::signals_test
