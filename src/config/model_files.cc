#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "config/reading.h"
#include "config/wire_reader.h"
#include "gpulet/archive/zip_directory.h"
#include "gpulet/base/files.h"
#include "gpulet/config/onnx_signature.h"

namespace gpulet::config {
namespace {

Status invalid(const std::filesystem::path& file, const std::string& what, const std::string& fix) {
  return {StatusCode::invalid, fmt::format("{}: {}; {}", file.string(), what, fix)};
}

Status no_archive(const std::string& why) {
  return {StatusCode::invalid,
          fmt::format("it is not a TorchScript archive: {}; save it with torch.jit.save", why)};
}

// Of a package of AOTInductor: what is compiled of its networks.
bool is_compiled(const ZipMember& member) {
  return member.name.find("data/aotinductor/") != std::string::npos;
}

// Archives of other programs. Empty: unknown.
std::string_view other_archive(const std::vector<ZipMember>& members) {
  for (const ZipMember& member : members) {
    const std::string_view name = member.name;
    const std::string_view last = name.substr(name.rfind('/') + 1);
    if (last == "serialized_exported_program.json" || name.ends_with("/models/model.json") ||
        last == "archive_format")
      return "it is a program of torch.export (.pt2) that is not compiled";
    if (last == "model.weights.h5") return "it is a model of Keras (.keras)";
    if (last.ends_with(".npy")) return "it has arrays of NumPy (.npz)";
    if (last.ends_with(".mlmodel")) return "it is a model for Core ML";
    if (last.ends_with(".onnx")) return "it has an ONNX file inside; unpack it, and serve that";
  }
  return {};
}

// All members are in one folder, whose name varies.
Status check_members(const std::vector<ZipMember>& members) {
  if (const auto other = other_archive(members); !other.empty())
    return no_archive(std::string(other));
  bool has_data = false;
  bool has_code = false;
  std::optional<std::string_view> folder;
  for (const ZipMember& one : members) {
    const std::string_view name = one.name;
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
  const auto members = read_zip_directory(descriptor);
  if (!members.ok()) {
    return members.status().code() == StatusCode::invalid ? no_archive(members.status().message())
                                                          : members.status();
  }
  if (std::any_of(members.value().begin(), members.value().end(), is_compiled)) {
    return {StatusCode::invalid,
            "it is an AOTInductor package, which has native code; set \"model_format\": \"native\" "
            "in the frontend's configuration to allow such models"};
  }
  return check_members(members.value());
}

Result<FileFormat> format_of(int descriptor) {
  std::array<unsigned char, sizeof kZipSignature> head{};
  const ssize_t got = read_at(descriptor, std::as_writable_bytes(std::span(head)), 0);
  if (got < 0) return unreadable(std::strerror(errno));
  constexpr std::array<unsigned char, sizeof kZipSignature> kZip{'P', 'K', 3, 4};
  if (static_cast<std::size_t>(got) < head.size() || head != kZip) return FileFormat::onnx;
  const auto members = read_zip_directory(descriptor);
  const bool compiled =
      members.ok() && std::any_of(members.value().begin(), members.value().end(), is_compiled);
  return compiled ? FileFormat::package : FileFormat::torchscript;
}

Result<FileFormat> format_of(const std::filesystem::path& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.valid()) return unreadable(std::strerror(errno));
  return format_of(opened.get());
}

Status check_model_file(int descriptor) {
  GPULET_TRY(const auto format, format_of(descriptor));
  if (format != FileFormat::onnx) return check_torchscript(descriptor);
  const auto signature = read_onnx_signature(descriptor);
  if (signature.ok() || signature.status().code() != StatusCode::invalid) return signature.status();
  return {StatusCode::invalid, "it is no TorchScript archive, and " + signature.status().message()};
}

Status check_file_of(ModelFormat allowed, int descriptor) {
  switch (allowed) {
    case ModelFormat::any:
      return {};
    case ModelFormat::torchscript:
      return check_torchscript(descriptor);
    case ModelFormat::native:
      if (const auto format = format_of(descriptor);
          format.ok() && format.value() == FileFormat::package)
        return {};
      break;
    case ModelFormat::known:
      break;
  }
  return check_model_file(descriptor);
}

}  // namespace gpulet::config
