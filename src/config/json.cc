#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "config/reading.h"
#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kDeepest = 32;                // no file of this project nests deeper than 8
constexpr std::size_t kMostErrors = 100;            // per document
constexpr std::size_t kLongestReason = 200;         // the parser's message contains the last token
constexpr std::string_view kWhole = "(top level)";  // instead of the empty JSON pointer of the root

bool is_inside(std::string_view pointer, std::string_view place) {
  return pointer.size() > place.size() && pointer.starts_with(place) &&
         pointer[place.size()] == '/';
}

// The key as one step of a JSON pointer (RFC 6901).
std::string pointer_step(std::string_view key) {
  std::string step;
  for (const char character : key) {
    if (character == '~') {
      step += "~0";
    } else if (character == '/') {
      step += "~1";
    } else {
      step += character;
    }
  }
  return step;
}

// "line 3, column 7": the place of the last byte read, where `position` counts the bytes read.
std::string place_of(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, position == 0 ? 0 : position - 1);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column =
      line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return "line " + std::to_string(lines + 1) + ", column " + std::to_string(column);
}

// The parser's message without its prefix, cut to one line.
std::string reason_of(std::string reason) {
  for (const std::string_view prefix : {"] ", "parse error", "column ", ": "}) {
    const std::size_t at = reason.find(prefix);
    if (at == std::string::npos) break;
    reason.erase(0, at + prefix.size());
  }
  if (reason.size() > kLongestReason) reason = reason.substr(0, kLongestReason) + "...";
  std::replace(reason.begin(), reason.end(), ';', ',');
  return reason;
}

}  // namespace

struct JsonCursor::Node {
  struct Null {};
  using Array = std::vector<Node>;
  using Object = std::vector<std::pair<std::string, Node>>;  // by name, once complete
  std::variant<Null, bool, std::int64_t, double, std::string, Array, Object> value;
};

struct JsonCursor::Document {
  std::string file_name;
  Node root;
  struct Error {
    std::string pointer;
    Status what;
  };
  std::vector<Error> errors;
};

// Receives the parser's events. The library's own tree would accept repeated keys and any depth.
class JsonCursor::TreeBuilder {
 public:
  TreeBuilder(Document& document, std::string_view text) : document_(document), text_(text) {}

  bool null() { return put(Node{Node::Null{}}); }
  bool boolean(bool value) { return put(Node{value}); }
  bool number_integer(std::int64_t value) { return put(Node{value}); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return put(Node{static_cast<std::int64_t>(value)});
    }
    return put(Node{static_cast<double>(value)});
  }
  bool number_float(double value, const std::string& /*text*/) { return put(Node{value}); }
  bool string(std::string& value) { return put(Node{std::move(value)}); }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(std::size_t /*size*/) { return open(Node{Node::Object{}}); }
  bool key(std::string& name) {
    std::get<Node::Object>(open_.back()->value).emplace_back(std::move(name), Node{});
    return true;
  }
  bool end_object() {
    auto& members = std::get<Node::Object>(open_.back()->value);
    open_.pop_back();
    const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::stable_sort(members.begin(), members.end(), by_name);
    const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
    const auto repeated = std::adjacent_find(members.begin(), members.end(), same_name);
    if (repeated == members.end()) return true;
    return fail("an object holds the key " + in_quotes(repeated->first) +
                " twice; keep one of them");
  }
  bool start_array(std::size_t /*size*/) { return open(Node{Node::Array{}}); }
  bool end_array() {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) {
    return fail(place_of(text_, position) + ": " + reason_of(error.what()) +
                "; correct the JSON there (often a comma, quote or bracket just before it)");
  }

 private:
  bool fail(const std::string& message) {
    if (document_.errors.empty()) {
      document_.errors.push_back(
          {"", Status(StatusCode::invalid, document_.file_name + ": " + message)});
    }
    return false;
  }

  Node* place(Node node) {
    if (open_.empty()) {
      document_.root = std::move(node);
      return &document_.root;
    }
    if (auto* array = std::get_if<Node::Array>(&open_.back()->value)) {
      return &array->emplace_back(std::move(node));
    }
    Node& member = std::get<Node::Object>(open_.back()->value).back().second;
    member = std::move(node);
    return &member;
  }
  bool put(Node node) {
    place(std::move(node));
    return true;
  }
  bool open(Node node) {
    if (open_.size() == kDeepest) {
      return fail("nested deeper than " + std::to_string(kDeepest) +
                  " levels; no file here needs more than 8");
    }
    // Pointers to open nodes stay valid: a parent grows only after its last child was closed.
    open_.push_back(place(std::move(node)));
    return true;
  }

  Document& document_;
  std::string_view text_;
  std::vector<Node*> open_;
};

Result<JsonCursor> JsonCursor::read_file(const std::filesystem::path& file) {
  const Result<std::string> text = read_text(file);
  if (!text.ok()) return text.status();
  return parse(text.value(), file.string());
}

Result<JsonCursor> JsonCursor::parse(std::string_view text, const std::string& file_name) {
  auto document = std::make_shared<Document>();
  document->file_name = file_name;
  TreeBuilder builder(*document, text);
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!document->errors.empty()) return document->errors.front().what;
  if (!parsed)
    return Status(StatusCode::invalid, file_name + ": is not JSON; write a JSON document");
  const Node* root = &document->root;
  return JsonCursor(std::move(document), root, "");
}

Status JsonCursor::status() const {
  return document_->errors.empty() ? Status() : document_->errors.front().what;
}

std::vector<Status> JsonCursor::errors() const {
  std::vector<Status> all;
  for (const Document::Error& error : document_->errors) all.push_back(error.what);
  return all;
}

bool JsonCursor::valid() const {
  const auto& errors = document_->errors;
  return std::none_of(errors.begin(), errors.end(), [this](const Document::Error& error) {
    return error.pointer == pointer_ || is_inside(error.pointer, pointer_);
  });
}

void JsonCursor::fail(std::string_view what, std::string_view fix) const {
  auto& errors = document_->errors;
  if (errors.size() >= kMostErrors) return;
  const bool follows = std::any_of(errors.begin(), errors.end(), [this](const auto& error) {
    // The top level contains every place, so errors there suppress nothing else.
    return error.pointer == pointer_ || (!pointer_.empty() && is_inside(error.pointer, pointer_)) ||
           (!error.pointer.empty() && is_inside(pointer_, error.pointer));
  });
  if (follows) return;
  std::string message = document_->file_name + ": ";
  message += pointer_.empty() ? kWhole : std::string_view(pointer_);
  message.append(": ").append(what).append("; ").append(fix);
  errors.push_back({pointer_, Status(StatusCode::invalid, std::move(message))});
}

std::string JsonCursor::describe() const {
  if (node_ == nullptr) return "is missing";
  struct Describe {
    std::string operator()(const Node::Null&) const { return "null is not allowed here"; }
    std::string operator()(bool value) const {
      return std::string(value ? "true" : "false") + " is not allowed here";
    }
    std::string operator()(std::int64_t value) const {
      return std::to_string(value) + " is not allowed here";
    }
    std::string operator()(double value) const { return to_text(value) + " is not allowed here"; }
    std::string operator()(const std::string& value) const {
      return in_quotes(value) + " is not allowed here";
    }
    std::string operator()(const Node::Array& value) const {
      return "a list of " + std::to_string(value.size()) + " is not allowed here";
    }
    std::string operator()(const Node::Object& /*value*/) const {
      return "an object is not allowed here";
    }
  };
  return std::visit(Describe{}, node_->value);
}

void JsonCursor::fail_expected(std::string_view expected) const {
  fail(describe(), "write " + std::string(expected));
}

JsonCursor JsonCursor::child(const Node* node, std::string_view key) const {
  return {document_, node, pointer_ + '/' + pointer_step(key)};
}

void JsonCursor::allow_keys(std::initializer_list<std::string_view> known) const {
  const std::vector<std::string_view> keys(known);
  for (const auto& [name, cursor] : members()) {
    if (std::find(keys.begin(), keys.end(), name) != keys.end()) continue;
    cursor.fail("unknown key " + in_quotes(name),
                "write " + in_quotes(nearest(name, keys)) +
                    " or take it out (known here: " + joined(keys) + ")");
  }
}

std::optional<JsonCursor> JsonCursor::find(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  const auto& members = std::get<Node::Object>(node_->value);
  const auto found = std::lower_bound(
      members.begin(), members.end(), key,
      [](const auto& member, std::string_view name) { return member.first < name; });
  if (found == members.end() || found->first != key) return std::nullopt;
  return child(&found->second, key);
}

JsonCursor JsonCursor::required(std::string_view key) const {
  if (!is_object()) fail_expected("an object");
  return find(key).value_or(child(nullptr, key));
}

std::vector<std::pair<std::string, JsonCursor>> JsonCursor::members() const {
  std::vector<std::pair<std::string, JsonCursor>> result;
  if (!is_object()) {
    fail_expected("an object");
    return result;
  }
  for (const auto& [name, node] : std::get<Node::Object>(node_->value)) {
    result.emplace_back(name, child(&node, name));
  }
  return result;
}

std::vector<JsonCursor> JsonCursor::elements(std::string_view expected, std::size_t least,
                                             std::size_t most) const {
  std::vector<JsonCursor> result;
  if (!is_array()) {
    fail_expected(expected);
    return result;
  }
  const auto& array = std::get<Node::Array>(node_->value);
  if (array.size() < least || array.size() > most) {
    fail_expected(expected);
    return result;
  }
  for (const Node& node : array) result.push_back(child(&node, std::to_string(result.size())));
  return result;
}

bool JsonCursor::boolean() const {
  const auto* value = node_ == nullptr ? nullptr : std::get_if<bool>(&node_->value);
  if (value == nullptr) fail_expected("true or false");
  return value != nullptr && *value;
}

double JsonCursor::number(const NumberRange& range) const {
  std::optional<double> value;
  if (node_ != nullptr) {
    if (const auto* whole = std::get_if<std::int64_t>(&node_->value))
      value = static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&node_->value)) value = *real;
  }
  if (!value || !range.holds(*value)) {
    fail_expected(range.describe());
    return 0;
  }
  return *value;
}

bool JsonCursor::holds(std::int64_t value) const {
  const auto* whole = node_ == nullptr ? nullptr : std::get_if<std::int64_t>(&node_->value);
  return whole != nullptr && *whole == value;
}

std::int64_t JsonCursor::integer(std::int64_t least, std::int64_t most) const {
  std::optional<std::int64_t> value;
  if (node_ != nullptr) {
    if (const auto* whole = std::get_if<std::int64_t>(&node_->value)) value = *whole;
    const auto* real = std::get_if<double>(&node_->value);  // 20.0 is a whole number too
    if (real != nullptr && *real == std::floor(*real) && *real >= static_cast<double>(least) &&
        *real <= static_cast<double>(most)) {
      value = static_cast<std::int64_t>(*real);
    }
  }
  if (!value || *value < least || *value > most) {
    fail_expected("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return 0;
  }
  return *value;
}

std::uint32_t JsonCursor::count(std::uint32_t least, std::uint32_t most) const {
  return static_cast<std::uint32_t>(integer(least, most));
}

std::string JsonCursor::text(std::string_view expected) const {
  const auto is_control = [](char character) {
    const auto byte = static_cast<unsigned char>(character);
    return byte < 0x20 || byte == 0x7f;
  };
  const auto* value = node_ == nullptr ? nullptr : std::get_if<std::string>(&node_->value);
  if (value == nullptr || value->empty() || std::any_of(value->begin(), value->end(), is_control)) {
    fail_expected(expected);
    return {};
  }
  return *value;
}

std::string JsonCursor::name() const {
  constexpr std::string_view kExpected = "a name of letters, digits, '.', '_' and '-'";
  const auto* value = node_ == nullptr ? nullptr : std::get_if<std::string>(&node_->value);
  if (value == nullptr || !is_name(*value)) {
    fail_expected(kExpected);
    return {};
  }
  return *value;
}

std::size_t JsonCursor::choice(const std::vector<std::string_view>& choices) const {
  const auto* value = node_ == nullptr ? nullptr : std::get_if<std::string>(&node_->value);
  if (value == nullptr) {
    fail_expected("one of " + joined(choices));
    return 0;
  }
  const auto found = std::find(choices.begin(), choices.end(), *value);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  const std::string_view meant = similar(*value, choices);
  fail(in_quotes(*value) + " is not known here",
       meant.empty() ? "write one of " + joined(choices)
                     : "write " + in_quotes(meant) + " (known here: " + joined(choices) + ")");
  return 0;
}

bool JsonCursor::is_object() const {
  return node_ != nullptr && std::holds_alternative<Node::Object>(node_->value);
}

bool JsonCursor::is_array() const {
  return node_ != nullptr && std::holds_alternative<Node::Array>(node_->value);
}

bool JsonCursor::is_text() const {
  return node_ != nullptr && std::holds_alternative<std::string>(node_->value);
}

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace gpulet::config
