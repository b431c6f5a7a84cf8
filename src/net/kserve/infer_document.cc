#include "infer_document.h"

#include <array>
#include <limits>
#include <utility>

#include "json_events.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kMostDimensions = 64;

// Where in the document the next event belongs.
enum class Place : std::uint8_t {
  outside,
  request,
  request_parameters,
  inputs,
  input,
  input_parameters,
  shape,
  data,
  outputs,
  output,
  output_parameters,
  ignored,
};

// The members that hold others.
struct Member {
  Place parent;
  std::string_view key;
  bool array;
  Place place;
};
constexpr std::array<Member, 7> kMembers{{
    {Place::request, "parameters", false, Place::request_parameters},
    {Place::request, "inputs", true, Place::inputs},
    {Place::request, "outputs", true, Place::outputs},
    {Place::input, "parameters", false, Place::input_parameters},
    {Place::input, "shape", true, Place::shape},
    {Place::input, "data", true, Place::data},
    {Place::output, "parameters", false, Place::output_parameters},
}};

const Member* find_member(Place parent, std::string_view key) {
  for (const Member& member : kMembers) {
    if (member.parent == parent && member.key == key) return &member;
  }
  return nullptr;
}

bool is_parameters(Place place) {
  return place == Place::request_parameters || place == Place::input_parameters ||
         place == Place::output_parameters;
}

bool is_text(Place parent, std::string_view key) {
  switch (parent) {
    case Place::request:
      return key == "id";
    case Place::input:
      return key == "name" || key == "datatype";
    case Place::output:
      return key == "name";
    default:
      return false;
  }
}

class InferReader : public JsonReader {
 public:
  explicit InferReader(const DocumentLimits& limits) : limits_(limits) { places_.reserve(8); }

  bool scalar(const Scalar& value) override {
    switch (place()) {
      case Place::data:
        return take_value(value);
      case Place::shape:
        return take_dimension(value);
      case Place::request_parameters:
        return accept(within(take_parameter(document_.parameters, key_, value)));
      case Place::input_parameters:
        return accept(within(take_parameter(input().parameters, key_, value)));
      case Place::output_parameters:
        return accept(within(take_parameter(output().parameters, key_, value)));
      case Place::outside:
        return refuse("the request's JSON must be an object; was " + shown(value));
      case Place::inputs:
      case Place::outputs:
        return refuse("every element of 'inputs' and 'outputs' must be an object; one was " +
                      shown(value));
      case Place::ignored:
        return true;
      case Place::request:
      case Place::input:
      case Place::output:
        break;
    }
    return take_member(value);
  }

  bool key(std::string_view name) override {
    key_.assign(name);
    return true;
  }

  bool open(bool array) override {
    switch (place()) {
      case Place::outside:
        if (array) return refuse("the request's JSON must be an object; was an array");
        return enter(Place::request);
      case Place::inputs:
        return !array ? begin_input() : refuse("every element of 'inputs' must be an object");
      case Place::outputs:
        return !array ? begin_output() : refuse("every element of 'outputs' must be an object");
      case Place::data:
        return array ? enter(Place::data) : refuse(where() + ": 'data' must hold no objects");
      case Place::shape:
        return refuse(where() + ": 'shape' must hold integers only");
      case Place::ignored:
        return enter(Place::ignored);
      default:
        return open_member(array);
    }
  }

  bool close() override {
    places_.pop_back();
    return true;
  }

  [[nodiscard]] InferDocument take() { return std::move(document_); }

 private:
  [[nodiscard]] Place place() const { return places_.empty() ? Place::outside : places_.back(); }
  bool enter(Place place) {
    places_.push_back(place);
    return true;
  }
  InputDocument& input() { return document_.inputs.back(); }
  NamedOutput& output() { return document_.outputs.back(); }

  // Of the input or output that is being read.
  [[nodiscard]] std::string where() const {
    const auto named = [](std::string_view what, const std::string& name, std::size_t count) {
      return std::string(what) + ' ' + (name.empty() ? std::to_string(count - 1) : in_quotes(name));
    };
    for (const Place place : places_) {
      if (place == Place::input)
        return named("input", document_.inputs.back().name, document_.inputs.size());
      if (place == Place::output)
        return named("output", document_.outputs.back().name, document_.outputs.size());
    }
    return "the request";
  }
  [[nodiscard]] Status within(const Status& status) const {
    return status.ok() ? status : status.within(where());
  }

  bool begin_input() {
    if (document_.inputs.size() == limits_.inputs) {
      return refuse("expected " + std::to_string(limits_.inputs) +
                    " inputs but got more for model " + in_quotes(limits_.model));
    }
    document_.inputs.emplace_back();
    return enter(Place::input);
  }
  bool begin_output() {
    if (document_.outputs.size() == limits_.outputs) {
      return refuse("more outputs are asked for than the " + std::to_string(limits_.outputs) +
                    " of model " + in_quotes(limits_.model));
    }
    document_.outputs.emplace_back();
    return enter(Place::output);
  }

  // An object or array behind a key.
  bool open_member(bool array) {
    const Place parent = place();
    if (is_parameters(parent)) {
      return refuse(where() + ": parameter " + in_quotes(key_) +
                    " must be a string, a number, true or false");
    }
    if (is_text(parent, key_))
      return refuse(where() + ": " + in_quotes(key_) + " must be a string");
    const Member* const member = find_member(parent, key_);
    if (member == nullptr) return enter(Place::ignored);
    if (member->array != array) return wrong_member(*member);
    if (member->place == Place::shape) input().has_shape = true;
    if (member->place == Place::data) input().has_data = true;
    return enter(member->place);
  }
  bool wrong_member(const Member& member) {
    return refuse(where() + ": " + in_quotes(member.key) + " must be " +
                  (member.array ? "an array" : "an object"));
  }

  // A value behind a key of the request, an input or an output.
  bool take_member(const Scalar& value) {
    const Place parent = place();
    if (const Member* const member = find_member(parent, key_)) {
      // Some clients write what they do not use as null.
      return std::holds_alternative<std::monostate>(value) || wrong_member(*member);
    }
    if (!is_text(parent, key_)) return true;
    const auto* const text = std::get_if<std::string_view>(&value);
    if (text == nullptr) {
      if (parent == Place::request && std::holds_alternative<std::monostate>(value)) return true;
      return refuse(where() + ": " + in_quotes(key_) + " must be a string; was " + shown(value));
    }
    if (parent == Place::request) {
      if (!accept(check_id(*text))) return false;
      document_.id = *text;
    } else if (parent == Place::output) {
      output().name = *text;
    } else {
      (key_ == "name" ? input().name : input().datatype) = *text;
    }
    return true;
  }

  bool take_dimension(const Scalar& value) {
    std::vector<std::int64_t>& shape = input().shape;
    if (shape.size() == kMostDimensions)
      return refuse(where() + ": no tensor has more than " + std::to_string(kMostDimensions) +
                    " dimensions");
    const auto* const natural = std::get_if<std::uint64_t>(&value);
    if (natural == nullptr ||
        *natural > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse(where() +
                    ": every dimension of 'shape' must be an integer of at least 1; was " +
                    shown(value));
    }
    shape.push_back(static_cast<std::int64_t>(*natural));
    return true;
  }

  bool take_value(const Scalar& value) {
    std::vector<Number>& data = input().data;
    if (data.size() == limits_.values) {
      return refuse(where() + ": 'data' has more than the " + std::to_string(limits_.values) +
                    " values that model " + in_quotes(limits_.model) + " takes at most");
    }
    if (const auto* natural = std::get_if<std::uint64_t>(&value)) {
      data.emplace_back(*natural);
    } else if (const auto* real = std::get_if<double>(&value)) {
      data.emplace_back(*real);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      data.emplace_back(*integer);
    } else if (const auto* boolean = std::get_if<bool>(&value)) {
      data.emplace_back(*boolean);
    } else {
      return refuse(where() + ": 'data' must hold numbers, true or false; holds " + shown(value));
    }
    return true;
  }

  const DocumentLimits& limits_;
  InferDocument document_;
  std::vector<Place> places_;
  std::string key_;
};

}  // namespace

Result<InferDocument> read_document(std::string_view text, const DocumentLimits& limits) {
  InferReader reader(limits);
  const Status read = read_json(text, reader);
  if (read.ok()) return reader.take();
  // Only what is no JSON is searched for literals that are none: usual requests are read once.
  if (!reader.refusal().ok() || !has_non_finite(text)) return read;
  InferReader again(limits);
  if (Status read_again = read_json_with_non_finite(text, again); !read_again.ok())
    return read_again;
  return again.take();
}

}  // namespace gpulet::net::kserve
