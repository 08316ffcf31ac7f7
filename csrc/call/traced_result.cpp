#include "call/traced_result.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

[[noreturn]] void refuse_used_up(const TreeSpec& spec, std::size_t index) {
  const std::string type = type_name(spec.statics[index].identity());
  raise_error(PyExc_TypeError, (static_path(spec, root_of("the result"), index) + ": found a `" + type +
                                "`, which is used up by whoever takes it first, expected arrays or values that each "
                                "call can have anew; return a list or a tuple of what it gives")
                                   .c_str());
}

}  // namespace

void TraceOutput::find_own_statics(const TreeSpec& arguments, const TreeSpec& key) {
  const auto objects = [](const TreeSpec& of) {
    std::vector<Ref> all;
    for (const StaticValue& value : of.statics) {
      PyObject* const object = value.identity();
      all.push_back(Ref::borrow(object == nullptr ? Py_None : object));
    }
    return tuple_of(std::move(all));
  };
  // What the functions of a registered node give for its aux data is not in the result.
  std::vector<Ref> aux_data;
  for (const Node& node : spec.nodes) {
    if (node.kind == Kind::kRegistered) aux_data.push_back(number(node.first_static));
  }
  const Ref told = python::find_own_statics(objects(arguments), objects(spec), tuple_of(std::move(aux_data)));
  PyObject *sources, *holds, *same;
  int of_one_call = 0;
  Py_ssize_t used_up = -1;
  parse_tuple(told.get(), "OOOpn", &sources, &holds, &same, &of_one_call, &used_up);
  if (used_up >= 0) refuse_used_up(spec, static_cast<std::size_t>(used_up));
  is_of_one_call = of_one_call != 0;
  for (PyObject* it : Items(holds)) {
    const std::size_t index = PyLong_AsSize_t(it);
    PyObject* const object = arguments.statics[index].identity();
    const bool weakly = PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) != 0;
    held.push_back({index, weakly ? Ref::checked(PyWeakref_NewRef(object, nullptr)) : Ref::borrow(object)});
  }
  for (PyObject* two : Items(same)) {
    alike.emplace_back(PyLong_AsSize_t(PyTuple_GET_ITEM(two, 0)), PyLong_AsSize_t(PyTuple_GET_ITEM(two, 1)));
  }
  bool any = false;
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    StaticValue& value = spec.statics[i];
    const long source = PyLong_AsLong(PyTuple_GET_ITEM(sources, static_cast<Py_ssize_t>(i)));
    static_source.push_back(static_cast<std::int32_t>(source));
    if (source >= 0) {
      value = key.statics[static_cast<std::size_t>(source)].for_result();
    } else {
      value.own();
    }
    any = any || source != kStored;
  }
  if (!any) static_source.clear();
  for (const StaticValue& value : spec.statics) spec.identity.push_back(value.identity());
  spec.weaken_types(key);
}

std::optional<Places> TraceOutput::objects_apart(const ValueAt& value_at) const {
  for (const HeldObject& it : held) {
    if (!it.is(value_at(it.index).get())) return Places{it.index, it.index};
  }
  for (const Places& two : alike) {
    if (value_at(two.first).get() != value_at(two.second).get()) return two;
  }
  return {};
}

bool TraceOutput::holds_user_objects() const noexcept {
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    const bool is_own = !static_source.empty() && static_source[i] >= 0;
    if (!is_own && spec.statics[i].keeps_alive()) return true;
  }
  return false;
}

}  // namespace partax
