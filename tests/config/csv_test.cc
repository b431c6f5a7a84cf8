#include "gpulet/config/csv.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

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

TEST(Scenarios, ErrorsNameLineAndMend) {
  expect_errors(
      {
          {"", "line 1: the file is empty; write a first line with the names of the columns"},
          {"a,b\n", "line 1: no row of rates follows; write one row per scenario"},
          {"a,a\n1,2\n", "line 1: the column \"a\" is named twice; keep one of them"},
          {"a,\n1,2\n", "line 1: a column has no model's name: \"\"; name one model per column"},
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
