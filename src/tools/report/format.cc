#include "tools/report/format.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::tools {
namespace {

void append_padded(std::string& line, std::string_view cell, std::size_t width,
                   Table::Align align) {
  const std::string padding(width - display_width(cell), ' ');
  if (align == Table::Align::right) line += padding;
  line += cell;
  if (align == Table::Align::left) line += padding;
}

std::string time_text(const std::tm& time, const char* format) {
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &time)};
}

std::string local_time(double unix_seconds, const char* format) {
  const auto seconds = static_cast<std::time_t>(std::floor(unix_seconds));
  std::tm local{};
  return ::localtime_r(&seconds, &local) == nullptr ? "-" : time_text(local, format);
}

std::string without_trailing_spaces(std::string line) {
  const std::size_t last = line.find_last_not_of(' ');
  line.erase(last == std::string::npos ? 0 : last + 1);
  return line;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

Table Table::of(const std::vector<std::string>& left, const std::vector<std::string>& right) {
  std::vector<Column> columns;
  for (const std::string& title : left) columns.push_back({title, Align::left});
  for (const std::string& title : right) columns.push_back({title, Align::right});
  return Table(std::move(columns));
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size())
    throw std::invalid_argument("a table row needs one cell per column");
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  std::string titles;
  std::string rule;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) titles += "  ";
    if (i > 0) rule += "  ";
    append_padded(titles, columns_[i].title, widths[i], columns_[i].align);
    rule += std::string(widths[i], '-');
  }
  std::string text = without_trailing_spaces(std::move(titles)) + '\n' + rule + '\n';
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      append_padded(line, row[i], widths[i], columns_[i].align);
    }
    text += without_trailing_spaces(std::move(line)) + '\n';
  }
  return text;
}

std::size_t display_width(std::string_view text) {
  // Every byte that does not continue a character starts one.
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string_view first_characters(std::string_view text, std::size_t characters) {
  std::size_t end = 0;
  while (end < text.size() && display_width(text.substr(0, end + 1)) <= characters) ++end;
  return text.substr(0, end);
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  constexpr std::size_t kLeastColumns = 8;  // left for words after the indentation
  if (columns == 0) return std::string(text) + '\n';
  const std::size_t width = std::max(columns, indent + kLeastColumns);
  std::string lines;
  std::string line;
  const auto end_line = [&] {
    lines += without_trailing_spaces(std::move(line)) + '\n';
    line = std::string(indent, ' ');
  };
  while (!text.empty()) {
    // The next word with the spaces before it.
    const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(end);
    if (display_width(line) + display_width(word) > width && line.size() > indent) {
      end_line();
      word.remove_prefix(begin);
    }
    // A word that is longer than a line is broken.
    while (display_width(line) + display_width(word) > width) {
      const std::string_view fits = first_characters(word, width - display_width(line));
      line += fits;
      word.remove_prefix(fits.size());
      end_line();
    }
    line += word;
  }
  end_line();
  return lines;
}

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  std::array<char, 400> buffer{};  // the longest double has 309 digits before its point
  const int length =
      std::snprintf(buffer.data(), buffer.size(), "%.*f", std::clamp(decimals, 0, 20), value);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

std::string shortest(double value, int decimals) {
  std::string text = fixed(value, decimals);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string number_list(const std::vector<std::uint32_t>& numbers, std::string_view separator) {
  std::vector<std::string> texts(numbers.size());
  std::transform(numbers.begin(), numbers.end(), texts.begin(),
                 [](std::uint32_t number) { return std::to_string(number); });
  return joined(texts, separator);
}

std::string clock_text(double unix_seconds, double now) {
  constexpr double kHalfADay = 12.0 * 3600;
  if (std::abs(now - unix_seconds) > kHalfADay) return date_and_clock_text(unix_seconds);
  return local_time(unix_seconds, "%H:%M:%S");
}

std::string date_and_clock_text(double unix_seconds) {
  return local_time(unix_seconds, "%Y-%m-%d %H:%M:%S");
}

std::string utc_date_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  return ::gmtime_r(&now, &utc) == nullptr ? std::string() : time_text(utc, "%Y-%m-%dT%H:%M:%SZ");
}

}  // namespace gpulet::tools
