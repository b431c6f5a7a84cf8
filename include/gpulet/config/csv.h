// CsvReader: rows of a CSV file whose first line names its columns.
//
// Fields are separated by commas, may stand in double quotes (a doubled quote inside means one),
// and lose the blanks around them; empty lines are skipped; a byte order mark and carriage returns
// are ignored. Errors are sticky as in json.h: the first one is kept, with file and line ("<file>:
// line 12: <what is wrong>; <the mend>"), and next() answers false from then on. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/config/number_range.h"
#include "gpulet/core/status.h"

namespace gpulet::config {

class CsvReader {
 public:
  // Fails with not_found (the file cannot be read) or invalid (no header line, a column named
  // twice).
  [[nodiscard]] static Result<CsvReader> read_file(const std::filesystem::path& file);
  [[nodiscard]] static Result<CsvReader> parse(std::string text, std::string file_name);

  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  // Their positions, in the order asked. A missing one is an error that names the columns there
  // are.
  [[nodiscard]] std::vector<std::size_t> require_columns(
      std::initializer_list<std::string_view> names);
  [[nodiscard]] std::optional<std::size_t> find_column(std::string_view name) const;

  // Moves to the next row; false at the end and after an error.
  [[nodiscard]] bool next();
  // Line of the current row, counted from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

  // Fields of the current row.
  [[nodiscard]] bool empty(std::size_t column) const;
  // As it is written.
  [[nodiscard]] std::string_view text(std::size_t column) const { return fields_[column]; }
  [[nodiscard]] std::string name(std::size_t column);
  [[nodiscard]] double number(std::size_t column, const NumberRange& range);
  [[nodiscard]] std::uint32_t count(std::size_t column, std::uint32_t least, std::uint32_t most);

  [[nodiscard]] Status status() const { return status_; }
  // Records an error at the current row.
  void fail(std::string_view what, std::string_view mend);

 private:
  CsvReader(std::string text, std::string file_name)
      : text_(std::move(text)), file_name_(std::move(file_name)) {}
  // The next line that is not empty, split into fields_; false at the end or after an error.
  [[nodiscard]] bool split_next_line();
  [[nodiscard]] bool split(std::string_view line);
  void fail_field(std::size_t column, std::string_view expected);

  std::string text_;
  std::string file_name_;
  std::size_t position_ = 0;  // in text_, of the next line
  std::size_t line_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
  Status status_;
};

}  // namespace gpulet::config
