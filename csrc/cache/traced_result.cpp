#include "cache/traced_result.h"

namespace partax {

void TraceOutput::find_own_statics(const TreeSpec& arguments, const TreeSpec& key) {
  const auto objects = [](const TreeSpec& of) {
    std::vector<Ref> all;
    for (const StaticValue& value : of.statics) {
      PyObject* const object = value.identity();
      all.push_back(Ref::borrow(object == nullptr ? Py_None : object));
    }
    return tuple_of(std::move(all));
  };
  const Ref told = call_python("partax._jit.own_statics", "find_own_statics", objects(arguments), objects(spec));
  each_item(PyTuple_GET_ITEM(told.get(), 0), Form::kTuple, [&](const Ref& place) {
    const std::size_t index = PyLong_AsSize_t(PyTuple_GET_ITEM(place.get(), 0));
    own.push_back(OwnStatic{index, {}, key.statics[index].for_result()});
    each_item(PyTuple_GET_ITEM(place.get(), 1), Form::kTuple,
              [&](const Ref& item) { own.back().inner.push_back(PyLong_AsSize_t(item.get())); });
  });
  bool any = false;
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    PyObject* source = PyTuple_GET_ITEM(PyTuple_GET_ITEM(told.get(), 1), i);
    StaticValue& value = spec.statics[i];
    static_source.push_back(static_cast<std::int32_t>(PyLong_AsLong(PyTuple_GET_ITEM(source, 0))));
    if (static_source[i] >= 0) {
      value = own[static_cast<std::size_t>(static_source[i])].known;
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
  for (const StaticValue& value : spec.statics) spec.identity.push_back(value.identity());
  spec.weaken_types(key);
}

bool TraceOutput::holds_user_objects() const noexcept {
  for (std::size_t i = 0; i < spec.statics.size(); ++i) {
    const bool is_own = !static_source.empty() && static_source[i] >= 0;
    if (!is_own && spec.statics[i].keeps_alive()) return true;
  }
  return false;
}

}  // namespace partax
