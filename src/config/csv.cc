#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/reading.h"

namespace gpulet::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

Result<CsvReader> CsvReader::read_file(const std::filesystem::path& file) {
  GPULET_TRY(std::string text, read_text(file));
  return parse(std::move(text), file.string());
}

Result<CsvReader> CsvReader::parse(std::string text, std::string file_name) {
  CsvReader reader(std::move(text), std::move(file_name));
  if (reader.text_.starts_with(kByteOrderMark)) reader.position_ = kByteOrderMark.size();
  if (!reader.split_next_line()) {
    reader.fail("the file is empty", "write a first line with the names of the columns");
    return reader.status_;
  }
  reader.columns_ = std::exchange(reader.fields_, {});
  std::vector<std::string> sorted = reader.columns_;
  std::sort(sorted.begin(), sorted.end());
  const auto repeated = std::adjacent_find(sorted.begin(), sorted.end());
  if (repeated != sorted.end()) {
    reader.fail("the column " + in_quotes(*repeated) + " is named twice", "keep one of them");
    return reader.status_;
  }
  return reader;
}

void CsvReader::fail(std::string_view what, std::string_view fix) {
  if (!status_.ok()) return;
  status_ = Status(StatusCode::invalid, fmt::format("{}: line {}: {}; {}", file_name_,
                                                    std::max<std::size_t>(line_, 1), what, fix));
}

void CsvReader::fail_field(std::size_t column, std::string_view expected) {
  const std::string& value = fields_[column];
  fail(columns_[column] + (value.empty() ? " is empty" : " is " + in_quotes(value)),
       fmt::format("write {}, or take the line out", expected));
}

std::vector<std::size_t> CsvReader::require_columns(std::initializer_list<std::string_view> names) {
  std::vector<std::size_t> positions;
  for (const std::string_view name : names) {
    const std::optional<std::size_t> found = find_column(name);
    if (!found) {
      fail("the column " + in_quotes(name) + " is missing",
           "add it to the first line, which names " + joined(columns_));
    }
    positions.push_back(found.value_or(0));
  }
  return positions;
}

std::optional<std::size_t> CsvReader::find_column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found == columns_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns_.begin());
}

bool CsvReader::next() {
  if (!status_.ok() || !split_next_line()) return false;
  if (fields_.size() != columns_.size()) {
    fail(fmt::format("the line has {} fields", fields_.size()),
         fmt::format("give it {}: {}", columns_.size(), joined(columns_)));
  }
  return status_.ok();
}

bool CsvReader::split_next_line() {
  while (position_ < text_.size()) {
    const std::size_t end = std::min(text_.find('\n', position_), text_.size());
    const std::string_view line =
        trimmed(std::string_view(text_).substr(position_, end - position_));
    position_ = end + 1;
    ++line_;
    if (!line.empty()) return split(line);
  }
  return false;
}

bool CsvReader::split(std::string_view line) {
  fields_.clear();
  std::size_t at = 0;
  while (true) {
    at = std::min(line.find_first_not_of(" \t", at), line.size());
    if (at < line.size() && line[at] == '"') {
      std::string field;
      for (++at; at < line.size(); ++at) {
        if (line[at] == '"') {
          if (at + 1 == line.size() || line[at + 1] != '"') break;
          ++at;
        }
        field += line[at];
      }
      if (at == line.size()) {
        fail("a quoted field does not end on its line", "close the quote");
        return false;
      }
      fields_.push_back(std::move(field));
      at = std::min(line.find_first_not_of(" \t", at + 1), line.size());
      if (at < line.size() && line[at] != ',') {
        fail("text follows a closing quote", "put a comma between the fields");
        return false;
      }
    } else {
      const std::size_t comma = std::min(line.find(',', at), line.size());
      fields_.emplace_back(trimmed(line.substr(at, comma - at)));
      at = comma;
    }
    if (at == line.size()) return true;
    ++at;  // the comma
  }
}

std::string CsvReader::name(std::size_t column) {
  if (!is_planned_name(fields_[column]))
    fail_field(column, "a name of letters, digits, '.', '_' and '-'");
  return fields_[column];
}

double CsvReader::number(std::size_t column, const NumberRange& range) {
  const auto value = parse_number<double>(fields_[column]);
  if (value && range.holds(*value)) return *value;
  fail_field(column, range.describe());
  return 0;
}

std::uint32_t CsvReader::count(std::size_t column, std::uint32_t least, std::uint32_t most) {
  const auto value = parse_number<std::uint32_t>(fields_[column]);
  if (value && *value >= least && *value <= most) return *value;
  fail_field(column, fmt::format("a whole number from {} to {}", least, most));
  return 0;
}

}  // namespace gpulet::config
