#include "json_events.h"

#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "wording.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kDeepest = 100;  // as the protocol's reference server has it

using boost::json::error_code;
using boost::json::string_view;

// What Boost's parser calls; the names are its.
class Events {
 public:
  constexpr static std::size_t max_object_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_array_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_string_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_key_size = static_cast<std::size_t>(-1);

  explicit Events(JsonReader& reader) : reader_(reader) {}

  // NOLINTBEGIN(readability-convert-member-functions-to-static): the parser calls an object's
  bool on_document_begin(error_code& /*error*/) { return true; }
  bool on_document_end(error_code& /*error*/) { return true; }
  bool on_comment_part(string_view /*text*/, error_code& /*error*/) { return true; }
  bool on_comment(string_view /*text*/, error_code& /*error*/) { return true; }
  // Numbers come in parts only where the text does.
  bool on_number_part(string_view /*text*/, error_code& /*error*/) { return true; }
  // NOLINTEND(readability-convert-member-functions-to-static)

  bool on_null(error_code& error) { return go_on(reader_.scalar(std::monostate()), error); }
  bool on_bool(bool value, error_code& error) { return go_on(reader_.scalar(value), error); }
  bool on_int64(std::int64_t value, string_view /*text*/, error_code& error) {
    if (value < 0) return go_on(reader_.scalar(value), error);
    return go_on(reader_.scalar(static_cast<std::uint64_t>(value)), error);
  }
  bool on_uint64(std::uint64_t value, string_view /*text*/, error_code& error) {
    return go_on(reader_.scalar(value), error);
  }
  // The parser's value may be a few units off in the last place.
  bool on_double(double nearly, string_view text, error_code& error) {
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec == std::errc::result_out_of_range) {
      if (std::abs(nearly) > 1) return stop(boost::json::error::exponent_overflow, error);
      value = 0;
    }
    return go_on(reader_.scalar(value), error);
  }

  // A text with escapes comes in parts.
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
    const bool more = reader_.key(whole(text));
    parts_.clear();
    return go_on(more, error);
  }

  bool on_object_begin(error_code& error) { return go_on(reader_.open(false), error); }
  bool on_object_end(std::size_t /*size*/, error_code& error) {
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
  // What the reader refused is told by the reader.
  static bool go_on(bool more, error_code& error) {
    return more || stop(boost::json::error::exception, error);
  }
  std::string_view whole(string_view last) {
    if (parts_.empty()) return {last.data(), last.size()};
    parts_.append(last.data(), last.size());
    return parts_;
  }

  JsonReader& reader_;
  std::string parts_;
};

}  // namespace

std::string shown(const Scalar& value) {
  struct Show {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool given) const { return given ? "true" : "false"; }
    std::string operator()(std::int64_t given) const { return std::to_string(given); }
    std::string operator()(std::uint64_t given) const { return std::to_string(given); }
    std::string operator()(double given) const { return nlohmann::json(given).dump(); }
    std::string operator()(std::string_view given) const { return in_quotes(given); }
  };
  return std::visit(Show(), value);
}

Status read_json(std::string_view text, JsonReader& reader) {
  boost::json::parse_options options;
  options.max_depth = kDeepest;
  boost::json::basic_parser<Events> parser(options, reader);
  error_code error;
  const std::size_t taken = parser.write_some(false, text.data(), text.size(), error);
  if (!reader.refusal().ok()) return reader.refusal();
  if (!error && taken < text.size()) error = boost::json::error::extra_data;
  if (!error) return {};
  if (error == boost::json::error::too_deep) {
    return invalid("the request's JSON is nested deeper than " + std::to_string(kDeepest) +
                   " levels");
  }
  return invalid("the request's JSON cannot be read: " + error.message() + " after " +
                 std::to_string(taken) + " bytes");
}

}  // namespace gpulet::net::kserve
