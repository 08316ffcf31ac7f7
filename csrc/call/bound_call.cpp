#include "call/bound_call.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "classes/type_table.h"

namespace partax {
namespace {

[[noreturn]] void bad_call(const Parameters& parameters, const std::string& message) {
  raise_error(PyExc_TypeError, (parameters.function + "() " + message).c_str());
}

std::string quoted(PyObject* name) {
  const char* utf8 = PyUnicode_AsUTF8(name);
  if (utf8 == nullptr) throw PythonError{};
  return std::string("'") + utf8 + "'";
}

// Most often it is the very same string.
std::size_t place_among(const std::vector<Ref>& names, PyObject* name, std::size_t first) {
  for (std::size_t i = first; i < names.size(); ++i) {
    if (names[i].get() == name) return i;
  }
  for (std::size_t i = first; i < names.size(); ++i) {
    if (PyUnicode_Compare(names[i].get(), name) == 0) return i;
  }
  return names.size();
}

}  // namespace

bool CallShape::operator==(const CallShape& other) const {
  if (left_out != other.left_out || num_extra != other.num_extra || keywords.size() != other.keywords.size())
    return false;
  for (std::size_t i = 0; i < keywords.size(); ++i) {
    PyObject *a = keywords[i].get(), *b = other.keywords[i].get();
    if (a != b && PyUnicode_Compare(a, b) != 0) return false;
  }
  return true;
}

std::size_t CallShape::hash() const {
  std::size_t seed = num_extra;
  for (const std::uint32_t i : left_out) seed = (seed ^ i) * 0x9E3779B97F4A7C15ull;
  for (const Ref& name : keywords) {
    seed = (seed ^ static_cast<std::size_t>(PyObject_Hash(name.get()))) * 0x9E3779B97F4A7C15ull;
  }
  return seed;
}

std::size_t Parameters::index_of(PyObject* name) const { return place_among(names, name, num_positional_only); }

std::size_t Parameters::shown_index_of(PyObject* name) const { return place_among(shown_named, name, 0); }

BoundCall::BoundCall(const Parameters& parameters, PyObject* first, PyObject* self, PyObject* const* args,
                     std::size_t num_args, PyObject* keyword_names) {
  const std::size_t named = parameters.names.size();
  if (first == nullptr && self == nullptr && keyword_names == nullptr && num_args == named &&
      num_args == parameters.num_positional) {
    // Every parameter by position: the caller's own array will do.
    values_ = args;
    size_ = num_args;
    return;
  }
  bind(parameters, first, self, args, num_args, keyword_names);
}

void BoundCall::bind(const Parameters& parameters, PyObject* first, PyObject* self, PyObject* const* args,
                     std::size_t num_args, PyObject* keyword_names) {
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

  for (std::size_t i = 0; i < named; ++i) {
    if (slots[i] == nullptr && !parameters.optional[i]) {
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
    if (slots[i] != nullptr) {
      out[size_++] = slots[i];
    } else {
      shape_.left_out.push_back(static_cast<std::uint32_t>(i));
    }
  }
  shape_.num_extra = static_cast<std::uint32_t>(extra.size());
  for (PyObject* value : extra) out[size_++] = value;
  for (const Keyword& keyword : keywords) {
    shape_.keywords.push_back(Ref::borrow(keyword.name));
    out[size_++] = keyword.value;
  }
}

void BoundCall::take(const Ref& values) {
  if (!PyTuple_Check(values.get()) || PyTuple_GET_SIZE(values.get()) != static_cast<Py_ssize_t>(size_))
    raise_error(PyExc_RuntimeError, "expected a tuple of as many values as the call has");
  owned_.push_back(values);
  values_ = reinterpret_cast<PyTupleObject*>(values.get())->ob_item;
}

int BoundCall::traverse(visitproc visit, void* arg) const {
  for (const Ref& owned : owned_) Py_VISIT(owned.get());
  return 0;
}

Ref shape_data(const Parameters& parameters, const CallShape& shape, bool has_callable) {
  std::vector<Ref> left_out;
  left_out.reserve(shape.left_out.size());
  for (const std::uint32_t i : shape.left_out) left_out.push_back(Ref::checked(PyLong_FromUnsignedLong(i)));
  return Ref::checked(Py_BuildValue("(OOnOO)", parameters.description.get(), tuple_of(std::move(left_out)).get(),
                                    static_cast<Py_ssize_t>(shape.num_extra), tuple_of(shape.keywords).get(),
                                    has_callable ? Py_True : Py_False));
}

Ref value_names(const Parameters& parameters, const CallShape& shape, bool has_callable) {
  return python::value_names(shape_data(parameters, shape, has_callable));
}

Ref call_with(const Parameters& parameters, const CallShape& shape, PyObject* callable, const std::vector<Ref>& values,
              std::size_t first_value) {
  std::vector<PyObject*> positional, by_keyword;
  std::vector<Ref> names;
  auto left_out = shape.left_out.begin();
  std::size_t at = first_value;
  for (std::size_t i = 0; i < parameters.names.size(); ++i) {
    if (left_out != shape.left_out.end() && *left_out == i) {
      ++left_out;
    } else if (i < parameters.num_positional && left_out == shape.left_out.begin()) {
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
  const Ref keyword_names = names.empty() ? Ref() : tuple_of(std::move(names));
  const std::size_t num_positional = positional.size();
  positional.insert(positional.end(), by_keyword.begin(), by_keyword.end());
  const Away away;
  return Ref::checked(PyObject_Vectorcall(callable, positional.data(), num_positional, keyword_names.get()));
}

}  // namespace partax
