#include "config/file_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "gpulet/base/text.h"

namespace gpulet::config {
namespace {

using namespace std::string_view_literals;

// Bytes at a place of the file, and what a file with them is.
struct Mark {
  std::size_t at;
  std::string_view bytes;
  std::string_view what;
};

constexpr std::string_view kPicklesWhat =
    "a Python pickle, as joblib or torch.save before PyTorch 1.6 write them; write an ONNX file, "
    "or "
    "save TorchScript with torch.jit.save";
constexpr std::string_view kCompressed = "a compressed file; decompress it";

constexpr std::array kMarks{
    Mark{0, "version https://git-lfs"sv,
         "a pointer of Git LFS in place of the model; get the file itself with git lfs pull"},
    Mark{4, "ORTM"sv,
         "in ONNX Runtime's own format (.ort); serve the .onnx file from which it was made"},
    Mark{4, "TFL3"sv, "a TensorFlow Lite model; convert it to ONNX, for example with tf2onnx"},
    Mark{4, "PTMF"sv,
         "a model for PyTorch Mobile; save the TorchScript module with torch.jit.save"},
    Mark{4, "ET12"sv, "an ExecuTorch program; export the model to ONNX"},
    Mark{0, "\x1f\x8b"sv, kCompressed},
    Mark{0,
         "\xfd"
         "7zXZ\0"sv,
         kCompressed},
    Mark{0, "\x28\xb5\x2f\xfd"sv, kCompressed},
    Mark{0, "\x04\x22\x4d\x18"sv, kCompressed},
    Mark{0, "BZh"sv, kCompressed},
    Mark{0, "7z\xbc\xaf\x27\x1c"sv, kCompressed},
    Mark{0, "Rar!"sv, kCompressed},
    Mark{257, "ustar"sv, "a tar archive; unpack it, and serve the model in it"},
    Mark{0, "\x89HDF\r\n\x1a\n"sv,
         "an HDF5 file, as Keras writes it; convert the model to ONNX, for example with tf2onnx"},
    Mark{0, "\x93NUMPY"sv, "an array of NumPy, not a model; export the model to ONNX"},
    Mark{0, "GGUF"sv, "a model for llama.cpp (GGUF); export the model to ONNX or TorchScript"},
    Mark{0, "ftrt"sv,
         "a plan of TensorRT; serve the ONNX or TorchScript file from which it was made"},
    Mark{0, "ptrt"sv,
         "a plan of TensorRT; serve the ONNX or TorchScript file from which it was made"},
    Mark{0,
         "\x7f"
         "ELF"sv,
         "a program or a library; serve an ONNX or TorchScript file"},
    Mark{0, "%PDF"sv, "a PDF document; serve an ONNX or TorchScript file"},
    Mark{0, "\x89PNG"sv, "an image; serve an ONNX or TorchScript file"},
    Mark{0, "\xff\xd8\xff"sv, "an image; serve an ONNX or TorchScript file"},
};

bool has(std::string_view head, std::size_t at, std::string_view bytes) {
  return head.size() >= at && head.substr(at).starts_with(bytes);
}

// A header of JSON after its length in 64 bits.
bool is_safetensors(std::string_view head) {
  constexpr std::size_t kLength = 8;
  if (head.size() < kLength + 2) return false;
  // A header has fewer than 2^32 bytes.
  if (head.substr(4, 4) != "\0\0\0\0"sv) return false;
  return has(head, kLength, "{\"") || has(head, kLength, "{}");
}

bool is_pickle(std::string_view head) {
  constexpr char kProtocol = '\x80';
  return head.size() >= 3 && head[0] == kProtocol && head[1] >= 2 && head[1] <= 5;
}

// SavedModel of TensorFlow has a version of 1 and then a message, where ONNX has a producer's name.
bool is_saved_model(std::string_view head) {
  if (!head.starts_with("\x08\x01\x12"sv)) return false;
  std::size_t at = 3;
  while (at < head.size() && (static_cast<unsigned char>(head[at]) & 0x80U) != 0) ++at;
  return has(head, at + 1, "\x0a"sv);
}

bool is_text(std::string_view head) {
  return !head.empty() && std::all_of(head.begin(), head.end(), [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte >= 0x20 || letter == '\n' || letter == '\r' || letter == '\t';
  });
}

bool starts_like(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(),
                    [](char wanted, char found) {
                      return wanted == std::tolower(static_cast<unsigned char>(found));
                    });
}

std::string kind_of_text(std::string_view head) {
  constexpr std::size_t kShown = 40;
  constexpr std::string_view kMarkOfUtf8 = "\xef\xbb\xbf";
  if (head.starts_with(kMarkOfUtf8)) head.remove_prefix(kMarkOfUtf8.size());
  const std::string_view text = trimmed(head);
  if (starts_like(text, "<!doctype html") || starts_like(text, "<html")) {
    return "a web page (HTML), such as that of a login or of an error; download the model itself";
  }
  if (starts_like(text, "<?xml")) {
    return "an XML document, such as the error of a store or OpenVINO's .xml; serve the .onnx file";
  }
  return fmt::format("a text that begins with \"{}\"; serve an ONNX or TorchScript file",
                     escaped(text.substr(0, kShown)));
}

}  // namespace

std::optional<std::string> kind_of_other_file(std::string_view head) {
  if (head.empty()) return "empty; copy or export it again";
  for (const Mark& mark : kMarks) {
    if (has(head, mark.at, mark.bytes)) return std::string(mark.what);
  }
  if (is_safetensors(head)) {
    return "a safetensors file: it has weights, but no network; export the model to ONNX or "
           "TorchScript";
  }
  if (is_saved_model(head))
    return "a SavedModel of TensorFlow; convert it to ONNX, for example with tf2onnx";
  if (is_pickle(head)) return std::string(kPicklesWhat);
  if (is_text(head)) return kind_of_text(head);
  return std::nullopt;
}

}  // namespace gpulet::config
