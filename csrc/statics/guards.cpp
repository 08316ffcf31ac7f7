#include "statics/guards.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/python_hooks.h"
#include "classes/type_lookup.h"
#include "statics/callable_parts.h"
#include "statics/static_value.h"

namespace partax {
namespace {

// What code finds by a global name, followed through modules by the attributes that it reads of it at once.
Ref global(PyObject* globals, PyObject* builtins, PyObject* chain) {
  Ref found = dict_item(globals, PyTuple_GET_ITEM(chain, 0));
  if (!found && PyDict_Check(builtins) != 0) found = dict_item(builtins, PyTuple_GET_ITEM(chain, 0));
  for (Py_ssize_t i = 1; found && PyModule_CheckExact(found.get()) && i < PyTuple_GET_SIZE(chain); ++i) {
    Ref next = dict_item(PyModule_GetDict(found.get()), PyTuple_GET_ITEM(chain, i));
    if (!next) break;  // made by the module when it is asked for, or absent
    found = std::move(next);
  }
  return found;
}

// Appends the parts of a value; fewer where it is of another kind than was asked about.
void open(PyObject* it, Guards::Parts parts, PyObject* argument, std::vector<Ref>& found) {
  const auto add = [&](const Ref& part) { found.push_back(part); };
  if (it == nullptr) return;
  const Ref type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(it)));
  switch (parts) {
    case Guards::kNone:
      return;
    case Guards::kItems:
    case Guards::kState:
      add(type);
      return each_item(it, parts == Guards::kItems ? form_of(it) : Form::kSubclass, add);
    case Guards::kAsked: {  // the argument is (type, function)
      add(type);
      if (type.get() != PyTuple_GetItem(argument, 0)) return;
      const Ref told = Ref::checked(PyObject_CallOneArg(PyTuple_GET_ITEM(argument, 1), it));
      if (!PyTuple_CheckExact(told.get())) return add(told);
      return each_item(told.get(), Form::kTuple, add);
    }
    case Guards::kClass: {
      if (!PyType_Check(it) || PyType_HasFeature(reinterpret_cast<PyTypeObject*>(it), Py_TPFLAGS_HEAPTYPE) == 0) return;
      add(type);
      add(part_at(it, reinterpret_cast<PyHeapTypeObject*>(it)->ht_name));
      add(part_at(it, reinterpret_cast<PyHeapTypeObject*>(it)->ht_qualname));
      const Ref mro = part_at(it, reinterpret_cast<PyTypeObject*>(it)->tp_mro);
      for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(mro.get()); ++i) add(Ref::borrow(PyTuple_GET_ITEM(mro.get(), i)));
      PyObject* const registered = hooks().registered.get();
      add(registered == nullptr ? Ref() : dict_item(registered, it));
      return each_item(reinterpret_cast<PyTypeObject*>(it)->tp_dict, Form::kDict, add);
    }
    case Guards::kVersion: {
      if (!PyType_Check(it)) return;
      const unsigned version = type_version(reinterpret_cast<PyTypeObject*>(it));
      if (argument == Py_None || version != size_of_number(argument)) add(number(version));
      return;
    }
    case Guards::kFunction: {
      if (!PyFunction_Check(it)) return;
      const auto* function = reinterpret_cast<PyFunctionObject*>(it);
      add(code_of(it));
      each_held(it, add);
      add(part_at(it, function->func_name));
      add(part_at(it, function->func_qualname));
      const Ref globals = Ref::borrow(function->func_globals), builtins = Ref::borrow(function->func_builtins);
      if (!PyDict_CheckExact(globals.get()) || !PyDict_CheckExact(builtins.get())) return;  // they may make up values
      if (!PyTuple_Check(argument)) return add(globals);
      for (PyObject* chain : Items(argument)) add(global(globals.get(), builtins.get(), chain));
    }
  }
}

bool is_equal(PyObject* known, PyObject* now, bool loosely) {
  if (known == now) return true;
  if (loosely && PyLong_CheckExact(known) && PyFloat_CheckExact(now)) {
    return !std::signbit(PyFloat_AS_DOUBLE(now)) && are_equal(known, now);
  }
  if (Py_TYPE(known) != Py_TYPE(now) || form_of(now) == Form::kCallable) return false;
  if (PyTuple_CheckExact(known)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(known);
    bool equal = PyTuple_GET_SIZE(now) == size;
    for (Py_ssize_t i = 0; equal && i < size; ++i) {
      equal = is_equal(PyTuple_GET_ITEM(known, i), PyTuple_GET_ITEM(now, i), loosely);
    }
    return equal;
  }
  return StaticValue::loose(Ref::borrow(known)).sealed(nullptr).equals(now);
}

}  // namespace

thread_local MadeAnew* MadeAnew::innermost_ = nullptr;

std::shared_ptr<Guards> Guards::of(const std::vector<Ref>& roots, PyObject* function) {
  auto guards = std::make_shared<Guards>();
  guards->registered_ = Ref::checked(PyObject_CallNoArgs(taken_apart().registrations.get()));
  const Ref told = python::guards_of(tuple_of(std::vector<Ref>(roots)),
                                     function == nullptr ? tuple_of({}) : tuple_of({Ref::borrow(function)}));
  PyObject *checks, *place, *unproven, *of_same_objects;
  int arrays, has_function;
  parse_tuple(told.get(), "OOppUU", &checks, &place, &has_function, &arrays, &unproven, &of_same_objects);
  guards->num_roots_ = roots.size() + (has_function != 0 ? 1 : 0);
  guards->has_function_ = has_function != 0;
  guards->place_ = Ref::borrow(place);
  guards->holds_arrays_ = arrays != 0;
  guards->unproven_ = exact_text(unproven);
  guards->of_same_objects_ = exact_text(of_same_objects);
  each_item(checks, Form::kTuple, [&](const Ref& item) {
    unsigned char expected, parts;
    PyObject *object, *argument;
    Py_ssize_t count;
    parse_tuple(item.get(), "bObOn", &expected, &object, &parts, &argument, &count);
    guards->checks_.push_back(Check{static_cast<Expected>(expected), static_cast<Parts>(parts), Ref::borrow(object),
                                    Ref::borrow(argument), static_cast<std::size_t>(count)});
  });
  return guards;
}

Ref Guards::parts_of(PyObject* value, Parts parts, PyObject* argument, PyObject* absent) {
  std::vector<Ref> found;
  open(value, parts, argument, found);
  for (Ref& part : found) part = part ? part : Ref::borrow(absent);
  return tuple_of(std::move(found));
}

bool Guards::match(const Roots& roots, std::string* difference, bool loosely) const {
  const auto fails = [&](auto&& why) {
    if (difference != nullptr) *difference = why();
    return false;
  };
  if (!proven()) return fails([&] { return unproven_; });
  const Ref registered = Ref::checked(PyObject_CallNoArgs(taken_apart().registrations.get()));
  if (!are_equal(registered_.get(), registered.get())) {
    return fails([] { return "what is registered with abstract classes"; });
  }
  std::size_t at = 0;
  if (attempt([&] { return all(roots, at, loosely); }, [] { return false; })) return true;
  const auto number = static_cast<Py_ssize_t>(at);
  return fails([&] { return exact_text(Ref::checked(PyObject_CallFunction(place_.get(), "n", number)).get()); });
}

bool Guards::all(const Roots& roots, std::size_t& at, bool loosely) const {
  std::vector<Ref> next, seen;  // `seen` also keeps the addresses in `met` from other objects
  next.push_back(Ref::borrow(taken_apart().settings.get()));
  for (std::size_t i = num_roots_; i-- > 0;) next.push_back(roots(i));
  std::unordered_set<PyObject*> met;
  seen.reserve(checks_.size());
  const auto holds = [&](const Check& check, PyObject* it) {
    if (check.expected == kAnything) return true;
    if (it == nullptr || check.expected == kAbsent) return it == nullptr && check.expected == kAbsent;
    if (check.expected == kNew) return met.insert(it).second;
    if (check.expected == kMet) return seen[PyLong_AsSize_t(check.object.get())].get() == it;
    if (check.expected == kEqual) return is_equal(check.object.get(), it, loosely);
    if (check.expected == kObject) return weakly_is(check.object.get(), it);
    if (check.expected == kCode) return is_same_code(check.object.get(), it);
    return PyLong_AsVoidPtr(check.object.get()) == it;
  };
  for (; at < checks_.size(); ++at) {
    seen.push_back(std::move(next.back()));
    next.pop_back();
    const Check& check = checks_[at];
    const std::size_t before = next.size();
    if (!holds(check, seen.back().get())) return false;
    open(seen.back().get(), check.parts, check.argument.get(), next);
    if (next.size() != before + check.count) return false;
    std::reverse(next.begin() + static_cast<std::ptrdiff_t>(before), next.end());
  }
  return true;
}

}  // namespace partax
