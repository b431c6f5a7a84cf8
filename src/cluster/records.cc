#include "cluster/records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gpulet::cluster {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::size_t kMostBytes = 4096;
constexpr std::size_t kMostNameBytes = 256;

Status malformed(std::string_view key, std::string_view text) {
  return {StatusCode::malformed,
          fmt::format("the value of {} is not one that gpulet wrote: {:.80}", key, text)};
}

// Empty: the field is missing, no text, or too long.
std::string text_of(const json& record, const char* field) {
  const auto found = record.find(field);
  if (found == record.end() || !found->is_string()) return {};
  const auto& text = found->get_ref<const std::string&>();
  return text.size() <= kMostNameBytes ? text : std::string();
}

// The object in `text`. Null: it is not an object of this format.
json parse(std::string_view text) {
  if (text.size() > kMostBytes) return nullptr;
  json record = json::parse(text, nullptr, false);
  if (!record.is_object() || record.value("format", json(0)) != kFormat) return nullptr;
  return record;
}

}  // namespace

std::string to_json(const ClusterRecord& record) {
  return json{{"format", kFormat}, {"name", record.name}, {"base", record.base}}.dump();
}

std::string to_json(const MemberRecord& record) {
  return json{{"format", kFormat},
              {"name", record.member.name},
              {"address", record.member.address},
              {"peer", record.member.peer},
              {"secret", record.member.secret},
              {"incarnation", record.incarnation}}
      .dump();
}

Result<ClusterRecord> parse_cluster(std::string_view text) {
  const json record = parse(text);
  if (record.is_null()) return malformed("cluster", text);
  ClusterRecord parsed;
  parsed.name = text_of(record, "name");
  const auto base = record.find("base");
  if (parsed.name.empty() || base == record.end() || !base->is_number_unsigned())
    return malformed("cluster", text);
  parsed.base = base->get<std::uint64_t>();
  if (parsed.base > kMostBase) return malformed("cluster", text);
  return parsed;
}

Result<MemberRecord> parse_member(std::string_view text) {
  const json record = parse(text);
  if (record.is_null()) return malformed("a member", text);
  MemberRecord parsed{{text_of(record, "name"), text_of(record, "address"), text_of(record, "peer"),
                       text_of(record, "secret")},
                      text_of(record, "incarnation")};
  if (parsed.member.name.empty() || parsed.incarnation.empty()) return malformed("a member", text);
  return parsed;
}

}  // namespace gpulet::cluster
