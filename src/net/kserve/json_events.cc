#include "json_events.h"

#include <nlohmann/json.hpp>

#include "wording.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kDeepest = 100;  // as the protocol's reference server has it

// The parser's own words, without its prefix "[json.exception....]" and without the whole of a long
// token.
std::string reason_of(std::string_view what) {
  constexpr std::size_t kLongest = 200;
  const std::size_t prefix = what.find("] ");
  if (prefix != std::string_view::npos) what.remove_prefix(prefix + 2);
  return std::string(what.substr(0, kLongest)) + (what.size() > kLongest ? "..." : "");
}

// What nlohmann's parser calls; the names are its.
class Events {
 public:
  explicit Events(JsonReader& reader) : reader_(reader) {}

  bool null() { return reader_.scalar(std::monostate()); }
  bool boolean(bool value) { return reader_.scalar(value); }
  bool number_integer(std::int64_t value) { return reader_.scalar(value); }
  bool number_unsigned(std::uint64_t value) { return reader_.scalar(value); }
  bool number_float(double value, const std::string& /*text*/) { return reader_.scalar(value); }
  bool string(std::string& value) { return reader_.scalar(std::string_view(value)); }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(std::size_t /*size*/) { return open(false); }
  bool key(std::string& name) { return reader_.key(name); }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) { return open(true); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) {
    failure_ = invalid("the request's JSON cannot be read: " + reason_of(error.what()));
    return false;
  }

  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  bool open(bool array) {
    if (++depth_ <= kDeepest) return reader_.open(array);
    failure_ =
        invalid("the request's JSON is nested deeper than " + std::to_string(kDeepest) + " levels");
    return false;
  }
  bool close() {
    --depth_;
    return reader_.close();
  }

  JsonReader& reader_;
  Status failure_;
  std::size_t depth_ = 0;
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
  Events events(reader);
  const bool read = nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &events);
  if (read) return {};
  if (!reader.refusal().ok()) return reader.refusal();
  if (!events.failure().ok()) return events.failure();
  return invalid("the request's JSON cannot be read");
}

}  // namespace gpulet::net::kserve
