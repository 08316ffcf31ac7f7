#include "static_key/callable_content.h"

#include "base/python_hooks.h"
#include "static_key/static_form.h"

namespace partax {
namespace {

constexpr std::size_t kMaxParts = 128;  // also bounds the recursion into objects that contain themselves

Name function_names[] = {Name("__name__"), Name("__defaults__"), Name("__kwdefaults__"), Name("__dict__")};
Name partial_names[] = {Name("func"), Name("args"), Name("keywords"), Name("__dict__")};
Name wrapper_names[] = {Name("_function"), Name("__self__")};
Name closure_name("__closure__"), globals_name("__globals__"), builtins_name("__builtins__");
Name options_name("_options"), key_name("key");

bool equal_parts(PyObject* part, PyObject* value) {
  if (part == value) return true;
  if (PyWeakref_CheckRef(part)) return value != Py_None && weakly_is(part, value);
  if (Py_TYPE(part) != Py_TYPE(value)) return false;
  if (is_plain(value)) return equal_atoms(part, value, form_of(value), -1);
  return hooks.tree_def.is(Py_TYPE(value)) && are_equal(part, value);
}

// Reads callables in one order: the first time to record the parts, later to compare them.
class Walk {
 public:
  Walk(PyObject* globals, std::vector<Ref>* record, const std::vector<Ref>* recorded)
      : globals_(globals), record_(record), recorded_(recorded) {}

  bool read(PyObject* value) {
    PyTypeObject* const type = Py_TYPE(value);
    if (is_plain(value)) return add(value);
    if (type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type) return add(type) && read_items(value);
    switch (callable_sort(value)) {
      case CallableSort::kFunction: {
        const Ref code = code_of(value);
        PyObject* const names = names_of(code.get());
        return names == nullptr ? add(value) : add(code.get()) && read_function(value, names);
      }
      case CallableSort::kMethod:
        return add(type) && read(PyMethod_GET_FUNCTION(value)) && read(PyMethod_GET_SELF(value));
      case CallableSort::kPartial:
        return add(type) && read_attributes(value, partial_names);
      case CallableSort::kJitted:
        return add(type) && read(python::jit_parts(value).get());
      case CallableSort::kWrapper:
        return add(type) && read_attributes(value, wrapper_names) &&
               read(attribute(attribute(value, options_name).get(), key_name).get());
      default:
        return add(value);
    }
  }

 private:
  bool add(PyTypeObject* type) { return add(reinterpret_cast<PyObject*>(type)); }
  bool add(PyObject* value) {
    if (record_ == nullptr) {
      const std::size_t i = next_++;
      return i < recorded_->size() && equal_parts((*recorded_)[i].get(), value);
    }
    if (record_->size() == kMaxParts) return false;
    record_->push_back(weakly(value, nullptr));
    return true;
  }

  PyObject* names_of(PyObject* code) const {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(globals_); i += 2) {
      if (PyTuple_GET_ITEM(globals_, i) == code) return PyTuple_GET_ITEM(globals_, i + 1);
    }
    return nullptr;
  }

  bool read_function(PyObject* function, PyObject* names) {
    if (!read_attributes(function, function_names)) return false;
    const Ref cells = attribute(function, closure_name);
    for (Py_ssize_t i = 0; cells.get() != Py_None && i < PyTuple_GET_SIZE(cells.get()); ++i) {
      const Ref content = Ref::steal(PyCell_Get(PyTuple_GET_ITEM(cells.get(), i)));
      if (!(content ? read(content.get()) : add(Py_Ellipsis))) return false;
    }
    const Ref scope = attribute(function, globals_name);
    const Ref builtins = attribute(function, builtins_name);
    for (PyObject* chain : Items(names)) {
      PyObject* const name = PyTuple_GET_ITEM(chain, 0);
      Ref value = dict_item(scope.get(), name);
      if (!value) value = dict_item(builtins.get(), name);
      if (!(value ? read(value.get()) : add(Py_Ellipsis))) return false;
    }
    return true;
  }

  template <std::size_t Size>
  bool read_attributes(PyObject* value, Name (&names)[Size]) {
    for (Name& name : names) {
      if (!read(attribute(value, name).get())) return false;
    }
    return true;
  }

  bool read_items(PyObject* container) {
    std::size_t size = 0;
    bool is_equal = true;
    each_item(container, form_of(container), [&](const Ref& item) {
      is_equal = is_equal && read(item.get());
      ++size;
    });
    return is_equal && add(number(size).get());
  }

  PyObject* globals_;
  std::vector<Ref>* record_;
  const std::vector<Ref>* recorded_;
  std::size_t next_ = 0;
};

}  // namespace

CallableContent::CallableContent(PyObject* callable, Ref globals) : globals_(std::move(globals)) {
  const bool is_readable =
      PyTuple_GET_SIZE(globals_.get()) > 0 && Walk(globals_.get(), &parts_, nullptr).read(callable);
  if (!is_readable) parts_.clear();
}

bool CallableContent::matches(PyObject* callable) const {
  return !parts_.empty() && Walk(globals_.get(), nullptr, &parts_).read(callable);
}

}  // namespace partax
