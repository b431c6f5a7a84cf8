#include "tools/table.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace gpulet::tools {
namespace {

TEST(Table, AlignsColumnsByCharactersAndNotBytes) {
  Table table({{"model", Table::Align::left}, {"rate"}, {"note", Table::Align::left}});
  table.add_row({"lenet", "100.0", ""});
  table.add_row({"größe", "5.0", "µs"});
  EXPECT_EQ(table.to_string(),
            "model   rate  note\n"
            "-----  -----  ----\n"
            "lenet  100.0\n"
            "größe    5.0  µs\n");
}

TEST(Table, WithoutRowsIsItsTitles) {
  EXPECT_EQ(Table({{"a"}, {"bc"}}).to_string(), "a  bc\n-  --\n");
}

TEST(Table, RefusesARowOfAnotherWidth) {
  EXPECT_THROW(Table({{"a"}}).add_row({"1", "2"}), std::invalid_argument);
}

TEST(Wrapped, BreaksBetweenWordsAndIndentsWhatFollows) {
  EXPECT_EQ(wrapped("one two three four", 10, 2), "one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("  3.2 s  it serves", 16, 4), "  3.2 s  it\n    serves\n");
  EXPECT_EQ(wrapped("one two", 0, 2), "one two\n");
  EXPECT_EQ(wrapped("", 10, 2), "\n");
}

TEST(Wrapped, BreaksAWordThatIsLongerThanALine) {
  EXPECT_EQ(wrapped("/a/very/long/path/of/a/file x", 12, 2),
            "/a/very/long\n  /path/of/a\n  /file x\n");
  EXPECT_EQ(wrapped("größer als alles", 12, 0), "größer als\nalles\n");
}

TEST(Numbers, AreRoundedAndMissingOnesAreADash) {
  EXPECT_EQ(fixed(12.345, 1), "12.3");
  EXPECT_EQ(fixed(0, 2), "0.00");
  EXPECT_EQ(fixed(std::numeric_limits<double>::quiet_NaN(), 1), "-");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 0).size(), 309U);
  EXPECT_EQ(shortest(40.0, 2), "40");
  EXPECT_EQ(shortest(12.50, 2), "12.5");
  EXPECT_EQ(shortest(100, 0), "100");
}

}  // namespace
}  // namespace gpulet::tools
