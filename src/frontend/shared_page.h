// SharedPage: an HTTP answer that is written in the background from a list that many may ask for.
// It is written once for one list; those who ask while it is written wait for it. Single-strand
// type, on the host's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/host.h"

namespace gpulet::frontend {

class SharedPage {
 public:
  using Write = std::function<net::http::HttpResponse()>;

  // Answers with what write() makes of `list`, which it may be called for on another thread.
  void answer(net::kserve::ProtocolHost& host, std::shared_ptr<const void> list,
              std::shared_ptr<net::http::Exchange> exchange, Write write);

 private:
  struct Page {
    std::shared_ptr<const void> list;
    bool whole = false;
    net::http::HttpResponse response;
    std::vector<std::shared_ptr<net::http::Exchange>> waiting;
  };
  std::shared_ptr<Page> page_;
};

}  // namespace gpulet::frontend
