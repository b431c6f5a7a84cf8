#include "net/token_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace gpulet::net {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr std::size_t kLongestName = 64;
constexpr double kLargestRate = 1e9;
constexpr std::string_view kFormat =
    "write [name=NAME] [models=PATTERN,...] [requests_per_s=N] [device_ms_per_s=N] "
    "[max_requests=N] TOKEN";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlank)));
    if (line.empty()) return words;
    words.push_back(line.substr(0, line.find_first_of(kBlank)));
    line.remove_prefix(words.back().size());
  }
}

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool made_of(std::string_view text, std::string_view marks) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [marks](char letter) {
    return is_letter_or_digit(letter) || marks.find(letter) != std::string_view::npos;
  });
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size();
}

// What is wrong with the value; empty: nothing.
std::string take_name(std::string_view value, Token& token) {
  token.name = value;
  if (value.size() <= kLongestName && made_of(value, "._-@:")) return {};
  return "a name is 1 to 64 letters, digits and ._-@:";
}

std::string take_models(std::string_view value, Token& token) {
  token.models.clear();
  while (true) {
    const std::string_view one = value.substr(0, value.find(','));
    if (!made_of(one, "._-*?")) {
      return "models are names or patterns with * and ?, separated by commas without blanks";
    }
    token.models.emplace_back(one);
    if (one.size() == value.size()) return {};
    value.remove_prefix(one.size() + 1);
  }
}

std::string take_rate(std::string_view value, double& rate) {
  if (read_number(value, rate) && std::isfinite(rate) && rate > 0 && rate <= kLargestRate)
    return {};
  return "a rate is a number above 0; leave it out for no limit";
}

std::string take_count(std::string_view value, std::uint32_t& count) {
  if (read_number(value, count) && count > 0) return {};
  return "max_requests is a whole number above 0; leave it out for no limit";
}

struct Key {
  std::string_view name;
  std::string (*take)(std::string_view value, Token& token);
};

constexpr std::array kKeys{
    Key{"name", take_name},
    Key{"models", take_models},
    Key{"requests_per_s",
        [](std::string_view value, Token& token) {
          return take_rate(value, token.limits.requests_per_s);
        }},
    Key{"device_ms_per_s",
        [](std::string_view value, Token& token) {
          return take_rate(value, token.limits.device_ms_per_s);
        }},
    Key{"max_requests", [](std::string_view value,
                           Token& token) { return take_count(value, token.limits.max_requests); }},
};

const Key* key_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return nullptr;
  const auto* const found =
      std::find_if(kKeys.begin(), kKeys.end(),
                   [name = word.substr(0, equals)](const Key& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : found;
}

// What is wrong with what stands before the token; empty: nothing.
std::string take_attributes(const std::vector<std::string_view>& words, Token& token) {
  std::array<bool, kKeys.size()> seen{};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const Key* const key = key_of(words[i]);
    if (key == nullptr) {
      return words[i].find('=') == std::string_view::npos
                 ? "a token has no blanks; " + std::string(kFormat)
                 : "an unknown key stands before the token; " + std::string(kFormat);
    }
    bool& again = seen[static_cast<std::size_t>(key - kKeys.data())];
    if (std::exchange(again, true)) return std::string(key->name) + " is given twice";
    if (std::string wrong = key->take(words[i].substr(key->name.size() + 1), token); !wrong.empty())
      return wrong;
  }
  return {};
}

// The same of the whole line, which has a word at least.
std::string take_line(const std::vector<std::string_view>& words, Right right, TokenLine& line) {
  if (std::string wrong = take_attributes(words, line.token); !wrong.empty()) return wrong;
  line.text = words.back();
  if (key_of(line.text) != nullptr)
    return "the token itself is missing; it stands at the line's end";
  if (line.text.size() < Tokens::kShortestToken) {
    return "a token of " + std::to_string(line.text.size()) +
           " characters is easy to guess; make one of 16 or more, as `openssl rand -hex 32` does";
  }
  if (right == Right::observe && !line.token.models.empty())
    return "a token that observes sees all models; leave out models=";
  return {};
}

}  // namespace

Result<std::vector<TokenLine>> read_token_lines(std::string_view text, const std::string& file,
                                                Right right) {
  std::vector<TokenLine> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::vector<std::string_view> words = words_of(whole.substr(0, whole.find('#')));
    if (words.empty()) continue;
    TokenLine line;
    line.token.right = right;
    line.token.name = std::string(to_string(right)) + ":" + std::to_string(number);
    if (const std::string wrong = take_line(words, right, line); !wrong.empty()) {
      return Status(StatusCode::invalid, file + ":" + std::to_string(number) + ": " + wrong);
    }
    lines.push_back(std::move(line));
  }
  if (!lines.empty()) return lines;
  return Status(StatusCode::invalid,
                file + ": holds no token; write one a line, as `openssl rand -hex 32` makes them");
}

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t letter = 0;
  std::optional<std::size_t> star;    // the last one, which takes one letter more on a mismatch
  std::size_t after_star_letter = 0;  // where its rest was tried last
  while (letter < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star_letter = letter;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[letter])) {
      ++at;
      ++letter;
    } else if (star) {
      at = *star + 1;
      letter = ++after_star_letter;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace gpulet::net
