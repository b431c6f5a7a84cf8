#include "proxy/formats.h"

#include <algorithm>
#include <iostream>
#include <string>

#include "gpulet/executor/onnx/onnx_executor.h"

namespace gpulet::proxy {
namespace {

std::string answer(const Status& runs) {
  if (runs.ok()) return "yes";
  std::string text = "no: " + runs.message();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

RunnableFormat onnx_format() {
  return {"ONNX", executor::check_onnx_runtime(false), executor::check_onnx_runtime(true)};
}

void print_formats(std::span<const RunnableFormat> formats, std::ostream& out) {
  for (const RunnableFormat& format : formats) {
    out << format.name << " cpu " << answer(format.on_cpu) << '\n';
    out << format.name << " cuda " << answer(format.on_gpu) << '\n';
  }
  out << std::flush;
}

bool print_formats_if_asked(std::span<const char* const> arguments,
                            const std::function<std::vector<RunnableFormat>()>& find_formats) {
  const bool asked = std::any_of(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::string_view(argument) == "--formats";
  });
  if (asked) print_formats(find_formats(), std::cout);
  return asked;
}

}  // namespace gpulet::proxy
