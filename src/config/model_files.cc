#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "config/reading.h"
#include "gpulet/base/file_descriptor.h"
#include "gpulet/config/onnx_signature.h"

namespace gpulet::config {
namespace {

Status invalid(const std::filesystem::path& file, const std::string& what, const std::string& fix) {
  return {StatusCode::invalid, fmt::format("{}: {}; {}", file.string(), what, fix)};
}

// The format: APPNOTE.TXT of PKWARE, sections 4.3.7 to 4.3.16. Numbers are little-endian.
constexpr std::uint32_t kMember = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kEnd64LocatorBytes = 20;
constexpr std::size_t kDirectoryEntryBytes = 46;
constexpr std::size_t kLongestComment = 0xffff;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in the 64-bit record
// A model of a hundred thousand tensors has a directory of ten megabytes.
constexpr std::uint64_t kLargestDirectory = 64U << 20U;

using Block = std::vector<unsigned char>;

template <typename Number>
Number number_at(const Block& block, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    number |= static_cast<std::uint64_t>(block[at + i]) << (8 * i);
  return static_cast<Number>(number);
}

Status no_archive(const std::string& why) {
  return {StatusCode::invalid,
          fmt::format("it is not a TorchScript archive: {}; save it with torch.jit.save", why)};
}

Status unreadable() {
  return {StatusCode::unavailable, fmt::format("it cannot be read: {}", std::strerror(errno))};
}

Result<Block> read_at(int descriptor, std::uint64_t offset, std::size_t bytes) {
  Block block(bytes);
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t now =
        ::pread(descriptor, block.data() + got, bytes - got, static_cast<off_t>(offset + got));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return unreadable();
    if (now == 0) return no_archive("it shrank while it was read");
    got += static_cast<std::size_t>(now);
  }
  return block;
}

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Reads the 64-bit record, to which the locator right before the end record points.
Result<Directory> find_directory64(int descriptor, std::uint64_t end) {
  if (end < kEnd64LocatorBytes) return no_archive("it has no directory");
  const auto locator = read_at(descriptor, end - kEnd64LocatorBytes, kEnd64LocatorBytes);
  if (!locator.ok()) return locator.status();
  const auto record_at = number_at<std::uint64_t>(locator.value(), 8);
  const bool is_before = end >= kEnd64Bytes && record_at <= end - kEnd64Bytes;
  if (number_at<std::uint32_t>(locator.value(), 0) != kEnd64Locator || !is_before)
    return no_archive("it has no directory");
  const auto record = read_at(descriptor, record_at, kEnd64Bytes);
  if (!record.ok()) return record.status();
  if (number_at<std::uint32_t>(record.value(), 0) != kEnd64)
    return no_archive("it has no directory");
  return Directory{number_at<std::uint64_t>(record.value(), 48),
                   number_at<std::uint64_t>(record.value(), 40)};
}

Result<Directory> find_directory(int descriptor, std::uint64_t file_bytes) {
  const auto tail_bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(file_bytes, kEndBytes + kLongestComment));
  const auto tail = read_at(descriptor, file_bytes - tail_bytes, tail_bytes);
  if (!tail.ok()) return tail.status();
  const Block& block = tail.value();
  for (std::size_t at = tail_bytes - kEndBytes + 1; at-- > 0;) {
    if (number_at<std::uint32_t>(block, at) != kEnd) continue;
    if (at + kEndBytes + number_at<std::uint16_t>(block, at + 20) != tail_bytes) continue;
    const auto bytes = number_at<std::uint32_t>(block, at + 12);
    const auto offset = number_at<std::uint32_t>(block, at + 16);
    if (bytes != kIn64 && offset != kIn64) return Directory{offset, bytes};
    return find_directory64(descriptor, file_bytes - tail_bytes + at);
  }
  return no_archive("it has no directory");
}

// The names of the members, which refer to the directory.
Result<std::vector<std::string_view>> members_in(const Block& directory) {
  std::vector<std::string_view> names;
  std::size_t at = 0;
  while (at + kDirectoryEntryBytes <= directory.size()) {
    if (number_at<std::uint32_t>(directory, at) != kDirectoryEntry)
      return no_archive("its directory is broken");
    const std::size_t name_bytes = number_at<std::uint16_t>(directory, at + 28);
    const std::size_t rest = name_bytes + number_at<std::uint16_t>(directory, at + 30) +
                             number_at<std::uint16_t>(directory, at + 32);
    if (directory.size() - at - kDirectoryEntryBytes < rest)
      return no_archive("its directory is broken");
    names.emplace_back(reinterpret_cast<const char*>(directory.data() + at + kDirectoryEntryBytes),
                       name_bytes);
    at += kDirectoryEntryBytes + rest;
  }
  return names;
}

// Archives of other programs. Empty: unknown.
std::string_view other_archive(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) {
    const std::string_view last = name.substr(name.rfind('/') + 1);
    if (last == "serialized_exported_program.json" || name.ends_with("/models/model.json") ||
        last == "archive_format")
      return "it is a program of torch.export (.pt2)";
    if (last == "model.weights.h5") return "it is a model of Keras (.keras)";
    if (last.ends_with(".npy")) return "it has arrays of NumPy (.npz)";
    if (last.ends_with(".mlmodel")) return "it is a model for Core ML";
    if (last.ends_with(".onnx")) return "it has an ONNX file inside; unpack it, and serve that";
  }
  return {};
}

// All members are in one folder, whose name varies.
Status check_members(const Block& directory) {
  const auto names = members_in(directory);
  if (!names.ok()) return names.status();
  if (const auto other = other_archive(names.value()); !other.empty())
    return no_archive(std::string(other));
  bool has_data = false;
  bool has_code = false;
  std::optional<std::string_view> folder;
  for (const std::string_view name : names.value()) {
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos) return no_archive("a member is in no folder");
    if (!folder) folder = name.substr(0, slash);
    if (*folder != name.substr(0, slash)) return no_archive("its members are in several folders");
    const std::string_view member = name.substr(slash + 1);
    has_data = has_data || member == "data.pkl";
    has_code = has_code || member == "constants.pkl" || member.starts_with("code/");
  }
  if (has_data && !has_code) {
    return no_archive(
        "it has weights or a pickled module of torch.save, and no code; make a module with "
        "torch.jit.trace or torch.jit.script");
  }
  if (!has_data || !has_code) return no_archive("data.pkl or the code is missing");
  return {};
}

}  // namespace

Result<std::vector<std::string>> parse_labels(std::string_view text,
                                              const std::filesystem::path& file,
                                              const TensorSpec& output) {
  if (text.size() > kMostLabelBytes) {
    return invalid(file, fmt::format("it has more than {} bytes", kMostLabelBytes),
                   "write one short label a line");
  }
  std::size_t most = 1;  // byte_size() has checked that the product does not overflow
  for (const std::int64_t size : output.shape) most *= static_cast<std::size_t>(size);
  std::vector<std::string> labels;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t line_number = labels.size() + 1;
    if (labels.size() == most) {
      return invalid(file,
                     fmt::format("line {} exceeds the number of elements of output {} ({})",
                                 line_number, in_quotes(output.name), most),
                     "write one label for each element");
    }
    if (line.size() > kLongestLabel) {
      return invalid(file,
                     fmt::format("line {} has {} bytes; a label may have {}", line_number,
                                 line.size(), kLongestLabel),
                     "shorten it");
    }
    if (std::any_of(line.begin(), line.end(), is_control)) {
      return invalid(file, fmt::format("line {} has a control character", line_number),
                     "write a text file");
    }
    labels.emplace_back(line);
  }
  if (labels.empty()) return invalid(file, "it is empty", "write one label a line");
  return labels;
}

Result<std::vector<std::string>> load_labels(const std::filesystem::path& file,
                                             const TensorSpec& output) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return Status(StatusCode::not_found,
                  file.string() + ": there is no such file; correct the path of the labels");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMostLabelBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || (!stream && !stream.eof()))
    return Status(StatusCode::not_found, file.string() + ": cannot be read; check its rights");
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_labels(text, file, output);
}

const TensorSpec& output_named(const ModelConfig& model, std::string_view name) {
  return *std::find_if(model.outputs.begin(), model.outputs.end(),
                       [name](const TensorSpec& output) { return output.name == name; });
}

Status check_torchscript(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return unreadable();
  const auto bytes = static_cast<std::uint64_t>(facts.st_size);
  if (bytes < kEndBytes) return no_archive("it is too short");
  const auto head = read_at(descriptor, 0, sizeof kMember);
  if (!head.ok()) return head.status();
  if (number_at<std::uint32_t>(head.value(), 0) != kMember)
    return no_archive("the signature is missing");
  const auto directory = find_directory(descriptor, bytes);
  if (!directory.ok()) return directory.status();
  const auto [offset, directory_bytes] = directory.value();
  if (offset > bytes || directory_bytes > bytes - offset || directory_bytes > kLargestDirectory)
    return no_archive("its directory is outside the file");
  const auto entries = read_at(descriptor, offset, static_cast<std::size_t>(directory_bytes));
  return entries.ok() ? check_members(entries.value()) : entries.status();
}

Result<FileFormat> format_of(int descriptor) {
  std::array<unsigned char, sizeof kMember> head{};
  ssize_t got = -1;
  do {
    got = ::pread(descriptor, head.data(), head.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return unreadable();
  const bool zip = static_cast<std::size_t>(got) == head.size() &&
                   number_at<std::uint32_t>({head.begin(), head.end()}, 0) == kMember;
  return zip ? FileFormat::torchscript : FileFormat::onnx;
}

Result<FileFormat> format_of(const std::filesystem::path& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.valid()) return unreadable();
  return format_of(opened.get());
}

Status check_model_file(int descriptor) {
  const auto format = format_of(descriptor);
  if (!format.ok()) return format.status();
  if (format.value() == FileFormat::torchscript) return check_torchscript(descriptor);
  const auto signature = read_onnx_signature(descriptor);
  if (signature.ok() || signature.status().code() != StatusCode::invalid) return signature.status();
  return {StatusCode::invalid, "it is no TorchScript archive, and " + signature.status().message()};
}

}  // namespace gpulet::config
