#include "cache/traced_result.h"

#include <algorithm>

#include "tree/spec_data.h"

namespace partax {
namespace {

// Of (index, (item, item of that, ...)).
StaticPlace static_place(PyObject* place) {
  StaticPlace made{PyLong_AsSize_t(PyTuple_GET_ITEM(place, 0)), {}};
  each_item(PyTuple_GET_ITEM(place, 1), Form::kTuple,
            [&](const Ref& item) { made.inner.push_back(PyLong_AsSize_t(item.get())); });
  return made;
}

[[noreturn]] void refuse_used_up(const TreeSpec& spec, std::size_t index) {
  const std::string type = type_name(spec.statics[index].identity());
  PyErr_SetString(PyExc_TypeError,
                  (static_path(spec, root_of("the result"), index) + ": found a `" + type +
                   "`, which is used up by whoever takes it first, expected arrays or values that each "
                   "call can have anew; return a list or a tuple of what it gives")
                      .c_str());
  throw PythonError{};
}

}  // namespace

Ref StaticPlace::in(Ref value) const {
  for (const std::size_t item : inner) {
    if (!value) break;
    std::vector<Ref> items;
    each_inner(value.get(), [&](const Ref& inside) { items.push_back(inside); });
    value = item < items.size() ? items[item] : Ref();
  }
  return value;
}

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
    if (node.kind == Kind::kRegistered) aux_data.push_back(Ref::checked(PyLong_FromSize_t(node.first_static)));
  }
  const Ref told = call_python("partax._jit.own_statics", "find_own_statics", objects(arguments), objects(spec),
                               tuple_of(std::move(aux_data)));
  each_item(PyTuple_GET_ITEM(told.get(), 0), Form::kTuple, [&](const Ref& places) {
    std::vector<StaticPlace> all;
    each_item(places.get(), Form::kTuple, [&](const Ref& place) { all.push_back(static_place(place.get())); });
    StaticPlace first = std::move(all.front());
    all.erase(all.begin());
    const auto is_keys = [&](const StaticPlace& place) {
      return key.statics[place.index].is_object(arguments.statics[place.index].identity());
    };
    has_twins = has_twins || !all.empty();
    if (!all.empty()) twins_are_keys = twins_are_keys && is_keys(first) && std::all_of(all.begin(), all.end(), is_keys);
    StaticValue known = key.statics[first.index].for_result();
    own.push_back(OwnStatic{std::move(first), std::move(known), std::move(all)});
  });
  int same = 0, of_one_call = 0;
  Py_ssize_t used_up = -1;
  if (PyArg_ParseTuple(PyTuple_GET_ITEM(told.get(), 2), "ppn", &same, &of_one_call, &used_up) == 0) throw PythonError{};
  if (used_up >= 0) refuse_used_up(spec, static_cast<std::size_t>(used_up));
  needs_same_objects = same != 0;
  is_of_one_call = of_one_call != 0;
  bool any = false;
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    PyObject* source = PyTuple_GET_ITEM(PyTuple_GET_ITEM(told.get(), 1), i);
    StaticValue& value = spec.statics[i];
    static_source.push_back(static_cast<std::int32_t>(PyLong_AsLong(PyTuple_GET_ITEM(source, 0))));
    if (static_source[i] >= 0) {
      const OwnStatic& came_in = own[static_cast<std::size_t>(static_source[i])];
      value = came_in.place.inner.empty() ? came_in.known : StaticValue();
    } else if (static_source[i] == kTemplate) {
      value = StaticValue::loose(Ref::borrow(PyTuple_GET_ITEM(source, 1)));
    } else {
      value = value.handed_out();
    }
    any = any || static_source[i] != kStored;
  }
  if (!any) static_source.clear();
  for (std::size_t i = 0; i < static_source.size(); ++i) {
    const bool is_held = static_source[i] == kStored || (static_source[i] >= 0 && !spec.statics[i].absent());
    keys_hold_all = keys_hold_all && is_held;
  }
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    const bool is_template = !static_source.empty() && static_source[i] == kTemplate;
    spec.identity.push_back(is_template ? nullptr : spec.statics[i].identity());
  }
  spec.note_leaf_nodes();
  spec.make_patterns();
  spec.weaken_types(key);
}

bool TraceOutput::holds_user_objects() const noexcept {
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    const bool is_own = !static_source.empty() && static_source[i] >= 0;
    if (!is_own && spec.statics[i].keeps_alive()) return true;
  }
  return false;
}

int TraceOutput::traverse(visitproc visit, void* arg) const {
  Py_VISIT(shardings.get());
  for (const OwnStatic& came_in : own) {
    if (const int status = came_in.known.traverse(visit, arg)) return status;
  }
  return spec.traverse(visit, arg);
}

}  // namespace partax
