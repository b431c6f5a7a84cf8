#include "gpulet/config/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpulet::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

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

TEST(Json, ANumberThatFitsNoDoubleIsAnError) {
  EXPECT_EQ(parse_failure("[1e999]").code(), StatusCode::invalid);
}

TEST(Json, ARepeatedKeyIsAnError) {
  EXPECT_THAT(parse_failure(R"({"a":1,"b":2,"a":3})").message(),
              HasSubstr(R"(the key "a" twice; keep one)"));
}

TEST(Json, NestingIsBounded) {
  EXPECT_THAT(parse_failure(std::string(100'000, '[')).message(),
              HasSubstr("nested deeper than 32 levels"));
}

TEST(Json, PointersEscapeWhatThePointerSyntaxUses) {
  const JsonCursor root = parsed(R"({"a/b":{"c~d":[0,"x"]}})");
  const JsonCursor list = root.required("a/b").required("c~d");
  EXPECT_EQ(list.elements("a list").at(1).pointer(), "/a~1b/c~0d/1");
}

TEST(Json, TheFirstErrorIsKeptAndLaterQuestionsAnswerNeutrally) {
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

TEST(Json, KeepsOneErrorOfEachPlace) {
  const JsonCursor root = parsed(R"({"a":{"b":"x","c":"y"},"d":"z","e":1})");
  const JsonCursor a = root.required("a");
  EXPECT_TRUE(root.errors().empty());
  EXPECT_EQ(a.required("b").number({}), 0);
  EXPECT_EQ(a.required("b").integer(0, 1), 0);
  a.fail("follows from what is wrong in it", "leave it out");
  EXPECT_EQ(a.required("c").number({}), 0);
  EXPECT_EQ(root.required("d").number({}), 0);
  root.required("d").required("f").fail("follows from what is wrong around it", "leave it out");
  root.fail("the whole is another matter", "mend it");
  const std::vector<Status> errors = root.errors();
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_EQ(errors[0], root.status());
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string place[] = {"/a/b", "/a/c", "/d", "(top level)"};
    EXPECT_THAT(errors[i].message(), HasSubstr("f.json: " + place[i] + ": "));
  }
  EXPECT_FALSE(a.sound());
  EXPECT_TRUE(root.required("e").sound());
  EXPECT_FALSE(a.required("b").sound());
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
  EXPECT_THAT(other.status().message(), HasSubstr(R"("tab\x09here")"));
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

}  // namespace
}  // namespace gpulet::config
