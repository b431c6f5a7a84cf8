#include "gpulet/base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "gpulet/base/percentile.h"

namespace gpulet {
namespace {

TEST(Escape, leaves_what_can_be_read) {
  for (const std::string text : {"", "plain text, (1) \"quoted\" 'too'", "Größe 5 €", "模型", "😀"})
    EXPECT_EQ(escaped(text), text);
}

TEST(Escape, shows_what_would_act_on_a_terminal_or_a_log) {
  EXPECT_EQ(escaped("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(escaped("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(escaped(std::string("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(escaped("\\n"), "\\\\n");
  EXPECT_EQ(escaped("\xc2\x9b"
                    "31m"),
            "\\xc2\\x9b31m")
      << "a control of ISO 6429 in UTF-8";
  EXPECT_EQ(escaped("\xe2\x80\xae"), "\\xe2\\x80\\xae") << "right-to-left override";
  EXPECT_EQ(escaped("\xff\xc0\x80"), "\\xff\\xc0\\x80") << "not UTF-8, too long a form";
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(escaped("\xe6\xa8"), "\\xe6\\xa8") << "the beginning of a character";
}

TEST(Escape, leaves_out_what_is_too_long_and_says_so) {
  EXPECT_EQ(escaped("abcdef", 4), "abcd(+2 bytes)");
  EXPECT_EQ(escaped("ab\xc3\xb6", 3), "ab(+2 bytes)") << "no half characters";
  EXPECT_LE(escaped(std::string(1 << 20, '\n')).size(), 2 * kLongestLogText + 32);
}

std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\') {
      plain += text[at];
      continue;
    }
    const char kind = text.at(++at);
    if (kind == 'x') {
      plain += static_cast<char>(std::stoi(text.substr(at + 1, 2), nullptr, 16));
      at += 2;
    } else {
      plain += kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind == 't' ? '\t' : kind;
    }
  }
  return plain;
}

RC_GTEST_PROP(Escape, gives_one_line_from_which_the_text_can_be_told, (const std::string& text)) {
  const std::string shown = escaped(text);
  RC_ASSERT(std::none_of(shown.begin(), shown.end(), [](char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
  }));
  RC_ASSERT(unescaped(shown) == text);
  // The rest needs no escapes except for its backslashes.
  RC_ASSERT(static_cast<std::ptrdiff_t>(escaped(shown).size() - shown.size()) ==
            std::count(shown.begin(), shown.end(), '\\'));
}

RC_GTEST_PROP(Escape, takes_any_bytes, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  RC_ASSERT(unescaped(escaped(bytes)) == bytes);
}

TEST(SimilarTest, FindsWhatWasMeantAndNothingWhereNothingIsNear) {
  const std::vector<std::string_view> commands{"load",    "logs",   "models",
                                               "profile", "status", "wait"};
  EXPECT_EQ(similar("statsu", commands), "status");
  EXPECT_EQ(similar("stat", commands), "status");
  EXPECT_EQ(similar("log", commands), "logs");
  EXPECT_EQ(similar("prof", commands), "profile");
  EXPECT_EQ(similar("fly", commands), "");
  EXPECT_EQ(similar("BYTES", {"BOOL", "UINT8", "INT8", "FP32"}), "");
  EXPECT_EQ(similar("FP33", {"BOOL", "FP16", "FP32"}), "FP32");
  EXPECT_EQ(similar("anything", {}), "");
}

TEST(SimilarTest, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("load", "load"), 0U);
  EXPECT_EQ(edit_distance("load", "lead"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
}

TEST(TextTest, TrimsJoinsAndParses) {
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \t"), "");
  EXPECT_EQ(joined(std::vector<std::string>{"", "b", "c"}), ", b, c");
  EXPECT_EQ(joined(std::vector<std::string_view>{}, "/"), "");
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<unsigned char>("256"), std::nullopt);
  EXPECT_EQ(parse_number<int>("1 "), std::nullopt);
  EXPECT_EQ(parse_number<int>("+1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e3"), 1000.0);
}

TEST(PercentileTest, IsTheNearestRank) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  EXPECT_EQ(percentile(samples, 99), 99.0);
  EXPECT_EQ(percentile(samples, 100), 100.0);
  EXPECT_EQ(percentile(samples, 0), 1.0);
  EXPECT_EQ(percentile({}, 50), std::nullopt);
}

}  // namespace
}  // namespace gpulet
