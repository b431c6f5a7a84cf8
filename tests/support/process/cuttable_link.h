// CuttableLink: a TCP relay on loopback that can be cut. A silent cut passes
// nothing on and reports nothing, like a pulled cable; the bytes pass once the link is restored. A
// break ends every connection at once. It has its own thread; calls from any thread. For
// tests and benches only.
#pragma once

#include <cstdint>
#include <memory>

namespace gpulet::testing {

class CuttableLink {
 public:
  // Listens on a free port of 127.0.0.1 and passes everything on to `target_port`.
  explicit CuttableLink(std::uint16_t target_port);
  ~CuttableLink();
  CuttableLink(const CuttableLink&) = delete;
  CuttableLink& operator=(const CuttableLink&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  void silence();
  void heal();
  void break_all();
  // Bytes that it received, in both directions together.
  [[nodiscard]] std::uint64_t received() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::testing
