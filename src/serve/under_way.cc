#include "gpulet/serve/under_way.h"

#include <string>
#include <utility>

namespace gpulet::serve {

class UnderWay::Entry {
 public:
  Entry(std::shared_ptr<Counted> counted, std::size_t bytes)
      : counted_(std::move(counted)), bytes_(bytes) {
    ++counted_->requests;
    counted_->bytes += bytes_;
  }
  ~Entry() {
    --counted_->requests;
    counted_->bytes -= bytes_;
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  const std::shared_ptr<Counted> counted_;
  const std::size_t bytes_;
};

Result<UnderWay::Place> UnderWay::enter(std::size_t bytes) {
  if (counted_->requests >= limits_.requests) {
    return Status(
        StatusCode::overloaded,
        std::to_string(counted_->requests) +
            " requests are under way here, which is the limit (max_requests); send slower");
  }
  if (bytes > limits_.bytes || counted_->bytes > limits_.bytes - bytes) {
    return Status(StatusCode::overloaded,
                  std::to_string(counted_->bytes) + " bytes of inputs are held here, and " +
                      std::to_string(bytes) + " more would be above the limit of " +
                      std::to_string(limits_.bytes) + " (max_buffered_mb); send slower");
  }
  return Place(std::make_shared<const Entry>(counted_, bytes));
}

}  // namespace gpulet::serve
