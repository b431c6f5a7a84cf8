// A row of the tables of wrong input: what is wrong, and the whole message that must come out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::config {

struct ErrorCase {
  std::string text;
  std::string message;
};

// `parse`: (text, file) -> Result, or one that takes a list for all errors as well.
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
    EXPECT_EQ(result.status().message(), "f.json: " + wrong.message);
  }
}

}  // namespace gpulet::config
