// ModelBoard: what threads other than the engine's know of the served models. The engine's thread
// publishes an immutable list after each change; other threads judge requests by it before these
// get memory. The engine judges each request again, so a list may be slightly old.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::frontend {

// A model, a bucket of one, or an application. Value; any thread.
struct PublishedModel {
  serve::ServedModel model;
  std::uint64_t number = 1;                                 // as in serve::ModelView
  std::shared_ptr<const serve::Application> application{};  // null: it is a model
};
using PublishedModelPointer = std::shared_ptr<const PublishedModel>;

// Immutable; any thread.
class PublishedModels {
 public:
  struct Entry {
    PublishedModelPointer model;  // never null
    Duration device_time{};       // of one request; zero: it is in no plan
  };

  PublishedModels() = default;
  explicit PublishedModels(std::vector<Entry> entries);

  // Null: no such model.
  [[nodiscard]] const Entry* find(std::string_view name) const;
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }  // by name

 private:
  std::vector<Entry> entries_;
};
using PublishedModelsPointer = std::shared_ptr<const PublishedModels>;  // never null

// Any thread.
class ModelBoard {
 public:
  void publish(PublishedModelsPointer models);
  [[nodiscard]] PublishedModelsPointer current() const;
  // Another after each publish().
  [[nodiscard]] std::uint64_t revision() const { return revision_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;  // guards models_
  PublishedModelsPointer models_ = std::make_shared<const PublishedModels>();
  std::atomic<std::uint64_t> revision_ = 0;
};

// The board as one thread reads it: without a lock while nothing new is published. One thread.
class ModelReader {
 public:
  // `board` must outlive it.
  explicit ModelReader(const ModelBoard& board) : board_(board) {}

  // As PublishedModels::find(). Valid until the next call.
  [[nodiscard]] const PublishedModels::Entry* find(std::string_view name) const;

 private:
  const ModelBoard& board_;
  mutable std::uint64_t revision_ = ~std::uint64_t{0};
  mutable PublishedModelsPointer models_;
};

}  // namespace gpulet::frontend
