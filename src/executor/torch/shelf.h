// ModelShelf: what the lanes of one device have in common. A model that one of them holds is not
// loaded again. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "executor/torch/model.h"
#include "gpulet/core/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

class ModelShelf {
 public:
  using Load = std::function<Result<LoadedModel>()>;

  // The model of that file with these tensors and numerics, as long as anybody holds it; loaded by
  // the first that asks, for whom the others wait. A network that changes itself is everybody's
  // own. REQUIRES: a file does not change while it is held; other content is another file.
  [[nodiscard]] Result<std::shared_ptr<const LoadedModel>> take(const ModelToLoad& wanted,
                                                                const Load& load);

 private:
  struct Place {
    std::mutex loading;
    std::weak_ptr<const LoadedModel> model;  // guarded by `loading`
  };
  std::shared_ptr<Place> place_of(const std::string& key);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Place>> places_;
};

}  // namespace gpulet::executor
