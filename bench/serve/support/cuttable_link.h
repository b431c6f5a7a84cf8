// CuttableLink: a proxying socket between a backend and its frontend, whose wire can be cut.
// Silent: nothing passes and nobody is told, as when a cable is pulled; what was sent waits and
// passes once it is healed. Broken: every connection ends at once. One thread of its own; calls
// from any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace gpulet::bench {

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

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::bench
