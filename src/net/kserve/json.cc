#include "net/kserve/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kMaxDepth = 100;     // as in the reference server
constexpr std::size_t kMostMembers = 512;  // of one object

using boost::json::error_code;
using boost::json::string_view;

// The value of a decimal number that is an integer of 64 bits in another form, such as 1e3 or 2.0;
// empty for any other. Exact, unlike a double.
std::optional<Scalar> integer_of(std::string_view number) {
  constexpr int kMostDigits = 20;  // of 2^64 - 1
  const std::size_t mark = std::min(number.find('e'), number.find('E'));
  if (mark == std::string_view::npos && !number.ends_with('0')) return std::nullopt;  // usual
  const bool negative = number.starts_with('-');
  int exponent = 0;
  if (mark != std::string_view::npos) {
    std::string_view digits = number.substr(mark + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (read.ec != std::errc{}) return std::nullopt;
    number = number.substr(0, mark);
  }
  if (negative) number.remove_prefix(1);
  const std::size_t point = number.find('.');
  std::string digits(number.substr(0, point));
  if (point != std::string_view::npos) {
    const std::string_view fraction = number.substr(point + 1);
    if (fraction.size() > static_cast<std::size_t>(std::numeric_limits<int>::max() / 2) ||
        exponent < std::numeric_limits<int>::min() / 2)
      return std::nullopt;
    digits += fraction;
    exponent -= static_cast<int>(fraction.size());
  }
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.empty()) return std::nullopt;  // zero, which as a double has a sign
  for (; exponent < 0 && digits.ends_with('0'); ++exponent) digits.pop_back();
  if (exponent < 0 || exponent > kMostDigits || digits.size() > kMostDigits) return std::nullopt;
  digits.append(static_cast<std::size_t>(exponent), '0');
  std::uint64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc{}) return std::nullopt;
  if (!negative) return value;
  constexpr std::uint64_t kLowest = std::uint64_t{1} << 63U;
  if (value > kLowest) return std::nullopt;
  return static_cast<std::int64_t>(0 - value);
}

// The names of the members of the open objects, to find repeated ones. Keeps their hashes: two
// names with the same one, which only a client can seek, would be refused as if they were equal.
class MemberNames {
 public:
  enum class Outcome : std::uint8_t { added, repeated, too_many };

  void begin_object() { begins_.push_back(hashes_.size()); }
  void end_object() {
    hashes_.resize(begins_.back());
    begins_.pop_back();
  }
  [[nodiscard]] Outcome add(std::string_view name) {
    const std::size_t hash = std::hash<std::string_view>()(name);
    const auto first = hashes_.begin() + static_cast<std::ptrdiff_t>(begins_.back());
    if (std::find(first, hashes_.end(), hash) != hashes_.end()) return Outcome::repeated;
    if (hashes_.size() - begins_.back() == kMostMembers) return Outcome::too_many;
    hashes_.push_back(hash);
    return Outcome::added;
  }

 private:
  std::vector<std::size_t> hashes_;  // of all open objects, the innermost last
  std::vector<std::size_t> begins_;  // of each open object in hashes_
};

// The handler of Boost's parser, which defines the names.
class Events {
 public:
  constexpr static std::size_t max_object_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_array_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_string_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_key_size = static_cast<std::size_t>(-1);

  explicit Events(JsonReader& reader) : reader_(reader) {}

  // Reports the next null as this number.
  void read_null_as(double number) { instead_of_null_ = number; }

  // A fault in the document for which Boost has no error.
  [[nodiscard]] const Status& fault() const { return fault_; }

  // NOLINTBEGIN(readability-convert-member-functions-to-static): called on an object
  bool on_document_begin(error_code& /*error*/) { return true; }
  bool on_document_end(error_code& /*error*/) { return true; }
  bool on_comment_part(string_view /*text*/, error_code& /*error*/) { return true; }
  bool on_comment(string_view /*text*/, error_code& /*error*/) { return true; }
  // Numbers arrive in parts only if the text does.
  bool on_number_part(string_view /*text*/, error_code& /*error*/) { return true; }
  // NOLINTEND(readability-convert-member-functions-to-static)

  bool on_null(error_code& error) {
    if (const auto number = std::exchange(instead_of_null_, std::nullopt))
      return go_on(reader_.scalar(*number), error);
    return go_on(reader_.scalar(std::monostate()), error);
  }
  bool on_bool(bool value, error_code& error) { return go_on(reader_.scalar(value), error); }
  bool on_int64(std::int64_t value, string_view text, error_code& error) {
    if (value < 0) return go_on(reader_.scalar(value), error);
    if (text.starts_with('-')) return go_on(reader_.scalar(-0.0), error);
    return go_on(reader_.scalar(static_cast<std::uint64_t>(value)), error);
  }
  bool on_uint64(std::uint64_t value, string_view /*text*/, error_code& error) {
    return go_on(reader_.scalar(value), error);
  }
  // Boost's value may be off in the last digits, so that the text is parsed again.
  bool on_double(double nearly, string_view text, error_code& error) {
    if (const std::optional<Scalar> integer = integer_of({text.data(), text.size()}))
      return go_on(reader_.scalar(*integer), error);
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec == std::errc::result_out_of_range) {
      if (std::abs(nearly) > 1) return stop(boost::json::error::exponent_overflow, error);
      value = text.starts_with('-') ? -0.0 : 0.0;
    }
    return go_on(reader_.scalar(value), error);
  }

  // Text with escapes arrives in parts.
  bool on_string_part(string_view text, std::size_t /*size*/, error_code& /*error*/) {
    parts_.append(text.data(), text.size());
    return true;
  }
  bool on_string(string_view text, std::size_t /*size*/, error_code& error) {
    const bool more = reader_.scalar(whole(text));
    parts_.clear();
    return go_on(more, error);
  }
  bool on_key_part(string_view text, std::size_t size, error_code& error) {
    return on_string_part(text, size, error);
  }
  bool on_key(string_view text, std::size_t /*size*/, error_code& error) {
    const std::string_view name = whole(text);
    const bool more = add_member(name) && reader_.key(name);
    parts_.clear();
    return go_on(more, error);
  }

  bool on_object_begin(error_code& error) {
    names_.begin_object();
    return go_on(reader_.open(false), error);
  }
  bool on_object_end(std::size_t /*size*/, error_code& error) {
    names_.end_object();
    return go_on(reader_.close(), error);
  }
  bool on_array_begin(error_code& error) { return go_on(reader_.open(true), error); }
  bool on_array_end(std::size_t /*size*/, error_code& error) {
    return go_on(reader_.close(), error);
  }

 private:
  static bool stop(boost::json::error why, error_code& error) {
    error = why;
    return false;
  }
  bool add_member(std::string_view name) {
    switch (names_.add(name)) {
      case MemberNames::Outcome::added:
        return true;
      case MemberNames::Outcome::repeated:
        fault_ = invalid(
            fmt::format("the request's JSON has the member {} twice in one object; send it once",
                        in_quotes(name)));
        break;
      case MemberNames::Outcome::too_many:
        fault_ = invalid(fmt::format(
            "the request's JSON has an object with more than {} members, the last of them {}; "
            "send fewer",
            kMostMembers, in_quotes(name)));
        break;
    }
    return false;
  }
  // The reader, or fault_, holds the reason of a refusal.
  static bool go_on(bool more, error_code& error) {
    return more || stop(boost::json::error::exception, error);
  }
  std::string_view whole(string_view last) {
    if (parts_.empty()) return {last.data(), last.size()};
    parts_.append(last.data(), last.size());
    return parts_;
  }

  JsonReader& reader_;
  MemberNames names_;
  Status fault_;
  std::string parts_;
  std::optional<double> instead_of_null_{};
};

using Parser = boost::json::basic_parser<Events>;

boost::json::parse_options options() {
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  return options;
}

// The result after the parser took `taken` bytes.
Status outcome(const Parser& parser, const JsonReader& reader, const error_code& error,
               std::size_t taken) {
  if (!parser.handler().fault().ok()) return parser.handler().fault();
  if (!reader.refusal().ok()) return reader.refusal();
  if (!error) return {};
  if (error == boost::json::error::too_deep)
    return invalid(fmt::format("the request's JSON is nested deeper than {} levels", kMaxDepth));
  return invalid(
      fmt::format("the request's JSON cannot be read: {} after {} bytes", error.message(), taken));
}

// Returns the number of bytes that the parser took.
std::size_t parse(Parser& parser, std::string_view text, bool more, error_code& error) {
  const std::size_t taken = parser.write_some(more, text.data(), text.size(), error);
  if (!error && taken < text.size()) error = boost::json::error::extra_data;
  return taken;
}

struct Literal {
  std::size_t begin = 0;
  std::size_t end = 0;
  double value = 0;
};

// The position behind the string that starts at `begin`; the text's size if it does not end.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  for (std::size_t at = begin + 1; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return text.size();
}

// The first non-finite literal from `from` on, which is outside a string.
std::optional<Literal> next_non_finite(std::string_view text, std::size_t from) {
  struct Name {
    std::string_view text;
    double value;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::array<Name, 3> kNames{{{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                        {"Infinity", kInfinity},
                                        {"Inf", kInfinity}}};
  for (std::size_t at = text.find_first_of("\"NI", from); at != std::string_view::npos;) {
    if (text[at] == '"') {
      at = text.find_first_of("\"NI", end_of_string(text, at));
      continue;
    }
    for (const Name& name : kNames) {
      if (!text.substr(at).starts_with(name.text)) continue;
      const bool negative = at > from && text[at - 1] == '-';
      return Literal{negative ? at - 1 : at, at + name.text.size(),
                     negative ? -name.value : name.value};
    }
    return std::nullopt;  // not JSON
  }
  return std::nullopt;
}

}  // namespace

std::string shown(const Scalar& value) {
  struct Show {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool given) const { return given ? "true" : "false"; }
    std::string operator()(std::int64_t given) const { return std::to_string(given); }
    std::string operator()(std::uint64_t given) const { return std::to_string(given); }
    std::string operator()(double given) const {
      const std::string_view literal = non_finite_literal(given);
      return literal.empty() ? nlohmann::json(given).dump() : std::string(literal);
    }
    std::string operator()(std::string_view given) const { return in_quotes(given); }
  };
  return std::visit(Show(), value);
}

Status read_json(std::string_view text, JsonReader& reader) {
  Parser parser(options(), reader);
  error_code error;
  const std::size_t taken = parse(parser, text, false, error);
  return outcome(parser, reader, error, taken);
}

bool has_non_finite(std::string_view text) { return next_non_finite(text, 0).has_value(); }

// Passes the text to the parser in parts, with null, also a value, instead of each literal.
Status read_json_with_non_finite(std::string_view text, JsonReader& reader) {
  Parser parser(options(), reader);
  error_code error;
  std::size_t at = 0;
  while (const std::optional<Literal> literal = next_non_finite(text, at)) {
    at += parse(parser, text.substr(at, literal->begin - at), true, error);
    if (error) return outcome(parser, reader, error, at);
    parser.handler().read_null_as(literal->value);
    parse(parser, "null", true, error);
    if (error) return outcome(parser, reader, error, at);
    at = literal->end;
  }
  at += parse(parser, text.substr(at), false, error);
  return outcome(parser, reader, error, at);
}

std::string_view non_finite_literal(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return {};
}

}  // namespace gpulet::net::kserve
