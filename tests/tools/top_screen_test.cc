#include "tools/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/completion.h"

namespace gpulet::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(TopScreen, CutsLinesAndRowsToTheWindow) {
  EXPECT_EQ(compose_screen("title that is long", "one\ntwo\nthree\n", 0, {3, 5}),
            "\033[Htitle\033[K\r\none\033[K\r\ntwo\033[K\033[J");
  EXPECT_EQ(compose_screen("t", "one\ntwo\nthree\n", 2, {3, 5}),
            "\033[Ht\033[K\r\nthree\033[K\033[J");
  EXPECT_EQ(compose_screen("t", "one", 7, {3, 5}), "\033[Ht\033[K\033[J");
}

TEST(TopScreen, ColoursTakeNoRoomAndEndWithTheirLine) {
  EXPECT_THAT(compose_screen("t", "\033[32m▓▓▓▓\033[0mab", 0, {2, 3}),
              HasSubstr("\r\n\033[32m▓▓▓\033[0m\033[K"));
  EXPECT_THAT(compose_screen("t", "a\033[31mb\033[0mc", 0, {2, 3}),
              HasSubstr("\r\na\033[31mb\033[0mc\033[0m\033[K"));
}

TEST(TopScreen, KnowsTheKeysInWhatIsTyped) {
  EXPECT_THAT(keys_of("\033[A\033[6~xq"), ElementsAre(Key::up, Key::page_down, Key::quit));
  EXPECT_THAT(keys_of("\033[15~\033"), IsEmpty());
}

TEST(TopScreen, ScrollsWithinTheText) {
  EXPECT_EQ(scrolled(0, Key::up, 30, 10), 0U);
  EXPECT_EQ(scrolled(0, Key::down, 30, 10), 1U);
  EXPECT_EQ(scrolled(15, Key::page_down, 30, 10), 20U);
  EXPECT_EQ(scrolled(15, Key::page_up, 30, 10), 6U);
  EXPECT_EQ(scrolled(0, Key::last, 30, 10), 20U);
  EXPECT_EQ(scrolled(20, Key::down, 5, 10), 0U);  // the text has become short
  EXPECT_EQ(scrolled(7, Key::first, 30, 10), 0U);
}

const CompletedProgram kTool = {
    {"tool", "a tool", {{{"-h", "--help"}, "tell", false}}},
    {"tool run",
     "it's running",
     {{{"--how"}, "which way", true, {"fast", "slow"}}, {{"--to"}, "where", true}}},
    {"tool run far", "further", {}}};

TEST(Completion, FishAndZshNameCommandsOptionsAndChoices) {
  const std::string fish = fish_completion(kTool);
  EXPECT_THAT(fish, HasSubstr("-n '__tool_chain tool' -f -a 'run' -d 'it\\'s running'\n"));
  EXPECT_THAT(fish, HasSubstr("-n '__tool_chain tool run' -l how -r -f -a 'fast slow' -d"));
  EXPECT_THAT(fish, HasSubstr("-n '__tool_chain tool' -s h -l help -d 'tell'\n"));
  const std::string zsh = zsh_completion(kTool);
  EXPECT_THAT(zsh, HasSubstr("'tool run --how') compadd -- 'fast' 'slow'; return ;;"));
  EXPECT_THAT(zsh, HasSubstr("'tool run --to') _files; return ;;"));
  EXPECT_THAT(zsh, HasSubstr("words_here=('run:it'\\''s running')"));
  EXPECT_THAT(zsh, Not(HasSubstr("'tool run --to') compadd")));
}

}  // namespace
}  // namespace gpulet::tools
