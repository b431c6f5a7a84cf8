#include "net/grpc/wire.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gpulet/net/http/message.h"
#include "net/grpc/message_reader.h"

namespace gpulet::net::grpc_api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr std::uint32_t kRawInputs = inference::ModelInferRequest::kRawInputContentsFieldNumber;
constexpr std::uint32_t kRawOutputs = inference::ModelInferResponse::kRawOutputContentsFieldNumber;
constexpr std::size_t kMostRawInputs = 65;
constexpr int kDeepest = 16;
// Approximate memory of parsed objects, beyond their bytes on the wire.
constexpr std::size_t kObjectBytes = 192;
constexpr std::size_t kTextBytes = 64;
constexpr std::size_t kNumberBytes = 8;
constexpr std::size_t kUnknownBytes = 48;
// Shorter tensors are copied next to each other.
constexpr std::size_t kShortTensor = 4096;

enum WireType : std::uint32_t { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// ---- reading

// The fields of a message, one after another.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  struct Field {
    std::uint32_t number = 0;
    std::uint32_t type = 0;
    std::size_t begin = 0;               // in the message, of the field's tag
    std::span<const std::byte> content;  // where delimited
  };
  // Empty at the end and for malformed bytes.
  [[nodiscard]] std::optional<Field> next() {
    if (at_ == bytes_.size()) return std::nullopt;
    Field field;
    field.begin = at_;
    const std::optional<std::uint64_t> tag = read_varint();
    if (!tag || *tag > std::numeric_limits<std::uint32_t>::max()) return fail();
    field.number = static_cast<std::uint32_t>(*tag >> 3U);
    field.type = static_cast<std::uint32_t>(*tag & 7U);
    std::uint64_t length = 0;
    switch (field.type) {
      case varint:
        if (!read_varint()) return fail();
        break;
      case fixed64:
        length = sizeof(std::uint64_t);
        break;
      case fixed32:
        length = sizeof(std::uint32_t);
        break;
      case delimited: {
        const std::optional<std::uint64_t> said = read_varint();
        if (!said) return fail();
        length = *said;
        break;
      }
      default:  // groups, which no message here has
        return fail();
    }
    if (length > bytes_.size() - at_) return fail();
    field.content = bytes_.subspan(at_, static_cast<std::size_t>(length));
    at_ += static_cast<std::size_t>(length);
    return field;
  }
  [[nodiscard]] bool malformed() const { return malformed_; }
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  [[nodiscard]] std::optional<Field> fail() {
    malformed_ = true;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> read_varint() {
    constexpr unsigned kMostBits = 64;
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kMostBits && at_ < bytes_.size(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(bytes_[at_++]);
      value |= (byte & 0x7FU) << shift;
      if (byte < 0x80U) return value;
    }
    return std::nullopt;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool malformed_ = false;
};

Status no_message(const Descriptor& type) {
  return {StatusCode::invalid, fmt::format("the request is not a valid {}", type.full_name())};
}

// What the objects of a message cost.
class Cost {
 public:
  explicit Cost(std::size_t most) : most_(most) {}

  [[nodiscard]] Status add_message(std::span<const std::byte> bytes, const Descriptor& type,
                                   int depth) {
    if (depth > kDeepest) return no_message(type);
    Fields fields(bytes);
    while (const auto field = fields.next()) {
      if (Status added = add(*field, type, depth); !added.ok()) return added;
    }
    return fields.malformed() ? no_message(type) : Status();
  }

 private:
  [[nodiscard]] Status add(const Fields::Field& field, const Descriptor& type, int depth) {
    const FieldDescriptor* const known = type.FindFieldByNumber(static_cast<int>(field.number));
    if (known == nullptr) return add_bytes(kUnknownBytes + field.content.size());
    if (field.type != delimited) return add_bytes(kNumberBytes);
    switch (known->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (Status added = add_bytes(kObjectBytes); !added.ok()) return added;
        return add_message(field.content, *known->message_type(), depth + 1);
      case FieldDescriptor::CPPTYPE_STRING:
        return add_bytes(kTextBytes + field.content.size());
      default:
        return add_bytes(packed_bytes(*known, field.content));
    }
  }

  [[nodiscard]] static std::size_t packed_bytes(const FieldDescriptor& field,
                                                std::span<const std::byte> content) {
    const bool fixed = field.type() == FieldDescriptor::TYPE_FLOAT ||
                       field.type() == FieldDescriptor::TYPE_DOUBLE ||
                       field.type() == FieldDescriptor::TYPE_FIXED32 ||
                       field.type() == FieldDescriptor::TYPE_FIXED64;
    if (fixed || field.type() == FieldDescriptor::TYPE_BOOL) return content.size();
    const auto numbers = std::count_if(content.begin(), content.end(), [](std::byte one) {
      return std::to_integer<unsigned>(one) < 0x80U;
    });
    const bool wide = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
                      field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
    return static_cast<std::size_t>(numbers) * (wide ? kNumberBytes : kNumberBytes / 2);
  }

  [[nodiscard]] Status add_bytes(std::size_t bytes) {
    total_ += bytes;
    if (total_ <= most_) return {};
    return {
        StatusCode::overloaded,
        fmt::format("the request has too many parts: in memory they exceed the limit of {} bytes",
                    most_)};
  }

  const std::size_t most_;
  std::size_t total_ = 0;
};

// ---- writing

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U) to.push_back(static_cast<char>((value & 0x7FU) | 0x80U));
  to.push_back(static_cast<char>(value));
}

std::string field_head(std::uint32_t number, std::size_t length) {
  std::string head;
  put_varint(head, number << 3U | delimited);
  put_varint(head, length);
  return head;
}

// Pieces behind one another, short ones joined.
class Pieces {
 public:
  Pieces() : text_(kMessagePrefixBytes, '\0') {}

  void add(std::string_view text) { text_ += text; }
  void add(const Bytes& bytes) {
    if (bytes.size() <= kShortTensor) {
      const auto view = bytes.view();
      text_.append(reinterpret_cast<const char*>(view.data()), view.size());
      return;
    }
    end_text();
    pieces_.push_back(bytes);
    total_ += bytes.size();
  }

  [[nodiscard]] WireMessage finish() && {
    end_text();
    const std::size_t length = total_ - kMessagePrefixBytes;
    for (std::size_t i = 1; i < kMessagePrefixBytes; ++i) {
      first_text_->at(i) = static_cast<char>(length >> (8 * (kMessagePrefixBytes - 1 - i)) & 0xFFU);
    }
    return {std::move(pieces_)};
  }

 private:
  void end_text() {
    if (text_.empty()) return;
    const auto owner = std::make_shared<std::string>(std::move(text_));
    text_.clear();
    if (!first_text_) first_text_ = owner;
    pieces_.emplace_back(owner, as_bytes(*owner));
    total_ += owner->size();
  }

  std::string text_;
  std::shared_ptr<std::string> first_text_;  // begins with the prefix
  std::vector<Bytes> pieces_;
  std::size_t total_ = 0;
};

struct RawOutputs {
  std::vector<std::string> heads;
  std::size_t bytes = 0;  // with the heads
};

RawOutputs heads_of(const std::vector<Bytes>& outputs) {
  RawOutputs raw;
  for (const Bytes& output : outputs) {
    raw.heads.push_back(field_head(kRawOutputs, output.size()));
    raw.bytes += raw.heads.back().size() + output.size();
  }
  return raw;
}

void add_all(Pieces& pieces, const RawOutputs& raw, const std::vector<Bytes>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    pieces.add(raw.heads[i]);
    pieces.add(outputs[i]);
  }
}

}  // namespace

Status parse_message(std::span<const std::byte> bytes, std::size_t most_bytes,
                     google::protobuf::Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  if (Status cheap = Cost(most_bytes).add_message(bytes, type, 0); !cheap.ok()) return cheap;
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ? Status()
                                                                              : no_message(type);
}

Result<InferMessage> parse_infer(const Bytes& message, std::size_t most_bytes) {
  InferMessage parsed;
  std::string rest;  // without the raw inputs
  Fields fields(message.view());
  while (const auto field = fields.next()) {
    if (field->number != kRawInputs || field->type != delimited) {
      const auto bytes = message.view().subspan(field->begin, fields.at() - field->begin);
      rest.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else if (parsed.raw_inputs.size() < kMostRawInputs) {
      const auto begin = static_cast<std::size_t>(field->content.data() - message.view().data());
      parsed.raw_inputs.push_back(message.slice(begin, field->content.size()));
    }
  }
  if (fields.malformed()) return no_message(*parsed.request.GetDescriptor());
  if (Status good = parse_message(as_bytes(rest), most_bytes, parsed.request); !good.ok())
    return good;
  return parsed;
}

WireMessage wire_of(const google::protobuf::Message& message) {
  Pieces pieces;
  pieces.add(message.SerializeAsString());
  return std::move(pieces).finish();
}

WireMessage wire_of(const InferAnswer& answer) {
  Pieces pieces;
  pieces.add(answer.response.SerializeAsString());
  add_all(pieces, heads_of(answer.raw_outputs), answer.raw_outputs);
  return std::move(pieces).finish();
}

WireMessage wire_of(const InferAnswer& answer, const std::string& error_message) {
  using Message = inference::ModelStreamInferResponse;
  const std::string response = answer.response.SerializeAsString();
  const RawOutputs raw = heads_of(answer.raw_outputs);
  Pieces pieces;
  if (!error_message.empty()) {
    pieces.add(field_head(Message::kErrorMessageFieldNumber, error_message.size()));
    pieces.add(error_message);
  }
  pieces.add(field_head(Message::kInferResponseFieldNumber, response.size() + raw.bytes));
  pieces.add(response);
  add_all(pieces, raw, answer.raw_outputs);
  return std::move(pieces).finish();
}

}  // namespace gpulet::net::grpc_api
