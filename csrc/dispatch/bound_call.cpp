#include "dispatch/bound_call.h"

#include <algorithm>

#include "static_key/static_form.h"

namespace partax {
namespace {

bool is_same_name(PyObject* a, PyObject* b) noexcept { return a == b || PyUnicode_Compare(a, b) == 0; }

// The index of a name from `first` on; the number of names where it is absent.
std::size_t find_name(const std::vector<Ref>& names, PyObject* name, std::size_t first) {
  const auto has_name = [&](const Ref& other) { return is_same_name(other.get(), name); };
  const auto begin = names.begin() + static_cast<std::ptrdiff_t>(first);
  return static_cast<std::size_t>(std::find_if(begin, names.end(), has_name) - names.begin());
}

}  // namespace

bool CallShape::operator==(const CallShape& other) const {
  const auto is_same = [](const Ref& a, const Ref& b) { return is_same_name(a.get(), b.get()); };
  return left_out == other.left_out && num_extra == other.num_extra &&
         std::equal(keywords.begin(), keywords.end(), other.keywords.begin(), other.keywords.end(), is_same);
}

std::size_t CallShape::hash() const {
  std::size_t seed = num_extra;
  for (const std::uint32_t i : left_out) seed = mix(seed, i);
  for (const Ref& name : keywords) seed = mix(seed, static_cast<std::size_t>(PyObject_Hash(name.get())));
  return seed;
}

BoundCall::BoundCall(const Parameters& parameters, PyObject* first, PyObject* self, PyObject* const* args,
                     std::size_t num_args, PyObject* keyword_names)
    : values_(args), size_(num_args), has_callable_(first != nullptr) {
  const bool is_each_by_position = first == nullptr && self == nullptr && keyword_names == nullptr &&
                                   num_args == parameters.names.size() && num_args == parameters.num_positional;
  if (!is_each_by_position) bind(parameters, first, self, args, num_args, keyword_names);
}

void BoundCall::bind(const Parameters& parameters, PyObject* first, PyObject* self, PyObject* const* args,
                     std::size_t num_args, PyObject* keyword_names) {
  const std::size_t named = parameters.names.size(), num_first = first != nullptr ? 1 : 0, num_self = self ? 1 : 0;
  const auto num_keywords = static_cast<std::size_t>(keyword_names == nullptr ? 0 : PyTuple_GET_SIZE(keyword_names));
  const char* const function = parameters.function.c_str();
  struct Keyword {
    std::size_t rank;
    PyObject *name, *value;
  };
  std::vector<Keyword> keywords;
  // One place for each parameter, null where it has no value; then what *args takes.
  bound_.reserve(num_first + named + num_self + num_args + num_keywords);
  bound_.assign(num_first + named, first);
  PyObject** const by_parameter = bound_.data() + num_first;
  std::fill_n(by_parameter, named, nullptr);
  for (std::size_t i = 0; i < num_args + num_self; ++i) {
    PyObject* value = i < num_self ? self : args[i - num_self];
    if (i < parameters.num_positional) {
      by_parameter[i] = value;
    } else if (parameters.var_positional) {
      bound_.push_back(value);
      ++shape_.num_extra;
    } else {
      raise_error(PyExc_TypeError, "%s() takes %zu positional arguments but %zu were given", function,
                  parameters.num_positional, num_args + num_self);
    }
  }
  for (std::size_t i = 0; i < num_keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names, static_cast<Py_ssize_t>(i));
    PyObject* value = args[num_args + i];
    const std::size_t index = find_name(parameters.names, name, parameters.num_positional_only);
    if (index < named) {
      if (by_parameter[index] != nullptr) {
        raise_error(PyExc_TypeError, "%s() got multiple values for argument '%U'", function, name);
      }
      by_parameter[index] = value;
    } else if (parameters.var_keyword) {
      keywords.push_back({find_name(parameters.shown_named, name, 0), name, value});
    } else {
      raise_error(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function, name);
    }
  }
  for (std::size_t i = 0; i < named; ++i) {
    if (by_parameter[i] != nullptr) continue;
    if (!parameters.optional[i]) {
      raise_error(PyExc_TypeError, "%s() missing a required argument: '%U'", function, parameters.names[i].get());
    }
    shape_.left_out.push_back(static_cast<std::uint32_t>(i));
  }
  bound_.erase(std::remove(bound_.begin(), bound_.end(), nullptr), bound_.end());
  std::sort(keywords.begin(), keywords.end(), [](const Keyword& a, const Keyword& b) {
    return a.rank != b.rank ? a.rank < b.rank : PyUnicode_Compare(a.name, b.name) < 0;
  });
  for (const Keyword& keyword : keywords) {
    shape_.keywords.push_back(Ref::borrow(keyword.name));
    bound_.push_back(keyword.value);
  }
  values_ = bound_.data();
  size_ = bound_.size();
}

void BoundCall::replace_values(const Ref& values) {
  if (!PyTuple_Check(values.get()) || PyTuple_GET_SIZE(values.get()) != static_cast<Py_ssize_t>(size_))
    raise_error(PyExc_RuntimeError, "expected a tuple of as many values as the call has");
  owned_ = values;
  values_ = reinterpret_cast<PyTupleObject*>(values.get())->ob_item;
}

Ref call_shape(const Parameters& parameters, const BoundCall& call) {
  static Name method("shape_of_call");
  const CallShape& shape = call.shape();
  const Ref left_out = tuple_of_numbers(shape.left_out), num_extra = number(shape.num_extra),
            keywords = tuple_of(shape.keywords);
  return Ref::checked(PyObject_CallMethodObjArgs(parameters.description.get(), method.get(), left_out.get(),
                                                 num_extra.get(), keywords.get(), truth(call.has_callable()), nullptr));
}

Ref value_names(const Parameters& parameters, const BoundCall& call) {
  return attribute(call_shape(parameters, call).get(), "value_names");
}

}  // namespace partax
