#include "shared_page.h"

#include <utility>

namespace gpulet::frontend {

void SharedPage::answer(net::kserve::ProtocolHost& host, std::shared_ptr<const void> list,
                        std::shared_ptr<net::http::Exchange> exchange, Write write) {
  if (page_ != nullptr && page_->list == list) {
    if (page_->whole) return exchange->answer(page_->response);
    page_->waiting.push_back(std::move(exchange));
    return;
  }
  const auto page = std::make_shared<Page>();
  page_ = page;
  page->list = std::move(list);
  page->waiting.push_back(std::move(exchange));
  host.in_background([page, write = std::move(write)] { page->response = write(); },
                     [page] {
                       page->whole = true;
                       for (const auto& waiting : std::exchange(page->waiting, {}))
                         waiting->answer(page->response);
                     });
}

}  // namespace gpulet::frontend
