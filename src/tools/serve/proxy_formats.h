// Which formats of model files the proxy programs of this machine run, and on which devices, as
// they say themselves (src/proxy/formats.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

struct FormatSupport {
  config::FileFormat format{};
  std::filesystem::path program{};  // that serves it
  Status on_cpu{};                  // why it does not run there
  Status on_gpu{};
};

// "ONNX", "TorchScript", "AOTInductor"
[[nodiscard]] std::string_view name_of(config::FileFormat format);

// One entry for each format. Starts each program once and waits for its answer, for up to 30 s.
// What a program does not say fails with unavailable.
[[nodiscard]] std::vector<FormatSupport> supported_formats(const ProxyPrograms& programs);

// The same from the answers of the two programs; pure.
[[nodiscard]] std::vector<FormatSupport> parse_formats(const ProxyPrograms& programs,
                                                       const Result<std::string>& of_proxy,
                                                       const Result<std::string>& of_onnx);

// Runs a proxy program with one option and returns what it prints. `question` goes to its standard
// input, a socket. Fails with unavailable (it cannot be started, or fails) or timeout; the process
// has ended then.
[[nodiscard]] Result<std::string> ask_proxy(const std::filesystem::path& program,
                                            std::string option, std::string_view question,
                                            Duration within);

}  // namespace gpulet::tools
