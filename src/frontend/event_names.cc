#include "event_names.h"

#include <variant>

namespace gpulet::frontend {
namespace {

struct Name {
  std::string_view operator()(const serve::ClientSaid&) const { return "a client's request"; }
  std::string_view operator()(const serve::ClientGone&) const { return "a client that left"; }
  std::string_view operator()(const serve::BackendSaid&) const { return "a backend's message"; }
  std::string_view operator()(const serve::BackendGone&) const { return "a backend that left"; }
  std::string_view operator()(const serve::PlanMade&) const { return "a new plan"; }
  std::string_view operator()(const serve::CatalogueChanged&) const {
    return "a changed catalogue";
  }
  std::string_view operator()(const serve::StepDone&) const { return "a step of an application"; }
  std::string_view operator()(const serve::Settle&) const { return "what follows from events"; }
  template <typename Other>
  std::string_view operator()(const Other&) const {
    return "an event";
  }
};

}  // namespace

std::string_view name_of(const serve::FrontendEvent& event) { return std::visit(Name(), event); }

}  // namespace gpulet::frontend
