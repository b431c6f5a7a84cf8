#include "gpulet/config/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "tests/config/error_case.h"
#include "tests/support/names.h"

namespace gpulet::config {
namespace {

using support::names;
using ::testing::StartsWith;

Status parse_failure(const std::string& text) { return JsonCursor::parse(text, "f.json").status(); }

JsonCursor parsed(const std::string& text) {
  auto cursor = JsonCursor::parse(text, "f.json");
  EXPECT_TRUE(cursor.ok()) << cursor.status().to_string();
  return cursor.value();
}

TEST(Json, ASyntaxErrorNamesLineAndColumn) {
  EXPECT_THAT(parse_failure("{\n  \"a\": 1,\n  b\n}").message(),
              StartsWith("f.json: line 3, column 3: "));
  EXPECT_THAT(parse_failure("[1 2]").message(), StartsWith("f.json: line 1, column 4: "));
  EXPECT_THAT(parse_failure("").message(), StartsWith("f.json: line 1, column 1: "));
  EXPECT_THAT(parse_failure("{}{}").message(), StartsWith("f.json: line 1, column 3: "));
}

TEST(Json, ANumberBeyondDoubleIsAnError) {
  EXPECT_EQ(parse_failure("[1e999]").code(), StatusCode::invalid);
}

TEST(Json, ARepeatedKeyIsAnError) {
  EXPECT_TRUE(names(parse_failure(R"({"a":1,"b":2,"a":3})"), R"("a")"));
}

TEST(Json, NestingIsBounded) { EXPECT_TRUE(names(parse_failure(std::string(100'000, '[')), "32")); }

TEST(Json, PointersEscapeTildeAndSlash) {
  const JsonCursor root = parsed(R"({"a/b":{"c~d":[0,"x"]}})");
  const JsonCursor list = root.required("a/b").required("c~d");
  EXPECT_EQ(list.elements("a list").at(1).pointer(), "/a~1b/c~0d/1");
}

TEST(Json, AfterAnErrorReadsReturnNeutralValues) {
  const JsonCursor root = parsed(R"({"a":"fast"})");
  EXPECT_EQ(root.required("a").number(above(0)), 0);
  EXPECT_EQ(root.required("b").required("c").text("a text"), "");
  EXPECT_TRUE(root.required("d").elements("a list").empty());
  EXPECT_EQ(root.status().message(),
            "f.json: /a: \"fast\" is not allowed here; write a number above 0");
}

TEST(Json, AnErrorAtTheTopLevelSaysSo) {
  const JsonCursor root = parsed("[1,2]");
  root.allow_keys({"models"});
  EXPECT_EQ(root.status().message(),
            "f.json: (top level): a list of 2 is not allowed here; write an object");
}

TEST(Json, KeepsOneErrorPerPlace) {
  const JsonCursor root = parsed(R"({"a":{"b":"x","c":"y"},"d":"z","e":1})");
  const JsonCursor a = root.required("a");
  EXPECT_TRUE(root.errors().empty());
  EXPECT_EQ(a.required("b").number({}), 0);
  EXPECT_EQ(a.required("b").integer(0, 1), 0);
  a.fail("follows from what is wrong in it", "leave it out");
  EXPECT_EQ(a.required("c").number({}), 0);
  EXPECT_EQ(root.required("d").number({}), 0);
  root.required("d").required("f").fail("follows from what is wrong around it", "leave it out");
  root.fail("an error of the top level", "fix it");
  const std::vector<Status> errors = root.errors();
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_EQ(errors[0], root.status());
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string place[] = {"/a/b", "/a/c", "/d", "(top level)"};
    EXPECT_TRUE(names(errors[i], "f.json: " + place[i] + ": "));
  }
  EXPECT_FALSE(a.valid());
  EXPECT_TRUE(root.required("e").valid());
  EXPECT_FALSE(a.required("b").valid());
}

TEST(Json, KeepsABoundedNumberOfErrors) {
  std::string list;
  for (int i = 0; i < 1000; ++i) list += list.empty() ? "0" : ",0";
  const JsonCursor root = parsed("[" + list + "]");
  for (const JsonCursor& element : root.elements("a list")) EXPECT_EQ(element.text("a text"), "");
  EXPECT_EQ(root.errors().size(), 100U);
}

TEST(Json, WholeNumbersMayBeWrittenWithAPoint) {
  const JsonCursor root = parsed(R"({"a":20.0,"b":20.5,"c":18446744073709551615})");
  EXPECT_EQ(root.required("a").integer(1, 100), 20);
  EXPECT_TRUE(root.status().ok());
  EXPECT_EQ(root.required("b").integer(1, 100), 0);
  EXPECT_EQ(root.status().message(),
            "f.json: /b: 20.5 is not allowed here; write a whole number from 1 to 100");
  const JsonCursor again = parsed(R"({"c":18446744073709551615})");
  EXPECT_EQ(again.required("c").integer(0, 1000), 0);
  EXPECT_FALSE(again.status().ok());
}

TEST(Json, LongOrUnprintableValuesAreQuotedShortAndClean) {
  const JsonCursor other = parsed(R"({"a":"tab\there"})");
  EXPECT_EQ(other.required("a").text("a text"), "");
  EXPECT_TRUE(names(other.status(), R"("tab\x09here")"));
  const JsonCursor long_one = parsed(R"({"a":")" + std::string(500, 'x') + R"("})");
  EXPECT_EQ(long_one.required("a").number(at_least(0)), 0);
  EXPECT_LT(long_one.status().message().size(), 150U);
}

TEST(Json, AMissingFileIsNamed) {
  const Status status = JsonCursor::read_file("no/such/file.json").status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_EQ(status.message(),
            "no/such/file.json: cannot be read (No such file or directory); check the path");
}

TEST(Csv, ReadsWhatSpreadsheetsWrite) {
  auto reader =
      CsvReader::parse("\xEF\xBB\xBFname, rate\r\n\r\n \"a-1\" , 2.5\r\nb,\"3\"", "f.csv");
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  CsvReader& rows = reader.value();
  const auto columns = rows.require_columns({"rate", "name"});
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.line(), 3U);
  EXPECT_EQ(rows.number(columns[0], above(0)), 2.5);
  EXPECT_EQ(rows.name(columns[1]), "a-1");
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.count(columns[0], 1, 9), 3U);
  EXPECT_FALSE(rows.next());
  EXPECT_TRUE(rows.status().ok());
}

TEST(Scenarios, HaveOneRateAModelAndRow) {
  const auto scenarios = parse_scenarios("lenet,resnet50\n0,10.5\n1e2,3\n", "f.csv");
  ASSERT_TRUE(scenarios.ok()) << scenarios.status().to_string();
  EXPECT_EQ(scenarios.value().models, (std::vector<std::string>{"lenet", "resnet50"}));
  EXPECT_EQ(scenarios.value().rates, (std::vector<std::vector<double>>{{0, 10.5}, {100, 3}}));
}

TEST(Scenarios, ErrorsNameTheLine) {
  expect_errors(
      {
          {"", "line 1: the file is empty; write a first line with the names of the columns"},
          {"a,b\n", "line 1: no row of rates follows; write one row per scenario"},
          {"a,a\n1,2\n", "line 1: the column \"a\" is named twice; keep one of them"},
          {"a,\n1,2\n", "line 1: "},
          {"a,b\n1,2\n\n3\n", "line 4: the line has 1 fields; give it 2: a, b"},
          {"a,b\n1,\n", "line 2: b is empty; write a number of at least 0, or take the line out"},
          {"a,b\n1,-2\n",
           "line 2: b is \"-2\"; write a number of at least 0, or take the line out"},
          {"a,b\nnan,2\n",
           "line 2: a is \"nan\"; write a number of at least 0, or take the line out"},
          {"a,b\n1,inf\n",
           "line 2: b is \"inf\"; write a number of at least 0, or take the line out"},
          {"a,b\n1,2x\n",
           "line 2: b is \"2x\"; write a number of at least 0, or take the line out"},
          {"a,b\n\"1,2\n", "line 2: a quoted field does not end on its line; close the quote"},
          {"a,b\n\"1\"0,2\n",
           "line 2: text follows a closing quote; put a comma between the fields"},
      },
      parse_scenarios);
}

}  // namespace

}  // namespace gpulet::config
