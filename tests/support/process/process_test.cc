#include "tests/support/process/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

// A shell that notes SIGCONT, and ends a moment after SIGTERM.
Process noting_shell(const std::filesystem::path& folder) {
  return Process("sh", {"-c", "cd " + folder.string() +
                                  "; trap ': > continued' CONT; trap 'end=1' TERM; : > ready; "
                                  "while [ -z \"$end\" ]; do sleep 0.01; done; sleep 0.1"});
}

TEST(ProcessTest, EndSendsNoSigcontToOneThatRuns) {
  const support::TemporaryFolder folder;
  Process shell = noting_shell(folder.path());
  ASSERT_TRUE(comes_true([&] { return std::filesystem::exists(folder.path() / "ready"); }));
  shell.end(SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "continued"));
}

TEST(ProcessTest, EndsOneThatWasStopped) {
  const support::TemporaryFolder folder;
  Process shell = noting_shell(folder.path());
  ASSERT_TRUE(comes_true([&] { return std::filesystem::exists(folder.path() / "ready"); }));
  shell.signal(SIGSTOP);
  shell.end(SIGTERM);  // does not wait for ever
  EXPECT_EQ(shell.result(), 0);
}

}  // namespace
}  // namespace gpulet::testing
