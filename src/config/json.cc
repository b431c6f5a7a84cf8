#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "config/description.h"
#include "config/reading.h"

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
    step += character == '/' ? '~' : character;
    if (character == '~') step += '0';
    if (character == '/') step += '1';
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
  return fmt::format("line {}, column {}", lines + 1, column);
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
    Status status;
  };
  std::vector<Error> errors;
  std::vector<std::filesystem::path> named_files;
  Description* description = nullptr;  // null: a document with values
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
    return fail(fmt::format("an object holds the key {} twice; keep one of them",
                            in_quotes(repeated->first)));
  }
  bool start_array(std::size_t /*size*/) { return open(Node{Node::Array{}}); }
  bool end_array() {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) {
    return fail(fmt::format(
        "{}: {}; correct the JSON there (often a comma, quote or bracket just before it)",
        place_of(text_, position), reason_of(error.what())));
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
      return fail(
          fmt::format("nested deeper than {} levels; no file here needs more than 8", kDeepest));
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
  GPULET_TRY(const std::string text, read_text(file));
  return parse(text, file.string());
}

Result<JsonCursor> JsonCursor::parse(std::string_view text, const std::string& file_name) {
  auto document = std::make_shared<Document>();
  document->file_name = file_name;
  TreeBuilder builder(*document, text);
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!document->errors.empty()) return document->errors.front().status;
  if (!parsed)
    return Status(StatusCode::invalid, file_name + ": is not JSON; write a JSON document");
  const Node* root = &document->root;
  return JsonCursor(std::move(document), root, "");
}

JsonCursor JsonCursor::describing(Description& description) {
  auto document = std::make_shared<Document>();
  document->description = &description;
  return JsonCursor(std::move(document), nullptr, "");
}

Description* JsonCursor::description() const { return document_->description; }

Status JsonCursor::status() const {
  if (description() != nullptr) return Status(StatusCode::invalid, "a description has no values");
  return document_->errors.empty() ? Status() : document_->errors.front().status;
}

std::vector<Status> JsonCursor::errors() const {
  std::vector<Status> all;
  for (const Document::Error& error : document_->errors) all.push_back(error.status);
  return all;
}

bool JsonCursor::valid() const {
  const auto& errors = document_->errors;
  return std::none_of(errors.begin(), errors.end(), [this](const Document::Error& error) {
    return error.pointer == pointer_ || is_inside(error.pointer, pointer_);
  });
}

void JsonCursor::fail(std::string_view what, std::string_view fix) const {
  if (description() != nullptr) return;
  auto& errors = document_->errors;
  if (errors.size() >= kMostErrors) return;
  const bool follows = std::any_of(errors.begin(), errors.end(), [this](const auto& error) {
    // The top level contains every place, so errors there suppress nothing else.
    return error.pointer == pointer_ || (!pointer_.empty() && is_inside(error.pointer, pointer_)) ||
           (!error.pointer.empty() && is_inside(pointer_, error.pointer));
  });
  if (follows) return;
  const std::string_view place = pointer_.empty() ? kWhole : std::string_view(pointer_);
  errors.push_back(
      {pointer_, Status(StatusCode::invalid,
                        fmt::format("{}: {}: {}; {}", document_->file_name, place, what, fix))});
}

std::string JsonCursor::describe() const {
  if (node_ == nullptr) return "is missing";
  struct Describe {
    std::string operator()(const Node::Null&) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return to_text(value); }
    std::string operator()(const std::string& value) const { return in_quotes(value); }
    std::string operator()(const Node::Array& value) const {
      return fmt::format("a list of {}", value.size());
    }
    std::string operator()(const Node::Object& /*value*/) const { return "an object"; }
  };
  return std::visit(Describe{}, node_->value) + " is not allowed here";
}

void JsonCursor::fail_expected(std::string_view expected) const {
  if (description() != nullptr) return description()->expect(pointer_, expected);
  fail(describe(), fmt::format("write {}", expected));
}

template <typename T>
const T* JsonCursor::value() const {
  return node_ == nullptr ? nullptr : std::get_if<T>(&node_->value);
}

JsonCursor JsonCursor::child(const Node* node, std::string_view key) const {
  return {document_, node, pointer_ + '/' + pointer_step(key)};
}

void JsonCursor::allow_keys(const std::vector<std::string_view>& known) const {
  for (const auto& [name, cursor] : members()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string_view meant = similar(name, known);
    cursor.fail("unknown key " + in_quotes(name),
                fmt::format("{}take it out (known here: {})",
                            meant.empty() ? "" : fmt::format("write {} or ", in_quotes(meant)),
                            joined(known)));
  }
}

std::optional<JsonCursor> JsonCursor::find(std::string_view key) const {
  if (description() != nullptr) return child(nullptr, key);
  const auto* members = value<Node::Object>();
  if (members == nullptr) return std::nullopt;
  const auto found = std::lower_bound(
      members->begin(), members->end(), key,
      [](const auto& member, std::string_view name) { return member.first < name; });
  if (found == members->end() || found->first != key) return std::nullopt;
  return child(&found->second, key);
}

JsonCursor JsonCursor::required(std::string_view key) const {
  if (value<Node::Object>() == nullptr) fail_expected(kAnObject);
  return find(key).value_or(child(nullptr, key));
}

std::vector<std::pair<std::string, JsonCursor>> JsonCursor::members() const {
  std::vector<std::pair<std::string, JsonCursor>> result;
  if (const auto* members = value<Node::Object>()) {
    for (const auto& [name, node] : *members) result.emplace_back(name, child(&node, name));
  } else {
    fail_expected(kAnObject);
    if (description() != nullptr) result.emplace_back("NAME", child(nullptr, "NAME"));
  }
  return result;
}

std::vector<JsonCursor> JsonCursor::elements(std::string_view expected, std::size_t least,
                                             std::size_t most) const {
  std::vector<JsonCursor> result;
  const auto* array = value<Node::Array>();
  if (array == nullptr || array->size() < least || array->size() > most) {
    fail_expected(expected);
    if (description() != nullptr)
      result.assign(std::max<std::size_t>(least, 1), child(nullptr, "*"));
    return result;
  }
  for (const Node& node : *array) result.push_back(child(&node, std::to_string(result.size())));
  return result;
}

bool JsonCursor::boolean() const {
  const auto* boolean = value<bool>();
  if (boolean == nullptr) fail_expected("true or false");
  return boolean != nullptr && *boolean;
}

double JsonCursor::number(const NumberRange& range) const {
  std::optional<double> number;
  if (const auto* whole = value<std::int64_t>()) number = static_cast<double>(*whole);
  if (const auto* real = value<double>()) number = *real;
  if (number && range.holds(*number)) return *number;
  fail_expected(range.describe());
  return 0;
}

bool JsonCursor::holds(std::int64_t number) const {
  const auto* whole = value<std::int64_t>();
  return whole != nullptr && *whole == number;
}

std::int64_t JsonCursor::integer(std::int64_t least, std::int64_t most) const {
  std::optional<std::int64_t> number;
  if (const auto* whole = value<std::int64_t>()) number = *whole;
  const auto* real = value<double>();  // 20.0 is a whole number too
  if (real != nullptr && *real == std::floor(*real) && *real >= static_cast<double>(least) &&
      *real <= static_cast<double>(most)) {
    number = static_cast<std::int64_t>(*real);
  }
  if (number && *number >= least && *number <= most) return *number;
  fail_expected(fmt::format("a whole number from {} to {}", least, most));
  return 0;
}

std::uint32_t JsonCursor::count(std::uint32_t least, std::uint32_t most) const {
  return static_cast<std::uint32_t>(integer(least, most));
}

std::string JsonCursor::text(std::string_view expected) const {
  const auto* text = value<std::string>();
  if (text != nullptr && !text->empty() && std::none_of(text->begin(), text->end(), is_control))
    return *text;
  fail_expected(expected);
  return {};
}

std::filesystem::path JsonCursor::path(std::string_view expected) const {
  return resolved(text(expected));
}

std::filesystem::path JsonCursor::resolved(const std::string& path) const {
  std::error_code error;
  const auto file = std::filesystem::absolute(document_->file_name, error);
  document_->named_files.push_back((file.parent_path() / path).lexically_normal());
  return document_->named_files.back();
}

std::vector<std::filesystem::path> JsonCursor::named_files() const {
  std::vector<std::filesystem::path> files = document_->named_files;
  std::error_code error;
  files.push_back(std::filesystem::absolute(document_->file_name, error));
  return files;
}

std::string JsonCursor::name() const {
  const auto* name = value<std::string>();
  if (name != nullptr && is_name(*name)) return *name;
  fail_expected("a name of letters, digits, '.', '_' and '-'");
  return {};
}

std::size_t JsonCursor::choice(const std::vector<std::string_view>& choices) const {
  const auto* text = value<std::string>();
  if (text == nullptr) {
    fail_expected("one of " + joined(choices));
    return 0;
  }
  const auto found = std::find(choices.begin(), choices.end(), *text);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  const std::string_view meant = similar(*text, choices);
  const std::string known = joined(choices);
  fail(in_quotes(*text) + " is not known here",
       meant.empty() ? "write one of " + known
                     : fmt::format("write {} (known here: {})", in_quotes(meant), known));
  return 0;
}

JsonCursor::Type JsonCursor::type() const {
  if (node_ == nullptr) return Type::missing;
  if (value<Node::Array>() != nullptr) return Type::array;
  return value<std::string>() != nullptr ? Type::text : Type::other;
}

}  // namespace gpulet::config
