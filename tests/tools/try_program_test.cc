// gpulet try, with simulated devices.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cluster/cluster.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using support::holds;
using support::names;

class TryProgram : public ::testing::Test {
 protected:
  // Simulated devices answer with the bytes of the request.
  TryProgram()
      : cluster_({{.name = "few", .slo_ms = 5000, .bytes = 4},
                  {.name = "many", .slo_ms = 5000, .bytes = 40}}) {
    cluster_.add_backend("n0");
    cluster_.wait_until_serving();
  }

  ProgramResult try_it(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"try", "--target", "127.0.0.1:" + std::to_string(cluster_.client_port())});
    return run_gpulet(arguments);
  }

  testing::Cluster cluster_;
  support::TemporaryFolder folder_;
};

TEST_F(TryProgram, SendsRandomValuesThatDependOnTheSeedAlone) {
  const ProgramResult first = try_it({"few"});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_TRUE(names(first.output, "few"));
  const auto values = [](const std::string& output) {
    return output.substr(output.rfind('\n', output.size() - 2));
  };
  EXPECT_EQ(values(try_it({"few"}).output), values(first.output));
  EXPECT_NE(values(try_it({"few", "--seed", "2"}).output), values(first.output));
}

TEST_F(TryProgram, ShowsSmallOutputsWhole) {
  const std::string file = folder_.write("in.json", R"({"x": [7, 8, 9, 10]})");
  const ProgramResult result = try_it({"few", file});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(holds(result.output, "7, 8, 9, 10"));
}

TEST_F(TryProgram, ShowsTheLargestElementsWithTheirLabels) {
  std::string numbers = "0";
  std::string labels = "class0\n";
  for (int at = 1; at < 40; ++at) {
    numbers += "," + std::to_string(at == 17 ? 200 : at);
    labels += "class" + std::to_string(at) + "\n";
  }
  const std::string file = folder_.write("in.json", "{\"x\": [" + numbers + "]}");
  const ProgramResult result =
      try_it({"many", file, "--top", "2", "--labels", folder_.write("labels.txt", labels)});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(holds(result.output, "class17"));
  EXPECT_TRUE(holds(result.output, "class39"));
  EXPECT_FALSE(holds(result.output, "class38"));
}

TEST_F(TryProgram, RefusesWhatItCannotSend) {
  const ProgramResult unknown = try_it({"other"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(names(unknown.errors, "other"));
  EXPECT_EQ(try_it({"few", folder_.write("in.json", "{")}).exit_code, 2);
  EXPECT_EQ(try_it({"few", "/nowhere/photo.png"}).exit_code, 2);
  EXPECT_EQ(run_gpulet({"try", "--target", "127.0.0.1:1", "few"}).exit_code, 1);
}

}  // namespace
}  // namespace gpulet::tools
