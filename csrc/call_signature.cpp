#include "call_signature.h"

#include <algorithm>

#include "tree_path.h"

namespace partax {
namespace {

[[noreturn]] void bad_call(const Parameters& parameters, const std::string& message) {
  PyErr_SetString(PyExc_TypeError, (parameters.function + "() " + message).c_str());
  throw PythonError{};
}

// The plain function whose `__defaults__` fill the parameters, or empty.
Ref defaults_holder(const Parameters& parameters, PyObject* function) {
  Ref holder;
  if (parameters.defaults == Parameters::Defaults::kOfFunction) {
    holder = Ref::borrow(function);
  } else if (parameters.defaults == Parameters::Defaults::kOfCallMethod) {
    holder = attribute(reinterpret_cast<PyObject*>(Py_TYPE(function)), "__call__");
  }
  return holder && PyFunction_Check(holder.get()) ? holder : Ref();
}

std::string quoted(PyObject* name) {
  const char* utf8 = PyUnicode_AsUTF8(name);
  if (utf8 == nullptr) throw PythonError{};
  return std::string("'") + utf8 + "'";
}

}  // namespace

bool CallShape::operator==(const CallShape& other) const {
  if (!(given == other.given) || num_extra != other.num_extra || keywords.size() != other.keywords.size()) return false;
  for (std::size_t i = 0; i < keywords.size(); ++i) {
    PyObject *a = keywords[i].get(), *b = other.keywords[i].get();
    if (a != b && PyUnicode_Compare(a, b) != 0) return false;
  }
  return true;
}

std::size_t CallShape::hash() const {
  std::size_t seed = given.hash() ^ num_extra;
  for (const Ref& name : keywords) {
    seed = (seed ^ static_cast<std::size_t>(PyObject_Hash(name.get()))) * 0x9E3779B97F4A7C15ull;
  }
  return seed;
}

std::size_t Parameters::index_of(PyObject* name) const {
  for (std::size_t i = num_positional_only; i < names.size(); ++i) {
    if (names[i].get() == name) return i;
  }
  for (std::size_t i = num_positional_only; i < names.size(); ++i) {
    if (PyUnicode_Compare(names[i].get(), name) == 0) return i;
  }
  return names.size();
}

std::size_t Parameters::shown_index_of(PyObject* name) const {
  for (std::size_t i = 0; i < shown_named.size(); ++i) {
    PyObject* shown = shown_named[i].get();
    if (shown == name || PyUnicode_Compare(shown, name) == 0) return i;
  }
  return shown_named.size();
}

BoundCall::BoundCall(const Parameters& parameters, PyObject* function, PyObject* first, PyObject* self,
                     PyObject* const* args, std::size_t num_args, PyObject* keyword_names) {
  const std::size_t named = parameters.names.size();
  if (first == nullptr && self == nullptr && keyword_names == nullptr && num_args == named &&
      num_args == parameters.num_positional) {
    // Every parameter by position: the caller's own array will do.
    values_ = args;
    size_ = num_args;
    shape_.given.add_first(named);
    return;
  }
  bind(parameters, function, first, self, args, num_args, keyword_names);
}

void BoundCall::bind(const Parameters& parameters, PyObject* function, PyObject* first, PyObject* self,
                     PyObject* const* args, std::size_t num_args, PyObject* keyword_names) {
  const std::size_t named = parameters.names.size();
  const std::size_t num_keywords =
      keyword_names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(keyword_names));
  PyObject* few_slots[kInline];
  std::vector<PyObject*> many_slots;
  PyObject** slots = few_slots;
  if (named > kInline) {
    many_slots.resize(named);
    slots = many_slots.data();
  } else {
    std::fill_n(slots, named, nullptr);
  }
  struct Keyword {
    std::size_t rank;
    PyObject *name, *value;
  };
  std::vector<PyObject*> extra;
  std::vector<Keyword> keywords;

  const std::size_t num_self = self != nullptr ? 1 : 0;
  for (std::size_t i = 0; i < num_args + num_self; ++i) {
    PyObject* value = i < num_self ? self : args[i - num_self];
    if (i < parameters.num_positional) {
      slots[i] = value;
    } else if (parameters.var_positional) {
      extra.push_back(value);
    } else {
      bad_call(parameters, "takes " + std::to_string(parameters.num_positional) + " positional arguments but " +
                               std::to_string(num_args + num_self) + " were given");
    }
  }
  for (std::size_t i = 0; i < num_keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names, static_cast<Py_ssize_t>(i));
    PyObject* value = args[num_args + i];
    const std::size_t index = parameters.index_of(name);
    if (index < named) {
      if (slots[index] != nullptr) bad_call(parameters, "got multiple values for argument " + quoted(name));
      slots[index] = value;
    } else if (parameters.var_keyword) {
      keywords.push_back({parameters.shown_index_of(name), name, value});
    } else {
      bad_call(parameters, "got an unexpected keyword argument " + quoted(name));
    }
  }

  const Ref holder = defaults_holder(parameters, function);
  PyObject* defaults = holder ? PyFunction_GetDefaults(holder.get()) : nullptr;
  PyObject* keyword_defaults = holder ? PyFunction_GetKwDefaults(holder.get()) : nullptr;
  const std::size_t num_defaults = defaults == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(defaults));
  for (std::size_t i = 0; i < named; ++i) {
    if (slots[i] != nullptr) continue;
    PyObject* value = nullptr;
    if (i < parameters.num_positional) {
      if (i + num_defaults >= parameters.num_positional) {
        value = PyTuple_GET_ITEM(defaults, static_cast<Py_ssize_t>(i + num_defaults - parameters.num_positional));
      }
    } else if (keyword_defaults != nullptr) {
      value = PyDict_GetItemWithError(keyword_defaults, parameters.names[i].get());
      if (value == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
    }
    if (value != nullptr) {
      owned_.push_back(Ref::borrow(value));
      slots[i] = value;
    } else if (holder || !parameters.optional[i]) {
      bad_call(parameters, "missing a required argument: " + quoted(parameters.names[i].get()));
    }
  }

  std::sort(keywords.begin(), keywords.end(), [](const Keyword& a, const Keyword& b) {
    return a.rank != b.rank ? a.rank < b.rank : PyUnicode_Compare(a.name, b.name) < 0;
  });
  PyObject** out = inline_;
  if (named + extra.size() + keywords.size() + 1 > kInline) {
    heap_.resize(named + extra.size() + keywords.size() + 1);
    out = heap_.data();
  }
  values_ = out;
  if (first != nullptr) {
    has_callable_ = true;
    out[size_++] = first;
  }
  for (std::size_t i = 0; i < named; ++i) {
    if (slots[i] == nullptr) continue;
    shape_.given.add(i);
    out[size_++] = slots[i];
  }
  shape_.num_extra = static_cast<std::uint32_t>(extra.size());
  for (PyObject* value : extra) out[size_++] = value;
  for (const Keyword& keyword : keywords) {
    shape_.keywords.push_back(Ref::borrow(keyword.name));
    out[size_++] = keyword.value;
  }
}

std::vector<std::string> value_names(const Parameters& parameters, const CallShape& shape, bool has_callable) {
  std::vector<std::string> result;
  if (has_callable) result.push_back(parameters.function);
  for (std::size_t i = 0; i < parameters.names.size(); ++i) {
    if (!shape.given.has(i)) continue;
    const char* utf8 = PyUnicode_AsUTF8(parameters.names[i].get());
    if (utf8 == nullptr) throw PythonError{};
    result.emplace_back(utf8);
  }
  for (std::size_t i = 0; i < shape.num_extra; ++i) {
    const std::size_t shown = parameters.shown_positional.size();
    const auto is_shown = [&](const Ref& keyword) {
      return PyUnicode_CompareWithASCIIString(keyword.get(), parameters.shown_positional[i].c_str()) == 0;
    };
    if (i < shown && !parameters.shown_positional[i].empty() &&
        std::none_of(shape.keywords.begin(), shape.keywords.end(), is_shown)) {
      result.push_back(parameters.shown_positional[i]);
    } else if (i >= shown && !parameters.shown_var_positional.empty()) {
      result.push_back(parameters.shown_var_positional + index_segment(static_cast<Py_ssize_t>(i - shown)));
    } else {
      result.push_back(parameters.var_positional_name + index_segment(static_cast<Py_ssize_t>(i)));
    }
  }
  for (const Ref& name : shape.keywords) {
    const char* utf8 = PyUnicode_AsUTF8(name.get());
    if (utf8 == nullptr) throw PythonError{};
    result.emplace_back(utf8);
  }
  return result;
}

OptionNames option_names(const Parameters& parameters, const CallShape& shape, bool has_callable) {
  OptionNames result;
  if (has_callable) result.emplace_back();
  const std::vector<std::string> names = value_names(parameters, shape, has_callable);
  const std::size_t num_named = names.size() - shape.num_extra - shape.keywords.size();
  const auto add = [&](const std::string& name) {
    if (!name.empty()) result.back().push_back(name);
  };
  for (std::size_t i = result.size(); i < names.size(); ++i) {
    result.emplace_back();
    if (i < num_named) {
      add(names[i]);
    } else if (i < num_named + shape.num_extra) {
      const std::size_t extra = i - num_named, shown = parameters.shown_positional.size();
      if (extra < shown) add(parameters.shown_positional[extra]);
      if (extra >= shown) add(parameters.shown_var_positional);
      add(parameters.all_positional);
    } else {
      PyObject* keyword = shape.keywords[i - num_named - shape.num_extra].get();
      add(names[i]);
      if (parameters.shown_index_of(keyword) == parameters.shown_named.size()) add(parameters.shown_var_keyword);
      add(parameters.all_keyword);
    }
  }
  return result;
}

Ref call_with(const Parameters& parameters, const CallShape& shape, PyObject* callable, const std::vector<Ref>& values,
              std::size_t first_value) {
  std::vector<PyObject*> positional, by_keyword;
  std::vector<Ref> names;
  bool gap = false;
  std::size_t at = first_value;
  for (std::size_t i = 0; i < parameters.names.size(); ++i) {
    if (!shape.given.has(i)) {
      gap = true;
    } else if (i < parameters.num_positional && !gap) {
      positional.push_back(values[at++].get());
    } else {
      names.push_back(parameters.names[i]);
      by_keyword.push_back(values[at++].get());
    }
  }
  for (std::size_t i = 0; i < shape.num_extra; ++i) positional.push_back(values[at++].get());
  for (const Ref& name : shape.keywords) {
    names.push_back(name);
    by_keyword.push_back(values[at++].get());
  }
  Ref keyword_names;
  if (!names.empty()) {
    keyword_names = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
    for (std::size_t i = 0; i < names.size(); ++i) {
      PyTuple_SET_ITEM(keyword_names.get(), static_cast<Py_ssize_t>(i), Py_NewRef(names[i].get()));
    }
  }
  const std::size_t num_positional = positional.size();
  positional.insert(positional.end(), by_keyword.begin(), by_keyword.end());
  return Ref::checked(PyObject_Vectorcall(callable, positional.data(), num_positional, keyword_names.get()));
}

}  // namespace partax
