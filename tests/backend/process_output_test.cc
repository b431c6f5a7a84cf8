#include "backend/process_output.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/child_process.h"
#include "tests/net/loop.h"
#include "tests/support/names.h"

namespace gpulet::backend::process_output_test {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kPatience(20);
using Lines = std::vector<std::string>;

Time at_ms(int ms) { return Time(std::chrono::hours(1)) + milliseconds(ms); }

TEST(OutputLines, JoinsThePartsOfALine) {
  OutputLines lines;
  EXPECT_EQ(lines.take("a", at_ms(0)), Lines());
  EXPECT_EQ(lines.take("b\nc\n\nd", at_ms(0)), (Lines{"ab", "c", ""}));
  EXPECT_EQ(lines.finish(at_ms(0)), Lines{"d"});
  EXPECT_EQ(lines.finish(at_ms(0)), Lines());
}

TEST(OutputLines, CutsLongLines) {
  OutputLines lines({.longest_line = 4});
  EXPECT_EQ(lines.take("0123456789\n01234", at_ms(0)), Lines{"0123 (+6 bytes)"});
  EXPECT_EQ(lines.take("56789\nab\n", at_ms(0)), (Lines{"0123 (+6 bytes)", "ab"}));
}

TEST(OutputLines, DropsWhatIsTooMuchAndTellsHowMuch) {
  OutputLines lines({.burst = 2, .interval = milliseconds(100)});
  EXPECT_EQ(lines.take("1\n2\n3\n4\n", at_ms(0)), (Lines{"1", "2"}));
  const Lines later = lines.take("5\n", at_ms(100));
  ASSERT_EQ(later.size(), 2U);
  EXPECT_TRUE(support::names(later[0], "2 lines"));
  EXPECT_EQ(later[1], "5");
  EXPECT_EQ(lines.take("6\n", at_ms(100)), Lines());
  EXPECT_EQ(lines.finish(at_ms(100)).size(), 1U);
}

class ProcessOutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = ProcessOutput::make_ends();
    ASSERT_TRUE(ends.ok());
    theirs_ = std::move(ends.value().theirs);
    auto output = ProcessOutput::start(io_.get_executor(), std::move(ends.value().ours),
                                       [this](const std::string& line) { lines_.push_back(line); });
    ASSERT_TRUE(output.ok());
    output_ = std::move(output).value();
  }
  void write(const std::string& text) const {
    ASSERT_EQ(::write(theirs_.get(), text.data(), text.size()), ssize_t(text.size()));
  }

  net::asio::io_context io_;
  FileDescriptor theirs_;
  Lines lines_;
  std::unique_ptr<ProcessOutput> output_;
};

TEST_F(ProcessOutputTest, ReportsLinesAsTheyCome) {
  write("a\n");
  EXPECT_TRUE(net::testing::run_until(
      io_, [this] { return lines_ == Lines{"a"}; }, kPatience));
  write("b");
  write("c\n");
  EXPECT_TRUE(net::testing::run_until(
      io_, [this] { return lines_.size() == 2 && lines_.back() == "bc"; }, kPatience));
}

TEST_F(ProcessOutputTest, ReadsWhatIsLeftAtTheEnd) {
  write("last words");
  output_->finish();
  EXPECT_EQ(lines_, Lines{"last words"});
}

TEST_F(ProcessOutputTest, MayEndWhileTheProcessWrites) {
  write("a\n");
  output_.reset();
  io_.run();
  EXPECT_EQ(lines_, Lines());
}

// No memory is left for the stack of a thread. The process must start all the same, or its failure
// must be a status.
[[noreturn]] void spawn_without_threads() {
  constexpr rlim_t kSpare = 1 << 20;  // bytes; the stack of a thread takes more
  SpawnOptions options;
  options.program = "/bin/true";
  options.in_background = true;
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kSpare;
  const rlimit little{most, most};
  ::setrlimit(RLIMIT_AS, &little);
  const auto process = spawn(options);
  std::_Exit(process.ok() || process.status().code() == StatusCode::unavailable ? 0 : 1);
}

TEST(SpawnDeathTest, AMachineWithoutThreadsEndsNothing) {
#if defined(GPULET_SANITIZED)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  EXPECT_EXIT(spawn_without_threads(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpulet::backend::process_output_test
