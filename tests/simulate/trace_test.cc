#include "gpulet/simulate/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpulet::simulate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Trace, HoldsArrivalsOrRatesAsTheHeaderSays) {
  const Trace arrivals = parse_trace("time_s,model,count\n0,a,2\n0.5,b,1\n1,a,3\n", "f").value();
  EXPECT_THAT(arrivals.arrivals.at("a"), ElementsAre(Arrival{0, 2}, Arrival{1, 3}));
  EXPECT_THAT(arrivals.arrivals.at("b"), ElementsAre(Arrival{0.5, 1}));
  EXPECT_THAT(arrivals.rates, IsEmpty());

  const Trace singles = parse_trace("model,time_s\na,0.25\n", "f").value();
  EXPECT_THAT(singles.arrivals.at("a"), ElementsAre(Arrival{0.25, 1}));

  const Trace rates = parse_trace("time_s,model,rate\n0,a,10\n20,a,0\n", "f").value();
  EXPECT_THAT(rates.rates.at("a"), ElementsAre(RateStep{0, 10}, RateStep{20, 0}));
  EXPECT_THAT(rates.arrivals, IsEmpty());
}

TEST(Trace, SaysWhereItIsWrongAndHowToMendIt) {
  const auto complaint = [](const char* text) {
    return parse_trace(text, "load.csv").status().message();
  };
  EXPECT_THAT(complaint("time_s,model\n2,a\n1,a\n"),
              AllOf(HasSubstr("load.csv: line 3"), HasSubstr("goes back"), HasSubstr("sort")));
  EXPECT_THAT(complaint("time_s,model,rate\n0,a,-1\n"), HasSubstr("load.csv: line 2"));
  EXPECT_THAT(complaint("time_s,model,rate\n0,a,nan\n"), HasSubstr("load.csv: line 2"));
  EXPECT_THAT(complaint("time_s,model,rate,count\n"), HasSubstr("exclude each other"));
  EXPECT_THAT(complaint("time,model\n"), HasSubstr("time_s"));
  EXPECT_THAT(complaint("time_s,model\n"), HasSubstr("no rows"));
  EXPECT_EQ(read_trace("/nowhere/load.csv").status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace gpulet::simulate
