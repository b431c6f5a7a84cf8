#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "gpulet/observe/sinks/log.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::observe::line_writer_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kPatience = seconds(20);
bool comes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

struct Pipe {
  explicit Pipe(int flags = 0) {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | flags), 0);
    reading = FileDescriptor(ends[0]);
    writing = FileDescriptor(ends[1]);
  }
  FileDescriptor reading;
  FileDescriptor writing;
};

LineWriterOptions small() {
  LineWriterOptions options;
  options.max_bytes = 4096;
  options.retry_after = milliseconds(1);
  options.close_within = milliseconds(20);
  options.dropped_line = [](std::uint64_t dropped) {
    return "dropped " + std::to_string(dropped) + "\n";
  };
  return options;
}

// Reads until a line that begins with `last`.
std::string read_until(int descriptor, const std::string& last) {
  std::string text;
  std::array<char, 4096> part{};
  while (text.find("\n" + last) == std::string::npos) {
    const ssize_t bytes = ::read(descriptor, part.data(), part.size());
    if (bytes <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(bytes));
  }
  return text;
}

// Writes lines until nothing takes them any more. Returns their number.
std::uint64_t fill(LineWriter& lines) {
  std::uint64_t count = 0;
  EXPECT_TRUE(comes_true([&] {
    lines.write("0123456789\n");
    ++count;
    return lines.state().waiting > milliseconds(100) && lines.state().dropped > 0;
  }));
  return count;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(LineWriter, WritesLinesInTheirOrder) {
  Pipe pipe;
  LineWriter lines(std::move(pipe.writing));
  lines.write("a\n");
  lines.write("b\n");
  EXPECT_TRUE(lines.flush(kPatience));
  std::array<char, 16> text{};
  EXPECT_EQ(::read(pipe.reading.get(), text.data(), text.size()), 4);
  EXPECT_STREQ(text.data(), "a\nb\n");
  EXPECT_EQ(lines.state().dropped, 0U);
  EXPECT_TRUE(lines.state().problem().ok());
}

// The reader of a blocking pipe, a pipe that does not block, or a socket has stopped reading.
class ReaderStops : public ::testing::TestWithParam<int> {};

TEST_P(ReaderStops, NobodyWaitsAndTheDroppedLinesAreTold) {
  FileDescriptor reading;
  FileDescriptor writing;
  if (GetParam() == 2) {
    std::array<int, 2> ends{-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    reading = FileDescriptor(ends[0]);
    writing = FileDescriptor(ends[1]);
  } else {
    Pipe pipe(GetParam() == 1 ? O_NONBLOCK : 0);
    reading = std::move(pipe.reading);
    writing = std::move(pipe.writing);
    ASSERT_EQ(::fcntl(reading.get(), F_SETFL, 0), 0);
  }
  LineWriter lines(std::move(writing), small());
  const std::uint64_t all = fill(lines);
  const std::uint64_t dropped = lines.state().dropped;
  std::thread reader([&] {
    std::uint64_t shown = 0;
    std::uint64_t told = 0;
    std::istringstream text(read_until(reading.get(), "later"));
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("dropped ")) told += std::stoull(line.substr(8));
      if (line == "0123456789") ++shown;
    }
    EXPECT_EQ(told, dropped);
    EXPECT_EQ(shown, all - dropped);
  });
  EXPECT_TRUE(lines.flush(kPatience));
  lines.write("later\n");
  EXPECT_TRUE(lines.flush(kPatience));
  reader.join();
  EXPECT_EQ(lines.state().dropped, dropped);
}
INSTANTIATE_TEST_SUITE_P(Kinds, ReaderStops, ::testing::Values(0, 1, 2));

TEST(LineWriter, ItsEndWaitsOnlyForAMoment) {
  Pipe pipe;
  {
    LineWriter lines(std::move(pipe.writing), small());
    fill(lines);
    EXPECT_FALSE(lines.flush(milliseconds(1)));
    lines.close();
    lines.write("too late\n");
  }
  SUCCEED() << "the end came although nobody reads";
}

TEST(LineWriter, ReportsThatNothingTakesItsLines) {
  Pipe pipe;
  LineWriter lines(std::move(pipe.writing), small());
  fill(lines);
  EXPECT_TRUE(comes_true([&] { return !lines.state().problem().ok(); }));
  (void)read_until(pipe.reading.get(), "dropped ");
  EXPECT_TRUE(comes_true([&] { return lines.state().problem().ok(); }));
}

// A reader that has gone must not end the process by SIGPIPE.
TEST(LineWriter, SurvivesTheEndOfTheReader) {
  Pipe pipe;
  LineWriter lines(std::move(pipe.writing), small());
  pipe.reading.reset();
  lines.write("to nobody\n");
  EXPECT_TRUE(comes_true([&] { return !lines.state().fault.ok(); }));
}

// /dev/full fails every write as a full disk does.
TEST(LineWriter, KeepsLinesWhileTheDiskIsFull) {
  const support::TemporaryFolder folder;
  const auto file = folder.path() / "lines";
  std::atomic<bool> full = true;
  LineWriterOptions options = small();
  options.open_again = [&] { return open_to_append(full ? "/dev/full" : file); };
  FileDescriptor out(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(out.valid());
  LineWriter lines(std::move(out), options);
  lines.write("kept\n");
  EXPECT_TRUE(comes_true([&] { return !lines.state().fault.ok(); }));
  full = false;
  lines.reopen();
  EXPECT_TRUE(lines.flush(kPatience));
  EXPECT_EQ(text_of(file), "kept\n");
  EXPECT_TRUE(lines.state().problem().ok());
}

TEST(LineWriter, FollowsAFileThatWasMovedAway) {
  const support::TemporaryFolder folder;
  const auto file = folder.path() / "lines";
  LineWriterOptions options = small();
  options.open_again = [&] { return open_to_append(file); };
  LineWriter lines(std::move(open_to_append(file)).value(), options);
  lines.write("before\n");
  ASSERT_TRUE(lines.flush(kPatience));
  std::filesystem::rename(file, folder.path() / "moved");
  lines.reopen();
  EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(file); }));
  lines.write("after\n");
  EXPECT_TRUE(lines.flush(kPatience));
  EXPECT_EQ(text_of(folder.path() / "moved"), "before\n");
  EXPECT_EQ(text_of(file), "after\n");
}

TEST(OpenToAppend, DoesNotWaitForTheReaderOfAFifo) {
  const support::TemporaryFolder folder;
  const auto fifo = folder.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(open_to_append(fifo).status().code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace gpulet::observe::line_writer_test
