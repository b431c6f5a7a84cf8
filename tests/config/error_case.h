// Table-driven tests of configuration errors: a wrong text, and the place of its error.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "gpulet/base/status.h"
#include "tests/support/names.h"

namespace gpulet::config {

struct ErrorCase {
  std::string text;
  std::string place;    // the start of the message, after the file
  std::string value{};  // part of the message: the wrong value or the suggested one
};

// `parse`: (text, file) -> Result, or (text, file, errors) -> Result.
template <typename Parse>
void expect_errors(const std::vector<ErrorCase>& cases, Parse parse) {
  for (const ErrorCase& wrong : cases) {
    const auto result = [&] {
      if constexpr (std::is_invocable_v<Parse, const std::string&, const char*>)
        return parse(wrong.text, "f.json");
      else
        return parse(wrong.text, "f.json", nullptr);
    }();
    ASSERT_FALSE(result.ok()) << "accepted: " << wrong.text;
    EXPECT_EQ(result.status().code(), StatusCode::invalid);
    EXPECT_THAT(result.status().message(), testing::StartsWith("f.json: " + wrong.place));
    EXPECT_TRUE(support::names(result.status(), wrong.value));
  }
}

}  // namespace gpulet::config
