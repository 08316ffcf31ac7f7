#include "statics/register_statics.h"

#include "base/binding.h"
#include "statics/callable_parts.h"
#include "statics/guards.h"
#include "statics/static_value.h"

namespace py = pybind11;

namespace partax {
namespace {

void configure_statics(const py::object& partial, const py::object& jitted, const py::object& treedef,
                       const py::object& settings, const py::object& registrations) {
  taken_apart().partial.set(partial.ptr());
  taken_apart().jitted.set(jitted.ptr());
  taken_apart().treedef.set(treedef.ptr());
  taken_apart().settings.set(settings.ptr());
  taken_apart().registrations.set(registrations.ptr());
}

StaticValue sealed(const py::object& value) { return StaticValue::loose(Ref::borrow(value.ptr())).sealed(nullptr); }

}  // namespace

void register_statics(py::module_& module) {
  define(module, "configure_statics", &configure_statics, "Sets the types of values that are taken apart.",
         py::kw_only(), py::arg("partial"), py::arg("jitted"), py::arg("treedef"), py::arg("settings"),
         py::arg("registrations"));
  define(
      module, "static_equal",
      [](const py::object& a, const py::object& b) {
        return with_path("value", [&] {
          const MadeAnew made_anew;
          if (!sealed(a).equals(b.ptr())) return false;
          const auto now = [&](std::size_t) { return Ref::borrow(b.ptr()); };
          const std::shared_ptr<Guards> guards = Guards::of({Ref::borrow(a.ptr())});
          return !made_anew.any() || (guards->of_same_objects().empty() && guards->match(now));
        });
      },
      py::arg("a"), py::arg("b"));
  define(
      module, "static_hash",
      [](const py::object& value) {
        return with_path("value", [&] { return number(static_hash(value.ptr(), Unhashable::kRefuse)); });
      },
      py::arg("value"));
  define(
      module, "parts_of",
      [](const py::object& value, int parts, const py::object& argument, const py::object& absent) {
        return give(Guards::parts_of(value.ptr(), static_cast<Guards::Parts>(parts), argument.ptr(), absent.ptr()));
      },
      "What is read next of a value: see guards.h.", py::arg("value"), py::arg("parts"), py::arg("argument"),
      py::arg("absent"));
}

}  // namespace partax
