#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/http_api.h"
#include "tests/net/kserve/kserve_case.h"

namespace gpulet::net::kserve {
namespace {

using testing::Json;
using testing::json_of;

using Settings = std::vector<Setting>;

TEST(Settings, ReadsScalarsListsAndNulls) {
  const auto read =
      read_settings(http::bytes_of(R"({"a":true,"b":7,"c":"x","d":["OFF","y"],"e":null,"f":[]})"));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(
      read.value(),
      (Settings{
          {"a", {"true"}}, {"b", {"7"}}, {"c", {"x"}}, {"d", {"OFF", "y"}}, {"e", {}}, {"f", {}}}));
}

TEST(Settings, RefusesWhatIsNoListOfSettings) {
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  for (const std::string& body :
       {std::string(), std::string("3"), std::string("[]"), std::string(R"({"a":{"b":1}})"),
        std::string(R"({"a":[[1]]})"), std::string(R"({"a":[null]})"), std::string("{"), many + '}',
        std::string(R"({"log_info":true,"a":1,"log_info":false})")}) {
    EXPECT_EQ(read_settings(http::bytes_of(body)).status().code(), StatusCode::invalid) << body;
  }
}

TEST(LogSettings, EachLevelIsItsSwitches) {
  for (const LogLevel level : {LogLevel::off, LogLevel::error, LogLevel::warning, LogLevel::info,
                               LogLevel::debug, LogLevel::trace}) {
    const LogSwitches switches = switches_of(level);
    const auto in_words = [](bool set) { return std::string(set ? "true" : "false"); };
    const auto back = change_log(
        LogLevel::info, Settings{{"log_error", {in_words(switches.error)}},
                                 {"log_warning", {in_words(switches.warning)}},
                                 {"log_info", {in_words(switches.info)}},
                                 {"log_verbose_level", {std::to_string(switches.verbose)}}});
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back.value(), level);
  }
  EXPECT_EQ(json_of(log_settings(LogLevel::debug)), Json::parse(R"({
    "log_file":"","log_info":true,"log_warning":true,"log_error":true,"log_verbose_level":1,
    "log_format":"default"})"));
}

TEST(LogSettings, OneSettingChangesTheLevel) {
  EXPECT_EQ(change_log(LogLevel::info, Settings{{"log_verbose_level", {"1"}}}).value(),
            LogLevel::debug);
  EXPECT_EQ(change_log(LogLevel::info, Settings{{"log_info", {"false"}}}).value(),
            LogLevel::warning);
  EXPECT_EQ(change_log(LogLevel::info, Settings{{"log_file", {""}}}).value(), LogLevel::info);
}

TEST(LogSettings, RefusesWhatTheLogCannotDo) {
  for (const Settings& settings :
       {Settings{{"log_warning", {"false"}}},  // but info stays on
        Settings{{"log_file", {"/tmp/other"}}}, Settings{{"log_format", {"ISO8601"}}},
        Settings{{"log_info", {"yes"}}}, Settings{{"log_info", {}}},
        Settings{{"log_verbose_level", {"-1"}}}, Settings{{"log_colour", {"true"}}}}) {
    EXPECT_EQ(change_log(LogLevel::info, settings).status().code(), StatusCode::invalid)
        << settings[0].name;
  }
}

TEST(TraceSettings, TellsAndTakesLevelAndRate) {
  EXPECT_EQ(json_of(trace_settings({.on = true, .every = 100})), Json::parse(R"({
    "trace_level":["TIMESTAMPS"],"trace_rate":"100","trace_count":"-1","log_frequency":"0",
    "trace_file":"","trace_mode":"triton"})"));
  const auto on = change_tracing(
      {},
      Settings{{"trace_level", {"TIMESTAMPS"}}, {"trace_rate", {"5"}}, {"trace_count", {"-1"}}});
  ASSERT_TRUE(on.ok()) << on.status().to_string();
  EXPECT_EQ(on.value(), (TraceSampling{.on = true, .every = 5}));
  EXPECT_EQ(change_tracing(on.value(), Settings{{"trace_level", {"OFF"}}}).value(),
            (TraceSampling{.on = false, .every = 5}));
  EXPECT_EQ(change_tracing(on.value(), Settings{{"trace_rate", {}}, {"trace_level", {}}}).value(),
            TraceSampling{});
}

TEST(TraceSettings, RefusesWhatThereIsNot) {
  for (const Settings& settings :
       {Settings{{"trace_level", {"TENSORS"}}}, Settings{{"trace_level", {"TIMESTAMPS", "OFF"}}},
        Settings{{"trace_level", {"MAX"}}}, Settings{{"trace_rate", {"0"}}},
        Settings{{"trace_rate", {"often"}}}, Settings{{"trace_count", {"10"}}},
        Settings{{"log_frequency", {"5"}}}, Settings{{"trace_file", {"/tmp/trace"}}},
        Settings{{"trace_mode", {"opentelemetry"}}}, Settings{{"trace_colour", {"red"}}}}) {
    EXPECT_EQ(change_tracing({}, settings).status().code(), StatusCode::invalid)
        << settings[0].name;
  }
}

TEST(TraceSettings, AModelHasThoseOfAll) {
  const TraceSampling sampling{.on = true, .every = 5};
  EXPECT_TRUE(check_model_tracing(sampling, Settings{{"trace_rate", {"5"}}}).ok());
  EXPECT_TRUE(check_model_tracing(sampling, Settings{{"trace_rate", {}}}).ok());
  EXPECT_FALSE(check_model_tracing(sampling, Settings{{"trace_rate", {"6"}}}).ok());
  EXPECT_FALSE(check_model_tracing(sampling, Settings{{"trace_level", {"OFF"}}}).ok());
}

}  // namespace
}  // namespace gpulet::net::kserve
