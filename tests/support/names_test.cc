#include "tests/support/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/http_answer.h"

namespace gpulet::support {
namespace {

TEST(NamesTest, FindsWholeValuesOnly) {
  const Status status(StatusCode::invalid, "f.json: /models/0: 47 of 's_1' and lab, was -3");
  EXPECT_TRUE(names(status, "47", "/models/0", "'s_1'", "lab", "-3", "f.json: /models/0"));
  for (const char* const part : {"4", "7", "s", "s_", "la", "b", "f.jso", "nothing"})
    EXPECT_FALSE(names(status, part)) << part;
  EXPECT_FALSE(names(status, "47", "48"));
}

TEST(NamesTest, ALaterPlaceCounts) {
  EXPECT_TRUE(names("47 or 4", "4"));
  EXPECT_FALSE(names("", "4"));
}

TEST(NamesTest, MatchesElements) {
  EXPECT_THAT((std::vector<std::string>{"model a", "model ab"}),
              ::testing::ElementsAre(Names("a"), Names("ab")));
  EXPECT_THAT(std::string("ab"), ::testing::Not(Names("a")));
}

TEST(NamesTest, HoldsAnyPart) {
  EXPECT_TRUE(holds("{\"a\":1}", "\"a\":"));
  EXPECT_FALSE(holds(Status(StatusCode::invalid, "no"), "yes"));
}

TEST(NamesTest, FindsWholeLines) {
  EXPECT_TRUE(has_line("a 1\nb 2", "a 1"));
  EXPECT_TRUE(has_line("a 1\nb 2", "b 2"));
  EXPECT_FALSE(has_line("a 1\nb 2\n", "b"));
  EXPECT_FALSE(has_line("", "b"));
}

TEST(HttpAnswerTest, HasItsFields) {
  const std::string answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n{}";
  EXPECT_EQ(http_status(answer), 429U);
  EXPECT_EQ(http_header(answer, "Retry-After"), "7");
  EXPECT_EQ(http_header(answer, "Retry"), "");
  EXPECT_EQ(http_body(answer), "{}");
  EXPECT_EQ(http_status(""), 0U);
  EXPECT_EQ(http_body(""), "");
}

}  // namespace
}  // namespace gpulet::support
