#include "gpulet/config/workload_config.h"

#include "config/reading.h"

namespace gpulet::config {
namespace {

constexpr std::uint32_t kMostConcurrency = 65536;

WorkloadInput read_input(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"file", "labels"});
  WorkloadInput input;
  input.file = resolve(file, cursor.required("file").text("the path of a file of raw inputs"));
  if (const auto labels = cursor.find("labels")) {
    input.labels = resolve(file, labels->text("the path of a file with one label per line"));
  }
  return input;
}

// Open loops have a rate; the closed loop has a number of requests in flight.
void read_arrivals(const JsonCursor& cursor, WorkloadModel& model) {
  static const std::vector<std::string_view> names = {"poisson", "uniform", "closed"};
  static constexpr Arrivals kArrivals[] = {Arrivals::poisson, Arrivals::uniform, Arrivals::closed};
  if (const auto arrivals = cursor.find("arrivals"))
    model.arrivals = kArrivals[arrivals->choice(names)];
  const auto rate = cursor.find("rate");
  const auto concurrency = cursor.find("concurrency");
  if (model.arrivals != Arrivals::closed) {
    model.rate = cursor.required("rate").number(at_least(0));
    if (concurrency)
      concurrency->fail("only a closed loop has a concurrency",
                        "take it out, or write \"arrivals\":\"closed\"");
    return;
  }
  if (concurrency) model.concurrency = concurrency->count(1, kMostConcurrency);
  if (rate)
    rate->fail("a closed loop has no rate: it sends the next request after each response",
               "take it out, or write \"arrivals\":\"poisson\"");
}

WorkloadModel read_workload_model(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"name", "rate", "slo_ms", "arrivals", "concurrency", "input"});
  WorkloadModel model;
  model.name = cursor.required("name").name();
  read_arrivals(cursor, model);
  model.slo_ms = cursor.required("slo_ms").number(above(0));
  if (const auto input = cursor.find("input")) model.input = read_input(*input, file);
  return model;
}

}  // namespace

Result<std::vector<WorkloadModel>> parse_workload(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors) {
  return parse_document(text, file, errors, [&file](const JsonCursor& root) {
    root.allow_keys({"models"});
    std::vector<WorkloadModel> models;
    UniqueNames names("model");
    for (const JsonCursor& element : root.required("models").elements("a list of models", 1)) {
      models.push_back(read_workload_model(element, file));
      names.add(models.back().name, element.required("name"));
    }
    return models;
  });
}

Result<std::vector<WorkloadModel>> load_workload(const std::filesystem::path& file) {
  return load_file(file, parse_workload);
}

}  // namespace gpulet::config
